// search.c: from strict conditions to relaxed ones: speeds of the generation, types of paths, cards, same channels or
// not. Source of the order and of the speeds: NCCL 2.30's behaviour, so that results can be compared; what is searched
// under a condition is search_run.c's.
#include "base/util.h"
#include "topo/search_priv.h"

enum { DEFAULT_STEPS = 400000 };

enum { INTRA_SPEEDS = 14, INTER_SPEEDS = 21 };

// The search of one graph.
typedef struct tt_ladder {
  tt_search *s;
  tt_cond c; // the condition that is being tried
  tt_graph *best;
  int pattern, sm; // what was asked for; of the oldest GPU
  int cross;       // rule of cards: 0, 1 or 2
  const float *speeds;
  int nspeeds;
  int max_intra, max_inter;
  float max_speed, total; // of one path, of one GPU
  bool amd;               // AMD's CPUs: channels that differ do not pay between sockets
  bool two;               // two channels at least, for trees over two islands
  tt_graph *sooner;       // the best without channels of less than half the speed that was found first; may be NULL
  bool exhausted;
  int speed;                                                          // number of the one that is tried
  uint8_t closed[INTER_SPEEDS][TT_PATH_TYPES + 1][TT_PATH_TYPES + 1]; // bits of conditions under which all was seen
} tt_ladder;

// ---- Machine ----

static int oldest_sm(const tt_topo *topo)
{
  int sm = 1000;
  for (int g = 0; g < tt_topo_count(topo, TT_NODE_GPU); g++) {
    sm = TT_MIN(sm, topo->nodes[g].gpu.sm);
  }
  return sm;
}

// GB/s of a channel that are tried, from the newest generation to the oldest; 0 ends a list.
static const struct {
  int sm; // from this on
  float intra[INTRA_SPEEDS], inter[INTER_SPEEDS];
} ladder_speeds[] = {
    {100, {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18}, {96, 86,    80, 48, 45.1f, 42, 40,   30,   24,    22,
                                                             20, 17.5f, 15, 12, 6,     3,  2.4f, 1.2f, 0.24f, 0.12f}},
    {90,
     {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3},
     {48, 45, 42, 40, 30, 24, 22, 20, 17.5f, 15, 12, 6, 3, 2.4f, 1.2f, 0.24f, 0.12f}},
    {0,
     {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3},
     {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4f, 1.2f, 0.24f, 0.12f}},
};

const float *tt_search_speeds(int sm, bool inter)
{
  int i = 0;
  while (ladder_speeds[i].sm > sm) {
    i++;
  }
  return inter ? ladder_speeds[i].inter : ladder_speeds[i].intra;
}

static void ladder_find_speeds(tt_ladder *l)
{
  l->speeds = tt_search_speeds(l->sm, l->s->now.inter);
  while (l->speeds[l->nspeeds] > 0) {
    l->nspeeds++;
  }
}

// The widest path that any GPU has to where its channels go, and what the widest GPU's links carry together.
static void find_limits(tt_ladder *l)
{
  const tt_topo *topo = l->s->topo;
  bool inter = l->s->now.inter;
  int n = l->s->ends.ngpus, from = inter ? l->s->ends.first_net : 0, to = inter ? from + l->s->ends.nnets : n;
  if (!inter && n == 1) {
    l->max_speed = l->total = TT_BW_LOC;
    return;
  }
  for (int g = 0; g < n; g++) {
    int device = topo->nodes[g].gpu.device;
    float nvlink = 0, pci = 0;
    for (int i = topo->nodes[device].first_link; i < topo->nodes[device].first_link + topo->nodes[device].nlinks; i++) {
      nvlink += topo->links[i].type == TT_PATH_NVL ? topo->links[i].bw : 0;
      pci = topo->links[i].type == TT_PATH_PIX ? topo->links[i].bw : pci;
    }
    l->total = TT_MAX(l->total, TT_MAX(nvlink, pci));
    for (int e = from; e < to; e++) {
      const tt_path *p = tt_path_get(l->s->paths, g, e);
      l->max_speed = p->count > 0 ? TT_MAX(l->max_speed, p->bw) : l->max_speed;
    }
  }
}

// Two islands of NVLink with something slow in between. A GPU belongs to the island of the last GPU in front of it that
// is near; what is left alone so is no island.
static bool split_nvlink(const tt_search *s)
{
  int n = s->ends.ngpus, islands = 0, *island = s->degrees, *members = s->degrees + n;
  for (int g = 0; g < n; g++) {
    island[g] = g;
    members[g] = 0;
    for (int before = 0; before < g; before++) {
      island[g] = tt_path_get(s->paths, before, g)->type == TT_PATH_NVL ? island[before] : island[g];
    }
    members[island[g]]++;
  }
  for (int g = 0; g < n; g++) {
    islands += members[g] > 1;
  }
  return islands == 2;
}

// ---- What is better, what fits ----

void tt_graph_copy(tt_graph *to, const tt_graph *from)
{
  int *gpus = to->gpus, *nets = to->nets;
  memcpy(gpus, from->gpus, (size_t)from->nchannels * (size_t)from->ngpus * sizeof(int));
  memcpy(nets, from->nets, (size_t)from->nchannels * 2 * sizeof(int));
  *to = *from;
  to->gpus = gpus;
  to->nets = nets;
}

static void accept(tt_search *s, const tt_cond *c, tt_graph *best)
{
  tt_graph *now = &s->now;
  now->id = best->id;
  now->bound = best->bound;
  now->pattern = c->pattern;
  now->crossnic = c->crossnic;
  now->speedintra = c->speedintra;
  now->speedinter = c->speedinter;
  now->typeintra = c->typeintra;
  now->typeinter = c->typeinter;
  now->samechannels = c->same;
  tt_graph_copy(best, now);
}

tt_cond tt_search_cond(const tt_graph *g)
{
  return (tt_cond){.pattern = g->pattern,
                   .crossnic = g->crossnic,
                   .typeintra = g->typeintra,
                   .typeinter = g->typeinter,
                   .speedintra = g->speedintra,
                   .speedinter = g->speedinter,
                   .same = g->samechannels,
                   .slower = 1.0f};
}

bool tt_search_consider(tt_search *s, const tt_cond *c, tt_graph *best)
{
  const tt_graph *now = &s->now;
  bool better;
  if (now->nchannels < c->min) {
    return false;
  }
  if (c->pattern == TT_PATTERN_NVLS) {
    // Each channel is one more GPU that pulls its share.
    better = (now->nchannels > best->nchannels && now->nchannels <= now->ngpus) ||
             (float)now->nchannels * c->speedinter > (float)best->nchannels * best->speedinter;
  } else {
    float total = (float)now->nchannels * c->speedintra, had = tt_search_bar(c, best);
    better = total > had || (total == had && tt_search_comparable(c, best) && now->nhops < best->nhops);
  }
  if (better) {
    accept(s, c, best);
  }
  return better;
}

bool tt_search_nets_ok(const tt_search *s, const tt_cond *c, int in, int out)
{
  const tt_topo_node *a = &s->topo->nodes[in], *b = &s->topo->nodes[out];
  if (c->pin != NULL) {
    return out == c->pin[1];
  }
  if (a->net.plane >= 0 && b->net.plane >= 0 && a->net.plane != b->net.plane) {
    return false;
  }
  if (c->pattern == TT_PATTERN_TREE && in != out) {
    return false; // up and down are the same card
  }
  if (c->pattern == TT_PATTERN_RING && c->crossnic == 2) {
    return (s->now.nchannels & 1) == 0 || out == s->now.nets[2 * s->now.nchannels - 2];
  }
  if (c->crossnic != 0) {
    return true;
  }
  if (a->net.rail >= 0 && b->net.rail >= 0) {
    return a->net.rail == b->net.rail;
  }
  return a->net.guid == b->net.guid && a->net.port == b->net.port;
}

void tt_search_lanes(tt_search *s, int type)
{
  int count = 0;
  for (int g = 0; g < s->ends.ngpus; g++) {
    const tt_topo_node *n = &s->topo->nodes[g];
    s->first_lane[g] = count;
    for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
      int kind = s->topo->links[l].type;
      if (kind == TT_PATH_NVL || kind == TT_PATH_LOC || type > TT_PATH_NVB) {
        s->lanes[count++] = l;
      }
    }
  }
  s->first_lane[s->ends.ngpus] = count;
}

// Edges of which one takes 1 / share of a link that may still leave the GPU, and come to it.
static void count_edges(const tt_search *s, int gpu, double share, bool both, int count[2])
{
  const double exact = 1e-6; // of a division, which would be most of the work
  const int *left = s->flow.left;
  int out = 0, in = 0;
  for (int i = s->first_lane[gpu]; i < s->first_lane[gpu + 1]; i++) {
    out += (int)(left[s->lanes[i]] * share + exact);
  }
  for (int i = s->first_lane[gpu]; both && i < s->first_lane[gpu + 1]; i++) {
    in += (int)(left[s->topo->links[s->lanes[i]].back] * share + exact);
  }
  count[0] = out;
  count[1] = in;
}

// Channels of that amount that the network's ports have room for.
static long ports_room(const tt_search *s, int amount)
{
  long room = 0;
  for (int i = 0; i < s->ends.nnets; i++) {
    room += s->flow.port[i] == i ? s->flow.port_left[i] / amount : 0;
  }
  return TT_MIN(room, TT_GRAPH_MAX_CHANNELS);
}

// The most channels, up to `room`, each of which leaves out one GPU at most, when GPU g can take part in edges[2 * g]
// of them.
static int chains_room(const int *edges, int n, int room)
{
  for (;; room--) {
    long sum = 0;
    for (int g = 0; g < n; g++) {
      sum += TT_MIN(edges[2 * g], room);
    }
    if (sum >= (long)room * (n - 1)) {
      return room;
    }
  }
}

int tt_search_room(const tt_search *s, const tt_cond *c, int room)
{
  int n = s->ends.ngpus;
  double share = 1.0 / TT_MAX(tt_flow_amount(c->speedintra), 1);
  if (s->now.inter) {
    room = (int)TT_MIN(ports_room(s, TT_MAX(tt_flow_port_amount(c->speedinter), 1)), room);
  }
  // Every GPU of a ring sends and gets as much; the ends of others do not, and over cards the ends of a ring do so on
  // other links.
  bool closed = c->pattern == TT_PATTERN_RING && !s->now.inter;
  for (int g = 0; g < n && n > 1 && room > 0; g++) {
    int *edges = &s->degrees[2 * g];
    count_edges(s, g, share, !closed, edges);
    room = closed ? TT_MIN(room, edges[0]) : room;
  }
  if (n > 1 && !closed && room > 0) {
    room = chains_room(s->degrees, n, room);
    room = chains_room(s->degrees + 1, n, room);
  }
  return room;
}

// ---- The ladder of conditions ----

// The bit of a condition among those of one speed and one pair of types.
static uint8_t condition_bit(const tt_cond *c)
{
  return (uint8_t)(1u << ((c->crossnic == 2) + 2 * (c->pattern == TT_PATTERN_TREE) + 4 * c->same));
}

static bool try_once(tt_ladder *l, bool *seen)
{
  if (l->pattern == TT_PATTERN_NVLS || l->pattern == TT_PATTERN_COLLNET_DIRECT) {
    return tt_search_heads(l->s, &l->c, l->best);
  }
  return tt_search_run(l->s, &l->c, l->best, seen);
}

// A condition under which all was seen is not tried again.
static bool try_condition(tt_ladder *l)
{
  uint8_t *closed = &l->closed[l->speed][l->c.typeintra][l->c.typeinter], bit = condition_bit(&l->c);
  bool seen = true;
  if ((*closed & bit) != 0) {
    return false;
  }
  bool stop = try_once(l, &seen);
  *closed |= seen ? bit : 0;
  l->exhausted &= seen;
  return stop;
}

static bool enough(const tt_ladder *l)
{
  return l->best->nchannels > 0 &&
         ((float)l->best->nchannels * l->best->speedinter >= l->total || l->s->steps_left <= 0);
}

// The same channels first, then different ones; a balanced tree, then the simpler one. True: nothing better is to be
// found.
static bool try_shapes(tt_ladder *l)
{
  bool may_differ = !(l->amd && l->c.typeintra == TT_PATH_SYS);
  for (int simple = 0; simple < 2; simple++) {
    if (simple == 1 && (l->sm < 90 || l->pattern != TT_PATTERN_BALANCED_TREE)) {
      break;
    }
    l->c.pattern = simple == 1 ? TT_PATTERN_TREE : l->pattern;
    for (int same = l->pattern != TT_PATTERN_NVLS; same >= 0; same--) {
      l->c.same = same == 1;
      l->c.only_same = same == 1 && !may_differ;
      if ((same == 1 || may_differ || l->pattern == TT_PATTERN_NVLS) && (try_condition(l) || enough(l))) {
        return true;
      }
    }
  }
  l->c.pattern = l->pattern;
  return false;
}

static bool try_intra_types(tt_ladder *l)
{
  const tt_graph *best = l->best;
  int most = l->s->now.inter ? l->c.typeinter : l->max_intra;
  for (int t = l->s->ends.min_intra;; t++) {
    l->c.typeintra = t;
    // A type that no pair has adds nothing to the one before.
    bool adds = t == l->s->ends.min_intra || (l->s->ends.intra_types >> t & 1) != 0;
    if (adds && try_shapes(l)) {
      return true;
    }
    if (t >= most || (best->nchannels > 0 && t >= best->typeintra) || t >= TT_PATH_NET) {
      return false;
    }
  }
}

static bool try_inter_types(tt_ladder *l)
{
  const tt_graph *best = l->best;
  for (int t = l->s->ends.min_inter;; t++) {
    l->c.typeinter = t;
    bool adds = t == l->s->ends.min_inter || !l->s->now.inter || (l->s->ends.inter_types >> t & 1) != 0 ||
                (l->s->ends.intra_types >> t & 1) != 0; // the way inside may be as far as the way outside
    if (adds) {
      tt_ends_select(&l->s->ends, t);
      if (try_intra_types(l)) {
        return true;
      }
    }
    bool further = best->nchannels == 0 || t < best->typeinter || t < TT_PATH_PXN;
    if (!l->s->now.inter || t >= l->max_inter || !further || t >= TT_PATH_NET) {
      return false;
    }
  }
}

static bool try_cards(tt_ladder *l)
{
  bool pairs = l->cross == 2 && (l->pattern == TT_PATTERN_RING || l->pattern == TT_PATTERN_BALANCED_TREE);
  for (int pass = 0; pass < (pairs ? 2 : 1); pass++) {
    l->c.crossnic = pass == 1 ? 2 : l->cross == 1;
    if (try_inter_types(l)) {
      return true;
    }
  }
  return false;
}

// Keeps what was found so far, before channels become slow.
static void keep_sooner(tt_ladder *l, float slower)
{
  if (l->sooner != NULL && l->sooner->nchannels == 0 && slower <= TT_SEARCH_HALF) {
    tt_graph_copy(l->sooner, l->best);
  }
}

#define SLOWEST 0.1f // share of the best ones' speed that channels must have

// May slow channels of that speed carry more together than what was found? A head more costs NVLS no multiprocessor,
// but slow ones win nothing.
static bool slow_may_win(const tt_ladder *l, float speed)
{
  const tt_graph *best = l->best;
  float port = (float)TT_MAX(tt_flow_port_amount(speed), 1) / 1000.0f; // what a port counts
  float bound = best->inter ? best->bound * TT_MAX(speed / port, 1.0f) : best->bound;
  if (l->pattern == TT_PATTERN_NVLS || speed < best->speedinter * SLOWEST) {
    return false;
  }
  return bound == 0 || (float)best->nchannels * best->speedinter * TT_SEARCH_MORE < bound;
}

// First pass: speeds from high to low until something was found; then as long as slower channels may carry more
// together.
static void descend(tt_ladder *l)
{
  int i = 0;
  float total = l->total;
  int devices = tt_topo_devices(l->s->topo);
  if (devices > 1 && l->pattern != TT_PATTERN_RING) {
    total *= (float)devices / (float)(devices - 1); // one GPU less sends
  }
  while (i < l->nspeeds - 1 && (l->speeds[i] > l->max_speed || l->speeds[i] * (float)l->c.min > total)) {
    i++;
  }
  for (;; i++) {
    l->speed = i;
    l->c.speedintra = l->c.speedinter = l->speeds[i];
    if (try_cards(l) || i == l->nspeeds - 1) {
      return;
    }
    // Many slow channels cost multiprocessors: they have to bring something.
    float slower = l->best->nchannels > 0 ? l->speeds[i + 1] / l->best->speedinter : 1.0f;
    if (slower <= TT_SEARCH_HALF && !slow_may_win(l, l->speeds[i + 1])) {
      return;
    }
    keep_sooner(l, slower);
    l->c.slower = slower;
  }
}

enum { TURNS = 20 };

// Where not all was seen, other orders may come upon something better: shortly under each condition, several times.
static void descend_again(tt_ladder *l)
{
  tt_search *s = l->s;
  s->steps_left = TT_MIN(s->max_steps, s->steps) / 2;
  for (s->turn = 1; s->turn <= TURNS && !l->exhausted && s->steps_left > 0; s->turn++) {
    l->exhausted = true; // it will tell
    l->c.slower = 1.0f;
    descend(l);
  }
  s->turn = 0;
}

// Few fast channels become twice as many of half the speed: more multiprocessors share the work.
static void duplicate(tt_ladder *l)
{
  tt_graph *g = l->best;
  if (g->nchannels == 0 || l->pattern == TT_PATTERN_NVLS || g->speedintra < 25.0f ||
      (l->sm > 80 && g->speedintra < 50.0f && g->nchannels > 4)) {
    return;
  }
  int n = g->nchannels, twice = TT_MIN(2 * n, l->c.max), parts = TT_DIV_UP(twice, n);
  memcpy(g->gpus + (size_t)n * (size_t)g->ngpus, g->gpus, (size_t)(twice - n) * (size_t)g->ngpus * sizeof(int));
  memcpy(g->nets + 2 * (size_t)n, g->nets, (size_t)(twice - n) * 2 * sizeof(int));
  g->nhops += twice > n ? g->nhops * (twice - n) / n : 0;
  g->speedintra /= (float)parts;
  g->speedinter /= (float)parts;
  g->nchannels = twice;
}

// Tries a faster speed; trees, which do not care whether they have one order, also with different ones that are no
// longer.
static void try_faster(tt_ladder *l)
{
  tt_graph *best = l->best, *had = &l->s->part;
  float speed = best->speedintra;
  l->c.same = best->samechannels;
  try_once(l, &l->exhausted);
  if (l->c.same && best->pattern < TT_PATTERN_RING && best->speedintra == speed) {
    tt_graph_copy(had, best);
    l->c.same = false;
    try_once(l, &l->exhausted);
    if (best->nhops > had->nhops) {
      tt_graph_copy(best, had);
    }
  }
}

// Second pass: the same number of channels, faster: rings everywhere, trees inside the machine, NVLS outside.
static void climb(tt_ladder *l)
{
  tt_graph *g = l->best;
  int i = 0;
  while (i < l->nspeeds - 1 && l->speeds[i] > g->speedinter) {
    i++;
  }
  int max = l->c.max;
  l->c = tt_search_cond(g);
  l->c.speedintra = l->c.speedinter = l->speeds[i];
  l->c.min = g->nchannels;
  l->c.max = max;
  tt_ends_select(&l->s->ends, g->typeinter);
  for (i--; i >= 0; i--) {
    if (g->pattern == TT_PATTERN_RING) {
      l->c.speedintra = l->c.speedinter = l->speeds[i];
    } else if (g->pattern == TT_PATTERN_NVLS && l->c.speedinter == g->speedinter &&
               l->c.speedinter < l->c.speedintra * 2) {
      l->c.min = l->c.max = g->nchannels;
      l->c.speedinter = l->speeds[i];
    } else if (l->c.speedintra == g->speedintra && l->c.speedintra < l->c.speedinter * 2) {
      l->c.speedintra = l->speeds[i];
    } else {
      return;
    }
    try_faster(l);
  }
}

// Nothing fits: the order of the machine, slow.
static void ladder_fall_back(tt_ladder *l)
{
  tt_graph *g = l->best;
  tt_search *s = l->s;
  const int *first = s->ends.liked, *last = s->ends.liked + (s->ends.ngpus - 1) * (s->ends.nnets + 1);
  for (int i = 0; i < g->ngpus; i++) {
    g->gpus[i] = i;
  }
  bool nets = g->inter && first[0] > 0 && last[0] > 0;
  g->pattern = l->pattern;
  g->nets[0] = nets ? first[1] : -1;
  g->nets[1] = nets ? last[1] : -1;
  g->speedintra = 0.1f;
  g->speedinter = nets ? 0.1f : 0;
  g->typeintra = TT_PATH_SYS;
  g->typeinter = nets ? TT_PATH_SYS : TT_PATH_DIS;
  g->nchannels = 1;
}

// No graph can have more: what the GPU with the least sends at most, and what the cards carry.
static float upper_bound(const tt_ladder *l)
{
  const tt_topo *topo = l->s->topo;
  int n = l->s->ends.ngpus;
  bool inter = l->s->now.inter, ring = l->pattern == TT_PATTERN_RING;
  float least = l->total, all = 0, nets = 0;
  for (int g = 0; g < n; g++) {
    const tt_topo_node *d = &topo->nodes[topo->nodes[g].gpu.device];
    float out = 0;
    for (int i = d->first_link; i < d->first_link + d->nlinks; i++) {
      out += topo->links[i].type == TT_PATH_LOC ? 0 : topo->links[i].bw;
    }
    all += out;
    least = g == 0 ? out : TT_MIN(least, out);
  }
  // A ring leaves every GPU once; another channel leaves GPUs as often as it has edges.
  float bound = n == 1 ? l->total : ring && !inter ? least : all / (float)(inter && ring ? n : n - 1);
  bound = l->pattern == TT_PATTERN_NVLS ? bound : TT_MIN(bound, tt_cuts_bound(l->s, ring && !inter));
  for (int i = 0; i < l->s->ends.nnets; i++) {
    nets += l->s->flow.port[i] == i ? topo->nodes[l->s->ends.first_net + i].net.bw : 0;
  }
  return inter ? (n == 1 ? nets : TT_MIN(bound, nets)) : bound;
}

static void ladder_prepare(tt_ladder *l, tt_search_limits channels)
{
  tt_search *s = l->s;
  bool many =
      s->now.inter && s->ends.nnets > 1 && (l->pattern == TT_PATTERN_RING || l->pattern <= TT_PATTERN_SPLIT_TREE);
  const tt_topo_node *cpu =
      tt_topo_count(s->topo, TT_NODE_CPU) > 0 ? &s->topo->nodes[s->topo->first[TT_NODE_CPU]] : NULL;
  l->sm = oldest_sm(s->topo);
  l->cross = many ? s->options->cross_nic : 0;
  ladder_find_speeds(l);
  l->amd = cpu != NULL && cpu->cpu.arch == TT_CPU_X86 && cpu->cpu.vendor == TT_CPU_AMD;
  l->max_intra = s->now.inter ? s->ends.max_inter : s->ends.max_intra;
  // Balanced trees may come back the long way.
  l->max_inter = l->sm < 90 || !s->now.inter ? TT_PATH_SYS : s->ends.max_inter;
  l->c.min = channels.least;
  l->c.max = channels.most;
  l->c.slower = 1.0f;
  l->exhausted = true;
  if (s->ends.ngpus == 1 && l->pattern != TT_PATTERN_RING) {
    l->pattern = TT_PATTERN_TREE;
  }
  if (l->pattern == TT_PATTERN_NVLS && !s->now.inter) {
    l->c.min = l->c.max;
  }
  if (l->pattern == TT_PATTERN_RING && l->c.min == 1 && l->c.max >= 2 && split_nvlink(s)) {
    l->two = true; // trees will want two, and have as many as rings
    l->c.min = 2;
  }
  find_limits(l);
}

// Nothing found yet.
static void ladder_forget(tt_ladder *l)
{
  const tt_ends *e = &l->s->ends;
  tt_graph *best = l->best;
  best->nchannels = best->nhops = 0;
  best->speedintra = best->speedinter = best->latencyinter = 0;
  best->pattern = l->pattern;
  best->typeintra = e->min_intra;
  best->typeinter = l->s->now.inter ? e->min_inter : TT_PATH_PIX;
  best->crossnic = l->cross == 1;
  best->samechannels = l->pattern != TT_PATTERN_NVLS;
}

// Trees want two channels. Where two are slow or do not fit, one may be better.
static void try_one(tt_ladder *l)
{
  const float slow = 3;
  tt_graph *best = l->best, *two = &l->s->part;
  if (best->nchannels > 0 && best->speedintra >= slow) {
    return;
  }
  tt_graph_copy(two, best);
  ladder_forget(l);
  l->c.min = 1;
  l->c.slower = 1.0f;
  memset(l->closed, 0, sizeof(l->closed)); // they were of two channels
  descend(l);
  if ((float)two->nchannels * two->speedintra > (float)best->nchannels * best->speedintra * 1.3f) {
    tt_graph_copy(best, two);
  }
}

// Second pass and what follows it, for a graph that the first pass found.
static void refine(tt_ladder *l, tt_graph *g, long budget)
{
  tt_search *s = l->s;
  l->best = g;
  duplicate(l);
  s->steps_left = budget / 4;
  climb(l);
  s->steps_left = budget / 4;
  tt_search_polish(s, g);
}

void tt_search_graph(tt_search *s, int pattern, tt_search_limits channels, tt_graph *best, tt_graph *sooner)
{
  tt_ladder l = {.s = s, .best = best, .pattern = pattern, .sooner = sooner};
  s->steps_left = s->max_steps;
  s->now.pattern = pattern;
  long budget = s->steps_left;
  s->steps = 0;
  ladder_prepare(&l, channels);
  ladder_forget(&l);
  best->bound = l.pattern == TT_PATTERN_COLLNET_DIRECT ? 0 : upper_bound(&l);
  if (sooner != NULL) {
    sooner->nchannels = 0;
  }
  if (!s->now.inter) {
    s->ends.min_inter = TT_PATH_PIX;
  }
  descend(&l);
  if (l.two) {
    try_one(&l);
  }
  descend_again(&l);
  if (!l.exhausted) {
    s->steps_left = budget / 20;
    tt_search_widen(s, best, channels.most);
  }
  if (sooner != NULL && sooner->nchannels > 0) {
    if (sooner->speedintra == best->speedintra && sooner->nchannels == best->nchannels) {
      sooner->nchannels = 0;
    } else {
      refine(&l, sooner, budget);
    }
  }
  if (best->nchannels > 0) {
    refine(&l, best, budget);
  } else if (!s->collnet && pattern != TT_PATTERN_NVLS) {
    ladder_fall_back(&l);
  }
  best->exhausted = l.exhausted;
  best->steps = s->steps;
}

// ---- All graphs ----

static ncclResult_t graph_room(tt_graph *g, int ngpus, bool inter)
{
  g->ngpus = ngpus;
  g->inter = inter;
  g->gpus = tt_calloc((size_t)TT_GRAPH_MAX_CHANNELS * (size_t)ngpus, sizeof(int));
  g->nets = tt_calloc((size_t)TT_GRAPH_MAX_CHANNELS * 2, sizeof(int));
  return g->gpus != NULL && g->nets != NULL ? ncclSuccess
                                            : tt_fail(ncclSystemError, "no memory for the channels of %d GPUs", ngpus);
}

static void graph_clear(tt_graph *g)
{
  tt_free(g->gpus);
  tt_free(g->nets);
  *g = (tt_graph){0};
}

void tt_graphs_clear(tt_graphs *graphs)
{
  for (int i = 0; i < TT_GRAPH_KINDS; i++) {
    graph_clear(&graphs->graph[i]);
  }
}

ncclResult_t tt_graphs_room(const tt_topo *topo, bool inter, tt_graphs *out)
{
  static const int ids[TT_GRAPH_KINDS] = {0, 1, 4, 2, 3};
  static const int patterns[TT_GRAPH_KINDS] = {TT_PATTERN_RING, TT_PATTERN_BALANCED_TREE, TT_PATTERN_COLLNET_DIRECT,
                                               TT_PATTERN_TREE, TT_PATTERN_NVLS};
  for (int i = 0; i < TT_GRAPH_KINDS; i++) {
    TT_TRY(graph_room(&out->graph[i], tt_topo_count(topo, TT_NODE_GPU), inter));
    out->graph[i].id = ids[i];
    out->graph[i].pattern = patterns[i];
  }
  return ncclSuccess;
}

static void search_destroy(tt_search *s)
{
  graph_clear(&s->part);
  graph_clear(&s->now);
  tt_arena_clear(&s->arena);
}

static ncclResult_t search_create(tt_search *s)
{
  int n = tt_topo_count(s->topo, TT_NODE_GPU);
  s->ends = (tt_ends){.topo = s->topo, .paths = s->paths, .rules = s->rules};
  TT_TRY(tt_flow_create(s->topo, s->paths, &s->arena, &s->flow));
  TT_TRY(tt_ends_create(&s->arena, &s->ends));
  TT_TRY(tt_cuts_create(s->topo, &s->arena, &s->cuts));
  TT_TRY(graph_room(&s->now, n, s->options->inter));
  TT_TRY(graph_room(&s->part, n, s->options->inter));
  TT_ARENA_NEW(&s->arena, s->edges, n + TT_EDGES_MORE);
  TT_ARENA_NEW(&s->arena, s->lanes, s->topo->nlinks);
  TT_ARENA_NEW(&s->arena, s->first_lane, n + 1);
  TT_ARENA_NEW(&s->arena, s->degrees, 2 * n);
  TT_ARENA_NEW(&s->arena, s->memo, TT_MEMO_SIZE);
  TT_ARENA_NEW(&s->arena, s->used, n);
  TT_ARENA_NEW(&s->arena, s->back, n * TT_GRAPH_MAX_CHANNELS);
  return s->arena.failed ? tt_fail(ncclSystemError, "no memory for the search among %d GPUs", n) : ncclSuccess;
}

static ncclResult_t search_all(tt_search *s, tt_graphs *out)
{
  tt_graph *g = out->graph;
  int n = s->ends.ngpus;
  TT_TRY(tt_search_pair(s, out));
  int rings = g[TT_GRAPH_RING].nchannels;
  s->collnet = true;
  if (s->options->collnet) {
    tt_search_graph(s, TT_PATTERN_TREE, (tt_search_limits){rings, rings}, &g[TT_GRAPH_COLLNET_CHAIN], NULL);
    tt_search_graph(s, TT_PATTERN_COLLNET_DIRECT, (tt_search_limits){1, TT_MIN(TT_GRAPH_MAX_DIRECT, n)},
                    &g[TT_GRAPH_COLLNET_DIRECT], NULL);
  }
  s->collnet = false;
  if (s->options->nvls && s->ends.nvs && oldest_sm(s->topo) >= 90) {
    tt_search_graph(s, TT_PATTERN_NVLS, (tt_search_limits){1, TT_MIN(TT_GRAPH_MAX_HEADS, n)}, &g[TT_GRAPH_NVLS], NULL);
  }
  return ncclSuccess;
}

ncclResult_t tt_graphs_search(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules,
                              const tt_search_options *options, tt_graphs *out)
{
  tt_search s = {.topo = topo, .paths = paths, .rules = rules, .options = options};
  s.max_steps = options->max_steps > 0 ? options->max_steps : DEFAULT_STEPS;
  tt_graphs all = {0};
  ncclResult_t res = ncclSuccess;
  int n = tt_topo_count(topo, TT_NODE_GPU);
  if (n == 0) {
    return tt_fail(ncclInvalidArgument,
                   "no channels on a machine without GPUs; a rank's <gpu> must be in the document");
  }
  TT_TRY_GOTO(tt_graphs_room(topo, options->inter, &all), res);
  TT_TRY_GOTO(search_create(&s), res);
  TT_TRY_GOTO(search_all(&s, &all), res);
  search_destroy(&s);
  *out = all;
  return ncclSuccess;
fail:
  search_destroy(&s);
  tt_graphs_clear(&all);
  return res;
}
