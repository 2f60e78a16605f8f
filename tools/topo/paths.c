// paths.c: the path between any two ends, as a list or as a matrix of types.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "commands.h"

enum { NAME = 64 };

// "GPU3", or "GPU" for all of that kind.
static bool selected(const tt_topo *t, int node, const char *want)
{
  char name[NAME];
  return want == NULL || strcasecmp(want, tt_node_name(t, node, name, sizeof(name))) == 0 ||
         strcasecmp(want, tt_node_kind_name(t->nodes[node].kind)) == 0;
}

static bool check_name(const tt_topo *t, const char *option, const char *want)
{
  bool found = false;
  for (int i = 0; i < tt_topo_ends(t) && !found; i++) {
    found = selected(t, i, want);
  }
  if (!found) {
    fprintf(stderr, "tutti-topo: %s %.80s: the machine has no such GPU, NET, CPU or NVS\n", option, want);
  }
  return found;
}

static void write_way(const xp_machine *m, const tt_path *p, FILE *f)
{
  char name[NAME];
  for (int i = 0; i < p->count; i++) {
    const tt_topo_link *l = &m->topo->links[m->paths->hops[p->first + i]];
    fprintf(f, "%s%s %s", i > 0 ? " " : "  ", xp_link_kind(m->topo, l),
            xp_node_name(m->topo, l->to, name, sizeof(name)));
  }
}

static void write_list(const xp_options *o, const xp_machine *m, xp_print *out)
{
  char a[NAME], b[NAME];
  const tt_topo *t = m->topo;
  fprintf(out->f, "%s# %-10s %-12s %-4s %9s %5s%s%s\n", xp_ansi(out, XP_BOLD), "from", "to", "type", "GB/s", "links",
          o->ways ? "  way" : "", xp_ansi(out, XP_PLAIN));
  for (int from = 0; from < tt_topo_ends(t); from++) {
    for (int to = 0; to < tt_topo_ends(t) && selected(t, from, o->from); to++) {
      if (from == to || !selected(t, to, o->to)) {
        continue;
      }
      const tt_path *p = tt_path_get(m->paths, from, to);
      fprintf(out->f, "%-12s %-12s %-4s %9.3f %5d", tt_node_name(t, from, a, sizeof(a)),
              tt_node_name(t, to, b, sizeof(b)), tt_path_type_name(p->type), (double)p->bw, p->count);
      if (o->ways) {
        write_way(m, p, out->f);
      }
      fputc('\n', out->f);
    }
  }
}

static bool in_matrix(const xp_options *o, const tt_topo *t, int node, bool row)
{
  const char *want = row ? o->from : o->to;
  return want != NULL ? selected(t, node, want) : t->nodes[node].kind <= TT_NODE_NET;
}

static void write_matrix(const xp_options *o, const xp_machine *m, xp_print *out)
{
  char name[NAME];
  const tt_topo *t = m->topo;
  fprintf(out->f, "%-8s", "");
  for (int to = 0; to < tt_topo_ends(t); to++) {
    if (in_matrix(o, t, to, false)) {
      fprintf(out->f, " %s%-6s%s", xp_ansi(out, XP_BOLD), tt_node_name(t, to, name, sizeof(name)),
              xp_ansi(out, XP_PLAIN));
    }
  }
  fputc('\n', out->f);
  for (int from = 0; from < tt_topo_ends(t); from++) {
    if (!in_matrix(o, t, from, true)) {
      continue;
    }
    fprintf(out->f, "%s%-8s%s", xp_ansi(out, XP_BOLD), tt_node_name(t, from, name, sizeof(name)),
            xp_ansi(out, XP_PLAIN));
    for (int to = 0; to < tt_topo_ends(t); to++) {
      int type = tt_path_get(m->paths, from, to)->type;
      xp_colour c = type <= TT_PATH_NVB ? XP_GOOD : type >= TT_PATH_PHB ? XP_BAD : XP_PLAIN;
      if (in_matrix(o, t, to, false)) {
        fprintf(out->f, " %s%-6s%s", from == to ? "" : xp_ansi(out, c), from == to ? "X" : tt_path_type_name(type),
                xp_ansi(out, XP_PLAIN));
      }
    }
    fputc('\n', out->f);
  }
}

int xp_paths(const xp_options *o, xp_print *out)
{
  xp_work w;
  int code = xp_prepare(o, XP_TO_MACHINE, &w);
  if (code == 0 && (!check_name(w.m.topo, "--from", o->from) || !check_name(w.m.topo, "--to", o->to))) {
    code = 2;
  }
  if (code == 0) {
    (o->matrix ? write_matrix : write_list)(o, &w.m, out);
  }
  xp_release(&w);
  return code;
}
