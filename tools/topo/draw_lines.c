// draw_lines.c: the lines of links and channels between boxes.
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "draw_priv.h"

typedef struct line {
  char *path;
  size_t size;
  xp_label *label;
} line;

static float middle(const xp_box *b)
{
  return b->x + b->w / 2;
}

static bool is_gpu(const xp_layout *o, int node)
{
  return o->topo->nodes[node].kind == TT_NODE_GPU || o->topo->nodes[node].kind == TT_NODE_DEV;
}

static int kind_of(const xp_layout *o, int node)
{
  return o->topo->nodes[node].kind;
}

static bool vertical(line l, float x, float from, float to)
{
  snprintf(l.path, l.size, "M%.1f %.1fV%.1f", x, from, to);
  *l.label = (xp_label){x + 4, to > from ? to - 7 : to + 12, "start"};
  return true;
}

// A bow from x1 to x2, whose middle is `deep` below (above, when negative) y.
static bool bow(line l, const float x[2], float y, float deep)
{
  float control = y + deep / 0.75f;
  snprintf(l.path, l.size, "M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f", x[0], y, x[0], control, x[1], control, x[1], y);
  *l.label = (xp_label){(x[0] + x[1]) / 2, y + deep + 3, "middle"};
  return true;
}

// Whatever is not in the plan: from box to box.
static bool anyhow(line l, const xp_box *a, const xp_box *b)
{
  float x1 = middle(a), y1 = a->y + a->h / 2, x2 = middle(b), y2 = b->y + b->h / 2;
  snprintf(l.path, l.size, "M%.1f %.1fQ%.1f %.1f %.1f %.1f", x1, y1, (x1 + x2) / 2 + 20, (y1 + y2) / 2, x2, y2);
  *l.label = (xp_label){(x1 + x2) / 2 + 10, (y1 + y2) / 2, "middle"};
  return true;
}

// How deep a bow between two GPUs of a band hangs.
static float depth_of(const xp_layout *o, int a, int b)
{
  int far = o->place[a] > o->place[b] ? o->place[a] - o->place[b] : o->place[b] - o->place[a];
  float room = o->zone - (o->bars[o->band[a]].w > 0 ? 44 : 34); // above a switch, its links' numbers
  return 18 + fmaxf(room, 0) * (float)(far - 1) / (float)TT_MAX(1, o->far - 1);
}

// Where at a GPU's lower side its bows to others begin: those to the left from the left, the nearest outermost, so that
// bows do not cross before they leave.
static float attach(const xp_layout *o, int gpu, int to)
{
  const tt_topo_node *n = &o->topo->nodes[gpu];
  int total = 0, before = 0;
  bool left = o->place[to] < o->place[gpu];
  int far = left ? o->place[gpu] - o->place[to] : o->place[to] - o->place[gpu];
  for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
    int other = o->topo->links[l].to;
    if (!is_gpu(o, other)) {
      continue;
    }
    total++;
    bool its_left = o->place[other] < o->place[gpu];
    int its_far = its_left ? o->place[gpu] - o->place[other] : o->place[other] - o->place[gpu];
    before += its_left != left ? its_left : left ? its_far < far : its_far > far;
  }
  const xp_box *b = &o->box[gpu];
  return b->x + b->w * (float)(before + 1) / (float)(total + 1);
}

static bool gpu_to_gpu(const xp_layout *o, int a, int b, line l)
{
  if (o->band[a] != o->band[b]) {
    return anyhow(l, &o->box[a], &o->box[b]);
  }
  return bow(l, (float[]){attach(o, a, b), attach(o, b, a)}, o->box[a].y + o->box[a].h, depth_of(o, a, b));
}

static bool cpu_to_cpu(const xp_layout *o, int a, int b, line l)
{
  if (o->box[a].x > o->box[b].x) {
    int t = a;
    a = b;
    b = t;
  }
  const xp_box *left = &o->box[a], *right = &o->box[b];
  int far = o->place[b] - o->place[a];
  if (o->band[a] != o->band[b]) {
    return anyhow(l, left, right);
  }
  if (far > 1) {
    return bow(l, (float[]){middle(left), middle(right)}, left->y, -fminf(8 + 7 * (float)far, o->arch - 6));
  }
  snprintf(l.path, l.size, "M%.1f %.1fH%.1f", left->x + left->w, left->y + left->h / 2, right->x);
  *l.label = (xp_label){(left->x + left->w + right->x) / 2, left->y + left->h / 2 - 6, "middle"};
  return true;
}

static bool gpu_to_switch(const xp_layout *o, int gpu, line l)
{
  const xp_box *b = &o->box[gpu], *bar = &o->bars[o->band[gpu]];
  vertical(l, middle(b), b->y + b->h, bar->y);
  return true;
}

// Down from the box of `up` to that of `node`, beside the way of the tree.
static bool beside(const xp_layout *o, int up, int node, float dx, line l)
{
  const xp_box *a = &o->box[up], *b = &o->box[node];
  vertical(l, b->x + o->hang[node] + dx, a->y + a->h, b->y);
  if (dx < 0) {
    *l.label = (xp_label){l.label->x - 8, l.label->y, "end"};
  }
  return true;
}

static bool route(const xp_layout *o, const tt_topo_link *link, line l)
{
  int a = link->from, b = link->to;
  if (kind_of(o, a) > kind_of(o, b)) {
    a = link->to;
    b = link->from;
  }
  if (is_gpu(o, a) && is_gpu(o, b)) {
    return gpu_to_gpu(o, a, b, l);
  }
  if ((link->type == TT_LINK_PCI || link->type == TT_PATH_NET) && (o->parent[a] == b || o->parent[b] == a)) {
    return o->parent[a] == b ? beside(o, b, a, 0, l) : beside(o, a, b, 0, l);
  }
  if (kind_of(o, a) == TT_NODE_CPU && kind_of(o, b) == TT_NODE_CPU) {
    return cpu_to_cpu(o, a, b, l);
  }
  if (kind_of(o, a) == TT_NODE_NVS || kind_of(o, b) == TT_NODE_NVS) {
    int gpu = kind_of(o, a) == TT_NODE_NVS ? b : a;
    return is_gpu(o, gpu) ? gpu_to_switch(o, gpu, l) : anyhow(l, &o->box[a], &o->box[b]);
  }
  int gpu = is_gpu(o, a) ? a : b, other = gpu == a ? b : a;
  if (is_gpu(o, gpu) && kind_of(o, other) == TT_NODE_CPU && o->box[other].y < o->box[gpu].y) {
    return beside(o, other, gpu, link->type == TT_PATH_C2C ? -20 : -30, l);
  }
  if (o->box[a].y == o->box[b].y) {
    return bow(l, (float[]){middle(&o->box[a]), middle(&o->box[b])}, o->box[a].y, -12);
  }
  return anyhow(l, &o->box[a], &o->box[b]);
}

bool xp_layout_link(const xp_layout *o, int link, char *path, size_t size, xp_label *label)
{
  const tt_topo_link *l = &o->topo->links[link];
  if (o->box[l->from].w <= 0 || o->box[l->to].w <= 0) {
    return false;
  }
  return route(o, l, (line){path, size, label});
}

// ---- Channels ----

// Channels that are shown together stand a little apart.
static float apart(int channel)
{
  return (float)(channel % 8) * 2.5f - 8.75f;
}

static bool between_gpus(const xp_layout *o, const int ends[2], int channel, line l)
{
  const xp_box *a = &o->box[ends[0]], *b = &o->box[ends[1]];
  float dx = apart(channel), back = middle(a) < middle(b) ? 0 : 7; // outside of the way there
  if (o->band[ends[0]] == o->band[ends[1]]) {
    float deep = fminf(depth_of(o, ends[0], ends[1]) + dx / 2 + 5 + back, o->zone - 6);
    return bow(l, (float[]){middle(a) + dx + 4, middle(b) + dx - 4}, a->y + a->h, deep);
  }
  float y1 = a->y + a->h, y2 = b->y + b->h;
  const xp_box *bars[2] = {&o->bars[o->band[ends[0]]], &o->bars[o->band[ends[1]]]};
  if (bars[0]->w > 0 && bars[1]->w > 0) { // through the switch, whose bars are one
    snprintf(l.path, l.size, "M%.1f %.1fV%.1fM%.1f %.1fV%.1f", middle(a) + dx, y1, bars[0]->y, middle(b) + dx,
             bars[1]->y, y2);
    return true;
  }
  snprintf(l.path, l.size, "M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f", middle(a) + dx, y1, middle(a) + dx, y1 + o->zone,
           middle(b) + dx, y2 + o->zone, middle(b) + dx, y2);
  return true;
}

// Between a GPU and a port, which stands above it.
static bool to_port(const xp_layout *o, const int ends[2], int channel, line l)
{
  const xp_box *a = &o->box[ends[0]], *b = &o->box[ends[1]];
  bool down = a->y < b->y;
  float dx = apart(channel) + (down ? 4 : -4); // both ways stand apart
  float x1 = middle(a) + dx, x2 = middle(b) + dx, y1 = down ? a->y + a->h : a->y, y2 = down ? b->y : b->y + b->h;
  snprintf(l.path, l.size, "M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f", x1, y1, x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2,
           y2);
  return true;
}

bool xp_layout_edge(const xp_layout *o, const int ends[2], int channel, char *path, size_t size)
{
  xp_label label;
  line l = {path, size, &label};
  if (o->box[ends[0]].w <= 0 || o->box[ends[1]].w <= 0) {
    return false;
  }
  if (is_gpu(o, ends[0]) && is_gpu(o, ends[1])) {
    return between_gpus(o, ends, channel, l);
  }
  for (int i = 0; i < 2; i++) {
    if (kind_of(o, ends[i]) == TT_NODE_NVS && is_gpu(o, ends[1 - i])) {
      const xp_box *b = &o->box[ends[1 - i]], *bar = &o->bars[o->band[ends[1 - i]]];
      float y = b->y + b->h;
      return vertical(l, middle(b) + apart(channel), i == 1 ? y : bar->y, i == 1 ? bar->y : y);
    }
  }
  return to_port(o, ends, channel, l);
}

static void net_edges(const tt_graph *g, int channel, const int *gpus, xp_edge_fn *fn, void *arg)
{
  const int *nets = &g->nets[2 * channel];
  int last = g->pattern == TT_PATTERN_RING ? g->ngpus - 1 : 0;
  if (g->pattern == TT_PATTERN_SPLIT_TREE && g->ngpus > 1) {
    last = 1;
  }
  if (g->inter && nets[0] >= 0 && nets[1] >= 0) {
    fn(arg, nets[0], gpus[0]);
    fn(arg, gpus[last], nets[1]);
    if (g->pattern == TT_PATTERN_BALANCED_TREE && g->ngpus > 1) {
      fn(arg, gpus[1], nets[1]);
    }
  }
}

void xp_graph_edges(const tt_topo *topo, const tt_graph *g, int channel, xp_edge_fn *fn, void *arg)
{
  const int *gpus = &g->gpus[(size_t)channel * (size_t)g->ngpus];
  int n = g->ngpus, hub = gpus[0];
  bool nvls = g->pattern == TT_PATTERN_NVLS, heads = nvls || g->pattern == TT_PATTERN_COLLNET_DIRECT;
  if (nvls && tt_topo_count(topo, TT_NODE_NVS) > 0) {
    hub = topo->first[TT_NODE_NVS];
    fn(arg, gpus[0], hub);
  }
  for (int i = 1; i < n; i++) {
    fn(arg, heads ? hub : gpus[i - 1], gpus[i]);
  }
  if (g->pattern == TT_PATTERN_RING && !g->inter && n > 1) {
    fn(arg, gpus[n - 1], gpus[0]);
  }
  net_edges(g, channel, gpus, fn, arg);
}

const tt_path *xp_edge_path(const xp_drawing *d, int from, int to)
{
  if (d->paths == NULL || from >= d->paths->nends || to >= d->paths->nends) {
    return NULL;
  }
  const tt_path *p = tt_path_get(d->paths, from, to);
  return p->type == TT_PATH_DIS ? NULL : p;
}

// A balanced tree's traffic to its port comes in halves from two GPUs.
float xp_edge_bandwidth(const tt_topo *topo, const tt_graph *g, int from, int to)
{
  bool out = topo->nodes[to].kind == TT_NODE_NET, in = topo->nodes[from].kind == TT_NODE_NET;
  float half = out && g->pattern == TT_PATTERN_BALANCED_TREE && g->ngpus > 1 ? 0.5f : 1;
  return in || out ? g->speedinter * half : g->speedintra;
}

const char *xp_graph_name(int kind)
{
  static const char *names[] = {"ring", "tree", "collnet direct", "collnet chain", "NVLS"};
  return kind >= 0 && kind < (int)TT_COUNT(names) ? names[kind] : "?";
}
