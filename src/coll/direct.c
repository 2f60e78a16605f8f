// direct.c: "Direct". The reader fetches straight from the owner's memory: no staging, one copy per byte.
//
// An owner says "I am here" with a token, which opens its buffers to the reader; the reader's token back closes them. Tokens are sent in
// steps of their own, after everything that was to be read: a step that waited for a token and for room for the answer could wait in a
// circle.
// In place is safe for all-reduce: the owner of chunk r writes only its own chunk r, which it alone reads as input, and a rank
// overwrites its input chunk q with q's sum only after q's token has said that the sum is complete.
#include "coll/build.h"
#include "coll/coll_priv.h"

#include "base/result.h"

// The i-th rank to turn to, starting behind the own one so that not all knock at one door; i = 0 is the rank itself.
static int turn(const tt_shape *shape, int i)
{
  return (shape->rank + i) % shape->nranks;
}

static void tell_readers(tt_build *b, const tt_shape *shape)
{
  uint32_t in, out;
  tt_build_step(b, 0, 0);
  for (int i = 1; i < shape->nranks; i++) {
    if (tt_flow(shape, turn(shape, i), shape->rank, &in, &out)) {
      tt_build_to(b, tt_ref_token(turn(shape, i)));
    }
  }
}

static void hear_readers(tt_build *b, const tt_shape *shape)
{
  uint32_t in, out;
  tt_build_step(b, 0, 0);
  for (int i = 1; i < shape->nranks; i++) {
    if (tt_flow(shape, turn(shape, i), shape->rank, &in, &out)) {
      tt_build_from(b, tt_ref_token(turn(shape, i)));
    }
  }
}

static void tell_owners(tt_build *b, const tt_shape *shape)
{
  uint32_t in, out;
  tt_build_step(b, 0, 0);
  for (int i = 1; i < shape->nranks; i++) {
    if (tt_flow(shape, shape->rank, turn(shape, i), &in, &out)) {
      tt_build_to(b, tt_ref_token(turn(shape, i)));
    }
  }
}

// Copies what this rank needs of every owner, as each of them shows up.
static void fetch_all(tt_build *b, const tt_shape *shape)
{
  for (int i = 0; i < shape->nranks; i++) {
    int q = turn(shape, i);
    uint32_t in, out;
    if (!tt_flow(shape, shape->rank, q, &in, &out)) {
      continue;
    }
    if (q == shape->rank) {
      tt_build_copy(b, 0, tt_ref_in(in), tt_ref_out(out));
      continue;
    }
    tt_build_step(b, 0, 0);
    tt_build_from(b, tt_ref_token(q));
    tt_build_from(b, tt_ref_peer_in(q, in));
    tt_build_to(b, tt_ref_out(out));
  }
}

void tt_direct_sum_all(tt_build *b, const tt_shape *shape, uint32_t sub, uint32_t chunk)
{
  tt_build_step(b, TT_STEP_REDUCE | TT_STEP_FINAL, sub);
  for (int i = 1; i < shape->nranks; i++) {
    tt_build_from(b, tt_ref_token(turn(shape, i)));
  }
  for (int q = 0; q < shape->nranks; q++) {
    tt_build_from(b, q == shape->rank ? tt_ref_in(chunk) : tt_ref_peer_in(q, chunk));
  }
}

// Two shots: sum the own chunk of all inputs; then fetch the others' sums.
static void direct_allreduce(tt_build *b, const tt_shape *shape)
{
  uint32_t own = (uint32_t)shape->rank;
  tt_build_tell_all(b);
  tt_direct_sum_all(b, shape, own, own);
  tt_build_to(b, tt_ref_out(own));
  tt_build_tell_all(b);
  for (int i = 1; i < shape->nranks; i++) {
    int q = turn(shape, i);
    tt_build_step(b, 0, (uint32_t)q);
    tt_build_from(b, tt_ref_token(q));
    tt_build_from(b, tt_ref_peer_out(q, (uint32_t)q));
    tt_build_to(b, tt_ref_out((uint32_t)q));
  }
  tt_build_tell_all(b);
  tt_build_hear_all(b);
}

// Every other function is one exchange: open, fetch, close.
static void direct_exchange(tt_build *b, const tt_shape *shape)
{
  uint32_t in, out;
  tell_readers(b, shape);
  if (!tt_func_reduces(shape->func)) {
    fetch_all(b, shape);
  } else if (tt_flow(shape, shape->rank, shape->rank, &in, &out)) {
    tt_direct_sum_all(b, shape, 0, in);
    tt_build_to(b, tt_ref_out(out));
  }
  tell_owners(b, shape);
  hear_readers(b, shape);
}

// Send and receive: several of them may share a connection, so the reader answers by giving the token back instead of sending one.
static void direct_message(tt_build *b, const tt_shape *shape)
{
  if (shape->func == TT_FUNC_SEND) {
    tt_build_step(b, 0, 0);
    tt_build_to(b, tt_ref_token(shape->root));
    tt_build_step(b, 0, 0);
    tt_build_from(b, tt_ref_drain(shape->root));
    return;
  }
  fetch_all(b, shape);
}

ncclResult_t tt_direct_write(const tt_shape *shape, tt_schedule **out)
{
  TT_TRY(tt_shape_check(shape, "Direct", (1u << TT_NFUNCS) - 1));
  bool p2p = shape->func == TT_FUNC_SEND || shape->func == TT_FUNC_RECV;
  if (p2p && shape->root == shape->rank) {
    return tt_exchange_write(shape, out); // tokens to oneself would not tell who said them
  }
  if (shape->nranks == 1) {
    return tt_write_alone(shape, out);
  }
  bool allreduce = shape->func == TT_FUNC_ALLREDUCE;
  tt_build b;
  tt_build_begin(&b, shape, allreduce ? shape->nranks : 1);
  tt_build_strand(&b);
  if (p2p) {
    direct_message(&b, shape);
  } else if (allreduce) {
    direct_allreduce(&b, shape);
  } else {
    direct_exchange(&b, shape);
  }
  return tt_build_end(&b, out);
}
