// name_list.h: values such as NCCL_ALGO's and NCCL_PROTO's: which of some names are allowed, for all functions or for
// one.
//
// Syntax, as NCCL's: entries separated by ';'. An entry is [function:]list, a list [^]name,name,... A list allows what
// it names and nothing else; with ^ it allows everything else. An entry without a function holds for all; only the
// first may lack one. Later entries replace earlier ones. Case does not matter; empty names and entries are skipped.
//   "ring,tree"   "^tree"   "allreduce:tree;broadcast:ring"   "ring;allreduce:tree,collnetdirect"
#pragma once
#include <stdint.h>

#include "nccl.h"

// A name, and the bits that it stands for: in a list of what is allowed, and in a list of what is not.
typedef struct tt_name_bits {
  const char *name;
  uint32_t bits, except;
} tt_name_bits;

typedef struct tt_name_list {
  const char *variable, *value; // as error texts name them; value NULL: empty
  const tt_name_bits *names;
  int nnames;
  uint32_t all;             // every bit: what ^ takes away from
  const char *const *funcs; // names of the functions
  int nfuncs, ncommon;      // an entry without a function holds for the first ncommon
} tt_name_list;

// Sets masks[f] for each function that the value has an entry for; the other masks stay as they are. After an error
// they are undefined. ncclInvalidUsage: a name or function is unknown, or an entry but the first has no function; the
// text names the variable, the value, the part that is wrong and what is allowed. Any thread.
ncclResult_t tt_name_list_parse(const tt_name_list *l, uint32_t *masks);
