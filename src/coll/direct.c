// direct.c: "Direct". The reader takes what it needs from the owner's memory, or gets it along with the owner's token
// (device/host/offer.h).
//
// An owner says "I am here" with a token, which opens its buffers to the reader. A rank that only copies gives the
// token back when it has read, which closes them. An all-reduce is closed by tokens, sent in steps of their own, after
// everything that was to be read: a step that waited for a token and for room for the answer could wait in a circle. In
// place is safe for all-reduce: the owner of chunk r writes only its own chunk r, which it alone reads as input. A rank
// overwrites its input chunk q with q's sum only after q's token has said that the sum is complete.
#include "coll/build.h"
#include "coll/coll_priv.h"

#include "base/util.h"

#define FETCH_STRANDS 15 // of a copying rank: up to 16 ranks each peer has one

// The i-th rank to turn to, starting behind the own one so that not all knock at one door; i = 0 is the rank itself.
static int direct_turn(const tt_shape *shape, int i)
{
  return (shape->rank + i) % shape->nranks;
}

static void tell_readers(tt_build *b, const tt_shape *shape)
{
  uint32_t in, out;
  tt_build_step(b, 0, 0);
  for (int i = 1; i < shape->nranks; i++) {
    if (tt_flow(shape, direct_turn(shape, i), shape->rank, &in, &out)) {
      tt_build_to(b, tt_ref_offer_in(direct_turn(shape, i), in));
    }
  }
}

static void hold_for_readers(tt_build *b, const tt_shape *shape)
{
  uint32_t in, out;
  tt_build_step(b, 0, 0);
  for (int i = 1; i < shape->nranks; i++) {
    if (tt_flow(shape, direct_turn(shape, i), shape->rank, &in, &out)) {
      tt_build_from(b, tt_ref_drain(direct_turn(shape, i)));
    }
  }
}

static void keep_own(tt_build *b, const tt_shape *shape)
{
  uint32_t in, out;
  if (tt_flow(shape, shape->rank, shape->rank, &in, &out)) {
    tt_build_copy(b, 0, tt_ref_in(in), tt_ref_out(out));
  }
}

// Copies what this rank needs of every owner, in several strands: of those that come first in each, the owner that is
// ready first is read first. With that the owner has its token back.
static void fetch_all(tt_build *b, const tt_shape *shape)
{
  int peers = shape->nranks - 1, strands = TT_MIN(peers, FETCH_STRANDS);
  for (int i = 0; i < peers; i++) {
    int q = direct_turn(shape, 1 + i);
    uint32_t in, out;
    if (i == 0 || i * strands / peers > (i - 1) * strands / peers) {
      tt_build_strand(b);
    }
    if (tt_flow(shape, shape->rank, q, &in, &out)) {
      tt_build_step(b, 0, 0);
      tt_build_from(b, tt_ref_token(q));
      tt_build_from(b, tt_ref_peer_in(q, in));
      tt_build_to(b, tt_ref_out(out));
    }
  }
}

void tt_direct_sum_all(tt_build *b, const tt_shape *shape, unsigned flags, uint32_t sub, uint32_t chunk)
{
  tt_build_step(b, TT_STEP_REDUCE | TT_STEP_FINAL | flags, sub);
  for (int i = 1; i < shape->nranks; i++) {
    tt_build_from(b, tt_ref_token(direct_turn(shape, i)));
  }
  for (int q = 0; q < shape->nranks; q++) {
    tt_build_from(b, q == shape->rank ? tt_ref_in(chunk) : tt_ref_peer_in(q, chunk));
  }
}

void tt_direct_to_all(tt_build *b, const tt_shape *shape, uint32_t chunk)
{
  tt_build_to(b, tt_ref_out(chunk));
  for (int i = 1; i < shape->nranks; i++) {
    tt_build_to(b, tt_ref_peer_out(direct_turn(shape, i), chunk));
  }
}

// Two shots: sum the own chunk of all inputs; then fetch the others' sums. Where this rank has mapped an output, it
// writes the sum there at once, and its next token says so: every byte is then read once and written once.
static void direct_allreduce(tt_build *b, const tt_shape *shape)
{
  uint32_t own = (uint32_t)shape->rank;
  for (int i = 1; i < shape->nranks; i++) {
    tt_build_step(b, 0, (uint32_t)direct_turn(shape, i));
    tt_build_to(b, tt_ref_offer_in(direct_turn(shape, i), (uint32_t)direct_turn(shape, i)));
  }
  tt_direct_sum_all(b, shape, TT_STEP_PUT, own, own);
  tt_direct_to_all(b, shape, own);
  tt_build_step(b, 0, own);
  for (int i = 1; i < shape->nranks; i++) {
    tt_build_to(b, tt_ref_offer_out(direct_turn(shape, i), own));
  }
  for (int i = 1; i < shape->nranks; i++) {
    int q = direct_turn(shape, i);
    tt_build_step(b, TT_STEP_UNLESS_PUT, (uint32_t)q);
    tt_build_from(b, tt_ref_token(q));
    tt_build_from(b, tt_ref_peer_out(q, (uint32_t)q));
    tt_build_to(b, tt_ref_out((uint32_t)q));
  }
  tt_build_tell_all(b);
  tt_build_hear_all(b);
}

// What is copied only: open, fetch, wait until all have fetched. Sends and receives, too, of which several may share a
// connection.
static void direct_copies(tt_build *b, const tt_shape *shape)
{
  tell_readers(b, shape);
  keep_own(b, shape);
  hold_for_readers(b, shape);
  fetch_all(b, shape);
}

// Reduce and reduce-scatter: open, sum, wait until all have summed.
static void direct_sums(tt_build *b, const tt_shape *shape)
{
  uint32_t in, out;
  tell_readers(b, shape);
  if (tt_flow(shape, shape->rank, shape->rank, &in, &out)) {
    tt_direct_sum_all(b, shape, 0, 0, in);
    tt_build_to(b, tt_ref_out(out));
  }
  hold_for_readers(b, shape);
}

ncclResult_t tt_direct_write(const tt_shape *shape, tt_schedule **out)
{
  bool p2p = tt_func_is_message(shape->func);
  if (p2p && shape->root == shape->rank) {
    return tt_exchange_write(shape, out); // tokens to oneself would not tell who said them
  }
  bool allreduce = shape->func == TT_FUNC_ALLREDUCE;
  tt_build b;
  tt_build_begin(&b, shape, allreduce ? shape->nranks : 1);
  tt_build_strand(&b);
  if (allreduce) {
    direct_allreduce(&b, shape);
  } else if (tt_func_reduces(shape->func)) {
    direct_sums(&b, shape);
  } else {
    direct_copies(&b, shape);
  }
  return tt_build_end(&b, out);
}
