// exchange.c: "Pairwise" (all-to-all) and "Linear" (gather, scatter, send, recv): every chunk goes straight to the rank
// that needs it, through a FIFO. Sending and receiving are strands of their own, so that two ranks can send to each
// other with a single slot.
#include "coll/build.h"
#include "coll/coll_priv.h"

// A send or a receive speaks to one rank: all others cost it nothing.
static bool is_single(const tt_shape *shape)
{
  return tt_func_is_message(shape->func);
}

static int turns_of(const tt_shape *shape)
{
  return is_single(shape) ? 1 : shape->nranks;
}

// Is the flow from a rank to itself a copy? For send and recv it is a message: the two ends are two calls with two
// buffers.
static bool is_own_copy(const tt_shape *shape, int peer)
{
  return peer == shape->rank && !is_single(shape);
}

// The rank that this one sends to in its i-th turn, or the rank that sends to it in its own: in each turn every rank
// sends one message and receives one. With nodes of equal size the ranks of a node turn to as many different nodes as
// there are, their own among them, so that neither the network nor memory stands idle while the other is crowded.
// Otherwise in distance order.
static int partner(const tt_shape *shape, int i, bool send)
{
  const tt_layout *l = shape->func == TT_FUNC_ALLTOALL ? shape->layout : NULL;
  int sign = send ? 1 : -1;
  if (is_single(shape)) {
    return shape->root;
  }
  if (!l) {
    return tt_mod(shape->rank + sign * i, shape->nranks);
  }
  if (l->smallest < l->largest) {
    return tt_shape_rank_at(shape, tt_shape_place_of(shape, shape->rank) + sign * i);
  }
  int nodes_on = i % l->nnodes, index = l->index_of[shape->rank];
  int other = tt_mod(index + sign * (i / l->nnodes), l->largest), sender = send ? index : other;
  return tt_shape_member(shape, tt_mod(l->node_of[shape->rank] + sign * (nodes_on + sender), l->nnodes), other);
}

static void send_strand(tt_build *b, const tt_shape *shape)
{
  tt_build_strand(b);
  for (int i = 0; i < turns_of(shape); i++) {
    int to = partner(shape, i, true);
    uint32_t in, out;
    if (tt_flow(shape, to, shape->rank, &in, &out)) {
      tt_build_copy(b, 0, tt_ref_in(in), is_own_copy(shape, to) ? tt_ref_out(out) : tt_ref_fifo(to, out));
    }
  }
}

static void recv_strand(tt_build *b, const tt_shape *shape)
{
  tt_build_strand(b);
  for (int i = 0; i < turns_of(shape); i++) {
    int from = partner(shape, i, false);
    uint32_t in, out;
    if (tt_flow(shape, shape->rank, from, &in, &out) && !is_own_copy(shape, from)) {
      tt_build_copy(b, 0, tt_ref_fifo(from, out), tt_ref_out(out));
    }
  }
}

ncclResult_t tt_exchange_write(const tt_shape *shape, tt_schedule **out)
{
  tt_build b;
  tt_build_begin(&b, shape, 1);
  if (shape->func != TT_FUNC_RECV) {
    send_strand(&b, shape);
  }
  if (shape->func != TT_FUNC_SEND) {
    recv_strand(&b, shape);
  }
  return tt_build_end(&b, out);
}
