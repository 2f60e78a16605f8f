// graphs.c: the channels that were found, as NCCL_GRAPH_DUMP_FILE has them or as a table.
#include <stdio.h>

#include "base/util.h"
#include "commands.h"
#include "tools/graph_check.h"

static const char *const kind_names[TT_GRAPH_KINDS] = {"ring", "tree", "collnet direct", "collnet chain", "NVLS"};

static int write_xml(const xp_group *x, xp_print *out)
{
  tt_xml *xml = NULL;
  char *text = NULL;
  size_t size = 0;
  ncclResult_t res = tt_graphs_to_xml(x->topo, &x->graphs, &xml);
  res = res == ncclSuccess ? tt_xml_text(xml, &text, &size) : res;
  if (res == ncclSuccess) {
    fwrite(text, 1, size, out->f);
  }
  tt_free(text);
  tt_xml_destroy(xml);
  return res == ncclSuccess ? 0 : xp_complain(1);
}

static void write_row(const tt_graph *g, int kind, xp_print *out)
{
  float total = tt_graph_total(g);
  if (g->nchannels == 0) {
    fprintf(out->f, "%-15s %-14s %8s\n", kind_names[kind], "-", "none");
    return;
  }
  char bound[24] = "-";
  if (g->bound > 0) {
    snprintf(bound, sizeof(bound), "%g", (double)g->bound);
  }
  const char *mark = xp_ansi(out, g->bound > 0 && total >= g->bound * 0.99f ? XP_GOOD : XP_PLAIN);
  fprintf(out->f, "%-15s %-14s %8d %8g %8g %s%8g %8s%s   %-5s %-5s %4d %5s %6s %9ld%s\n", kind_names[kind],
          tt_pattern_name(g->pattern), g->nchannels, (double)g->speedintra, (double)g->speedinter, mark, (double)total,
          bound, xp_ansi(out, XP_PLAIN), tt_path_type_name(g->typeintra),
          g->inter ? tt_path_type_name(g->typeinter) : "-", g->nhops, g->samechannels ? "yes" : "no",
          !g->inter          ? "-"
          : g->crossnic == 0 ? "no"
          : g->crossnic == 1 ? "any"
                             : "pairs",
          g->steps, g->exhausted ? "" : " (limit)");
}

static void write_table(const xp_machine *m, int group, xp_print *out)
{
  const xp_group *x = &m->group[group];
  if (m->ngroups > 1) {
    fprintf(out->f, "%sgroup %d of %d%s: ranks", xp_ansi(out, XP_BOLD), group, m->ngroups, xp_ansi(out, XP_PLAIN));
    for (int r = 0; r < m->nranks; r++) {
      if (m->group_of[r] == group) {
        fprintf(out->f, " %d", r);
      }
    }
    fputc('\n', out->f);
  }
  fprintf(out->f, "%s%-15s %-14s %8s %8s %8s %8s %8s   %-5s %-5s %4s %5s %6s %9s%s\n", xp_ansi(out, XP_BOLD), "graph",
          "pattern", "channels", "GB/s", "to net", "total", "bound", "intra", "inter", "hops", "same", "cross", "steps",
          xp_ansi(out, XP_PLAIN));
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    write_row(&x->graphs.graph[k], k, out);
  }
}

int xp_graphs(const xp_options *o, xp_print *out)
{
  xp_work w;
  int code = xp_prepare(o, XP_TO_GRAPHS, &w);
  if (code == 0 && o->rank >= w.m.nranks * o->nodes) {
    fprintf(stderr, "tutti-topo: --rank %d: there are %d ranks\n", o->rank, w.m.nranks * o->nodes);
    code = 2;
  }
  if (code == 0 && o->packed) {
    code = xp_packed(o, &w.m, out);
  } else if (code == 0 && o->table) {
    for (int g = 0; g < w.m.ngroups; g++) {
      bool wanted = o->rank < 0 || w.m.group_of[o->rank % w.m.nranks] == g;
      if (wanted) {
        write_table(&w.m, g, out);
      }
    }
    fprintf(out->f, "searched in %.2f ms\n", w.m.search_ms);
    code = xp_packed_far(&w.m, "", out);
  } else if (code == 0) {
    code = write_xml(&w.m.group[w.m.group_of[o->rank < 0 ? 0 : o->rank % w.m.nranks]], out);
  }
  xp_release(&w);
  return code;
}
