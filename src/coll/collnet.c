// collnet.c: "CollNetChain" and "CollNetDirect": all-reduce on several nodes whose network sums by itself (a collective
// network: NCCL's CollNet plugins).
//
// A node's heads give what the node has summed to the network and take back the sum over all nodes, so everything
// crosses once each way, whatever the number of nodes. Network h joins the ranks with number h of all nodes; to a
// schedule it is a peer, number nranks + h (schedule.h).
//
// Chain: one head per node, its first rank. Partial sums go up a chain of the node's ranks to it, the result comes down
// the same way. Direct: several heads, each for its chunk of every pass; the others hand it their chunk and get it back
// summed. On one node there is no network: the head's sum is the result.
#include "coll/build.h"
#include "coll/coll_priv.h"

#include "base/util.h"

// The rank's place on its node.
typedef struct place {
  const tt_shape *shape;
  int me, size, node; // number among the node's ranks; how many these are
  bool alone;         // there is one node
} place;

static place collnet_place_of(const tt_shape *shape)
{
  int node = tt_shape_node_of(shape, shape->rank);
  return (place){.shape = shape,
                 .me = tt_shape_index_of(shape, shape->rank),
                 .size = tt_shape_node_size(shape, node),
                 .node = node,
                 .alone = tt_shape_nnodes(shape) == 1};
}

int tt_collnet_heads(const tt_layout *layout, int nranks)
{
  int most = layout != NULL ? layout->smallest : nranks;
  return TT_MIN(TT_MIN(most, TT_COLLNET_HEADS), layout != NULL && layout->heads > 0 ? layout->heads : TT_COLLNET_HEADS);
}

static tt_ref to_member(const place *p, int member, uint32_t chunk)
{
  return tt_ref_fifo(tt_shape_member(p->shape, p->node, member), chunk);
}

// ---- chain

static void chain_up(tt_build *b, const place *p)
{
  bool over = p->me == 0 && p->alone;
  tt_build_strand(b);
  tt_build_step(b, TT_STEP_REDUCE | (over ? TT_STEP_FINAL : 0), 0);
  if (p->me + 1 < p->size) {
    tt_build_from(b, to_member(p, p->me + 1, 0));
  }
  tt_build_from(b, tt_ref_in(0));
  if (!over) {
    tt_build_to(b, p->me > 0 ? to_member(p, p->me - 1, 0) : tt_ref_net(p->shape, 0, 0));
    return;
  }
  tt_build_to(b, tt_ref_out(0));
  if (p->size > 1) {
    tt_build_to(b, to_member(p, 1, 0));
  }
}

// A strand of its own, so that the next pass goes up while this one is in the network.
static void chain_down(tt_build *b, const place *p)
{
  if (p->me == 0 && p->alone) {
    return;
  }
  tt_build_strand(b);
  tt_build_step(b, p->me == 0 ? TT_STEP_REDUCE | TT_STEP_FINAL : 0, 0);
  tt_build_from(b, p->me > 0 ? to_member(p, p->me - 1, 0) : tt_ref_net(p->shape, 0, 0));
  tt_build_to(b, tt_ref_out(0));
  if (p->me + 1 < p->size) {
    tt_build_to(b, to_member(p, p->me + 1, 0));
  }
}

ncclResult_t tt_collnet_chain_write(const tt_shape *shape, tt_schedule **out)
{
  place p = collnet_place_of(shape);
  tt_build b;
  tt_build_begin(&b, shape, 1);
  chain_up(&b, &p);
  chain_down(&b, &p);
  return tt_build_end(&b, out);
}

// ---- direct

// The head's own chunk: everybody's, summed. A step of its own also on one node: a head takes what others gave it
// before it gives them the sum, or all connections may be full.
static void head_up(tt_build *b, const place *p)
{
  uint32_t h = (uint32_t)p->me;
  tt_build_step(b, TT_STEP_REDUCE | (p->alone ? TT_STEP_FINAL : 0), h);
  tt_build_from(b, tt_ref_in(h));
  for (int i = 1; i < p->size; i++) {
    tt_build_from(b, to_member(p, (p->me + i) % p->size, h));
  }
  tt_build_to(b, p->alone ? tt_ref_out(h) : tt_ref_net(p->shape, p->me, h));
}

static void head_down(tt_build *b, const place *p)
{
  uint32_t h = (uint32_t)p->me;
  if (p->alone && p->size == 1) {
    return;
  }
  tt_build_step(b, p->alone ? 0 : TT_STEP_REDUCE | TT_STEP_FINAL, h);
  tt_build_from(b, p->alone ? tt_ref_out(h) : tt_ref_net(p->shape, p->me, h));
  if (!p->alone) {
    tt_build_to(b, tt_ref_out(h));
  }
  for (int i = 1; i < p->size; i++) {
    tt_build_to(b, to_member(p, (p->me + i) % p->size, h));
  }
}

// With one head the way down is a strand of its own, as in the chain. Where there are several, heads are each other's
// followers, and one connection carries both parts and results: one strand.
ncclResult_t tt_collnet_direct_write(const tt_shape *shape, tt_schedule **out)
{
  place p = collnet_place_of(shape);
  int heads = tt_collnet_heads(shape->layout, shape->nranks);
  tt_build b;
  tt_build_begin(&b, shape, heads);
  tt_build_strand(&b);
  for (int i = 1; i <= heads; i++) { // each begins with another head
    int h = (p.me + i) % heads;
    if (h != p.me) {
      tt_build_step(&b, TT_STEP_REDUCE, (uint32_t)h);
      tt_build_from(&b, tt_ref_in((uint32_t)h));
      tt_build_to(&b, to_member(&p, h, (uint32_t)h));
    }
  }
  if (p.me < heads) {
    head_up(&b, &p);
  }
  if (heads == 1 && !(p.alone && p.me == 0)) {
    tt_build_strand(&b);
  }
  if (p.me < heads) {
    head_down(&b, &p);
  }
  for (int i = 1; i <= heads; i++) {
    int h = (p.me + i) % heads;
    if (h != p.me) {
      tt_build_copy(&b, (uint32_t)h, to_member(&p, h, (uint32_t)h), tt_ref_out((uint32_t)h));
    }
  }
  return tt_build_end(&b, out);
}
