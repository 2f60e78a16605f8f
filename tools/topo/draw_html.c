// draw_html.c: the page: the picture, its data, the table of graphs; page.js brings it to life.
#include "base/util.h"
#include "draw_priv.h"
#include "tools/graph_check.h"

static void write_head(const xp_drawing *d, FILE *out)
{
  fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<link rel=\"icon\" href=\"data:,\">\n<title>",
        out);
  xp_title_write(d, out);
  fprintf(
      out,
      "</title>\n<style>\n%s%s</style>\n</head>\n<body>\n<main>\n<div>\n<div id=\"bar\">\n"
      "<label>Find <input type=\"search\" id=\"find\" placeholder=\"bus id, name, port\"></label>\n<output "
      "id=\"found\"></output>\n"
      "<button type=\"button\" id=\"zoom\" aria-pressed=\"false\">actual size</button>\n</div>\n<div id=\"view\">\n",
      xp_page_style, xp_chart_style);
}

static void write_cell(FILE *out, double value)
{
  fprintf(out, "<td class=\"n\">%.4g</td>", value);
}

static void write_graph(const tt_graph *g, int kind, FILE *out)
{
  bool found = g->nchannels > 0;
  fprintf(out, "<tr><td>%s</td><td>%s</td>", xp_graph_name(kind), found ? tt_pattern_name(g->pattern) : "-");
  if (!found) {
    fputs("<td colspan=\"8\" class=\"soft\">no channels</td></tr>\n", out);
    return;
  }
  fprintf(out, "<td class=\"n\">%d &#215; %.4g</td>", g->nchannels, (double)g->speedintra);
  write_cell(out, (double)tt_graph_total(g));
  if (g->bound > 0) {
    write_cell(out, (double)g->bound);
  } else {
    fputs("<td class=\"n soft\">-</td>", out);
  }
  if (g->inter) {
    write_cell(out, (double)g->speedinter);
  } else {
    fputs("<td class=\"n soft\">-</td>", out);
  }
  fprintf(out, "<td>%s</td><td>%s</td><td class=\"n\">%d</td><td>%s</td></tr>\n", tt_path_type_name(g->typeintra),
          g->inter ? tt_path_type_name(g->typeinter) : "-", g->nhops,
          !g->inter          ? "-"
          : g->crossnic == 0 ? "no"
          : g->crossnic == 1 ? "any"
                             : "pairs");
}

// What the table's columns mean, where they stand.
static void write_words(FILE *out)
{
  static const char *const words[][2] = {
      {"channels &#215; GB/s",
       "each channel carries so much between two ranks in one direction; <b>to a card</b>: to and from the network"},
      {"together", "all channels of the graph, GB/s"},
      {"bound",
       "GB/s that no such graph exceeds on this machine: the search found the best where both are equal; -: not known"},
      {"path", "the farthest that an edge goes: NVL NVLink, C2C chip to chip, PIX one PCI switch, PXB several, PXN by "
               "another GPU's card, PHB "
               "through the CPU, SYS between CPUs"},
      {"hops", "links that the edges of all channels pass, together; fewer are better"},
      {"cross NIC", "may a ring leave by another card than it came by: no, any, or pairs (two channels swap cards); -: "
                    "one machine, no network"},
  };
  fputs("<dl>\n", out);
  for (size_t i = 0; i < TT_COUNT(words); i++) {
    fprintf(out, "<dt>%s</dt><dd>%s</dd>\n", words[i][0], words[i][1]);
  }
  fputs("</dl>\n", out);
}

static void write_host_note(const xp_drawing *d, FILE *out)
{
  if (tt_topo_host_rank(&d->topo->nodes[0])) {
    fputs("<p class=\"soft\">Ranks in host memory: the search counts with assumed links to memory. <code>tutti-topo "
          "host</code> shows what was\n"
          "measured, and what a communicator chooses.</p>\n",
          out);
  }
}

static void write_graphs(const xp_drawing *d, FILE *out)
{
  fputs("<section aria-label=\"graphs\">\n<h2>Channels</h2>\n", out);
  if (d->graphs == NULL) {
    fputs("<p class=\"soft\">There are no channels of all ranks together; <code>tutti-topo graphs --rank R</code> has "
          "those of a rank's\n"
          "group.</p>\n<div id=\"controls\"></div>\n</section>\n",
          out);
    return;
  }
  fputs("<div class=\"wide\"><table id=\"graphs\">\n<tr><th scope=\"col\">graph</th><th scope=\"col\">pattern</th>"
        "<th scope=\"col\" class=\"n\">channels &#215; GB/s</th><th scope=\"col\" class=\"n\">together</th>"
        "<th scope=\"col\" class=\"n\">bound</th><th scope=\"col\" class=\"n\">to a card</th><th scope=\"col\">path of "
        "ranks</th>"
        "<th scope=\"col\">path to card</th><th scope=\"col\" class=\"n\">hops</th><th scope=\"col\">cross "
        "NIC</th></tr>\n",
        out);
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    write_graph(&d->graphs->graph[k], k, out);
  }
  fputs("</table></div>\n", out);
  write_words(out);
  write_host_note(d, out);
  if (xp_edge_count(d) > XP_PAGE_EDGES) {
    fputs(
        "<p class=\"soft\">The channels have too many edges for their lines; the links that they use are shown.</p>\n",
        out);
  }
  fputs("<div id=\"controls\"></div>\n</section>\n", out);
}

// The script draws it.
static void write_chart(const xp_drawing *d, FILE *out)
{
  if (d->curves == NULL || d->curves->count == 0) {
    return;
  }
  int machines = TT_MAX(d->machines, 1);
  long ranks = (long)machines * tt_topo_count(d->topo, TT_NODE_GPU);
  fprintf(out,
          "<section aria-label=\"predictions\">\n<h2>Predicted time and bandwidth</h2>\n<p class=\"soft\">%ld ranks on "
          "%d machine%s, by %s. "
          "GB/s: the operation's size (the larger of a\nrank's two buffers) over the time.%s</p>"
          "\n<div id=\"chart\"></div>\n</section>\n",
          ranks, machines, machines == 1 ? "" : "s", d->curves->model,
          tt_topo_host_rank(&d->topo->nodes[0]) ? "" : " The fastest is chosen: the broad line behind the others.");
}

static ncclResult_t write_page(const xp_drawing *d, const xp_layout *o, FILE *out)
{
  write_head(d, out);
  TT_TRY(xp_svg_write(d, o, true, out));
  fputs("</div>\n<style>\n@media screen and (prefers-color-scheme: dark) {\n", out);
  xp_svg_colours(1, out);
  fputs("}\n</style>\n", out);
  write_graphs(d, out);
  write_chart(d, out);
  if (d->paths != NULL && d->paths->nends > XP_PAGE_ENDS) {
    fprintf(out, "<section class=\"soft\">More than %d places: without the table of paths.</section>\n", XP_PAGE_ENDS);
  }
  fputs("</div>\n<aside id=\"details\" aria-live=\"polite\" aria-label=\"details\"></aside>\n</main>\n"
        "<noscript><p>Details and channels need JavaScript.</p></noscript>\n<script type=\"application/json\" "
        "id=\"data\">\n",
        out);
  TT_TRY(xp_json_write(d, true, out));
  fprintf(out, "</script>\n<script>\n'use strict';\nconst COLOURS = %d;\n%s%s</script>\n</body>\n</html>\n", XP_COLOURS,
          xp_page_script, xp_chart_script);
  return ncclSuccess;
}

ncclResult_t xp_draw_html(const xp_drawing *d, FILE *out)
{
  xp_layout o;
  TT_TRY(xp_layout_make(d, true, &o));
  ncclResult_t res = write_page(d, &o, out);
  xp_layout_clear(&o);
  TT_TRY(res);
  return xp_written(out);
}
