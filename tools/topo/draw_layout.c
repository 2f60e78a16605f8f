// draw_layout.c: where everything stands.
//
// Each subtree is placed by itself, knowing its outline (leftmost and rightmost place in each row), then pushed to the
// left until it meets the outline of what stands there already. Cost: nodes times depth, which documents limit.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "draw_priv.h"

enum { MAX_TIERS = 4, MANY_PORTS = 4, ROWS = TT_XML_MAX_DEPTH + 8 + (MAX_TIERS + 1) * MAX_TIERS };

#define TOP 74.0f     // title, where it is not enlarged
#define MARGIN 24.0f  // around all
#define ROW 34.0f     // height of a box, where texts are not enlarged
#define STEP 70.0f    // from row to row
#define GAP 12.0f     // between boxes
#define CLEAR 9.0f    // between a line and a box
#define PANEL 16.0f   // inside a host's panel
#define CAPTION 24.0f // a panel's name
#define BAR 26.0f     // height of an NVSwitch
#define NARROWEST 620.0f
#define HANG 12.0f // where the way up leaves the box of what stands in tiers
#define SLIDE 1.9f // width of a slide, over its height
#define WIDE 2.3f  // beyond that, cards stand in tiers

typedef struct outline {
  float left[ROWS], right[ROWS];
} outline;

typedef struct placer {
  xp_layout *out;
  const tt_topo *topo;
  int *child, *next; // first child and next sibling
  int depth;         // PCI switches below each other
  int cards;         // tiers of cards; 0: there are none
  int ports;         // tiers of ports below each card
} placer;

// ---- Who hangs on what ----

// The last PCI link is the way up; a GPU that shares hangs where its device does; a port hangs on its card.
static int parent_of(const tt_topo *t, int node)
{
  const tt_topo_node *n = &t->nodes[node];
  if (n->kind == TT_NODE_CPU || n->kind == TT_NODE_NVS) {
    return -1;
  }
  if ((n->kind == TT_NODE_GPU || n->kind == TT_NODE_DEV) && n->gpu.device != node) {
    n = &t->nodes[n->gpu.device];
  }
  int type = n->kind == TT_NODE_NET ? TT_PATH_NET : TT_LINK_PCI, up = -1;
  for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
    up = t->links[l].type == type ? t->links[l].to : up;
  }
  return up;
}

typedef struct seat {
  int parent, line, node;
} seat;

static int compare_seats(const void *a, const void *b)
{
  const seat *x = a, *y = b;
  if (x->parent != y->parent) {
    return x->parent < y->parent ? 1 : -1;
  }
  if (x->line != y->line) {
    return x->line < y->line ? 1 : -1;
  }
  return x->node < y->node ? 1 : -1;
}

// Children in the order of the document.
static ncclResult_t hang(placer *p)
{
  int n = p->topo->nnodes;
  seat *seats = tt_calloc((size_t)n + 1, sizeof(*seats));
  if (seats == NULL) {
    return tt_fail(ncclSystemError, "no memory to draw %d nodes", n);
  }
  for (int i = 0; i < n; i++) {
    p->child[i] = p->next[i] = -1;
    p->out->parent[i] = parent_of(p->topo, i);
    seats[i] = (seat){p->out->parent[i], p->topo->nodes[i].line, i};
    p->cards = p->topo->nodes[i].kind == TT_NODE_NIC ? 1 : p->cards;
  }
  qsort(seats, (size_t)n, sizeof(*seats), compare_seats);
  for (int i = 0; i < n; i++) { // last first
    if (seats[i].parent >= 0) {
      p->next[seats[i].node] = p->child[seats[i].parent];
      p->child[seats[i].parent] = seats[i].node;
    }
  }
  tt_free(seats);
  return ncclSuccess;
}

// PCI switches from here down. Recursion: as deep as documents are; what is deeper is drawn in the last row.
static int switches_below(const placer *p, int node, int depth)
{
  int most = depth;
  for (int c = p->child[node]; c >= 0 && depth < TT_XML_MAX_DEPTH; c = p->next[c]) {
    if (p->topo->nodes[c].kind == TT_NODE_PCI) {
      most = TT_MAX(most, switches_below(p, c, depth + 1));
    }
  }
  return most;
}

// ---- Rows: CPUs 0, PCI switches 1 …, cards, ports, GPUs ----

// Where many cards make a machine wide, they stand in tiers, like stairs that lead up to the right: the lowest first,
// so that the ways of those below pass on the left of those above.
static int tiers_of(const placer *p, int kind)
{
  return kind == TT_NODE_NIC ? p->cards : kind == TT_NODE_NET ? p->ports : 1;
}

static int row_of(const placer *p, int kind, int depth)
{
  switch (kind) {
  case TT_NODE_CPU: return 0;
  case TT_NODE_PCI: return TT_MIN(depth, p->depth);
  case TT_NODE_NIC: return p->depth + 1;
  case TT_NODE_NET: return p->depth + 2;
  default: return p->depth + 1 + (1 + p->ports) * p->cards;
  }
}

// Two lines of text, which are larger in a large picture.
static float row_height(const xp_layout *o)
{
  return ROW * fminf(o->scale, 1.25f);
}

static float row_y(int row)
{
  return (float)row * STEP;
}

static float width_of(int kind)
{
  switch (kind) {
  case TT_NODE_CPU: return 150;
  case TT_NODE_PCI: return 92;
  case TT_NODE_NIC: return 64;
  case TT_NODE_NET: return 64;
  default: return 84;
  }
}

// ---- Outlines ----

static void outline_clear(outline *o)
{
  for (int r = 0; r < ROWS; r++) {
    o->left[r] = INFINITY;
    o->right[r] = -INFINITY;
  }
}

static void outline_add(outline *o, int row, float left, float right)
{
  o->left[row] = fminf(o->left[row], left);
  o->right[row] = fmaxf(o->right[row], right);
}

// How far `b` must move to stand right of `a`.
static float outline_shift(const outline *a, const outline *b, float gap)
{
  float shift = -INFINITY;
  for (int r = 0; r < ROWS; r++) {
    shift = fmaxf(shift, a->right[r] + gap - b->left[r]); // infinities of empty rows drop out
  }
  return isfinite(shift) ? shift : 0;
}

static void outline_merge(outline *a, const outline *b, float shift)
{
  for (int r = 0; r < ROWS; r++) {
    outline_add(a, r, b->left[r] + shift, b->right[r] + shift);
  }
}

// ---- Subtrees ----

static void move(const placer *p, int node, float dx)
{
  p->out->box[node].x += dx;
  for (int c = p->child[node]; c >= 0; c = p->next[c]) {
    move(p, c, dx);
  }
}

static float way_x(const xp_layout *o, int node)
{
  return o->box[node].x + o->hang[node];
}

static void place(const placer *p, int node, int row, int depth, outline *o);

// Places a child right of its siblings; its line up is in the way of others too. `row` is its parent's.
static void place_child(const placer *p, int child, const int rows[2], int depth, outline *o)
{
  outline own;
  place(p, child, rows[1], depth + 1, &own);
  for (int r = rows[0] + 1; r < rows[1]; r++) {
    outline_add(&own, r, way_x(p->out, child) - CLEAR + GAP / 2, way_x(p->out, child) + CLEAR - GAP / 2);
  }
  float shift = outline_shift(o, &own, GAP);
  move(p, child, shift);
  outline_merge(o, &own, shift);
}

static int count_children(const placer *p, int node, int kind)
{
  int count = 0;
  for (int c = p->child[node]; c >= 0; c = p->next[c]) {
    count += p->topo->nodes[c].kind == kind;
  }
  return count;
}

// The row of a child of a node in `row`: one of `count` of its kind, `at` stand before it.
static int child_row(const placer *p, int kind, const int place[2], int count, int at)
{
  int row = place[0], depth = place[1], tiers = TT_MAX(1, TT_MIN(tiers_of(p, kind), count)),
      tier = tiers - 1 - at % tiers;
  return kind == TT_NODE_NET ? row + 1 + tier
                             : row_of(p, kind, depth) + tier * (kind == TT_NODE_NIC ? 1 + p->ports : 1);
}

static void place(const placer *p, int node, int row, int depth, outline *o)
{
  const tt_topo_node *n = &p->topo->nodes[node];
  xp_box *b = &p->out->box[node];
  int at[TT_NODE_KINDS] = {0}, count[TT_NODE_KINDS] = {0};
  float left = INFINITY, right = -INFINITY, w = width_of(n->kind);
  outline_clear(o);
  count[TT_NODE_NIC] = count_children(p, node, TT_NODE_NIC);
  count[TT_NODE_NET] = count_children(p, node, TT_NODE_NET);
  for (int c = p->child[node]; c >= 0 && depth < TT_XML_MAX_DEPTH + 4; c = p->next[c]) {
    int kind = p->topo->nodes[c].kind;
    place_child(p, c, (int[]){row, child_row(p, kind, (int[]){row, depth + 1}, count[kind], at[kind]++)}, depth, o);
    left = fminf(left, p->out->box[c].x);
    right = fmaxf(right, p->out->box[c].x + p->out->box[c].w);
  }
  float center = right > left ? (left + right) / 2 : 0;
  w = right > left ? fmaxf(w, right - left) : w;
  *b = (xp_box){.x = center - w / 2, .y = row_y(row), .w = w, .h = row_height(p->out)};
  p->out->hang[node] = tiers_of(p, n->kind) > 1 ? HANG : w / 2;
  outline_add(o, row, b->x, b->x + b->w);
}

// ---- Hosts ----

// CPUs of a host side by side, from x = 0. Returns the width.
static float place_host(const placer *p, int host)
{
  const tt_topo *t = p->topo;
  outline all, own;
  outline_clear(&all);
  for (int i = t->first[TT_NODE_CPU]; i < t->first[TT_NODE_CPU + 1]; i++) {
    if (t->nodes[i].host == host) {
      place(p, i, 0, 0, &own);
      float shift = outline_shift(&all, &own, 3 * GAP);
      move(p, i, shift);
      outline_merge(&all, &own, shift);
    }
  }
  float left = INFINITY, right = -INFINITY;
  for (int r = 0; r < ROWS; r++) {
    left = fminf(left, all.left[r]);
    right = fmaxf(right, all.right[r]);
  }
  for (int i = t->first[TT_NODE_CPU]; right > left && i < t->first[TT_NODE_CPU + 1]; i++) {
    if (t->nodes[i].host == host) {
      move(p, i, -left);
    }
  }
  return right > left ? right - left : 0;
}

static bool is_gpu(const tt_topo_node *n)
{
  return n->kind == TT_NODE_GPU || n->kind == TT_NODE_DEV;
}

// Number of CPUs of the host that has most of them. `scratch` has room for a number of each host, and becomes zero.
static int most_cpus(const tt_topo *t, int *scratch)
{
  int most = 0;
  memset(scratch, 0, (size_t)t->nhosts * sizeof(*scratch));
  for (int i = t->first[TT_NODE_CPU]; i < t->first[TT_NODE_CPU + 1]; i++) {
    int count = ++scratch[t->nodes[i].host];
    most = TT_MAX(most, count);
  }
  memset(scratch, 0, (size_t)t->nhosts * sizeof(*scratch));
  return most;
}

static bool has_nvs(const tt_topo *t)
{
  return tt_topo_count(t, TT_NODE_NVS) > 0;
}

typedef struct grid {
  float w, h;          // of one host's cell
  int columns, nhosts; // cells in a row; cells
  float top;           // free above
} grid;

static float grid_width(const grid *g, int columns)
{
  return 2 * MARGIN + (float)columns * g->w;
}

static float grid_height(const grid *g, int columns)
{
  return g->top + (float)TT_DIV_UP(g->nhosts, columns) * g->h + MARGIN;
}

// The number of columns that comes nearest to a slide's shape; no more than its rows need, so that the last row is full
// or nearly so.
static void choose_columns(grid *g)
{
  float best = INFINITY;
  for (int c = 1; c <= TT_MIN(g->nhosts, 256); c++) {
    float off = fabsf(logf(grid_width(g, c) / grid_height(g, c) / SLIDE));
    if (off < best) {
      best = off;
      g->columns = c;
    }
  }
  g->columns = TT_DIV_UP(g->nhosts, TT_DIV_UP(g->nhosts, g->columns));
}

static float bars_height(const xp_layout *o)
{
  return has_nvs(o->topo) ? BAR + 14 : 0;
}

// Moves every node of a host to its cell.
static void settle(placer *p, const grid *g, const float *widths)
{
  xp_layout *o = p->out;
  bool panels = g->nhosts > 1;
  for (int i = 0; i < p->topo->nnodes; i++) {
    int host = p->topo->nodes[i].host, column = host % g->columns;
    o->band[i] = host / g->columns;
    if (o->box[i].w > 0) {
      float spare =
          panels ? (g->w - PANEL - widths[host]) / 2 : (fmaxf(NARROWEST, o->width) - 2 * MARGIN - widths[host]) / 2;
      o->box[i].x += MARGIN + (float)column * g->w + spare;
      o->box[i].y += g->top + (float)o->band[i] * g->h + o->arch + (panels ? CAPTION + PANEL : 0);
    }
  }
  float down = row_y(row_of(p, TT_NODE_GPU, 0)) + row_height(o);
  for (int h = 0; panels && h < g->nhosts; h++) {
    o->panels[h] = (xp_box){.x = MARGIN + (float)(h % g->columns) * g->w,
                            .y = g->top + (float)(h / g->columns) * g->h,
                            .w = g->w - PANEL,
                            .h = CAPTION + PANEL + o->arch + down + PANEL};
  }
}

static void place_bars(xp_layout *o)
{
  const tt_topo *t = o->topo;
  for (int b = 0; has_nvs(t) && b < o->nbands; b++) {
    float left = INFINITY, right = -INFINITY, y = 0;
    for (int i = 0; i < t->nnodes; i++) {
      if (is_gpu(&t->nodes[i]) && o->band[i] == b && o->box[i].w > 0) {
        left = fminf(left, o->box[i].x);
        right = fmaxf(right, o->box[i].x + o->box[i].w);
        y = o->box[i].y + row_height(o) + o->zone;
      }
    }
    if (right > left) {
      o->bars[b] = (xp_box){.x = left, .y = y, .w = right - left, .h = BAR};
      o->box[t->first[TT_NODE_NVS]] = o->bars[b]; // where other lines to it would go
    }
  }
}

typedef struct spot {
  int band;
  float x;
  int node;
} spot;

static int compare_spots(const void *a, const void *b)
{
  const spot *x = a, *y = b;
  if (x->band != y->band) {
    return x->band - y->band;
  }
  if (x->x != y->x) {
    return x->x < y->x ? -1 : 1;
  }
  return x->node - y->node;
}

// Places of CPUs and GPUs, counted from the left.
static ncclResult_t count_places(xp_layout *o)
{
  const tt_topo *t = o->topo;
  spot *spots = tt_calloc((size_t)t->nnodes + 1, sizeof(*spots));
  if (spots == NULL) {
    return tt_fail(ncclSystemError, "no memory to draw %d nodes", t->nnodes);
  }
  for (int kind = 0; kind < 2; kind++) {
    int count = 0;
    for (int i = 0; i < t->nnodes; i++) {
      o->place[i] = kind == 0 ? 0 : o->place[i];
      if (kind == 0 ? is_gpu(&t->nodes[i]) : t->nodes[i].kind == TT_NODE_CPU) {
        spots[count++] = (spot){o->band[i], o->box[i].x, i};
      }
    }
    qsort(spots, (size_t)count, sizeof(*spots), compare_spots);
    for (int i = 0; i < count; i++) {
      o->place[spots[i].node] = i > 0 && spots[i].band == spots[i - 1].band ? o->place[spots[i - 1].node] + 1 : 0;
    }
  }
  tt_free(spots);
  return ncclSuccess;
}

// ---- Space for lines ----

typedef struct span {
  const xp_layout *o;
  int far;
} span;

static void add_span(void *arg, int from, int to)
{
  span *s = arg;
  const xp_layout *o = s->o;
  if (is_gpu(&o->topo->nodes[from]) && is_gpu(&o->topo->nodes[to]) && o->band[from] == o->band[to]) {
    s->far = TT_MAX(s->far, abs(o->place[from] - o->place[to]));
  }
}

// The greatest distance, in places, between two GPUs that a line joins.
static int farthest(const xp_layout *o, const xp_drawing *d, bool page)
{
  span s = {o, 0};
  for (int l = 0; l < d->topo->nlinks; l++) {
    add_span(&s, d->topo->links[l].from, d->topo->links[l].to);
  }
  for (int k = 0; d->graphs != NULL && k < TT_GRAPH_KINDS; k++) {
    const tt_graph *g = &d->graphs->graph[k];
    for (int c = 0; c < g->nchannels && (page || (k == TT_GRAPH_RING && c == 0)); c++) {
      xp_graph_edges(d->topo, g, c, add_span, &s);
    }
  }
  return s.far;
}

// Below GPUs and above CPUs. `far` is as farthest says.
static void choose_zones(xp_layout *o, int far)
{
  int cpus = most_cpus(o->topo, o->place); // places are counted anew
  o->far = far;
  o->zone = far > 0 ? 46 + 12 * (float)TT_MIN(far, 16) : has_nvs(o->topo) ? 40 : 8;
  o->arch = cpus > 2 ? 14 + 8 * (float)TT_MIN(cpus, 10) : 0;
}

// ---- The whole ----

static float top_of(const xp_layout *o)
{
  return TOP * o->scale;
}

// Everything, with the zones and the scale that are chosen.
static ncclResult_t place_all(placer *p)
{
  xp_layout *o = p->out;
  const tt_topo *t = p->topo;
  grid g = {.nhosts = TT_MAX(1, t->nhosts), .columns = 1, .top = top_of(o)};
  float *widths = tt_calloc((size_t)g.nhosts, sizeof(*widths));
  if (widths == NULL) {
    return tt_fail(ncclSystemError, "no memory to draw %d hosts", g.nhosts);
  }
  for (int h = 0; h < g.nhosts; h++) {
    widths[h] = place_host(p, h);
    g.w = fmaxf(g.w, widths[h]);
  }
  g.w += g.nhosts > 1 ? 3 * PANEL : 0;
  g.h = row_y(row_of(p, TT_NODE_GPU, 0)) + row_height(o) + o->arch + o->zone + bars_height(o) +
        (g.nhosts > 1 ? CAPTION + 2 * PANEL : 0);
  choose_columns(&g);
  o->nbands = TT_DIV_UP(g.nhosts, g.columns);
  o->width = fmaxf(NARROWEST, grid_width(&g, g.columns));
  o->height = grid_height(&g, g.columns);
  settle(p, &g, widths);
  place_bars(o);
  tt_free(widths);
  return count_places(o);
}

// So many tiers of cards, and of ports where a card has many, that the picture fits a slide.
static ncclResult_t choose_tiers(placer *p)
{
  const xp_layout *o = p->out;
  int most = 0; // ports of a card
  for (int i = p->topo->first[TT_NODE_NIC]; i < p->topo->first[TT_NODE_NIC + 1]; i++) {
    int count = count_children(p, i, TT_NODE_NET);
    most = TT_MAX(most, count);
  }
  float width = o->width;
  int best[2] = {p->cards, p->ports};
  for (int tiers = 2; tiers <= MAX_TIERS && p->cards > 0 && p->topo->nhosts <= 1 && o->width > WIDE * o->height;
       tiers++) {
    p->cards = most > MANY_PORTS ? 1 : tiers;
    p->ports = most > MANY_PORTS ? tiers : 1;
    TT_TRY(place_all(p));
    if (o->width < 0.95f * width) { // something is gained
      width = o->width;
      best[0] = p->cards;
      best[1] = p->ports;
    }
  }
  p->cards = best[0];
  p->ports = best[1];
  return place_all(p);
}

// The first time to see how far lines reach, then with the space that they need.
static ncclResult_t place_twice(placer *p, const xp_drawing *d, bool page)
{
  xp_layout *o = p->out;
  o->scale = 1;
  choose_zones(o, 1);
  TT_TRY(place_all(p));
  int far = farthest(o, d, page);
  choose_zones(o, far);
  TT_TRY(place_all(p));
  TT_TRY(choose_tiers(p));
  o->scale = fminf(fmaxf(1, o->width / 1300), 2.4f);
  choose_zones(o, farthest(o, d, page));
  return place_all(p);
}

ncclResult_t xp_layout_make(const xp_drawing *d, bool page, xp_layout *out)
{
  const tt_topo *topo = d->topo;
  size_t n = (size_t)topo->nnodes + 1, hosts = (size_t)TT_MAX(1, topo->nhosts);
  xp_layout o = {.topo = topo};
  placer p = {.out = &o, .topo = topo, .ports = 1};
  ncclResult_t res = ncclSuccess;
  o.box = tt_calloc(n, sizeof(*o.box));
  o.parent = tt_calloc(n, sizeof(int));
  o.hang = tt_calloc(n, sizeof(float));
  o.place = tt_calloc(n, sizeof(int));
  o.band = tt_calloc(n, sizeof(int));
  o.bars = tt_calloc(hosts, sizeof(*o.bars));
  o.panels = tt_calloc(hosts, sizeof(*o.panels));
  p.child = tt_calloc(n, sizeof(int));
  p.next = tt_calloc(n, sizeof(int));
  if (o.box == NULL || o.parent == NULL || o.hang == NULL || o.place == NULL || o.band == NULL || o.bars == NULL ||
      o.panels == NULL || p.child == NULL || p.next == NULL) {
    TT_TRY_GOTO(tt_fail(ncclSystemError, "no memory to draw %d nodes", topo->nnodes), res);
  }
  TT_TRY_GOTO(hang(&p), res);
  for (int i = topo->first[TT_NODE_CPU]; i < topo->first[TT_NODE_CPU + 1]; i++) {
    p.depth = TT_MAX(p.depth, switches_below(&p, i, 0));
  }
  TT_TRY_GOTO(place_twice(&p, d, page), res);
fail:
  tt_free(p.child);
  tt_free(p.next);
  if (res != ncclSuccess) {
    xp_layout_clear(&o);
    return res;
  }
  *out = o;
  return ncclSuccess;
}

void xp_layout_clear(xp_layout *layout)
{
  tt_free(layout->box);
  tt_free(layout->parent);
  tt_free(layout->hang);
  tt_free(layout->place);
  tt_free(layout->band);
  tt_free(layout->bars);
  tt_free(layout->panels);
  *layout = (xp_layout){0};
}
