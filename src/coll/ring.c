// ring.c: "Ring". Every rank talks to the next and the previous one only; the bandwidth-optimal way for large messages.
//
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
//
// Time is counted in hops: in hop t every rank takes message t-1 from its predecessor and hands message t to its
// successor. If all ranks insisted on taking and giving at once, a ring whose connections have a single slot would be
// full and stuck. So in every hop one rank (the one at place t mod n) first takes, then gives: it holds the message in
// memory meanwhile. Each rank pays for that in one hop of n.
#include "coll/build.h"
#include "coll/coll_priv.h"

#include "base/util.h"

typedef struct ring {
  const tt_shape *shape;
  const int *order; // of the channel; NULL: by nodes
  int n, place, prev, next;
} ring;

// One hop of one rank.
typedef struct hop {
  int t;
  unsigned flags;        // TT_STEP_…; with REDUCE the own input takes part
  uint32_t sub, in, out; // sub-chunk; chunk of the input; chunk of the output
  uint32_t id;           // chunk number the message goes by
  bool take, keep, give; // from the predecessor; into the output; to the successor
} hop;

// Rank at a place of the ring, taken modulo n.
static int rank_at(const ring *r, int place)
{
  return r->order ? r->order[tt_mod(place, r->n)] : tt_shape_rank_at(r->shape, place);
}

static int ring_place_of(const ring *r, int rank)
{
  if (!r->order) {
    return tt_shape_place_of(r->shape, rank);
  }
  int place = 0;
  while (r->order[place] != rank) {
    place++;
  }
  return place;
}

static ring ring_of(const tt_shape *shape)
{
  ring r = {.shape = shape, .order = tt_shape_ring(shape), .n = shape->nranks};
  r.place = ring_place_of(&r, shape->rank);
  r.prev = rank_at(&r, r.place - 1);
  r.next = rank_at(&r, r.place + 1);
  return r;
}

static void write_hop(tt_build *b, const ring *r, const hop *h)
{
  bool hold = h->take && h->give && r->place == h->t % r->n;
  tt_ref kept = h->keep ? tt_ref_out(h->out) : tt_ref_tmp(0);
  tt_build_step(b, h->flags, h->sub);
  if (h->take) {
    tt_build_from(b, tt_ref_fifo(r->prev, h->id));
  }
  if (!h->take || (h->flags & TT_STEP_REDUCE)) {
    tt_build_from(b, tt_ref_in(h->in));
  }
  if (h->keep || hold) {
    tt_build_to(b, kept);
  }
  if (hold) {
    tt_build_copy(b, h->sub, kept, tt_ref_fifo(r->next, h->id));
  } else if (h->give) {
    tt_build_to(b, tt_ref_fifo(r->next, h->id));
  }
}

// Hops 0..n-1 sum chunk p on its way round to place p; hops n..2n-2 carry the sums round once more.
static void ring_allreduce(tt_build *b, const ring *r)
{
  int n = r->n;
  for (int t = 0; t <= 2 * n - 2; t++) {
    uint32_t c = (uint32_t)tt_mod(r->place - 1 - t, n);
    unsigned flags = t < n - 1 ? TT_STEP_REDUCE : t == n - 1 ? TT_STEP_REDUCE | TT_STEP_FINAL : 0;
    hop h = {.t = t,
             .flags = flags,
             .sub = c,
             .in = c,
             .out = c,
             .id = c,
             .take = t > 0,
             .keep = t >= n - 1,
             .give = t < 2 * n - 2};
    write_hop(b, r, &h);
  }
}

// Of two ranks each only sends, then only takes. Over a network these are strands of their own: the next pass is sent
// while this one is still on its way. In memory that would only fill more of the caches.
static void begin_hop(tt_build *b, const ring *r, int t)
{
  bool apart = tt_shape_node_of(r->shape, r->next) != tt_shape_node_of(r->shape, r->shape->rank);
  if (r->n == 2 && apart && t == 1) {
    tt_build_strand(b);
  }
}

static void ring_reducescatter(tt_build *b, const ring *r)
{
  for (int t = 0; t < r->n; t++) {
    begin_hop(b, r, t);
    uint32_t c = (uint32_t)rank_at(r, r->place - 1 - t);
    bool last = t == r->n - 1;
    hop h = {.t = t,
             .flags = TT_STEP_REDUCE | (last ? TT_STEP_FINAL : 0),
             .in = c,
             .id = c,
             .take = t > 0,
             .keep = last,
             .give = !last};
    write_hop(b, r, &h);
  }
}

static void ring_allgather(tt_build *b, const ring *r)
{
  for (int t = 0; t < r->n; t++) {
    begin_hop(b, r, t);
    uint32_t c = (uint32_t)rank_at(r, r->place - t);
    hop h = {.t = t, .out = c, .id = c, .take = t > 0, .keep = true, .give = t < r->n - 1};
    write_hop(b, r, &h);
  }
}

// Rank at a place of the chain of a rooted function: the ring cut open before the root, which comes first, or behind
// it, so that it comes last. The ranks of the root's node change places among themselves for this, lest the chain
// enters that node twice. A ring that was given is cut where it is, since its hops follow wires.
static int chain_rank(const ring *r, int at, bool root_last)
{
  const tt_shape *shape = r->shape;
  if (r->order) {
    return rank_at(r, ring_place_of(r, shape->root) + root_last + at);
  }
  int node = tt_shape_node_of(shape, shape->root), size = tt_shape_node_size(shape, node);
  int begin = root_last ? shape->nranks - size : 0;
  if (at >= begin && at < begin + size) {
    return tt_shape_member(shape, node, tt_mod(tt_shape_index_of(shape, shape->root) + root_last + at - begin, size));
  }
  int behind = tt_shape_place_of(shape, tt_shape_member(shape, node, 0)) + size;
  return tt_shape_rank_at(shape, behind + (root_last ? at : at - size));
}

// The ends of a chain have no neighbour beyond; what is said of it is not used.
static ring chain_of(const tt_shape *shape, bool root_last)
{
  ring r = {.shape = shape, .order = tt_shape_ring(shape), .n = shape->nranks};
  if (r.order) {
    r.place = tt_mod(ring_place_of(&r, shape->rank) - ring_place_of(&r, shape->root) - root_last, r.n);
  }
  while (chain_rank(&r, r.place, root_last) != shape->rank && r.place < r.n - 1) {
    r.place++;
  }
  r.prev = chain_rank(&r, TT_MAX(r.place - 1, 0), root_last);
  r.next = chain_rank(&r, TT_MIN(r.place + 1, r.n - 1), root_last);
  return r;
}

// One hop per rank, nothing waits in a circle. t is chosen so that no rank holds.
static void chain_broadcast(tt_build *b, const tt_shape *shape)
{
  ring r = chain_of(shape, false);
  hop h = {.t = r.place + 1, .take = r.place > 0, .keep = true, .give = r.place < r.n - 1};
  write_hop(b, &r, &h);
}

static void chain_reduce(tt_build *b, const tt_shape *shape)
{
  ring r = chain_of(shape, true);
  bool last = r.place == r.n - 1;
  hop h = {.t = r.place + 1,
           .flags = TT_STEP_REDUCE | (last ? TT_STEP_FINAL : 0),
           .take = r.place > 0,
           .keep = last,
           .give = !last};
  write_hop(b, &r, &h);
}

ncclResult_t tt_ring_write(const tt_shape *shape, tt_schedule **out)
{
  ring r = ring_of(shape);
  tt_build b;
  tt_build_begin(&b, shape, shape->func == TT_FUNC_ALLREDUCE ? shape->nranks : 1);
  tt_build_tmp(&b, shape->func == TT_FUNC_ALLREDUCE || shape->func == TT_FUNC_REDUCESCATTER);
  tt_build_strand(&b);
  switch (shape->func) {
  case TT_FUNC_ALLREDUCE: ring_allreduce(&b, &r); break;
  case TT_FUNC_REDUCESCATTER: ring_reducescatter(&b, &r); break;
  case TT_FUNC_ALLGATHER: ring_allgather(&b, &r); break;
  case TT_FUNC_BROADCAST: chain_broadcast(&b, shape); break;
  default: chain_reduce(&b, shape); break;
  }
  return tt_build_end(&b, out);
}
