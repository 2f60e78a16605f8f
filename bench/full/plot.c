// plot.c: bandwidth over size as SVG: logarithmic axes, warm and cold beside each other, no other file needed, light and dark.
#include <math.h>
#include <string.h>

#include "full.h"

#define WIDTH 1080
#define HEIGHT 405
#define PANEL_W 400
#define PANEL_H 320
#define LEFT 60
#define TOP 50
#define GAP 50
#define COLORS 9

// One picture's scales.
typedef struct canvas {
  const full_run *r;
  FILE *out;
  int from, end;
  double low, high, least, most; // bandwidth and bytes at the ends of the axes
} canvas;

static const char *const style =
    "<style>text{font:12px sans-serif;fill:#24292f}.t{font-size:14px;font-weight:bold}.b{fill:#fff}.g{stroke:#d0d7de}.f{stroke:#57606a;fill:none}"
    "polyline{fill:none;stroke-width:1.6;stroke-linejoin:round}.o{stroke-width:3}.l{stroke:#57606a;stroke-dasharray:5 4}"
    ".c0{stroke:#cf222e}.c1{stroke:#bf5600}.c2{stroke:#8250df}.c3{stroke:#0969da}.c4{stroke:#54aeff}.c5{stroke:#1a7f37}.c6{stroke:#4ac26b}"
    ".c7{stroke:#9a6700}.c8{stroke:#6e7781}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#0d1117}.g{stroke:#30363d}.f{stroke:#8b949e}.l{stroke:#8b949e}"
    ".c0{stroke:#ff7b72}.c1{stroke:#ffa657}.c2{stroke:#d2a8ff}.c3{stroke:#58a6ff}.c4{stroke:#a5d6ff}.c5{stroke:#3fb950}.c6{stroke:#7ee787}"
    ".c7{stroke:#d29922}.c8{stroke:#8b949e}}</style>\n";

static double bandwidth(const canvas *c, int i, int column)
{
  const full_point *p = &c->r->points[i];
  double us = column < 0 ? limit_us(&c->r->limits, (coll_kind)p->kind, p->ranks, p->bytes, p->cold) : full_us(c->r, p, column, NULL);
  return limit_bus((coll_kind)p->kind, p->ranks, p->bytes, us);
}

// Column -1 is the limit.
static int has_column(const canvas *c, int column)
{
  for (int i = c->from; i < c->end; i++) {
    if (bandwidth(c, i, column) > 0) {
      return 1;
    }
  }
  return 0;
}

static void find_scales(canvas *c)
{
  c->least = c->low = INFINITY;
  c->most = c->high = 0;
  for (int i = c->from; i < c->end; i++) {
    c->least = fmin(c->least, c->r->points[i].bytes);
    c->most = fmax(c->most, c->r->points[i].bytes);
    for (int k = -1; k < c->r->ncolumns; k++) {
      double v = bandwidth(c, i, k);
      int sets = k < 0 || c->r->columns[k].own; // a peer that is a hundred times slower must not press the rest together
      c->low = v > 0 && sets ? fmin(c->low, v) : c->low;
      c->high = fmax(c->high, v);
    }
  }
  c->high = c->high > 0 ? c->high : 1;
  c->low = isinf(c->low) ? c->high : c->low;
  c->low = pow(10, floor(log10(c->low / 2)));
  c->high = pow(10, ceil(log10(c->high * 1.001)));
  if (c->most <= c->least) {
    c->most = 2 * c->least;
  }
}

static double x_of(const canvas *c, int panel, double bytes)
{
  return LEFT + panel * (PANEL_W + GAP) + PANEL_W * log(bytes / c->least) / log(c->most / c->least);
}

static double y_of(const canvas *c, double gbs)
{
  return TOP + PANEL_H * (1 - log(gbs / c->low) / log(c->high / c->low));
}

static void axes(const canvas *c, int panel, const char *name)
{
  double left = x_of(c, panel, c->least), right = x_of(c, panel, c->most);
  char text[24];
  for (double v = c->low; v <= c->high * 1.001; v *= 10) {
    double y = y_of(c, v);
    fprintf(c->out, "<path class=\"g\" d=\"M%.1f %.1fH%.1f\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", left, y, right,
            left - 6, y + 4, v);
  }
  for (double v = c->least; v <= c->most * 1.001; v *= 16) {
    double x = x_of(c, panel, v);
    fprintf(c->out, "<path class=\"g\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, TOP,
            TOP + PANEL_H, x, TOP + PANEL_H + 18, stats_size((size_t)v, text));
  }
  fprintf(c->out, "<rect class=\"f\" x=\"%.1f\" y=\"%d\" width=\"%d\" height=\"%d\"/><text class=\"t\" x=\"%.1f\" y=\"%d\">%s</text>\n",
          left, TOP, PANEL_W, PANEL_H, left, TOP - 8, name);
}

static void line_class(const canvas *c, int column, char text[16])
{
  snprintf(text, 16, column < 0 ? "l" : c->r->columns[column].own ? "o c%d" : "c%d", column % COLORS);
}

// A missing point interrupts the line.
static void line(const canvas *c, int cold, int panel, int column)
{
  char name[16];
  int open = 0;
  line_class(c, column, name);
  for (int i = c->from; i < c->end; i++) {
    double v = bandwidth(c, i, column);
    if (c->r->points[i].cold != cold) {
      continue;
    }
    if (v > 0 && !open) {
      fprintf(c->out, "<polyline class=\"%s\" points=\"", name);
    }
    if (v > 0) {
      fprintf(c->out, "%s%.1f,%.1f", open ? " " : "", x_of(c, panel, c->r->points[i].bytes), y_of(c, v));
    } else if (open) {
      fprintf(c->out, "\"/>\n");
    }
    open = v > 0;
  }
  if (open) {
    fprintf(c->out, "\"/>\n");
  }
}

static void legend(const canvas *c, int panels)
{
  char name[16];
  int x = LEFT + panels * (PANEL_W + GAP) - GAP + 20, y = TOP + 10;
  for (int k = -1; k < c->r->ncolumns; k++) {
    if (has_column(c, k)) {
      line_class(c, k, name);
      fprintf(c->out, "<polyline class=\"%s\" points=\"%d,%d %d,%d\"/><text x=\"%d\" y=\"%d\">%s</text>\n", name, x, y - 4, x + 24, y - 4,
              x + 30, y, k < 0 ? "limit" : c->r->columns[k].name);
      y += 20;
    }
  }
}

void full_plot(const full_run *r, FILE *out, int from, int end)
{
  static const char *const names[2] = {"warm", "cold"};
  canvas c = {.r = r, .out = out, .from = from, .end = end};
  const full_point *p = &r->points[from];
  int panels = 0;
  find_scales(&c);
  int width = WIDTH - (p->cold == r->points[end - 1].cold ? PANEL_W + GAP : 0);
  fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n%s", width, HEIGHT, width,
          HEIGHT, style);
  fprintf(
      out,
      "<rect class=\"b\" width=\"%d\" height=\"%d\"/><text class=\"t\" x=\"%d\" y=\"20\">%s, %d ranks: bus bandwidth in GB/s over size</text>\n",
      width, HEIGHT, LEFT, full_kinds[p->kind], p->ranks);
  for (int cold = p->cold; cold <= r->points[end - 1].cold; cold++, panels++) {
    axes(&c, panels, names[cold]);
    fprintf(out, "<clipPath id=\"p%d\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath><g clip-path=\"url(#p%d)\">\n",
            panels, LEFT + panels * (PANEL_W + GAP), TOP, PANEL_W, PANEL_H, panels);
    for (int k = r->ncolumns - 1; k >= -1; k--) {
      line(&c, cold, panels, k);
    }
    fprintf(out, "</g>\n");
  }
  legend(&c, panels);
  fprintf(out, "</svg>\n");
}
