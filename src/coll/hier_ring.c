// hier_ring.c: "HierRing". All-reduce, reduce-scatter and all-gather of large messages on several nodes: rings between
// the nodes, as many as the smallest node has ranks, side by side, each for its share of the message; inside a node
// everybody exchanges with everybody.
//
// So each byte that has to cross between nodes crosses once (all-reduce: twice), the crossings are spread over several
// ranks, and a chunk crosses nodes-1 times in a row instead of passing all ranks. The first ranks of each node,
// `shares` of them, are its carriers: carrier q of a node passes to carrier q of the next. The other ranks of larger
// nodes, the extras, only hand over and receive.
//
// In round t every node works on one piece, which the carriers of the node before had in round t-1. Reducing, a carrier
// adds what the ranks of its node say to what comes along the ring; gathering, it hands to them what comes along. As in
// ring.c one node of a ring takes before it gives in every round (`hold`), the others do both at once, so that one slot
// per connection is enough. Between two ranks of a node at most one message passes in each round, and a rank sends all
// of its own before it waits for those of others; so nobody waits in a circle there either. While a piece is on its way
// to the next node, the ranks of this one prepare the next or hand out the last.
#include "coll/build.h"
#include "coll/coll_priv.h"

typedef struct hier {
  const tt_shape *shape;
  int nodes, node;          // how many; own
  int size, index;          // ranks of the own node; own number among them
  int shares;               // carriers per node
  bool carrier;             // is this rank one?
  int prev_rank, next_rank; // the carriers before and behind it
} hier;

static hier hier_of(const tt_shape *shape)
{
  hier h = {.shape = shape, .nodes = tt_shape_nnodes(shape), .node = tt_shape_node_of(shape, shape->rank)};
  h.size = tt_shape_node_size(shape, h.node);
  h.index = tt_shape_index_of(shape, shape->rank);
  h.shares = shape->layout ? shape->layout->smallest : shape->nranks;
  h.carrier = h.index < h.shares;
  if (h.carrier) {
    h.prev_rank = tt_shape_member(shape, tt_mod(h.node - 1, h.nodes), h.index);
    h.next_rank = tt_shape_member(shape, tt_mod(h.node + 1, h.nodes), h.index);
  }
  return h;
}

static int mate(const hier *h, int index)
{
  return tt_shape_member(h->shape, h->node, index);
}

// Does this node take first and give then in round t of `rounds`?
static bool ring_holds(const hier *h, int t, int rounds)
{
  return t > 0 && t < rounds - 1 && h->node == t % h->nodes;
}

// The i-th carrier of the node to turn to, starting behind the own number so that not all knock at one door; never this
// rank itself. -1: no more.
static int other_carrier(const hier *h, int i)
{
  int q = tt_mod(h->index + 1 + i, h->shares);
  return i < (h->carrier ? h->shares - 1 : h->shares) ? q : -1;
}

// Sources: what every rank of the node has of the chunk, in the order of the ranks.
static void from_all_mates(tt_build *b, const hier *h, uint32_t own, uint32_t id)
{
  for (int i = 0; i < h->size; i++) {
    tt_build_from(b, i == h->index ? tt_ref_in(own) : tt_ref_fifo(mate(h, i), id));
  }
}

// Destinations: every other rank of the node except number `but`.
static void to_all_mates(tt_build *b, const hier *h, uint32_t id, int but)
{
  for (int i = 1; i < h->size; i++) {
    int to = (h->index + i) % h->size;
    if (to != but) {
      tt_build_to(b, tt_ref_fifo(mate(h, to), id));
    }
  }
}

static void give_part(tt_build *b, const hier *h, int carrier, uint32_t sub, uint32_t chunk)
{
  tt_build_step(b, TT_STEP_REDUCE, sub);
  tt_build_from(b, tt_ref_in(chunk));
  tt_build_to(b, tt_ref_fifo(mate(h, carrier), chunk));
}

// ---- all-reduce: share q is carrier q's, cut into as many pieces as there are nodes ----

static uint32_t piece_of(const hier *h, int share, int t)
{
  return (uint32_t)(share * h->nodes + tt_mod(h->node - 1 - t, h->nodes));
}

// Rounds 0 .. nodes-1 sum a piece on its way round to a node; there it is complete, and the later rounds carry it round
// once more.
static void carry_piece(tt_build *b, const hier *h, int t)
{
  int rounds = 2 * h->nodes - 1, turn = h->nodes - 1;
  uint32_t c = piece_of(h, h->index, t);
  bool hold = ring_holds(h, t, rounds), keep = t >= turn;
  tt_ref kept = keep ? tt_ref_out(c) : tt_ref_tmp(0);
  tt_build_step(b, t < turn ? TT_STEP_REDUCE : t == turn ? TT_STEP_REDUCE | TT_STEP_FINAL : 0, c);
  if (t > 0) {
    tt_build_from(b, tt_ref_fifo(h->prev_rank, c));
  }
  if (t <= turn) {
    from_all_mates(b, h, c, c);
  }
  if (keep || hold) {
    tt_build_to(b, kept);
  }
  if (t < rounds - 1 && !hold) {
    tt_build_to(b, tt_ref_fifo(h->next_rank, c));
  } else if (hold) {
    tt_build_copy(b, c, kept, tt_ref_fifo(h->next_rank, c));
  }
  // In a step of its own. At the turn the mates may not have taken this rank's last part before they have got its
  // mates' parts, which this step takes; later, what goes round need not wait for them.
  if (keep && h->size > 1) {
    tt_build_step(b, 0, c);
    tt_build_from(b, tt_ref_out(c));
    to_all_mates(b, h, c, -1);
  }
}

static void hier_allreduce(tt_build *b, const hier *h)
{
  for (int t = 0; t <= 2 * h->nodes - 2; t++) {
    for (int i = 0, q; t < h->nodes && (q = other_carrier(h, i)) >= 0; i++) {
      give_part(b, h, q, piece_of(h, q, t), piece_of(h, q, t));
    }
    if (h->carrier) {
      carry_piece(b, h, t);
    }
    for (int i = 0, q; t >= h->nodes - 1 && (q = other_carrier(h, i)) >= 0; i++) {
      uint32_t c = piece_of(h, q, t);
      tt_build_copy(b, c, tt_ref_fifo(mate(h, q), c), tt_ref_out(c));
    }
  }
}

// ---- reduce-scatter and all-gather: the blocks of a node's ranks in layers of `shares`; share q of layer u is block q
// + u * shares ----

// Block of share `q` of `node` in layer u; false where the node is too small to have one.
static bool block_of(const hier *h, int node, int q, int u, uint32_t *block)
{
  int index = q + u * h->shares;
  if (index >= tt_shape_node_size(h->shape, node)) {
    return false;
  }
  *block = (uint32_t)tt_shape_member(h->shape, node, index);
  return true;
}

static int layers_of(const hier *h)
{
  int largest = h->shape->layout ? h->shape->layout->largest : h->shape->nranks;
  return (largest + h->shares - 1) / h->shares;
}

// A block's sum on its way round to its own node, where it is complete and goes to its rank.
static void carry_sum(tt_build *b, const hier *h, int u, int t, uint32_t block)
{
  bool hold = ring_holds(h, t, h->nodes), last = t == h->nodes - 1;
  tt_build_step(b, TT_STEP_REDUCE | (last ? TT_STEP_FINAL : 0), 0);
  if (t > 0) {
    tt_build_from(b, tt_ref_fifo(h->prev_rank, block));
  }
  from_all_mates(b, h, block, block);
  if (last) {
    tt_build_to(b, u == 0 ? tt_ref_out(0) : tt_ref_fifo((int)block, block));
  } else if (hold) {
    tt_build_to(b, tt_ref_tmp(0));
    tt_build_copy(b, 0, tt_ref_tmp(0), tt_ref_fifo(h->next_rank, block));
  } else {
    tt_build_to(b, tt_ref_fifo(h->next_rank, block));
  }
}

// What happens in round t of layer u: all nodes work on blocks of the same layer, each on those of another node.
static void sum_round(tt_build *b, const hier *h, int u, int t)
{
  int node = tt_mod(h->node - 1 - t, h->nodes);
  uint32_t block;
  for (int i = 0, q; (q = other_carrier(h, i)) >= 0; i++) {
    if (block_of(h, node, q, u, &block)) {
      give_part(b, h, q, 0, block);
    }
  }
  if (h->carrier && block_of(h, node, h->index, u, &block)) {
    carry_sum(b, h, u, t, block);
  }
}

static void hier_reducescatter(tt_build *b, const hier *h)
{
  for (int u = 0; u < layers_of(h); u++) {
    for (int t = 0; t < h->nodes; t++) {
      sum_round(b, h, u, t);
    }
    if (!h->carrier && h->index / h->shares == u) {
      tt_build_copy(b, 0, tt_ref_fifo(mate(h, h->index % h->shares), (uint32_t)h->shape->rank), tt_ref_out(0));
    }
  }
}

// A block on its way round, from its own rank on; every node's ranks get it as it passes.
static void carry_block(tt_build *b, const hier *h, int u, int t, uint32_t block)
{
  bool hold = ring_holds(h, t, h->nodes);
  int owner = h->index + u * h->shares; // in round 0
  tt_build_step(b, 0, 0);
  tt_build_from(b, t > 0    ? tt_ref_fifo(h->prev_rank, block)
                   : u == 0 ? tt_ref_in(0)
                            : tt_ref_fifo(mate(h, owner), block));
  tt_build_to(b, tt_ref_out(block));
  if (t < h->nodes - 1 && !hold) {
    tt_build_to(b, tt_ref_fifo(h->next_rank, block));
  }
  to_all_mates(b, h, block, t == 0 ? owner : -1);
  if (hold) {
    tt_build_copy(b, 0, tt_ref_out(block), tt_ref_fifo(h->next_rank, block));
  }
}

// An extra's own block: kept, and handed to the carrier that takes it round.
static void give_block(tt_build *b, const hier *h)
{
  uint32_t own = (uint32_t)h->shape->rank;
  tt_build_step(b, 0, 0);
  tt_build_from(b, tt_ref_in(0));
  tt_build_to(b, tt_ref_out(own));
  tt_build_to(b, tt_ref_fifo(mate(h, h->index % h->shares), own));
}

static void gather_round(tt_build *b, const hier *h, int u, int t)
{
  int node = tt_mod(h->node - t, h->nodes);
  uint32_t block;
  if (h->carrier && block_of(h, node, h->index, u, &block)) {
    carry_block(b, h, u, t, block);
  } else if (!h->carrier && t == 0 && h->index / h->shares == u) {
    give_block(b, h);
  }
  for (int i = 0, q; (q = other_carrier(h, i)) >= 0; i++) {
    if (block_of(h, node, q, u, &block) && block != (uint32_t)h->shape->rank) {
      tt_build_copy(b, 0, tt_ref_fifo(mate(h, q), block), tt_ref_out(block));
    }
  }
}

static void hier_allgather(tt_build *b, const hier *h)
{
  for (int u = 0; u < layers_of(h); u++) {
    for (int t = 0; t < h->nodes; t++) {
      gather_round(b, h, u, t);
    }
  }
}

ncclResult_t tt_hierring_write(const tt_shape *shape, tt_schedule **out)
{
  hier h = hier_of(shape);
  tt_build b;
  tt_build_begin(&b, shape, shape->func == TT_FUNC_ALLREDUCE ? h.shares * h.nodes : 1);
  tt_build_tmp(&b, h.carrier && h.nodes > 2 && shape->func != TT_FUNC_ALLGATHER);
  tt_build_strand(&b);
  switch (shape->func) {
  case TT_FUNC_ALLREDUCE: hier_allreduce(&b, &h); break;
  case TT_FUNC_REDUCESCATTER: hier_reducescatter(&b, &h); break;
  default: hier_allgather(&b, &h); break;
  }
  return tt_build_end(&b, out);
}
