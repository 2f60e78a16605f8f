// plot.c: a collective over size as SVG: bandwidth, time of small messages, and how many times as long the best peer
// takes; warm above cold. Logarithmic axes, no other file needed, light and dark.
#include <math.h>
#include <string.h>

#include "full.h"

#define PANEL_W 300
#define PANEL_H 210
#define LEFT 60
#define TOP 52
#define GAP_X 60
#define GAP_Y 56
#define COLORS 10
#define ENTRY 150 // width of a line of the legend
#define SMALL (32 << 10)
#define MANY_LINES 20000 // an axis of so many times its beginning has lines at 1, 10, 100 only

typedef enum { BANDWIDTH, TIME, RATIO, PLOTS } plot_kind;

static const char *const titles[PLOTS] = {"bus bandwidth, GB/s", "time of small messages, µs",
                                          "best peer's time over ours"};

// What the points of a picture have in common.
typedef struct picture {
  const full_run *r;
  FILE *out;
  int from, end;
} picture;

// One diagram: its corner and the ends of its axes. Those of one kind, warm and cold, have the same axes.
typedef struct panel {
  const picture *c;
  plot_kind kind;
  int cold;
  double left, top;
  double low, high, least, most; // values and bytes
} panel;

static const char *const style =
    "<style>text{font:12px "
    "sans-serif;fill:#24292f}.t{font-size:14px;font-weight:bold}.s{font-weight:bold}.b{fill:#fff}.g{stroke:#d0d7de}"
    ".f,.u{stroke:#57606a;fill:none}polyline{fill:none;stroke-width:1.6;stroke-linejoin:round}.o{stroke-width:3}.l{"
    "stroke:#57606a;stroke-dasharray:5 4}"
    ".c0{stroke:#cf222e}.c1{stroke:#bf5600}.c2{stroke:#8250df}.c3{stroke:#0969da}.c4{stroke:#54aeff}.c5{stroke:#1a7f37}"
    ".c6{stroke:#4ac26b}"
    ".c7{stroke:#9a6700}.c8{stroke:#6e7781}.c9{stroke:#afb8c1}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#0d1117}.g{stroke:#30363d}.f,.u{stroke:#8b949e}.l{"
    "stroke:#8b949e}"
    ".c0{stroke:#ff7b72}.c1{stroke:#ffa657}.c2{stroke:#d2a8ff}.c3{stroke:#58a6ff}.c4{stroke:#a5d6ff}.c5{stroke:#3fb950}"
    ".c6{stroke:#7ee787}"
    ".c7{stroke:#d29922}.c8{stroke:#8b949e}.c9{stroke:#6e7681}}</style>\n";

// Column -1 is the limit. 0: there is nothing to draw.
static double value(const picture *c, plot_kind kind, int i, int column)
{
  const full_point *p = &c->r->points[i];
  double us = column < 0 ? p->limit : full_us(c->r, p, column, NULL);
  switch (kind) {
  case BANDWIDTH: return limit_bus((coll_kind)p->kind, p->ranks, p->bytes, us);
  case TIME: return p->bytes <= SMALL ? us : 0;
  default: return column >= 0 && c->r->columns[column].own ? full_judge(c->r, p, column).ratio : 0;
  }
}

static int has_column(const picture *c, int column)
{
  for (int i = c->from; i < c->end; i++) {
    if (value(c, BANDWIDTH, i, column) > 0) {
      return 1;
    }
  }
  return 0;
}

// ---- axes

// The next line of an axis: at powers of two for ratios, else at 1, 2, 5, 10.
static double next_line(plot_kind kind, double v)
{
  double mantissa = v / pow(10, floor(log10(v * 1.001)));
  return kind == RATIO ? 2 * v : mantissa > 1.5 && mantissa < 3 ? 2.5 * v : 2 * v;
}

// The last line that is not above v.
static double line_below(plot_kind kind, double v)
{
  double at = kind == RATIO ? pow(2, floor(log2(v)) - 1) : pow(10, floor(log10(v)));
  while (next_line(kind, at) <= v * 1.001) {
    at = next_line(kind, at);
  }
  return at;
}

// Ours set the scale, and peers and the limit its better end: one that is a hundred times slower must not press the
// rest together. Times reach to a quarter and four times of ours.
static void find_scales(panel *p)
{
  const picture *c = p->c;
  p->least = p->low = INFINITY;
  p->most = p->high = 0;
  for (int i = c->from; i < c->end; i++) {
    double bytes = c->r->points[i].bytes;
    for (int k = -1; k < c->r->ncolumns; k++) {
      double v = value(c, p->kind, i, k);
      int ours = k >= 0 && c->r->columns[k].own;
      p->low = v > 0 && ours ? fmin(p->low, v) : p->low;
      p->high = ours || p->kind == BANDWIDTH ? fmax(p->high, v) : p->high;
      p->least = v > 0 ? fmin(p->least, bytes) : p->least;
      p->most = v > 0 ? fmax(p->most, bytes) : p->most;
    }
  }
  p->high = p->high > 0 ? p->high : 1;
  p->low = isinf(p->low) ? p->high : p->low;
  if (p->kind == RATIO) {
    p->low = fmin(p->low, 0.5);
    p->high = fmax(p->high, 2);
  }
  p->low = line_below(p->kind, p->kind == TIME ? p->low / 4 : p->kind == BANDWIDTH ? p->low / 2 : p->low);
  p->high = next_line(p->kind, line_below(p->kind, (p->kind == TIME ? 4 * p->high : p->high) / 1.01));
  p->least = isinf(p->least) ? 1 : p->least;
  p->most = p->most > p->least ? p->most : 2 * p->least;
}

static double x_of(const panel *p, double bytes)
{
  return p->left + PANEL_W * log(bytes / p->least) / log(p->most / p->least);
}

static double y_of(const panel *p, double v)
{
  return p->top + PANEL_H * (1 - log(v / p->low) / log(p->high / p->low));
}

static int is_power_of_ten(double v)
{
  return fabs(log10(v) - round(log10(v))) < 0.01;
}

static void axes(const panel *p)
{
  FILE *out = p->c->out;
  double right = p->left + PANEL_W, bottom = p->top + PANEL_H;
  char text[24];
  for (double v = p->low; v <= p->high * 1.001; v = next_line(p->kind, v)) {
    double y = y_of(p, v);
    if (p->high / p->low > MANY_LINES && !is_power_of_ten(v)) {
      continue;
    }
    int even = p->kind == RATIO && fabs(v - 1) < 0.001; // as fast as the best peer
    fprintf(out,
            "<path class=\"%s\" d=\"M%.1f %.1fH%.1f\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
            even ? "u" : "g", p->left, y, right, p->left - 6, y + 4, v);
  }
  for (double v = p->least; v <= p->most * 1.001; v *= p->most / p->least > 1 << 18 ? 64 : 8) {
    double x = x_of(p, v);
    fprintf(out,
            "<path class=\"g\" d=\"M%.1f %.1fV%.1f\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
            x, p->top, bottom, x, bottom + 18, stats_size((size_t)v, text));
  }
  fprintf(out,
          "<rect class=\"f\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\"/><text class=\"s\" x=\"%.1f\" "
          "y=\"%.1f\">%s, %s</text>\n",
          p->left, p->top, PANEL_W, PANEL_H, p->left, p->top - 8, titles[p->kind], p->cold ? "cold" : "warm");
}

// ---- lines

static void line_class(const picture *c, int column, char text[16])
{
  snprintf(text, 16, column < 0 ? "l" : c->r->columns[column].own ? "o c%d" : "c%d", column % COLORS);
}

// A missing point interrupts the line.
static void line(const panel *p, int column)
{
  const picture *c = p->c;
  char name[16];
  int open = 0;
  line_class(c, column, name);
  for (int i = c->from; i < c->end; i++) {
    double v = c->r->points[i].cold == p->cold ? value(c, p->kind, i, column) : 0;
    if (v > 0) {
      fprintf(c->out, open ? " " : "<polyline class=\"%s\" points=\"", name);
      fprintf(c->out, "%.1f,%.1f", x_of(p, c->r->points[i].bytes), y_of(p, v));
    } else if (open) {
      fprintf(c->out, "\"/>\n");
    }
    open = v > 0;
  }
  if (open) {
    fprintf(c->out, "\"/>\n");
  }
}

static void draw_panel(const panel *p, int number)
{
  FILE *out = p->c->out;
  axes(p);
  fprintf(out,
          "<clipPath id=\"p%d\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\"/></clipPath><g "
          "clip-path=\"url(#p%d)\">\n",
          number, p->left, p->top, PANEL_W, PANEL_H, number);
  for (int k = p->c->r->ncolumns - 1; k >= -1; k--) {
    line(p, k);
  }
  fprintf(out, "</g>\n");
}

static void legend(const picture *c, int y)
{
  static const char *const limit = "limit of the machine";
  const int each = (PLOTS * (PANEL_W + GAP_X) - GAP_X) / ENTRY;
  char name[16];
  int n = 0;
  for (int k = -1; k < c->r->ncolumns; k++) {
    if (has_column(c, k)) {
      int x = LEFT + n % each * ENTRY, at = y + n / each * 20;
      line_class(c, k, name);
      fprintf(c->out, "<polyline class=\"%s\" points=\"%d,%d %d,%d\"/><text %sx=\"%d\" y=\"%d\">%s</text>\n", name, x,
              at - 4, x + 24, at - 4, k >= 0 && c->r->columns[k].own ? "class=\"s\" " : "", x + 30, at,
              k < 0 ? limit : c->r->columns[k].name);
      n++;
    }
  }
}

void full_plot(const full_run *r, FILE *out, int from, int end)
{
  const picture c = {.r = r, .out = out, .from = from, .end = end};
  const full_point *p = &r->points[from];
  int rows = r->points[end - 1].cold - p->cold + 1, bottom = TOP + rows * (PANEL_H + GAP_Y);
  int width = LEFT + PLOTS * (PANEL_W + GAP_X) - GAP_X + 30, height = bottom + 32;
  fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n%s", width,
          height, width, height, style);
  fprintf(out,
          "<rect class=\"b\" width=\"%d\" height=\"%d\"/><text class=\"t\" x=\"%d\" y=\"20\">%s, %d ranks</text>\n",
          width, height, LEFT, full_kinds[p->kind], p->ranks);
  for (int kind = 0; kind < PLOTS; kind++) {
    panel scales = {.c = &c, .kind = (plot_kind)kind, .left = LEFT + kind * (PANEL_W + GAP_X)};
    find_scales(&scales);
    for (int row = 0; row < rows; row++) {
      scales.cold = p->cold + row;
      scales.top = TOP + row * (PANEL_H + GAP_Y);
      draw_panel(&scales, kind * rows + row);
    }
  }
  legend(&c, bottom);
  fprintf(out, "</svg>\n");
}
