// build_priv.h: what build.c (the tree of a document) and links.c (links across it) share.
#pragma once
#include <string.h>

#include "base/arena.h"
#include "base/util.h"
#include "topo/draft.h"

enum { TT_BUILD_SEEN = 16 }; // names of unknown elements that are kept, so that each gets one note

typedef struct tt_builder {
  tt_draft d;
  tt_topo_note_fn *note;
  void *arg;
  bool amd; // version 2
  const char *seen[TT_BUILD_SEEN];
  int64_t *gpus; // bus ids of all PCI elements that are GPUs, sorted; NULL until they are needed
  int ngpus;
  int first_rank; // of the host that is being read: it sees the host's cards
  tt_arena arena; // of lists
} tt_builder;

// Makes a note of what is odd at an element.
void tt_build_note(tt_builder *b, const tt_xml_node *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// Says that elements of this name mean nothing here: one line for each name, not for each element.
void tt_build_unknown(tt_builder *b, const tt_xml_node *x);

static inline tt_topo_node *tt_build_node(tt_builder *b, int i)
{
  return &b->d.nodes[i].n;
}

// Bus id of an attribute that must be there.
ncclResult_t tt_build_bus(const tt_xml_node *x, const char *name, int64_t *out);

// Adds a node that element x stands for; n.line is filled in.
ncclResult_t tt_build_add(tt_builder *b, const tt_xml_node *x, tt_topo_node n, int *out);

// The draft's nodes of a kind in the order of `key_of`, each with its number in `place`.
ncclResult_t tt_build_sorted(tt_builder *b, int kind, int64_t (*key_of)(const tt_topo_node *n), tt_order **out,
                             int *count);

// Adds all links that are not PCI's tree: NVLink, xGMI, C2C, between switches, between CPUs; joins the two levels of
// Broadcom's switches.
ncclResult_t tt_build_links(tt_builder *b);
