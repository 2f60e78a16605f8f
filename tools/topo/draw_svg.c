// draw_svg.c: the picture.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "draw_priv.h"
#include "print.h"

enum {
  BOW_LABELS = 16,   // more links between GPUs have their numbers in the legend only
  LEGEND_VALUES = 5, // bandwidths of a kind that the legend tells
  TITLE_CHARS = 90,
};

#define LEGEND_ROW 20.0f
#define LETTER 0.57f // the same of a box's small line and of numbers, per pixel of their size
#define CHAR 6.1f    // width of a character of the legend

typedef struct svg {
  const xp_drawing *d;
  const xp_layout *o;
  FILE *out;
  bool page;
  int kind, channel, edge; // what write_edge writes
} svg;

// ---- Links ----

// 1.0 at 2 GB/s, 2.4 at 24, 4.5 at 370.
static float thickness(float bw)
{
  return fminf(0.6f + 0.62f * log2f(1 + fmaxf(bw, 0) / 4), 7);
}

static bool is_gpu(const tt_topo *t, int node)
{
  return t->nodes[node].kind == TT_NODE_GPU || t->nodes[node].kind == TT_NODE_DEV;
}

static int bows(const tt_topo *t)
{
  int count = 0;
  for (int l = 0; l < t->nlinks; l++) {
    count += is_gpu(t, t->links[l].from) && is_gpu(t, t->links[l].to);
  }
  return count / 2;
}

// A number for people: 12, 370.8, 5000.
static const char *bandwidth_text(float bw, char *buf, size_t size)
{
  snprintf(buf, size, bw >= 1000 ? "%.0f" : "%.4g", (double)bw);
  return buf;
}

static float link_bandwidth(const tt_topo *t, const tt_topo_link *l)
{
  return l->back >= 0 ? fmaxf(l->bw, t->links[l->back].bw) : l->bw;
}

const char *xp_link_kind(const tt_topo *t, const tt_topo_link *link)
{
  bool memory =
      link->type == TT_LINK_PCI && (tt_topo_host_rank(&t->nodes[link->from]) || tt_topo_host_rank(&t->nodes[link->to]));
  return memory ? "MEM" : tt_link_type_name(link->type);
}

// Does a link have a bandwidth that says something? Those inside one place and those to host memory do not.
static bool has_number(const tt_topo *t, const tt_topo_link *link)
{
  return link->type != TT_PATH_LOC && link->bw < TT_BW_LOC && strcmp(xp_link_kind(t, link), "MEM") != 0;
}

static void write_link(const svg *s, int l)
{
  const tt_topo *t = s->d->topo;
  const tt_topo_link *link = &t->links[l];
  char path[256], text[192], a[48], b[48], bw[24];
  xp_label label;
  if (!xp_layout_link(s->o, l, path, sizeof(path), &label)) {
    return;
  }
  float wide = link_bandwidth(t, link);
  const char *kind = xp_link_kind(t, link);
  bool number = has_number(t, link);
  fprintf(s->out, "<path class=\"tt-link tt-%s\" d=\"%s\" stroke-width=\"%.1f\"", kind, path,
          (double)thickness(wide >= TT_BW_LOC ? 4 : wide));
  tt_node_name(t, link->from, a, sizeof(a));
  tt_node_name(t, link->to, b, sizeof(b));
  snprintf(text, sizeof(text), number ? "%s %s - %s: %s GB/s" : "%s %s - %s", kind, a, b,
           bandwidth_text(wide, bw, sizeof(bw)));
  if (s->page) {
    fprintf(s->out, " data-link=\"%d\" role=\"listitem\" tabindex=\"-1\" aria-label=\"%s\"/>\n", l, text);
  } else {
    fprintf(s->out, "><title>%s</title></path>\n", text);
  }
}

static void write_number(const svg *s, int l, bool bow_numbers)
{
  const tt_topo *t = s->d->topo;
  const tt_topo_link *link = &t->links[l];
  bool bow = is_gpu(t, link->from) && is_gpu(t, link->to);
  char path[256], bw[24];
  xp_label label;
  if (!has_number(t, link) || (bow && !bow_numbers) || !xp_layout_link(s->o, l, path, sizeof(path), &label)) {
    return;
  }
  float wide = link_bandwidth(t, link);
  snprintf(bw, sizeof(bw), wide >= 100 ? "%.0f" : "%.3g", (double)wide);
  fprintf(s->out, "<text class=\"tt-number\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", (double)label.x,
          (double)label.y, label.anchor, bw);
}

static bool shown_once(const tt_topo *t, int l)
{
  return t->links[l].back < 0 || l < t->links[l].back;
}

static void write_links(const svg *s)
{
  const tt_topo *t = s->d->topo;
  fputs(s->page ? "<g role=\"list\" aria-label=\"links\">\n" : "<g>\n", s->out);
  for (int l = 0; l < t->nlinks; l++) {
    if (shown_once(t, l)) {
      write_link(s, l);
    }
  }
  fputs("</g>\n", s->out);
}

static void write_numbers(const svg *s)
{
  const tt_topo *t = s->d->topo;
  bool bow_numbers = bows(t) <= BOW_LABELS;
  fputs("<g pointer-events=\"none\">\n", s->out);
  for (int l = 0; l < t->nlinks; l++) {
    if (shown_once(t, l)) {
      write_number(s, l, bow_numbers);
    }
  }
  fputs("</g>\n", s->out);
}

// ---- Boxes ----

static const char *cpu_text(const tt_topo_node *n)
{
  static const char *vendors[] = {"", "Intel", "AMD", "Zhaoxin"};
  static const char *models[] = {"Intel", "Intel Skylake or newer", "Intel Sapphire Rapids", "Intel Emerald Rapids",
                                 "Zhaoxin Yongfeng"};
  switch (n->cpu.arch) {
  case TT_CPU_ARM: return "Arm";
  case TT_CPU_POWER: return "Power";
  case TT_CPU_X86:
    return n->cpu.model > 0 && n->cpu.model < (int)TT_COUNT(models) ? models[n->cpu.model] : vendors[n->cpu.vendor & 3];
  default: return "";
  }
}

// "dev 3, 0f:00.0", or "dev 3" where that does not fit; "host memory".
static void gpu_text(const tt_topo_node *n, size_t room, char second[48])
{
  char bus[32];
  if (tt_topo_host_rank(n)) {
    snprintf(second, 48, "host memory");
    return;
  }
  xp_bus_text(n->id, bus, sizeof(bus));
  bool near = strncmp(bus, "0000:", 5) == 0 && strlen(bus) == 12;
  bool fits = snprintf(second, 48, "dev %d, %s", n->gpu.dev, bus + 5) <= (int)room;
  snprintf(second, 48, near && fits ? "dev %d, %s" : "dev %d", n->gpu.dev, bus + 5);
}

// The two lines of a box: its name, as everywhere, and something else.
static void box_text(const xp_drawing *d, int node, size_t room, char *first, char *second)
{
  const tt_topo_node *n = &d->topo->nodes[node];
  char bus[32];
  const char *tail = n->id >= 0 ? xp_bus_text(n->id, bus, sizeof(bus)) : "", *port = xp_port_name(d, node);
  const char *short_tail = strncmp(tail, "0000:", 5) == 0 ? tail + 5 : tail;
  tt_node_name(d->topo, node, first, 48);
  switch (n->kind) {
  case TT_NODE_GPU: gpu_text(n, room, second); break;
  case TT_NODE_DEV:
    snprintf(first, 48, "GPU, dev %d", n->gpu.dev);
    snprintf(second, 48, "other group");
    break;
  case TT_NODE_NET: snprintf(second, 48, port[0] != 0 ? "%.47s" : "port %.0s%d", port, n->net.port); break;
  case TT_NODE_CPU: snprintf(second, 48, "%s", cpu_text(n)); break;
  case TT_NODE_PCI:
    snprintf(first, 48, "PCI switch");
    snprintf(second, 48, "%s", strlen(tail) > room ? short_tail : tail);
    break;
  default:
    snprintf(first, 48, "NIC");
    snprintf(second, 48, "%s", short_tail);
    break;
  }
}

static const char *const classes[TT_NODE_KINDS] = {"gpu", "net", "cpu", "nvs", "pci", "nic", "dev"};

static void open_box(const svg *s, int node)
{
  const tt_topo *t = s->d->topo;
  char name[48], bus[32];
  const tt_topo_node *n = &t->nodes[node];
  const char *port = xp_port_name(s->d, node);
  fprintf(s->out, "<g class=\"tt-box tt-%s\"", tt_topo_host_rank(n) ? "rank" : classes[n->kind]);
  tt_node_name(t, node, name, sizeof(name));
  if (s->page) {
    fprintf(s->out, " data-node=\"%d\" role=\"listitem\" tabindex=\"-1\" aria-label=\"%s%s", node, name,
            port[0] != 0 ? " " : "");
    xp_escape(port, 200, s->out);
    fputs("\">", s->out);
    return;
  }
  bool pci =
      (is_gpu(t, node) && !tt_topo_host_rank(n)) || n->kind == TT_NODE_PCI || (n->kind == TT_NODE_NIC && n->id >= 0);
  fprintf(s->out, "><title>%s%s%s", name, pci ? " " : "", pci ? xp_bus_text(n->id, bus, sizeof(bus)) : "");
  if (is_gpu(t, node)) {
    fprintf(s->out, ", rank %d, dev %d", n->gpu.rank, n->gpu.dev);
  }
  fputs(port[0] != 0 ? " " : "", s->out);
  xp_escape(port, 200, s->out);
  fputs("</title>", s->out);
}

static void write_rect(const svg *s, const xp_box *b, float round)
{
  fprintf(s->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.0f\"/>", (double)b->x,
          (double)b->y, (double)b->w, (double)b->h, (double)round);
}

// Size of a box's small line, and of numbers: larger in large pictures, which are seen from further away.
static float small_size(const xp_layout *o)
{
  return 10 * fminf(o->scale, 1.5f);
}

// Characters of a small line that a box has room for.
static size_t small_room(const xp_layout *o, const xp_box *b)
{
  return TT_MIN(48, (size_t)(b->w / (LETTER * small_size(o))));
}

static void write_line(const svg *s, const xp_box *b, float y, const char *class, const char *text)
{
  fprintf(s->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, (double)(b->x + b->w / 2), (double)(b->y + y));
  xp_escape(text, small_room(s->o, b), s->out);
  fputs("</text>", s->out);
}

// Names that have room for it are larger in large pictures, as the title is.
static float large_size(const svg *s)
{
  return fminf(11 * s->o->scale, 18);
}

static bool is_large(const svg *s, const xp_box *b, const char *text)
{
  return s->o->scale > 1.2f && 0.62f * large_size(s) * (float)strlen(text) < b->w;
}

static void write_box(const svg *s, int node)
{
  const xp_box *b = &s->o->box[node];
  char first[48], second[48];
  if (b->w <= 0) {
    return;
  }
  box_text(s->d, node, small_room(s->o, b), first, second);
  open_box(s, node);
  write_rect(s, b, 4);
  write_line(s, b, (second[0] != 0 ? 0.44f : 0.62f) * b->h, is_large(s, b, first) ? "tt-text tt-large" : "tt-text",
             first);
  if (second[0] != 0) {
    write_line(s, b, 0.82f * b->h, "tt-soft", second);
  }
  fputs("</g>\n", s->out);
}

// One bar below each band, joined at the left: all of it is one node.
static void write_switch(const svg *s, int node)
{
  const xp_box *bars = s->o->bars;
  open_box(s, node);
  for (int b = 0; b + 1 < s->o->nbands; b++) {
    if (bars[b].w > 0 && bars[b + 1].w > 0) {
      write_rect(s, &(xp_box){12, bars[b].y + bars[b].h / 2 - 4, 8, bars[b + 1].y - bars[b].y + 8}, 2);
    }
  }
  for (int b = 0; b < s->o->nbands; b++) {
    xp_box bar = bars[b];
    if (bar.w > 0) {
      float left = s->o->nbands > 1 ? 12 : bar.x;
      bar.w += bar.x - left;
      bar.x = left;
      write_rect(s, &bar, 4);
      write_line(s, &bar, 18, is_large(s, &bar, "NVSwitch") ? "tt-text tt-large" : "tt-text", "NVSwitch");
    }
  }
  fputs("</g>\n", s->out);
}

static void write_boxes(const svg *s)
{
  const tt_topo *t = s->d->topo;
  fputs(s->page ? "<g role=\"list\" aria-label=\"nodes\">\n" : "<g>\n", s->out);
  for (int i = 0; i < t->nnodes; i++) {
    if (t->nodes[i].kind != TT_NODE_NVS) {
      write_box(s, i);
    } else if (s->o->box[i].w > 0) {
      write_switch(s, i);
    }
  }
  fputs("</g>\n", s->out);
}

static void write_panels(const svg *s)
{
  for (int h = 0; h < s->d->topo->nhosts; h++) {
    const xp_box *p = &s->o->panels[h];
    if (p->w > 0) {
      fputs("<g class=\"tt-panel\">", s->out);
      write_rect(s, p, 6);
      fprintf(s->out,
              "<text class=\"tt-soft tt-large\" stroke=\"none\" x=\"%.1f\" y=\"%.1f\">host %d, %#llx</text></g>\n",
              (double)(p->x + 10), (double)(p->y + 19), h, (unsigned long long)s->d->topo->hosts[h]);
    }
  }
}

// ---- Channels ----

static void write_edge(void *arg, int from, int to)
{
  svg *s = arg;
  const tt_topo *t = s->d->topo;
  int k = s->kind, colour = xp_colour_of(k, s->channel), edge = s->edge++,
      lane = s->page ? s->channel + 3 * k : 3; // graphs stand apart, too
  char path[256], a[48], b[48], bw[24];
  if (!xp_layout_edge(s->o, (int[]){from, to}, lane, path, sizeof(path))) {
    return;
  }
  fprintf(s->out, "<path class=\"tt-edge tt-g%d tt-c%d\" d=\"%s\" marker-end=\"url(#tt-a%d)\"", k, colour, path,
          colour);
  if (s->page) {
    fprintf(s->out, " data-edge=\"%d\"/>\n", edge);
    return;
  }
  const tt_path *p = xp_edge_path(s->d, from, to);
  fprintf(s->out, "><title>%s, channel %d: %s to %s, %s GB/s%s%s</title></path>\n", xp_graph_name(k), s->channel,
          tt_node_name(t, from, a, sizeof(a)), tt_node_name(t, to, b, sizeof(b)),
          bandwidth_text(xp_edge_bandwidth(t, &s->d->graphs->graph[k], from, to), bw, sizeof(bw)),
          p != NULL ? ", " : "", p != NULL ? tt_path_type_name(p->type) : "");
}

static void write_channel(svg *s, int kind, int channel)
{
  s->kind = kind;
  s->channel = channel;
  s->edge = 0;
  if (s->page) {
    fprintf(s->out, "<g class=\"tt-channel\" data-graph=\"%s\" data-channel=\"%d\" visibility=\"hidden\">\n",
            xp_graph_name(kind), channel);
  } else {
    fputs("<g>\n", s->out);
  }
  xp_graph_edges(s->d->topo, &s->d->graphs->graph[kind], channel, write_edge, s);
  fputs("</g>\n", s->out);
}

static void count_edge(void *arg, int from, int to)
{
  (void)from, (void)to;
  ++*(long *)arg;
}

long xp_edge_count(const xp_drawing *d)
{
  long count = 0;
  for (int k = 0; d->graphs != NULL && k < TT_GRAPH_KINDS; k++) {
    for (int c = 0; c < d->graphs->graph[k].nchannels; c++) {
      xp_graph_edges(d->topo, &d->graphs->graph[k], c, count_edge, &count);
    }
  }
  return count;
}

static void write_channels(svg *s)
{
  const tt_graphs *g = s->d->graphs;
  if (g == NULL || (s->page && xp_edge_count(s->d) > XP_PAGE_EDGES)) {
    return;
  }
  fputs("<g>\n", s->out);
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    for (int c = 0; c < g->graph[k].nchannels && (s->page || (k == TT_GRAPH_RING && c == 0)); c++) {
      write_channel(s, k, c);
    }
  }
  fputs("</g>\n", s->out);
}

// ---- Title and legend ----

static int count_word(char *at, size_t size, int count, const char *one, const char *many)
{
  return count > 0 ? snprintf(at, size, "%d %s, ", count, count == 1 ? one : many) : 0;
}

const char *xp_summary(const tt_topo *t, char out[XP_SUMMARY])
{
  size_t n = 0, size = XP_SUMMARY;
  int ranks = tt_topo_count(t, TT_NODE_GPU), host = 0; // of them in host memory
  for (int i = t->first[TT_NODE_GPU]; i < t->first[TT_NODE_GPU + 1]; i++) {
    host += tt_topo_host_rank(&t->nodes[i]);
  }
  n += (size_t)count_word(out, size, t->nhosts > 1 ? t->nhosts : 0, "host", "hosts");
  n += (size_t)(ranks == host ? snprintf(out + n, size - n, "no GPU, ")
                              : count_word(out + n, size - n, ranks - host, "GPU", "GPUs"));
  n += (size_t)count_word(out + n, size - n, host, "rank in host memory", "ranks in host memory");
  n += (size_t)count_word(out + n, size - n, tt_topo_count(t, TT_NODE_NET), "network port", "network ports");
  n += (size_t)count_word(out + n, size - n, tt_topo_count(t, TT_NODE_CPU), "CPU", "CPUs");
  n += (size_t)count_word(out + n, size - n, tt_topo_count(t, TT_NODE_PCI), "PCI switch", "PCI switches");
  if (tt_topo_count(t, TT_NODE_NVS) > 0) {
    snprintf(out + n, size - n, "NVSwitch");
  } else {
    out[n - 2] = 0; // there is a rank
  }
  return out;
}

// What is drawn, of how much: "4 machines over the network, 32 ranks; one is drawn: 8 GPUs, ...".
static const char *contents(const xp_drawing *d, char out[2 * XP_SUMMARY])
{
  char text[XP_SUMMARY], all[XP_SUMMARY] = "";
  if (d->machines > 1) {
    long ranks = (long)d->machines * tt_topo_count(d->topo, TT_NODE_GPU);
    snprintf(all, sizeof(all), "%d machines over the network, %ld ranks; one is drawn: ", d->machines, ranks);
  }
  snprintf(out, (size_t)2 * XP_SUMMARY, "%s%s", all, xp_summary(d->topo, text));
  return out;
}

// "dgx.xml: 8 GPUs, …": what a window or a reader of screens calls it.
void xp_title_write(const xp_drawing *d, FILE *out)
{
  char text[2 * XP_SUMMARY];
  xp_escape(d->title != NULL ? d->title : "", 400, out);
  fputs(d->title != NULL && d->title[0] != 0 ? ": " : "", out);
  fputs(contents(d, text), out);
}

static void write_title(const svg *s)
{
  char text[2 * XP_SUMMARY];
  double z = (double)s->o->scale;
  fprintf(s->out, "<text class=\"tt-text\" font-size=\"%.1f\" font-weight=\"bold\" x=\"24\" y=\"%.1f\">", 18 * z,
          16 + 18 * z);
  size_t room = (size_t)((s->o->width - 48) / (11 * s->o->scale));
  xp_escape(s->d->title != NULL ? s->d->title : "", TT_MIN(room, TITLE_CHARS), s->out);
  fprintf(s->out, "</text>\n<text class=\"tt-soft\" font-size=\"%.1f\" x=\"24\" y=\"%.1f\">", 12 * z, 16 + 38 * z);
  xp_escape(contents(s->d, text), (size_t)((s->o->width - 48) / (6 * s->o->scale)), s->out);
  fputs("</text>\n", s->out);
}

static int compare_floats(const void *a, const void *b)
{
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

// "NVLink 20, 40 GB/s": the different bandwidths of a kind of links, or the name alone where they have none. False when
// there is no such link.
static bool legend_text(const tt_topo *t, const char *const kind[2], float *scratch, xp_text *out)
{
  int links = 0, count = 0, different = 0;
  char bw[24];
  for (int l = 0; l < t->nlinks; l++) {
    bool inside = t->links[l].bw >= TT_BW_LOC && t->links[l].type != TT_PATH_LOC; // of a card that is no device
    if (!inside && strcmp(xp_link_kind(t, &t->links[l]), kind[0]) == 0) {
      links++;
      scratch[count] = link_bandwidth(t, &t->links[l]);
      count += has_number(t, &t->links[l]);
    }
  }
  qsort(scratch, (size_t)count, sizeof(*scratch), compare_floats);
  xp_add(out, "%s", kind[1]);
  for (int i = 0; i < count; i++) {
    if ((i == 0 || scratch[i] != scratch[i - 1]) && ++different <= LEGEND_VALUES) {
      xp_add(out, "%s %s", different > 1 ? "," : "", bandwidth_text(scratch[i], bw, sizeof(bw)));
    }
  }
  xp_add(out, "%s%s", different > LEGEND_VALUES ? ", ..." : "", different > 0 ? " GB/s" : "");
  return links > 0;
}

typedef struct cursor {
  float x, y;
} cursor;

// One entry: a piece of line, and what it means; in the next row when this one is full.
static void write_entry(const svg *s, cursor *at, const char *line, const char *text)
{
  float z = s->o->scale, w = 34 + CHAR * z * (float)strlen(text) + 22;
  if (at->x > 24 && at->x + w > s->o->width - 24) {
    at->x = 24;
    at->y += LEGEND_ROW * z;
  }
  if (s->out != NULL) {
    fprintf(s->out, "<path %s d=\"M%.1f %.1fh26\"/><text class=\"tt-text\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", line,
            (double)at->x, (double)(at->y - 4 * z), (double)(at->x + 34), (double)at->y, text);
  }
  at->x += w;
}

static void ring_entry(const svg *s, cursor *at)
{
  const tt_graph *g = s->d->graphs != NULL ? &s->d->graphs->graph[TT_GRAPH_RING] : NULL;
  char text[128];
  if (g != NULL && g->nchannels > 0 && !s->page) {
    snprintf(text, sizeof(text), "ring, channel 0 of %d, %.4g GB/s each", g->nchannels, (double)g->speedintra);
    write_entry(s, at, "class=\"tt-edge tt-g0 tt-c0\" marker-end=\"url(#tt-a0)\"", text);
  }
}

// The legend from y on. Without `out` it is only measured. Returns where it ends.
static float write_legend(const svg *s, float y, float *scratch)
{
  static const char *const kinds[][2] = {{"NVL", "NVLink"},      {"C2C", "C2C"},          {"PCI", "PCI"},
                                         {"MEM", "host memory"}, {"SYS", "between CPUs"}, {"NET", "network port"},
                                         {"LOC", "one place"}};
  cursor at = {24, y};
  char line[96];
  for (size_t i = 0; i < TT_COUNT(kinds); i++) {
    xp_text text = {0};
    if (legend_text(s->d->topo, kinds[i], scratch, &text)) {
      snprintf(line, sizeof(line), "class=\"tt-link tt-%s\" stroke-width=\"3.0\"", kinds[i][0]);
      write_entry(s, &at, line, text.buf);
    }
  }
  ring_entry(s, &at);
  at = (cursor){24, at.y + LEGEND_ROW * s->o->scale};
  if (s->out != NULL) {
    fprintf(s->out,
            "<text class=\"tt-soft\" x=\"24\" y=\"%.1f\">Numbers: GB/s in one direction; thicker is faster.</text>\n",
            (double)at.y);
  }
  return at.y;
}

// ---- The whole ----

ncclResult_t xp_svg_write(const xp_drawing *d, const xp_layout *o, bool page, FILE *out)
{
  svg s = {.d = d, .o = o, .page = page};
  float *scratch = tt_calloc((size_t)d->topo->nlinks + 1, sizeof(*scratch));
  if (scratch == NULL) {
    return tt_fail(ncclSystemError, "no memory to draw %d links", d->topo->nlinks);
  }
  float height = write_legend(&s, o->height + 10 * o->scale, scratch) + 18;
  s.out = out;
  fprintf(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\"%s>\n<title>",
      (double)o->width, (double)height, (double)o->width, (double)height, page ? " id=\"machine\"" : " role=\"img\"");
  xp_title_write(d, out);
  fputs("</title>\n", out);
  xp_svg_style(out);
  fprintf(out,
          "<style>.tt-large,.tt-box .tt-large{font-size:%.0fpx}.tt-number,.tt-box .tt-soft{font-size:%.1fpx}"
          ".tt-box text{font-size:%.1fpx}</style>\n",
          (double)large_size(&s), (double)small_size(o), fmax(11, (double)small_size(o)));
  fprintf(out, "<rect class=\"tt-back\" width=\"%.0f\" height=\"%.0f\"/>\n", (double)o->width, (double)height);
  write_title(&s);
  write_panels(&s);
  write_links(&s);
  write_boxes(&s);
  write_channels(&s);
  write_numbers(&s);
  fprintf(out, "<g class=\"tt-legend\" style=\"font-size:%.1fpx\">\n", 11 * (double)o->scale);
  write_legend(&s, o->height + 10 * o->scale, scratch);
  fputs("</g>\n</svg>\n", out);
  tt_free(scratch);
  return ncclSuccess;
}

ncclResult_t xp_draw_svg(const xp_drawing *d, FILE *out)
{
  xp_layout o;
  TT_TRY(xp_layout_make(d, false, &o));
  fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", out);
  ncclResult_t res = xp_svg_write(d, &o, false, out);
  xp_layout_clear(&o);
  TT_TRY(res);
  return xp_written(out);
}
