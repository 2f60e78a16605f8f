// search_run.c: rings and trees under one condition: depth first over channels, and in each over the next GPU. Four
// things keep the search short. A bound says how many channels still fit. States that led nowhere are remembered. The
// previous channel's order (or the machine's) is tried first. Rings begin at the first GPU, and GPUs near the card are
// kept for the way back.
#include <limits.h>

#include "base/util.h"
#include "topo/search_priv.h"

typedef struct tt_run {
  tt_search *s;
  const tt_cond *c;
  tt_graph *best, *now;
  tt_flow *flow;
  int n;              // GPUs
  int intra, inter;   // amounts
  int least_hops;     // of a channel
  int least_edge;     // of an edge
  int most;           // channels there can be, as far as the last bound says
  int copies;         // channels of one order that there must be at least; 0: orders may differ
  int back;           // order's place whose GPU leads back to the card; -1: none, or already taken
  int back_left;      // GPUs not yet in this channel that may lead back
  uint64_t placed;    // hash of the GPUs in this channel
  const int *follow;  // the order to take; NULL: any
  bool stop, aborted; // as many channels as there may be; no steps left
  bool cut;           // what follows some channel had no steps left: not all was seen
  long steps;
  uint64_t salt; // 0: lists are tried from their begin; else each from a place that depends on it
  int share;     // eighths of the steps that what follows a channel gets
} tt_run;

static void run_visit(tt_run *r, int gpu, int step);
static void next_channel(tt_run *r);

static uint64_t run_mix(uint64_t x)
{
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
  return x ^ (x >> 33);
}

// Was this state here before with as few hops? If not, it is now.
static bool run_seen(tt_run *r, uint64_t place)
{
  uint64_t key = run_mix(r->flow->hash ^ run_mix(place + (uint64_t)r->now->nchannels));
  tt_memo_entry *e = &r->s->memo[key % TT_MEMO_SIZE];
  uint32_t high = (uint32_t)(key >> 32);
  uint16_t hops = (uint16_t)TT_MIN(r->now->nhops, UINT16_MAX);
  if (e->age == r->s->age && e->key == high && e->hops <= hops) {
    return true;
  }
  *e = (tt_memo_entry){.key = high, .age = r->s->age, .hops = hops};
  return false;
}

// Where to begin in a list of `count`, when it is tried in such a place.
static int run_turn(const tt_run *r, uint64_t place, int count)
{
  uint64_t x = r->salt == 0 ? 0 : run_mix(r->salt + run_mix(place ^ r->flow->hash));
  return (x & 1) != 0 && count > 0 ? (int)((x >> 1) % (uint64_t)count) : 0;
}

static bool is_tree(int pattern)
{
  return pattern <= TT_PATTERN_TREE;
}

// ---- Edges ----

static bool run_edge_ok(const tt_run *r, int from, int to, int type)
{
  const tt_paths *p = r->s->paths;
  return tt_path_get(p, from, to)->type <= type && (!is_tree(r->c->pattern) || tt_path_get(p, to, from)->type <= type);
}

static bool run_take(tt_run *r, int from, int to, bool intra, int amount)
{
  return run_edge_ok(r, from, to, intra ? r->c->typeintra : r->c->typeinter) && tt_search_take(r->s, from, to, amount);
}

// ---- Channels ----

static int *run_order_of(tt_run *r)
{
  return &r->now->gpus[(size_t)r->now->nchannels * (size_t)r->n];
}

// Would so many channels with so many hops be better than the best?
static bool improves(const tt_run *r, int channels, int hops)
{
  const tt_graph *best = r->best;
  float total = (float)channels * r->c->speedintra, had = tt_search_bar(r->c, best);
  return total > had || (total == had && tt_search_comparable(r->c, best) && hops < best->nhops);
}

// Was what follows this channel searched before? If not, it is now.
static bool seen_next(tt_run *r)
{
  const int *nets = r->now->nets + 2 * r->now->nchannels;
  bool pair = r->c->crossnic == 2 && (r->now->nchannels & 1) != 0;
  uint64_t before = pair ? ((uint64_t)nets[-2] << 20) + (uint64_t)nets[-1] : 0;
  return run_seen(r, run_mix(before + 1));
}

// Can what may still be added make a better graph than the best?
static bool worthwhile(tt_run *r)
{
  const tt_graph *now = r->now;
  int most = TT_MIN(now->nchannels + tt_cuts_room(r->s, r->c, TT_GRAPH_MAX_CHANNELS), r->c->max);
  if (most < r->c->min || !improves(r, most, now->nhops + (most - now->nchannels) * r->least_hops)) {
    return false;
  }
  most = TT_MIN(now->nchannels + tt_search_room(r->s, r->c, most - now->nchannels), r->c->max);
  if (most < r->c->min || !improves(r, most, now->nhops + (most - now->nchannels) * r->least_hops)) {
    return false;
  }
  r->most = most;
  return true;
}

// Is it no use to go on with this channel, as the best is now?
static bool hopeless(const tt_run *r, int step)
{
  int rest = (r->n - 1 - step) * r->least_edge + (r->most - r->now->nchannels - 1) * r->least_hops;
  return !improves(r, r->most, r->now->nhops + rest);
}

// Channels that a graph must have to be as good as the best.
static int needed(const tt_cond *c, const tt_graph *best)
{
  int count = (int)(tt_search_bar(c, best) / c->speedintra + 0.999f);
  return TT_MAX(TT_MAX(count, c->min), 1);
}

static void channel_done(tt_run *r)
{
  r->now->nchannels++;
  bool better = tt_search_consider(r->s, r->c, r->best);
  r->copies = better && r->copies > 0 ? needed(r->c, r->best) : r->copies;
  if (better && r->now->nchannels == r->c->max) {
    r->stop = true;
  } else if (r->now->nchannels < r->c->max && !seen_next(r) && worthwhile(r)) {
    int back = r->back, left = r->back_left;
    uint64_t placed = r->placed;
    const int *follow = r->follow;
    int most = r->most;
    // What follows this channel gets a share of the steps that are left, so that other channels get their turn, too;
    // and enough to go down once.
    long steps = r->steps, share = TT_MAX(steps * r->share / 8, 2 * r->n * (r->most - r->now->nchannels));
    share = TT_MIN(share, steps);
    r->steps = share;
    next_channel(r);
    r->steps = steps - (share - TT_MAX(r->steps, 0));
    r->cut |= r->aborted;
    r->aborted = r->steps <= 0;
    r->back = back;
    r->back_left = left;
    r->placed = placed;
    r->follow = follow;
    r->most = most;
  }
  r->now->nchannels--;
}

// Has the way between two GPUs room for all the channels that have the order of this one?
static bool bears_all(tt_run *r, int from, int to)
{
  if (r->copies < 2 || r->now->nchannels > 0) {
    return true;
  }
  bool ok = tt_flow_take(r->flow, from, to, r->intra * r->copies);
  if (ok) {
    tt_flow_give(r->flow, from, to, r->intra * r->copies);
  }
  return ok;
}

static void run_place(tt_run *r, int from, int gpu, int step)
{
  bool intra = from < r->n;
  int amount = intra ? r->intra : r->inter;
  if (from >= 0 && ((intra && !bears_all(r, from, gpu)) || !run_take(r, from, gpu, intra, amount))) {
    return;
  }
  uint64_t flag = 1ull << r->now->nchannels, key = run_mix((uint64_t)gpu + 77);
  bool back = r->s->back[(size_t)r->now->nchannels * (size_t)r->n + (size_t)gpu];
  r->s->used[gpu] |= flag;
  r->placed += key;
  r->back_left -= back;
  run_order_of(r)[step] = gpu;
  run_visit(r, gpu, step);
  r->back_left += back;
  r->placed -= key;
  r->s->used[gpu] &= ~flag;
  if (from >= 0) {
    tt_search_give(r->s, from, gpu, amount);
  }
}

// Closes the channel behind its last GPU.
static void close_channel(tt_run *r, int gpu)
{
  int first = run_order_of(r)[0];
  if (r->c->pattern != TT_PATTERN_RING || r->now->inter) {
    channel_done(r);
  } else if (run_take(r, gpu, first, true, r->intra)) {
    channel_done(r);
    tt_search_give(r->s, gpu, first, r->intra);
  }
}

// Goes to every GPU that is left, those that may lead back to the card last.
static void try_gpus(tt_run *r, int gpu, int step)
{
  const int *next = &r->s->ends.next[gpu * (r->n - 1)];
  const bool *back = &r->s->back[(size_t)r->now->nchannels * (size_t)r->n];
  uint64_t flag = 1ull << r->now->nchannels;
  // A tree of two GPUs, whose second leads back, too, has no marks of GPUs that may.
  bool comes_back = r->c->pattern == TT_PATTERN_RING && r->back == r->n - 1, last = step + 1 == r->n - 1;
  if (comes_back && r->back_left == 0) {
    return;
  }
  int turn = run_turn(r, (uint64_t)gpu, r->n - 1);
  for (int pass = comes_back && last ? 1 : 0; pass < (comes_back ? 2 : 1); pass++) {
    if (pass == 1 && !last && r->back_left < 2) {
      return;
    }
    for (int i = 0; i < r->n - 1 && !r->stop && !r->aborted; i++) {
      int to = next[(i + turn) % (r->n - 1)];
      bool skip = (r->s->used[to] & flag) != 0 || (comes_back && back[to] != (pass == 1));
      if (!skip) {
        run_place(r, gpu, to, step + 1);
      }
    }
  }
}

static void run_go_on(tt_run *r, int gpu, int step)
{
  if (step == r->n - 1) {
    close_channel(r, gpu);
  } else if (r->follow != NULL) {
    run_place(r, gpu, r->follow[step + 1], step + 1);
  } else {
    const int *nets = r->now->nets + 2 * r->now->nchannels;
    uint64_t where =
        ((uint64_t)(gpu + 1) << 40) + ((uint64_t)(nets[0] + 1) << 20) + (uint64_t)(r->back > 0 ? nets[1] + 1 : 0);
    if (!hopeless(r, step) && !run_seen(r, r->placed ^ run_mix(where))) {
      try_gpus(r, gpu, step);
    }
  }
}

// Leads from this GPU to a card; a balanced tree shares the card's bandwidth among its first two GPUs.
static void return_net(tt_run *r, int gpu, int step)
{
  bool balanced = r->c->pattern == TT_PATTERN_BALANCED_TREE;
  const int *list = tt_ends_nets(&r->s->ends, r->s->ends.nets, gpu);
  int *nets = r->now->nets + 2 * r->now->nchannels, back = r->back, amount = balanced ? r->inter / 2 : r->inter,
      first = nets[1];
  for (int i = 1; i <= list[0] && !r->stop && !r->aborted; i++) {
    bool same = !balanced || step == 0 || list[i] == first;
    if (!same || !tt_search_nets_ok(r->s, r->c, nets[0], list[i]) || !run_take(r, gpu, list[i], false, amount)) {
      continue;
    }
    nets[1] = list[i];
    r->back = balanced && step == 0 ? 1 : -1;
    run_go_on(r, gpu, step);
    r->back = back;
    tt_search_give(r->s, gpu, list[i], amount);
  }
  nets[1] = first;
}

static void run_visit(tt_run *r, int gpu, int step)
{
  if (r->steps-- <= 0) {
    r->aborted = true;
  } else if (r->now->inter && step == r->back) {
    return_net(r, gpu, step);
  } else {
    run_go_on(r, gpu, step);
  }
}

// ---- Where channels begin ----

// Can the GPU send to a card that the channel may leave by, as long as nothing else was taken?
static bool leads_back(tt_run *r, int net, int gpu)
{
  const int *list = tt_ends_nets(&r->s->ends, r->s->ends.nets, gpu);
  for (int i = 1; i <= list[0]; i++) {
    if (tt_search_nets_ok(r->s, r->c, net, list[i]) && run_take(r, gpu, list[i], false, r->inter)) {
      tt_search_give(r->s, gpu, list[i], r->inter);
      return true;
    }
  }
  return false;
}

// Marks the GPUs from which a ring may go back to a card. False when there is none.
static bool mark_back(tt_run *r, int net)
{
  bool *back = &r->s->back[(size_t)r->now->nchannels * (size_t)r->n];
  r->back_left = 0;
  for (int g = 0; g < r->n; g++) {
    back[g] = r->c->pattern == TT_PATTERN_RING && leads_back(r, net, g);
    r->back_left += back[g];
  }
  return r->back_left > 0 || r->c->pattern != TT_PATTERN_RING;
}

static bool may_begin(const tt_run *r, int net)
{
  const tt_graph *now = r->now;
  int c = now->nchannels;
  bool swaps = r->c->pattern == TT_PATTERN_RING && r->c->crossnic == 2 && (c & 1) != 0;
  if (r->c->pin != NULL) {
    return net == r->c->pin[0];
  }
  return (!r->s->collnet || r->s->topo->nodes[net].net.coll != 0) && (!swaps || net == now->nets[2 * (c - 1) + 1]);
}

static void run_begin(tt_run *r, int net, int gpu, const int *follow)
{
  r->follow = follow;
  r->placed = 0;
  r->back = !r->now->inter                           ? -1
            : r->c->pattern == TT_PATTERN_RING       ? r->n - 1
            : r->c->pattern == TT_PATTERN_SPLIT_TREE ? 1
                                                     : 0;
  run_place(r, net, gpu, 0);
}

// What is tried first: the previous channel's order, or that of the machine.
static const int *first_order(const tt_run *r)
{
  const tt_graph *now = r->now;
  return now->nchannels > 0 ? &now->gpus[(size_t)(now->nchannels - 1) * (size_t)r->n] : r->s->ends.plain;
}

// Is it tried? Turns look for other orders, but where all channels have one order, those behind the first have no
// other.
static bool tries_first_order(const tt_run *r)
{
  return r->salt == 0 || (r->now->nchannels > 0 && r->c->same);
}

static void begin_at_net(tt_run *r, int net)
{
  int c = r->now->nchannels, amount = tt_flow_port_amount(r->c->speedinter);
  if (!may_begin(r, net) || !tt_flow_take_port(r->flow, net, amount)) {
    return;
  }
  float latency = r->now->latencyinter;
  r->now->latencyinter = r->s->topo->nodes[net].net.latency;
  r->now->nets[2 * c] = net;
  r->now->nets[2 * c + 1] = -1;
  bool possible = mark_back(r, net);
  int left = r->back_left;
  const int *follow = first_order(r), *starts = r->s->ends.starts + (net - r->s->ends.first_net) * r->n;
  if (possible && tries_first_order(r)) {
    run_begin(r, net, follow[0], follow);
  }
  int turn = run_turn(r, (uint64_t)net, r->n);
  for (int i = 0; possible && i < r->n && !r->stop && !r->aborted && (c == 0 || !r->c->same); i++) {
    r->back_left = left;
    run_begin(r, net, starts[(i + turn) % r->n], NULL);
  }
  r->now->latencyinter = latency;
  tt_flow_give_port(r->flow, net, amount);
}

// The GPU with the least bandwidth left on its links: where a chain begins it needs only half of what it needs
// elsewhere.
static int run_narrowest(const tt_run *r)
{
  const tt_search *s = r->s;
  int narrowest = 0;
  long least = LONG_MAX;
  for (int g = 0; g < r->n; g++) {
    long left = 0;
    for (int i = s->first_lane[g]; i < s->first_lane[g + 1]; i++) {
      left += s->flow.left[s->lanes[i]] + s->flow.left[s->topo->links[s->lanes[i]].back];
    }
    if (left < least) {
      least = left;
      narrowest = g;
    }
  }
  return narrowest;
}

static void next_channel(tt_run *r)
{
  int c = r->now->nchannels;
  if (r->now->inter) {
    const int *all = r->s->ends.all;
    int turn = c + run_turn(r, 99, all[0]);
    for (int i = 0; i < all[0] && !r->stop && !r->aborted; i++) {
      begin_at_net(r, all[1 + (turn + i) % all[0]]);
    }
    return;
  }
  memset(&r->s->back[(size_t)c * (size_t)r->n], 0, (size_t)r->n);
  r->now->nets[2 * c] = r->now->nets[2 * c + 1] = -1;
  const int *follow = first_order(r);
  if (tries_first_order(r)) {
    run_begin(r, -1, follow[0], follow);
  }
  int starts = r->c->pattern == TT_PATTERN_RING ? 1 : r->n; // where a ring begins makes no difference
  int turn = r->salt == 0 || starts == 1 ? 0 : run_narrowest(r);
  for (int g = 0; g < starts && !r->stop && !r->aborted && (c == 0 || !r->c->same); g++) {
    run_begin(r, -1, (g + turn) % r->n, NULL);
  }
}

// ---- One condition ----

// Fewest links between a channel and the network.
static int net_hops(const tt_search *s, const tt_cond *c)
{
  bool twice = c->pattern == TT_PATTERN_BALANCED_TREE && s->ends.ngpus > 1;
  return s->now.inter ? s->ends.least.in + s->ends.least.out * (twice ? 2 : 1) : 0;
}

// Searches from the begin, with so many steps.
static void run_attempt(tt_run *r, long steps, int share)
{
  tt_search *s = r->s;
  s->now.nchannels = s->now.nhops = 0;
  if (++s->age == 0) { // all ages were used
    memset(s->memo, 0, TT_MEMO_SIZE * sizeof(*s->memo));
    s->age = 1;
  }
  r->aborted = r->cut = false;
  if (!worthwhile(r)) {
    return;
  }
  r->steps = steps;
  r->share = share;
  next_channel(r);
  s->steps_left -= steps - TT_MAX(r->steps, 0);
  s->steps += steps - TT_MAX(r->steps, 0);
}

enum { WIDE_STEPS = 3000, DEEP_STEPS = 20000, DEEP_PART = 20, SAME_STEPS = 2000, LAST_STEPS = 500, AGAIN_STEPS = 1000 };

bool tt_search_run(tt_search *s, const tt_cond *c, tt_graph *best, bool *exhausted)
{
  bool closed = c->pattern == TT_PATTERN_RING && !s->now.inter, first_same = c->same && !c->only_same;
  tt_run r = {.s = s,
              .c = c,
              .best = best,
              .now = &s->now,
              .flow = &s->flow,
              .n = s->ends.ngpus,
              .intra = tt_flow_amount(c->speedintra),
              .inter = tt_flow_amount(c->speedinter)};
  tt_search_lanes(s, c->typeintra);
  tt_ends_count(&s->ends, c->typeintra, c->typeinter);
  const tt_least *least = &s->ends.least;
  r.least_edge = least->edge;
  r.least_hops = least->ring - (closed ? 0 : least->last) + net_hops(s, c);
  if (least->stuck > (closed ? 0 : 1) || (s->now.inter && least->unreached)) {
    return false;
  }
  r.copies = c->same ? needed(c, best) : 0;
  if (s->turn > 0) {
    r.salt = (uint64_t)s->turn;
    run_attempt(&r, TT_MIN(s->steps_left, AGAIN_STEPS), 7);
    *exhausted &= !r.aborted && !r.cut;
    return r.stop;
  }
  // Without any graph yet the search goes on when its steps are used up, though not deep.
  long left = TT_MAX(s->steps_left, best->nchannels > 0 ? 0 : LAST_STEPS);
  run_attempt(&r, TT_MIN(left, first_same ? SAME_STEPS : WIDE_STEPS), first_same ? 7 : 4);
  // Not all was seen: deep, after it was wide.
  if ((r.aborted || r.cut) && !r.stop && !first_same && s->steps_left > 0) {
    run_attempt(&r, TT_MIN(s->steps_left, TT_CLAMP(s->max_steps / DEEP_PART, WIDE_STEPS, DEEP_STEPS)), 7);
  }
  *exhausted &= !r.aborted && !r.cut;
  return r.stop;
}
