// cost_walk.c: runs schedules on a clock. Steps are taken in the order of the times at which they could start; a step
// that waits for a message or for room is looked at again when that comes. The same happens every time: at equal times
// the rank that left its core first goes first, then the lower strand number.
#include "coll/cost_priv.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/result.h"
#include "base/util.h"

#define MESSAGE_LEAST 1024.0 // what even the shortest message takes of a connection's buffers
#define MOST_HELD 4096.0     // messages that a connection holds

enum { NOBODY = -1 }; // has used a core yet

// A place in the heap.
typedef struct place {
  double turn; // when it is looked at
  double left; // when its rank had a core last
} place;

// One direction of a connection, for messages or for tokens.
typedef struct line {
  uint32_t sent, taken;
  uint32_t seen; // messages that the receiving rank knows of: those of a network it has to fetch first
  uint32_t slots;
  int to;
  bool fetches;       // the receiving rank has to
  double fetch_ready; // when the next one has come; meanwhile the line is in the heap
  place at;           // there
  int writer, reader; // the strand that waits for room, for a message; -1: none
  // By message modulo room, of the last `slots` ones: when it is there; once it has been taken, when the sender sees
  // that.
  double *when;
  int room;
} line;

// A strand.
typedef struct actor {
  int rank, strand;
  uint32_t pos;
  int pass;
  double ready; // its next step could start, as far as known
  place at;     // in the heap: when that is looked at again
} actor;

typedef struct core {
  double free, since; // until when the rank uses it, and since when
  int last;           // that rank, or NOBODY
} core;

// What all passes together ask of a rank or a node.
typedef struct load {
  double work, out, in; // of cores; of the network in each direction
} load;

typedef struct walk {
  const tt_cost_env *env;
  const tt_layout *layout;
  const tt_schedule *const *all;
  int n, nnodes, nactors, ncores; // cores per node
  int ends;                       // ranks, and behind them the networks that reduce
  const tt_walk_passes *passes;
  line **lines; // (from * ends + to) * 2 + token
  actor *actors;
  // Strands that may be able to go on, the earliest first; also, behind the number of strands, lines with messages that
  // can be fetched.
  int *heap, nheap;
  double *rank_free;        // a rank is one thread
  double *rank_begun;       // when a rank has got a core for the first time, behind the barrier; < 0: not yet
  int *rank_ended;          // strands of a rank that have ended its operation
  core *cores;              // node * ncores + i
  double *net_out, *net_in; // by node: free again
  load *rank_load, *node_load;
  double carrier_free; // the thread that carries messages between nodes of one machine
  double *carry_begun; // [from * ends + to]: when it began with the last one
  double *through;     // by pass: when all ranks have ended it
  bool impossible, no_memory;
} walk;

static int cost_walk_node_of(const walk *w, int rank)
{
  return w->layout ? w->layout->node_of[rank] : 0;
}

static tt_hop_kind cost_walk_kind_of(const walk *w, int a, int b)
{
  return a == b                                               ? TT_HOP_SELF
         : TT_MAX(a, b) >= w->n                               ? TT_HOP_NETWORK
         : cost_walk_node_of(w, a) == cost_walk_node_of(w, b) ? TT_HOP_MEMORY
                                                              : TT_HOP_NETWORK;
}

static const tt_cost_hop *hop_of(const walk *w, const tt_ref *ref, int rank)
{
  return &w->env->hop[cost_walk_kind_of(w, rank, ref->peer)][ref->kind == TT_FIFO ? w->passes->proto : TT_TOK];
}

static bool is_line(const tt_ref *ref)
{
  return ref->kind == TT_FIFO || ref->kind == TT_TOKEN;
}

// The cores of a node: those of the machine where nodes are parts of one.
static core *cost_walk_cores(const walk *w, int rank)
{
  return &w->cores[w->env->one_machine ? 0 : cost_walk_node_of(w, rank) * w->ncores];
}

static double cost_walk_chunk(const walk *w, int pass)
{
  const tt_walk_passes *p = w->passes;
  return p->cycle > 0 && (pass + 1) % p->cycle == 0 ? p->last : p->chunk;
}

// ---- the heap ----

static place *heap_place(const walk *w, int id)
{
  return id < w->nactors ? &w->actors[id].at : &w->lines[id - w->nactors]->at;
}

static bool earlier(const walk *w, int a, int b)
{
  const place *x = heap_place(w, a), *y = heap_place(w, b);
  if (x->turn != y->turn) {
    return x->turn < y->turn;
  }
  return x->left < y->left || (x->left == y->left && a < b);
}

static void push(walk *w, int id, double turn)
{
  int at = w->nheap++;
  int rank = id < w->nactors ? w->actors[id].rank : w->lines[id - w->nactors]->to;
  *heap_place(w, id) = (place){turn, w->rank_free[rank]};
  for (; at > 0 && earlier(w, id, w->heap[(at - 1) / 2]); at = (at - 1) / 2) {
    w->heap[at] = w->heap[(at - 1) / 2];
  }
  w->heap[at] = id;
}

static int pop(walk *w)
{
  int first = w->heap[0], last = w->heap[--w->nheap], at = 0;
  for (int child = 1; child < w->nheap; child = 2 * at + 1) {
    child += child + 1 < w->nheap && earlier(w, w->heap[child + 1], w->heap[child]);
    if (!earlier(w, w->heap[child], last)) {
      break;
    }
    w->heap[at] = w->heap[child];
    at = child;
  }
  w->heap[at] = last;
  return first;
}

static void cost_walk_wake(walk *w, int *waiter, double when)
{
  if (*waiter >= 0) {
    actor *a = &w->actors[*waiter];
    a->ready = fmax(a->ready, when);
    push(w, *waiter, a->ready);
    *waiter = -1;
  }
}

// ---- one step ----

// Messages of a line. What the network holds of them is no longer in the sender's slots.
static uint32_t slots_of(const walk *w, const tt_ref *ref, int from, int to)
{
  uint32_t slots = w->env->slots[ref->kind == TT_FIFO ? w->passes->proto : TT_TOK];
  if (ref->kind == TT_FIFO && w->env->net_window > 0 && cost_walk_kind_of(w, from, to) == TT_HOP_NETWORK) {
    slots += (uint32_t)fmin(w->env->net_window / fmax(w->passes->chunk, MESSAGE_LEAST), MOST_HELD);
  }
  return slots;
}

static size_t line_number(const walk *w, size_t from, size_t to, bool tokens)
{
  return (from * (size_t)w->ends + to) * 2 + tokens;
}

// Does a rank have to fetch what comes over such a line?
static bool cost_walk_fetches(const walk *w, const tt_ref *ref, int from, int to)
{
  return w->env->fetch > 0 && ref->kind == TT_FIFO && TT_MAX(from, to) < w->n &&
         cost_walk_kind_of(w, from, to) == TT_HOP_NETWORK;
}

// The line of a reference; of TT_DRAIN, that of the tokens to the peer. Made at first sight; NULL when out of memory.
static line *line_of(walk *w, const tt_ref *ref, int rank, bool source)
{
  bool drain = ref->kind == TT_DRAIN, in = source && !drain;
  size_t from = (size_t)(in ? ref->peer : rank), to = (size_t)(in ? rank : ref->peer);
  line **l = &w->lines[line_number(w, from, to, ref->kind != TT_FIFO)];
  if (!*l) {
    uint32_t slots = slots_of(w, ref, (int)from, (int)to);
    *l = tt_calloc(1, sizeof **l);
    if (!*l) {
      w->no_memory = true;
      return NULL;
    }
    **l = (line){.slots = slots,
                 .to = (int)to,
                 .fetches = cost_walk_fetches(w, ref, (int)from, (int)to),
                 .writer = -1,
                 .reader = -1};
  }
  return *l;
}

static double *when_of(const line *l, uint32_t message)
{
  return &l->when[message % (uint32_t)l->room];
}

// When the sender sees that there is room for its next message: behind the one whose slot that gets.
static double cost_walk_freed(const line *l)
{
  return l->sent < l->slots ? 0 : *when_of(l, l->sent - l->slots);
}

static void cost_walk_send(walk *w, line *l, double there)
{
  if (l->sent == (uint32_t)l->room && l->sent < l->slots && !tt_grow(&l->when, l->room, 1, &l->room, sizeof *l->when)) {
    w->no_memory = true;
    return;
  }
  *when_of(l, l->sent++) = there;
}

// When the actor's next step finds the reference satisfied; -1: not before another actor has moved, which will wake it.
static double satisfied(walk *w, int id, const tt_ref *ref, bool source)
{
  bool drain = ref->kind == TT_DRAIN;
  line *l = is_line(ref) || drain ? line_of(w, ref, w->actors[id].rank, source) : NULL;
  if (!l) {
    return 0;
  }
  if (source && !drain) {
    l->reader = l->seen == l->taken ? id : -1;
    return l->seen == l->taken ? -1 : *when_of(l, l->taken);
  }
  uint32_t most = drain ? 0 : l->slots - 1;
  l->writer = l->sent - l->taken > most ? id : -1;
  return l->sent - l->taken > most ? -1 : !drain ? cost_walk_freed(l) : l->sent > 0 ? *when_of(l, l->sent - 1) : 0;
}

static const tt_step *cost_walk_step_of(const walk *w, const actor *a)
{
  const tt_schedule *s = w->all[a->rank];
  return &s->steps[s->strands[a->strand].first + a->pos];
}

// Puts into a->ready when the next step can start, as far as other strands are concerned. False: it will be woken.
static bool cost_walk_look(walk *w, int id)
{
  actor *a = &w->actors[id];
  const tt_step *step = cost_walk_step_of(w, a);
  const tt_ref *refs = w->all[a->rank]->refs;
  for (int i = 0; i < step->nsrc + step->ndst; i++) {
    bool source = i < step->nsrc;
    double when = satisfied(
        w, id, source ? &refs[step->src + (uint32_t)i] : &refs[step->dst + (uint32_t)(i - step->nsrc)], source);
    if (when < 0) {
      return false;
    }
    a->ready = fmax(a->ready, when);
  }
  return true;
}

static double work_of(walk *w, const tt_ref *ref, int rank, double chunk, bool source)
{
  const tt_cost_hop *hop = ref->kind == TT_PEER_IN || ref->kind == TT_PEER_OUT ? &w->env->direct : hop_of(w, ref, rank);
  switch (ref->kind) {
  case TT_IN:
  case TT_OUT:
  case TT_TMP: return chunk * w->env->byte;
  case TT_FIFO: return source && cost_walk_fetches(w, ref, ref->peer, rank) ? 0 : hop->work + chunk * hop->byte;
  default:
    w->impossible |= cost_walk_kind_of(w, rank, ref->peer) == TT_HOP_NETWORK;
    return hop->work + (ref->kind == TT_PEER_IN || ref->kind == TT_PEER_OUT ? chunk * hop->byte : 0);
  }
}

// What a step has to do, but for waking its rank.
static double work_of_step(walk *w, int rank, const tt_step *step, double chunk)
{
  const tt_ref *refs = w->all[rank]->refs;
  double work = w->env->step;
  int parts = 0; // that are added
  for (int i = 0; i < step->nsrc; i++) {
    const tt_ref *ref = &refs[step->src + (uint32_t)i];
    parts += ref->kind != TT_TOKEN && ref->kind != TT_DRAIN;
    work += work_of(w, ref, rank, chunk, true);
  }
  for (int i = 0; i < step->ndst; i++) {
    const tt_ref *ref = &refs[step->dst + (uint32_t)i];
    // Taken for one that is not made: the peer will fetch it.
    bool put = ref->kind == TT_PEER_OUT && (step->flags & TT_STEP_PUT);
    work += put ? 0 : work_of(w, ref, rank, chunk, false);
  }
  return work + TT_MAX(parts - 1, 0) * chunk * w->env->sum;
}

// The core of them on which work of a rank can start first, at `from` at the earliest; when that is.
static core *core_for(const walk *w, int rank, double from, double *start)
{
  core *cores = cost_walk_cores(w, rank), *best = cores;
  for (int i = 0; i < w->ncores; i++) {
    bool change = cores[i].last != NOBODY && cores[i].last != rank;
    double at = fmax(from, cores[i].free) + (change ? w->env->change : 0);
    if (i == 0 || at < *start || (at == *start && cores[i].last == rank)) {
      best = &cores[i];
      *start = at;
    }
  }
  return best;
}

// When a rank that could go on at `ready` begins to, on which core, and the work of waking it if it had nothing to do.
// NULL: another rank keeps the core, since it has more to do; the strand or line is in the heap again.
static core *cost_walk_begin(walk *w, int id, int rank, double ready, double *start, double *work)
{
  double waited = ready - w->rank_free[rank];
  bool slept = w->env->wake > 0 && waited > w->env->idle;
  core *c = core_for(w, rank, fmax(ready + (slept ? w->env->wake : 0), w->rank_free[rank]), start);
  *work = waited > 0 ? w->env->rouse : 0;
  if (c->last != rank && c->free > heap_place(w, id)->turn && c->free - c->since < w->env->slice) {
    push(w, id, *start);
    return NULL;
  }
  return c;
}

// The rank has worked for so long from `start` on. Returns when that ends.
static double cost_walk_end(walk *w, core *c, int rank, double start, double work)
{
  bool changed = c->last != NOBODY && c->last != rank, goes_on = c->last == rank && start <= c->free;
  *c = (core){.free = start + work, .since = goes_on ? c->since : start, .last = rank};
  w->rank_free[rank] = c->free;
  w->rank_load[rank].work += work;
  w->node_load[cost_walk_node_of(w, rank)].work += work + (changed ? w->env->change : 0);
  return c->free;
}

// Where the nodes are parts of one machine: when the thread that carries their messages has taken this one. A message
// that comes before the one ahead of it has had its turn goes with that one.
static double cost_walk_carry(walk *w, int rank, int peer, double bytes, double when)
{
  double *begun = &w->carry_begun[(size_t)rank * (size_t)w->ends + (size_t)peer];
  double work = (when < *begun ? 0 : w->env->carry_work) + bytes * w->env->carry_byte;
  if (!w->env->one_machine) {
    return when;
  }
  *begun = fmax(*begun, fmax(when, w->carrier_free));
  w->carrier_free = fmax(when, w->carrier_free) + work;
  return w->carrier_free;
}

// When a message that leaves at `when` is seen.
static double arrival(walk *w, const tt_ref *ref, int rank, double when, double chunk)
{
  const tt_cost_hop *hop = hop_of(w, ref, rank);
  if (cost_walk_kind_of(w, rank, ref->peer) != TT_HOP_NETWORK) {
    return when + hop->latency;
  }
  int from = cost_walk_node_of(w, rank), to = cost_walk_node_of(w, ref->peer);
  double size = ref->kind == TT_FIFO ? chunk : 0, bytes = size * w->env->net_byte;
  double begin = fmax(cost_walk_carry(w, rank, ref->peer, size, when), w->net_out[from]);
  w->node_load[from].out += bytes;
  w->node_load[to].in += bytes;
  w->net_out[from] = begin + bytes;
  w->net_in[to] = fmax(begin, w->net_in[to]) + bytes;
  return w->net_in[to] + hop->latency;
}

// Occupies the node's way into or out of the network for one message. Returns when it is through.
static double pass_network(walk *w, int node, bool in, double when)
{
  double bytes = w->passes->chunk * w->env->net_byte, *until = in ? &w->net_in[node] : &w->net_out[node];
  *(in ? &w->node_load[node].in : &w->node_load[node].out) += bytes;
  *until = fmax(when, *until) + bytes;
  return *until;
}

// A network that reduces: when every rank that speaks to it has sent, and all have room for the sum, each gets it.
static void reduce_in(walk *w, int net)
{
  double seen = 0;
  tt_ref ref = {.kind = TT_FIFO, .peer = net};
  for (int r = 0; r < w->n; r++) {
    const line *l = w->lines[line_number(w, (size_t)r, (size_t)net, false)];
    const line *back = w->lines[line_number(w, (size_t)net, (size_t)r, false)];
    if (l && (l->sent == l->taken || back->sent - back->taken == back->slots)) {
      return;
    }
    seen = l ? fmax(seen, *when_of(l, l->taken)) : seen;
  }
  for (int r = 0; r < w->n && !w->no_memory; r++) {
    line *l = w->lines[line_number(w, (size_t)r, (size_t)net, false)], *back = l ? line_of(w, &ref, r, true) : NULL;
    if (back) {
      *when_of(l, l->taken++) = seen;
      cost_walk_wake(w, &l->writer, seen);
      double there = pass_network(w, cost_walk_node_of(w, r), true, seen) + hop_of(w, &ref, r)->latency;
      cost_walk_send(w, back, there);
      back->seen++;
      cost_walk_wake(w, &back->reader, there);
    }
  }
}

static void cost_walk_take_all(walk *w, int rank, const tt_ref *src, int count, double end)
{
  for (int i = 0; i < count && !w->no_memory; i++) {
    line *l = is_line(&src[i]) ? line_of(w, &src[i], rank, true) : NULL;
    if (l) {
      double freed = end + hop_of(w, &src[i], rank)->latency;
      *when_of(l, l->taken++) = freed;
      cost_walk_wake(w, &l->writer, freed);
      if (src[i].peer >= w->n) {
        reduce_in(w, src[i].peer);
      }
    }
  }
}

static void send_all(walk *w, int rank, const tt_ref *dst, int count, double end, double chunk)
{
  for (int i = 0; i < count && !w->no_memory; i++) {
    line *l = is_line(&dst[i]) ? line_of(w, &dst[i], rank, false) : NULL;
    if (l) {
      bool net = dst[i].peer >= w->n;
      double seen =
          net ? pass_network(w, cost_walk_node_of(w, rank), false, end) : arrival(w, &dst[i], rank, end, chunk);
      cost_walk_send(w, l, seen);
      if (!l->fetches) {
        l->seen++;
        cost_walk_wake(w, &l->reader, seen);
      } else if (l->sent - l->seen == 1) {
        l->fetch_ready = seen;
        push(w, w->nactors + (int)line_number(w, (size_t)rank, (size_t)l->to, false), seen);
      }
      if (net) {
        reduce_in(w, dst[i].peer);
      }
    }
  }
}

// The rank fetches, with one call, all that has come over a line when it gets a core.
static void fetch_messages(walk *w, int id)
{
  line *l = w->lines[id - w->nactors];
  double start = 0, work, all = 0;
  core *c = cost_walk_begin(w, id, l->to, l->fetch_ready, &start, &work);
  if (c == NULL) {
    return;
  }
  uint32_t until = l->seen;
  const tt_cost_hop *hop = &w->env->hop[TT_HOP_NETWORK][w->passes->proto];
  for (; until != l->sent && *when_of(l, until) <= start; until++) {
    all += w->env->each + w->passes->chunk * hop->byte;
  }
  double end = cost_walk_end(w, c, l->to, start, work + w->env->fetch + all);
  for (; l->seen != until; l->seen++) {
    *when_of(l, l->seen) = end;
  }
  cost_walk_wake(w, &l->reader, end);
  if (l->seen != l->sent) {
    l->fetch_ready = *when_of(l, l->seen);
    push(w, id, l->fetch_ready);
  }
}

// False: not yet.
static bool take_step(walk *w, int id)
{
  actor *a = &w->actors[id];
  double start = 0, rouse;
  core *c = cost_walk_begin(w, id, a->rank, a->ready, &start, &rouse);
  if (c == NULL) {
    return false;
  }
  const tt_schedule *s = w->all[a->rank];
  const tt_step *step = cost_walk_step_of(w, a);
  double chunk = cost_walk_chunk(w, a->pass), work = work_of_step(w, a->rank, step, chunk);
  a->ready = cost_walk_end(w, c, a->rank, start, work + rouse);
  cost_walk_take_all(w, a->rank, &s->refs[step->src], step->nsrc, a->ready);
  send_all(w, a->rank, &s->refs[step->dst], step->ndst, a->ready, chunk);
  if (++a->pos == s->strands[a->strand].count) {
    w->through[a->pass] = fmax(w->through[a->pass], a->ready);
    a->pos = 0;
    a->pass++;
  }
  return true;
}

// False: another rank keeps the core.
static bool leave_barrier(walk *w, int id)
{
  actor *a = &w->actors[id];
  double start = 0, work;
  core *c = cost_walk_begin(w, id, a->rank, a->ready, &start, &work);
  if (c != NULL) {
    w->rank_begun[a->rank] = start;
    a->ready = cost_walk_end(w, c, a->rank, start, work);
  }
  return c != NULL;
}

// Has the strand ended an operation behind which another one comes?
static bool cost_walk_ended(const walk *w, const actor *a)
{
  return w->passes->cycle > 0 && a->pos == 0 && a->pass % w->passes->cycle == 0 && a->pass < w->passes->count;
}

// A rank begins its next operation when all its strands have ended the one before.
static void end_operation(walk *w, int id)
{
  actor *a = &w->actors[id];
  int strands = w->all[a->rank]->nstrands, first = id - a->strand;
  if (++w->rank_ended[a->rank] < strands) {
    return;
  }
  w->rank_ended[a->rank] = 0;
  for (int k = first; k < first + strands; k++) {
    w->actors[k].ready = fmax(w->actors[k].ready, a->ready);
    push(w, k, w->actors[k].ready);
  }
}

// ---- all steps ----

static bool cost_walk_run(walk *w)
{
  int left = w->nactors;
  for (int id = 0; id < w->nactors; id++) {
    push(w, id, w->actors[id].ready);
  }
  while (w->nheap > 0 && !w->impossible && !w->no_memory) {
    int id = pop(w);
    if (id >= w->nactors) {
      fetch_messages(w, id);
      continue;
    }
    actor *a = &w->actors[id];
    if (w->rank_begun[a->rank] < 0 && !leave_barrier(w, id)) {
      continue;
    }
    if (!cost_walk_look(w, id)) {
      continue;
    }
    if (a->ready > a->at.turn) {
      push(w, id, a->ready);
    } else if (take_step(w, id)) {
      left -= a->pass == w->passes->count;
      if (cost_walk_ended(w, a)) {
        end_operation(w, id);
      } else if (a->pass < w->passes->count) {
        push(w, id, a->ready);
      }
    }
  }
  return left == 0;
}

static int count_ends(const walk *w)
{
  int ends = w->n;
  for (int r = 0; r < w->n; r++) {
    for (int i = 0; i < w->all[r]->nrefs; i++) {
      ends = TT_MAX(ends, w->all[r]->refs[i].peer + 1);
    }
  }
  return ends;
}

// Both lines of every rank that speaks to a network which reduces: it has to wait for all of them.
static bool find_networks(walk *w)
{
  for (int r = 0; r < w->n; r++) {
    for (int i = 0; i < w->all[r]->nrefs; i++) {
      const tt_ref *ref = &w->all[r]->refs[i];
      if (ref->peer >= w->n && (!line_of(w, ref, r, false) || !line_of(w, ref, r, true))) {
        return false;
      }
    }
  }
  return true;
}

static bool cost_walk_set_up(walk *w)
{
  size_t n = (size_t)w->n, nodes = (size_t)w->nnodes;
  for (int r = 0; r < w->n; r++) {
    w->nactors += w->all[r]->nstrands;
  }
  w->ends = count_ends(w);
  w->lines = tt_calloc((size_t)w->ends * (size_t)w->ends * 2, sizeof(line *));
  w->actors = tt_calloc((size_t)w->nactors + 1, sizeof *w->actors);
  w->heap = tt_calloc((size_t)w->nactors + (size_t)w->ends * (size_t)w->ends * 2 + 1, sizeof *w->heap);
  w->rank_free = tt_calloc(n, sizeof *w->rank_free);
  w->rank_begun = tt_calloc(n, sizeof *w->rank_begun);
  w->rank_ended = tt_calloc(n, sizeof *w->rank_ended);
  w->carry_begun = tt_calloc((size_t)w->ends * (size_t)w->ends, sizeof *w->carry_begun);
  w->cores = tt_calloc(nodes * (size_t)w->ncores, sizeof *w->cores);
  w->net_out = tt_calloc(nodes * 2, sizeof *w->net_out);
  w->rank_load = tt_calloc(n + nodes, sizeof *w->rank_load);
  if (!w->lines || !w->actors || !w->heap || !w->rank_free || !w->rank_begun || !w->rank_ended || !w->carry_begun ||
      !w->cores || !w->net_out || !w->rank_load) {
    return false;
  }
  w->net_in = w->net_out + nodes;
  if (!find_networks(w)) {
    return false;
  }
  w->node_load = w->rank_load + n;
  for (int r = 0, id = 0; r < w->n; r++) {
    w->rank_begun[r] = r == 0 ? 0 : w->env->slice > 0 ? -1 : w->passes->late;
    for (int k = 0; k < w->all[r]->nstrands; k++) {
      w->actors[id++] = (actor){.rank = r, .strand = k, .ready = r == 0 ? 0 : w->passes->late};
    }
  }
  for (int i = 0; i < w->nnodes * w->ncores; i++) {
    w->cores[i].last = NOBODY;
  }
  return true;
}

static void clean_up(walk *w)
{
  for (size_t i = 0; w->lines && i < (size_t)w->ends * (size_t)w->ends * 2; i++) {
    if (w->lines[i] != NULL) {
      tt_free(w->lines[i]->when);
    }
    tt_free(w->lines[i]);
  }
  tt_free(w->lines);
  tt_free(w->actors);
  tt_free(w->heap);
  tt_free(w->rank_free);
  tt_free(w->rank_begun);
  tt_free(w->rank_ended);
  tt_free(w->carry_begun);
  tt_free(w->cores);
  tt_free(w->net_out);
  tt_free(w->rank_load);
}

// What all passes ask of the busiest rank, core or network.
static double busiest_of(const walk *w)
{
  double busiest = 0, work = 0;
  for (int r = 0; r < w->n; r++) {
    busiest = fmax(busiest, w->rank_load[r].work);
  }
  for (int k = 0; k < w->nnodes; k++) {
    const load *l = &w->node_load[k];
    work += l->work;
    busiest = fmax(busiest, fmax(l->work / w->ncores, fmax(l->out, l->in)));
  }
  return w->env->one_machine ? fmax(busiest, work / w->ncores) : busiest;
}

// Ranks other than 0 have begun later: when the barrier let them go, and they got a core.
static double longest_of(const walk *w)
{
  double longest = w->rank_free[0];
  for (int r = 1; r < w->n; r++) {
    longest = fmax(longest, w->rank_free[r] - w->rank_begun[r]);
  }
  return longest;
}

ncclResult_t tt_cost_walk_passes(const tt_cost_env *env, const tt_layout *layout, const tt_schedule *const *all,
                                 const tt_walk_passes *passes, double *ends, tt_walk_result *out)
{
  int n = all[0]->nranks;
  walk w = {.env = env,
            .layout = layout,
            .all = all,
            .n = n,
            .nnodes = layout ? layout->nnodes : 1,
            .passes = passes,
            .through = ends};
  w.ncores = TT_MIN(env->cores, env->one_machine || !layout ? n : layout->largest);
  memset(ends, 0, (size_t)passes->count * sizeof *ends);
  w.no_memory = !cost_walk_set_up(&w);
  bool done = !w.no_memory && cost_walk_run(&w);
  *out = (tt_walk_result){.busiest = HUGE_VAL, .longest = HUGE_VAL};
  if (done) {
    *out = (tt_walk_result){.busiest = busiest_of(&w), .longest = longest_of(&w)};
  }
  for (int i = 0; w.impossible && i < passes->count; i++) {
    ends[i] = HUGE_VAL;
  }
  clean_up(&w);
  if (w.no_memory) {
    return tt_fail(ncclSystemError, "out of memory: walking the schedules of %d ranks", n);
  }
  if (!done && !w.impossible) {
    return tt_fail(ncclInternalError, "the schedules of %d ranks get stuck", n);
  }
  return ncclSuccess;
}

// A further pass takes as long as the last one did, but at least as long as the busiest rank, core or network needs for
// it: connections that were still filling hide that from the first passes.
ncclResult_t tt_cost_walk(const tt_cost_env *env, const tt_layout *layout, const tt_schedule *const *all,
                          tt_proto proto, double chunk, tt_walk_times *out)
{
  tt_walk_passes passes = {.proto = proto, .count = TT_WALK_PASSES, .chunk = chunk};
  tt_walk_result res;
  TT_TRY(tt_cost_walk_passes(env, layout, all, &passes, out->end, &res));
  double last = out->end[TT_WALK_PASSES - 1] - out->end[TT_WALK_PASSES - 2];
  out->period = isinf(res.busiest) ? HUGE_VAL : fmax(last, res.busiest / TT_WALK_PASSES);
  return ncclSuccess;
}
