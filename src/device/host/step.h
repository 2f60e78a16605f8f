// step.h: the data part of one step of a schedule, and the check of fingerprints; for the executor alone.
#pragma once
#include "device/lane.h"

// Elements from the start of a buffer to a chunk, in the pass that begins at `pos` with chunks of `chunk_size`.
static inline size_t tt_lane_element(const tt_lane *l, const tt_step *step, uint32_t chunk, size_t pos,
                                     size_t chunk_size)
{
  uint32_t nsub = (uint32_t)l->sched->nsub;
  size_t block = nsub == 1 ? chunk : chunk < nsub ? 0 : chunk / nsub;
  return block * l->call->count + pos + (size_t)step->sub * chunk_size;
}

// The same in the lane's current pass.
static inline size_t tt_lane_chunk(const tt_lane *l, const tt_step *step, uint32_t chunk)
{
  return tt_lane_element(l, step, chunk, l->pos, l->chunk);
}

// A message or token of `peer` that has arrived must belong to the call that this rank is in: else ncclInvalidUsage.
static inline ncclResult_t tt_call_check(const tt_port *port, const tt_call *c, int peer, const tt_slot *s)
{
  bool same = s->sig == c->sig && tt_sig_count_same(s->count, c->sig_count);
  return TT_LIKELY(same) ? ncclSuccess : tt_call_mismatch(port, c, peer, s->sig, s->count);
}

// Takes the tokens and messages among the step's sources, combines `count` elements and writes them to its
// destinations, tokens included. Everything the step waits for is there. Nothing is published yet. Errors:
// ncclInvalidUsage (the peer is in another call), ncclRemoteError, ncclSystemError; recorded with tt_fail.
ncclResult_t tt_step_run(tt_port *port, tt_lane *l, const tt_step *step, size_t count);
