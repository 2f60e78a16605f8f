// build.h: the builder that every algorithm file uses to write its schedule.
//
// A builder lives on the stack. Its calls may be made whatever happened before: after the first failure they do
// nothing, and tt_build_end tells it. Within a step all sources are named before the first destination.
//
//   tt_build b;
//   tt_build_begin(&b, shape, 1);
//   tt_build_strand(&b);
//   tt_build_step(&b, TT_STEP_REDUCE | TT_STEP_FINAL, 0);
//   tt_build_from(&b, tt_ref_fifo(prev, 0));
//   tt_build_from(&b, tt_ref_in(0));
//   tt_build_to(&b, tt_ref_out(0));
//   return tt_build_end(&b, out);
#pragma once
#include "coll/coll.h"

typedef struct tt_build {
  tt_schedule *s;
  int strand_room, step_room, ref_room; // elements allocated
  ncclResult_t res;                     // first failure
} tt_build;

// Starts a schedule for the shape with `nsub` chunks per block and pass; blocks of the buffers follow from the
// function.
void tt_build_begin(tt_build *b, const tt_shape *shape, int nsub);

// Asks for `nslots` scratch slots (the largest number asked for counts).
void tt_build_tmp(tt_build *b, int nslots);

// Opens a strand: the steps that follow belong to it. A strand left empty is dropped.
void tt_build_strand(tt_build *b);

// Opens a step of the current strand. flags: TT_STEP_…; sub: the sub-chunk that all references share. A step left
// without references is dropped.
void tt_build_step(tt_build *b, unsigned flags, uint32_t sub);

// Adds a source or a destination to the current step.
void tt_build_from(tt_build *b, tt_ref ref);
void tt_build_to(tt_build *b, tt_ref ref);

// A whole step: copy `from` to `to`.
void tt_build_copy(tt_build *b, uint32_t sub, tt_ref from, tt_ref to);

// A whole step: a token to every other rank, or one from every other rank.
void tt_build_tell_all(tt_build *b);
void tt_build_hear_all(tt_build *b);

// Gives the schedule to *out (the caller frees it) and returns ncclSuccess, or frees it and returns the first failure.
ncclResult_t tt_build_end(tt_build *b, tt_schedule **out);

// References. The builder fills in the own rank where `peer` is -1.
static inline tt_ref tt_ref_in(uint32_t chunk)
{
  return (tt_ref){.kind = TT_IN, .peer = -1, .chunk = chunk};
}

static inline tt_ref tt_ref_out(uint32_t chunk)
{
  return (tt_ref){.kind = TT_OUT, .peer = -1, .chunk = chunk};
}

static inline tt_ref tt_ref_tmp(uint32_t slot)
{
  return (tt_ref){.kind = TT_TMP, .peer = -1, .chunk = slot};
}

static inline tt_ref tt_ref_fifo(int peer, uint32_t chunk)
{
  return (tt_ref){.kind = TT_FIFO, .peer = peer, .chunk = chunk};
}

// A network that reduces, number `net`: a peer behind the ranks.
static inline tt_ref tt_ref_net(const tt_shape *shape, int net, uint32_t chunk)
{
  return (tt_ref){.kind = TT_FIFO, .peer = shape->nranks + net, .chunk = chunk};
}

static inline tt_ref tt_ref_token(int peer)
{
  return (tt_ref){.kind = TT_TOKEN, .peer = peer};
}

// A token that offers a chunk of the input, or of the output, of the step's sub-chunk.
static inline tt_ref tt_ref_offer_in(int peer, uint32_t chunk)
{
  return (tt_ref){.kind = TT_TOKEN, .offer = TT_OFFER_IN, .peer = peer, .chunk = chunk};
}

static inline tt_ref tt_ref_offer_out(int peer, uint32_t chunk)
{
  return (tt_ref){.kind = TT_TOKEN, .offer = TT_OFFER_OUT, .peer = peer, .chunk = chunk};
}

static inline tt_ref tt_ref_drain(int peer)
{
  return (tt_ref){.kind = TT_DRAIN, .peer = peer};
}

static inline tt_ref tt_ref_peer_in(int peer, uint32_t chunk)
{
  return (tt_ref){.kind = TT_PEER_IN, .peer = peer, .chunk = chunk};
}

static inline tt_ref tt_ref_peer_out(int peer, uint32_t chunk)
{
  return (tt_ref){.kind = TT_PEER_OUT, .peer = peer, .chunk = chunk};
}
