// choices.h: the file of choices: lines of comma-separated values, as NCCL's example of a tuner has them.
//
//   collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff]]
//
// -1 in the last five means any, -1 channels the library's number. The first line that fits counts. # begins a comment
// line; empty lines and a line of column names are skipped. Case does not matter. Algorithms: tree, ring,
// collnet_direct, collnet_chain, nvls, nvls_tree, pat; and Tutti's rd, oneshot, direct, direct_write, hier_ring,
// hier_rd, which NCCL passes over.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/trust.h"
#include "nccl/tuner.h"

typedef struct choice {
  ncclFunc_t func;
  size_t min, max; // bytes
  int algo, proto; // NCCL_ALGO_…, NCCL_PROTO_…
  int channels, nodes, ranks, ops, registered;
} choice;

// Called for each line that is wrong.
typedef void choices_complain(void *arg, int line, const char *what);

typedef struct choices {
  choice *list;
  size_t count;
} choices;

// One line without its end. 1: a choice, in *out; 0: nothing to read; -1: wrong, and why[128] says what.
int choice_parse(const char *line, choice *out, char why[128]);

// Reads a file that nobody else may write (base/trust.h, as `named`). False: it cannot be read, or there is no memory:
// `why` says it. Free out->list.
bool choices_read(const char *name, bool named, choices *out, choices_complain *complain, void *arg,
                  char why[TT_TRUST_WHY]);
