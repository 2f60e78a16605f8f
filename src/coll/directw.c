// directw.c: "DirectWrite". As Direct, but results are written into the peers' outputs: every byte is read once and
// written once. Broadcast and reduce among two ranks do so where the writer has mapped the output, or the kernel writes
// it and the peer does not want copies; else they hand the same chunk over.
//
// In place is safe: chunk r of what is summed or gathered is read and written by its owner r only, and in one step; a
// broadcast's input is only read.
#include "coll/build.h"
#include "coll/coll_priv.h"

static void directw_allreduce(tt_build *b, const tt_shape *shape)
{
  uint32_t own = (uint32_t)shape->rank;
  tt_build_tell_all(b);
  tt_direct_sum_all(b, shape, 0, own, own);
  tt_direct_to_all(b, shape, own);
  tt_build_tell_all(b);
  tt_build_hear_all(b);
}

// Own input to block `block` of every output.
static void spread(tt_build *b, const tt_shape *shape, uint32_t block)
{
  tt_build_step(b, 0, 0);
  for (int i = 1; i < shape->nranks; i++) {
    tt_build_from(b, tt_ref_token((shape->rank + i) % shape->nranks));
  }
  tt_build_from(b, tt_ref_in(0));
  tt_direct_to_all(b, shape, block);
}

static void directw_allgather(tt_build *b, const tt_shape *shape)
{
  tt_build_tell_all(b);
  spread(b, shape, (uint32_t)shape->rank);
  tt_build_tell_all(b);
  tt_build_hear_all(b);
}

static void directw_signal_one(tt_build *b, int peer)
{
  tt_build_step(b, 0, 0);
  tt_build_to(b, tt_ref_token(peer));
}

// The root's share of the copying: one chunk of n, into every output. The rest is fetched, so that no rank waits idly
// while others copy.
static void broadcast_root(tt_build *b, const tt_shape *shape, uint32_t own)
{
  tt_build_tell_all(b);
  for (int i = 1; i < shape->nranks; i++) {
    int q = (shape->rank + i) % shape->nranks;
    tt_build_step(b, 0, own);
    tt_build_from(b, tt_ref_token(q));
    tt_build_from(b, tt_ref_in(own));
    tt_build_to(b, tt_ref_peer_out(q, own));
  }
  for (uint32_t k = 0; k < (uint32_t)shape->nranks; k++) {
    tt_build_copy(b, k, tt_ref_in(k), tt_ref_out(k));
  }
  tt_build_tell_all(b);
  tt_build_hear_all(b);
}

// Chunk 1 is fetched; chunk 0 the root writes at the same time, if it can. Until then the root waits for nobody, so it
// may run ahead.
static void pair_broadcast(tt_build *b, const tt_shape *shape)
{
  int peer = 1 - shape->rank;
  if (shape->rank == shape->root) {
    tt_build_step(b, 0, 1);
    tt_build_to(b, tt_ref_offer_in(peer, 1));
    for (uint32_t k = 0; k < 2; k++) {
      tt_build_copy(b, k, tt_ref_in(k), tt_ref_out(k));
    }
    tt_build_step(b, TT_STEP_PUT | TT_STEP_PUT_FAR, 0);
    tt_build_from(b, tt_ref_token(peer));
    tt_build_from(b, tt_ref_in(0));
    tt_build_to(b, tt_ref_peer_out(peer, 0));
    tt_build_step(b, 0, 0);
    tt_build_to(b, tt_ref_offer_in(peer, 0));
    tt_build_step(b, 0, 0);
    tt_build_from(b, tt_ref_drain(peer));
    return;
  }
  directw_signal_one(b, peer);
  for (uint32_t k = 2; k-- > 0;) {
    tt_build_step(b, k == 0 ? TT_STEP_UNLESS_PUT : 0, k);
    tt_build_from(b, tt_ref_token(peer));
    tt_build_from(b, tt_ref_peer_in(peer, k));
    tt_build_to(b, tt_ref_out(k));
  }
}

static void directw_broadcast(tt_build *b, const tt_shape *shape)
{
  if (shape->nranks == 2) {
    pair_broadcast(b, shape);
    return;
  }
  uint32_t own = (uint32_t)shape->root;
  if (shape->rank == shape->root) {
    broadcast_root(b, shape, own);
    return;
  }
  directw_signal_one(b, shape->root);
  for (int i = 1, n = 0; i <= shape->nranks; i++) {
    uint32_t k = (uint32_t)((shape->rank + i) % shape->nranks);
    if (k == own) {
      continue;
    }
    tt_build_step(b, 0, k);
    if (n++ == 0) {
      tt_build_from(b, tt_ref_token(shape->root));
    }
    tt_build_from(b, tt_ref_peer_in(shape->root, k));
    tt_build_to(b, tt_ref_out(k));
  }
  directw_signal_one(b, shape->root);
  tt_build_step(b, 0, 0);
  tt_build_from(b, tt_ref_token(shape->root));
}

// Sum of chunk k of both inputs, in the order of the ranks.
static void pair_sum(tt_build *b, const tt_shape *shape, unsigned flags, uint32_t k)
{
  int peer = 1 - shape->rank;
  tt_build_step(b, TT_STEP_REDUCE | TT_STEP_FINAL | flags, k);
  tt_build_from(b, tt_ref_token(peer));
  for (int q = 0; q < 2; q++) {
    tt_build_from(b, q == shape->rank ? tt_ref_in(k) : tt_ref_peer_in(q, k));
  }
}

// The root sums chunks 0 and 2, the other rank chunk 1, into the root's output if it can, else the root that, too.
static void pair_reduce(tt_build *b, const tt_shape *shape)
{
  static const uint32_t order[] = {0, 2, 1};
  int peer = 1 - shape->rank;
  if (shape->rank == shape->root) {
    directw_signal_one(b, peer);
    for (int i = 0; i < 3; i++) {
      pair_sum(b, shape, i == 2 ? TT_STEP_UNLESS_PUT : 0, order[i]);
      tt_build_to(b, tt_ref_out(order[i]));
    }
    return;
  }
  for (int i = 0; i < 3; i++) {
    if (i == 2) {
      pair_sum(b, shape, TT_STEP_PUT | TT_STEP_PUT_FAR, order[i]);
      tt_build_to(b, tt_ref_peer_out(peer, order[i]));
    }
    tt_build_step(b, 0, order[i]);
    tt_build_to(b, tt_ref_offer_in(peer, order[i]));
  }
  tt_build_step(b, 0, 0);
  tt_build_from(b, tt_ref_drain(peer));
}

// Chunks per pass of a reduce. With two ranks the root sums two of three, because the other must also bring its sums
// back: two crossings instead of one.
static int reduce_chunks(const tt_shape *shape)
{
  return shape->nranks == 2 ? 3 : shape->nranks;
}

// Every chunk is summed by one rank, into the root's output: all ranks share the work. In place at the root, a chunk of
// its input is read by that rank alone, in the step that overwrites it.
static void directw_reduce(tt_build *b, const tt_shape *shape)
{
  if (shape->nranks == 2) {
    pair_reduce(b, shape);
    return;
  }
  uint32_t own = (uint32_t)shape->rank;
  bool root = shape->rank == shape->root;
  tt_build_tell_all(b);
  tt_direct_sum_all(b, shape, 0, own, own);
  tt_build_to(b, root ? tt_ref_out(own) : tt_ref_peer_out(shape->root, own));
  tt_build_tell_all(b);
  tt_build_hear_all(b);
}

ncclResult_t tt_directw_write(const tt_shape *shape, tt_schedule **out)
{
  if (shape->func == TT_FUNC_REDUCESCATTER) {
    return tt_direct_write(shape, out); // nothing is written to others: the same as reading
  }
  bool split = shape->func != TT_FUNC_ALLGATHER;
  tt_build b;
  tt_build_begin(&b, shape, shape->func == TT_FUNC_REDUCE ? reduce_chunks(shape) : split ? shape->nranks : 1);
  tt_build_strand(&b);
  switch (shape->func) {
  case TT_FUNC_ALLREDUCE: directw_allreduce(&b, shape); break;
  case TT_FUNC_REDUCE: directw_reduce(&b, shape); break;
  case TT_FUNC_ALLGATHER: directw_allgather(&b, shape); break;
  default: directw_broadcast(&b, shape); break;
  }
  return tt_build_end(&b, out);
}
