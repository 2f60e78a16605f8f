// draw_layout.c: where everything stands.
//
// Each subtree is placed by itself, knowing its outline (leftmost and rightmost place in each row), then pushed to the left until it meets
// the outline of what stands there already. Cost: nodes times depth, which documents limit.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "draw_priv.h"

enum { ROWS = TT_XML_MAX_DEPTH + 8 };

#define TOP 74.0f     // title
#define MARGIN 24.0f  // around all
#define ROW 34.0f     // height of a box
#define STEP 70.0f    // from row to row
#define GAP 12.0f     // between boxes
#define CLEAR 9.0f    // between a line and a box
#define PANEL 16.0f   // inside a host's panel
#define CAPTION 22.0f // a panel's name
#define BAR 26.0f     // height of an NVSwitch
#define NARROWEST 620.0f

typedef struct outline {
  float left[ROWS], right[ROWS];
} outline;

typedef struct placer {
  xp_layout *out;
  const tt_topo *topo;
  int *child, *next; // first child and next sibling
  int depth;         // PCI switches below each other
  bool cards;        // there are rows for them
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
    p->cards |= p->topo->nodes[i].kind == TT_NODE_NIC;
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

static int row_of(const placer *p, int kind, int depth)
{
  switch (kind) {
  case TT_NODE_CPU: return 0;
  case TT_NODE_PCI: return TT_MIN(depth, p->depth);
  case TT_NODE_NIC: return p->depth + 1;
  case TT_NODE_NET: return p->depth + 2;
  default: return p->depth + 1 + 2 * p->cards;
  }
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
  default: return 76;
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

static float middle(const xp_box *b)
{
  return b->x + b->w / 2;
}

static void place(const placer *p, int node, int depth, outline *o);

// Places a child right of its siblings; its line up is in the way of others too.
static void place_child(const placer *p, int child, int row, int depth, outline *o)
{
  outline own;
  place(p, child, depth + 1, &own);
  xp_box *b = &p->out->box[child];
  for (int r = row + 1; r < row_of(p, p->topo->nodes[child].kind, depth + 1); r++) {
    outline_add(&own, r, middle(b) - CLEAR + GAP / 2, middle(b) + CLEAR - GAP / 2);
  }
  float shift = outline_shift(o, &own, GAP);
  move(p, child, shift);
  outline_merge(o, &own, shift);
}

static void place(const placer *p, int node, int depth, outline *o)
{
  const tt_topo_node *n = &p->topo->nodes[node];
  xp_box *b = &p->out->box[node];
  int row = row_of(p, n->kind, depth);
  float left = INFINITY, right = -INFINITY, w = width_of(n->kind);
  outline_clear(o);
  for (int c = p->child[node]; c >= 0 && depth < TT_XML_MAX_DEPTH + 4; c = p->next[c]) {
    place_child(p, c, row, depth, o);
    left = fminf(left, p->out->box[c].x);
    right = fmaxf(right, p->out->box[c].x + p->out->box[c].w);
  }
  float center = right > left ? (left + right) / 2 : 0;
  w = right > left ? fmaxf(w, right - left) : w;
  *b = (xp_box){.x = center - w / 2, .y = row_y(row), .w = w, .h = ROW};
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
      place(p, i, 0, &own);
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

// Number of nodes of the host that has most of them: GPUs, or CPUs. `scratch` has room for a number of each host, and is zero.
static int most_of_a_host(const tt_topo *t, bool gpus, int *scratch)
{
  int most = 0;
  for (int i = 0; i < t->nnodes; i++) {
    if (gpus ? is_gpu(&t->nodes[i]) : t->nodes[i].kind == TT_NODE_CPU) {
      int count = ++scratch[t->nodes[i].host];
      most = TT_MAX(most, count);
    }
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
} grid;

static float grid_width(const grid *g, int columns)
{
  return 2 * MARGIN + (float)columns * g->w;
}

static float grid_height(const grid *g, int columns)
{
  return TOP + (float)TT_DIV_UP(g->nhosts, columns) * g->h + MARGIN;
}

// The number of columns that comes nearest to a slide's shape.
static void choose_columns(grid *g)
{
  float best = INFINITY;
  for (int c = 1; c <= TT_MIN(g->nhosts, 256); c++) {
    float off = fabsf(logf(grid_width(g, c) / grid_height(g, c) / 1.9f));
    if (off < best) {
      best = off;
      g->columns = c;
    }
  }
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
      float spare = panels ? (g->w - PANEL - widths[host]) / 2 : (fmaxf(NARROWEST, o->width) - 2 * MARGIN - widths[host]) / 2;
      o->box[i].x += MARGIN + (float)column * g->w + spare;
      o->box[i].y += TOP + (float)o->band[i] * g->h + o->arch + (panels ? CAPTION + PANEL : 0);
    }
  }
  float down = row_y(row_of(p, TT_NODE_GPU, 0)) + ROW;
  for (int h = 0; panels && h < g->nhosts; h++) {
    o->panels[h] = (xp_box){.x = MARGIN + (float)(h % g->columns) * g->w,
                            .y = TOP + (float)(h / g->columns) * g->h,
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
        y = o->box[i].y + ROW + o->zone;
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
      if (kind == 0 ? is_gpu(&t->nodes[i]) : t->nodes[i].kind == TT_NODE_CPU) {
        spots[count++] = (spot){o->band[i], o->box[i].x, i};
      }
    }
    qsort(spots, (size_t)count, sizeof(*spots), compare_spots);
    for (int i = 0; i < count; i++) {
      o->place[spots[i].node] = i > 0 && spots[i].band == spots[i - 1].band ? o->place[spots[i - 1].node] + 1 : 0;
      o->far = kind == 0 ? TT_MAX(o->far, o->place[spots[i].node]) : o->far;
    }
  }
  tt_free(spots);
  return ncclSuccess;
}

// Space for what is drawn below GPUs and above CPUs.
static void choose_zones(xp_layout *o)
{
  int gpus = most_of_a_host(o->topo, true, o->place), cpus = most_of_a_host(o->topo, false, o->place); // no places yet
  o->zone = gpus > 1 ? 52 + 12 * (float)TT_MIN(gpus, 16) : has_nvs(o->topo) ? 40 : 8;
  o->arch = cpus > 2 ? 14 + 8 * (float)TT_MIN(cpus, 10) : 0;
}

static ncclResult_t place_all(placer *p)
{
  xp_layout *o = p->out;
  const tt_topo *t = p->topo;
  grid g = {.nhosts = TT_MAX(1, t->nhosts), .columns = 1};
  float *widths = tt_calloc((size_t)g.nhosts, sizeof(*widths));
  if (widths == NULL) {
    return tt_fail(ncclSystemError, "no memory to draw %d hosts", g.nhosts);
  }
  for (int h = 0; h < g.nhosts; h++) {
    widths[h] = place_host(p, h);
    g.w = fmaxf(g.w, widths[h]);
  }
  choose_zones(o);
  g.w += g.nhosts > 1 ? 3 * PANEL : 0;
  g.h = row_y(row_of(p, TT_NODE_GPU, 0)) + ROW + o->arch + o->zone + bars_height(o) + (g.nhosts > 1 ? CAPTION + 2 * PANEL : 0);
  choose_columns(&g);
  o->nbands = TT_DIV_UP(g.nhosts, g.columns);
  o->width = fmaxf(NARROWEST, grid_width(&g, g.columns));
  o->height = grid_height(&g, g.columns);
  settle(p, &g, widths);
  place_bars(o);
  tt_free(widths);
  return count_places(o);
}

ncclResult_t xp_layout_make(const tt_topo *topo, xp_layout *out)
{
  size_t n = (size_t)topo->nnodes + 1, hosts = (size_t)TT_MAX(1, topo->nhosts);
  xp_layout o = {.topo = topo};
  placer p = {.out = &o, .topo = topo};
  ncclResult_t res = ncclSuccess;
  o.box = tt_calloc(n, sizeof(*o.box));
  o.parent = tt_calloc(n, sizeof(int));
  o.place = tt_calloc(n, sizeof(int));
  o.band = tt_calloc(n, sizeof(int));
  o.bars = tt_calloc(hosts, sizeof(*o.bars));
  o.panels = tt_calloc(hosts, sizeof(*o.panels));
  p.child = tt_calloc(n, sizeof(int));
  p.next = tt_calloc(n, sizeof(int));
  if (o.box == NULL || o.parent == NULL || o.place == NULL || o.band == NULL || o.bars == NULL || o.panels == NULL || p.child == NULL ||
      p.next == NULL) {
    TT_TRY_GOTO(tt_fail(ncclSystemError, "no memory to draw %d nodes", topo->nnodes), res);
  }
  TT_TRY_GOTO(hang(&p), res);
  for (int i = topo->first[TT_NODE_CPU]; i < topo->first[TT_NODE_CPU + 1]; i++) {
    p.depth = TT_MAX(p.depth, switches_below(&p, i, 0));
  }
  TT_TRY_GOTO(place_all(&p), res);
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
  tt_free(layout->place);
  tt_free(layout->band);
  tt_free(layout->bars);
  tt_free(layout->panels);
  *layout = (xp_layout){0};
}
