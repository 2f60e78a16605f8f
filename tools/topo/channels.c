// channels.c: rings and trees of all ranks over all nodes: as NCCL logs them, as JSON, or in plain lines of one ring or
// rank each.
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands.h"

typedef struct listing {
  const xp_machine *m;
  const tt_connect *c;
  FILE *f;
  int first_rank, end_rank, first_channel, end_channel; // those that are wanted
  int start;                                            // rank that rings begin with
  int *order;                                           // room for one ring
} listing;

static void write_order(const listing *l, int channel, const char *between, int width)
{
  tt_connect_ring(l->c, channel, l->start, l->order);
  for (int i = 0; i < l->c->nranks; i++) {
    fprintf(l->f, "%s%*d", i > 0 ? between : "", width, l->order[i]);
  }
}

static void write_trees(const listing *l, int rank)
{
  for (int ch = l->first_channel; ch < l->end_channel; ch++) {
    tt_tree_place p = tt_connect_tree(l->c, ch, rank);
    fprintf(l->f, " [%d] %d/%d/%d->%d->%d", ch, p.down[0], p.down[1], p.down[2], rank, p.up);
  }
  fputc('\n', l->f);
}

static void write_text(const listing *l)
{
  const xp_machine *m = l->m;
  int width = snprintf(NULL, 0, "%d", l->c->nranks - 1); // NCCL's log has columns
  for (int ch = l->first_channel; ch < l->end_channel; ch++) {
    fprintf(l->f, "Channel %02d/%02d : ", ch, l->c->nchannels);
    write_order(l, ch, " ", width);
    fputc('\n', l->f);
  }
  for (int r = l->first_rank; r < l->end_rank; r++) {
    fprintf(l->f, "Trees");
    write_trees(l, r);
  }
  fprintf(
      l->f,
      "%d coll channels (%d found), %d collnet channels, %d nvls channels, %d p2p channels, %d p2p channels per peer\n",
      l->c->nchannels, l->c->nsearch, l->c->collnet ? l->c->nchannels : 0, l->c->nvls_channels, m->p2p.channels,
      m->p2p.per_peer);
}

static void write_plain(const listing *l)
{
  for (int ch = l->first_channel; ch < l->end_channel; ch++) {
    fprintf(l->f, "ring %d : ", ch);
    write_order(l, ch, " ", 0);
    fputc('\n', l->f);
  }
  for (int r = l->first_rank; r < l->end_rank; r++) {
    fprintf(l->f, "rank %d :", r);
    write_trees(l, r);
  }
}

static void write_json_tree(const listing *l, int channel, int rank)
{
  tt_tree_place p = tt_connect_tree(l->c, channel, rank);
  fprintf(l->f, "{\"rank\": %d, \"up\": %d, \"down\": [", rank, p.up);
  for (int d = 0, n = 0; d < TT_TREE_DOWNS; d++) {
    if (p.down[d] >= 0) {
      fprintf(l->f, "%s%d", n++ > 0 ? ", " : "", p.down[d]);
    }
  }
  fprintf(l->f, "]}");
}

static void write_json(const listing *l)
{
  const tt_connect *c = l->c;
  fprintf(l->f, "{\n  \"machine\": ");
  xp_json_text(l->f, l->m->name);
  fprintf(l->f,
          ",\n  \"ranks\": %d, \"nodes\": %d, \"found\": %d, \"nchannels\": %d, \"nvls_channels\": %d, "
          "\"p2p_channels\": %d,\n",
          c->nranks, c->nnodes, c->nsearch, c->nchannels, c->nvls_channels, l->m->p2p.channels);
  fprintf(l->f, "  \"p2p_channels_per_peer\": %d,\n  \"channels\": [", l->m->p2p.per_peer);
  for (int ch = l->first_channel; ch < l->end_channel; ch++) {
    fprintf(l->f, "%s\n    {\"channel\": %d,\n     \"ring\": [", ch > l->first_channel ? "," : "", ch);
    write_order(l, ch, ", ", 0);
    fprintf(l->f, "],\n     \"tree\": [");
    for (int r = l->first_rank; r < l->end_rank; r++) {
      fprintf(l->f, "%s", r > l->first_rank ? ",\n              " : "");
      write_json_tree(l, ch, r);
    }
    fprintf(l->f, "]}");
  }
  fprintf(l->f, "\n  ]\n}\n");
}

typedef struct form {
  const char *name;
  void (*write)(const listing *l);
} form;

static const form forms[] = {{"text", write_text}, {"json", write_json}, {"plain", write_plain}};

static const form *find_form(const char *name)
{
  for (size_t i = 0; i < TT_COUNT(forms); i++) {
    if (name == NULL || strcmp(forms[i].name, name) == 0) {
      return &forms[i];
    }
  }
  fprintf(stderr, "tutti-topo: --format %.80s: there are text, json and plain\n", name);
  return NULL;
}

static int run(const xp_options *o, const form *kind, const xp_machine *m, xp_print *out)
{
  const tt_connect *c = m->connect;
  if (o->rank >= c->nranks || o->channel >= c->nchannels) {
    bool rank = o->rank >= c->nranks;
    fprintf(stderr, "tutti-topo: %s %d: there are %d\n", rank ? "--rank" : "--channel", rank ? o->rank : o->channel,
            rank ? c->nranks : c->nchannels);
    return 2;
  }
  listing l = {.m = m,
               .c = c,
               .f = out->f,
               .first_rank = TT_MAX(o->rank, 0),
               .end_rank = o->rank >= 0 ? o->rank + 1 : c->nranks,
               .first_channel = TT_MAX(o->channel, 0),
               .end_channel = o->channel >= 0 ? o->channel + 1 : c->nchannels,
               .start = TT_MAX(o->rank, 0),
               .order = tt_calloc((size_t)c->nranks, sizeof(int))};
  if (l.order == NULL) {
    (void)tt_fail(ncclSystemError, "no memory for a ring of %d ranks", c->nranks);
    return xp_complain(1);
  }
  kind->write(&l);
  tt_free(l.order);
  return 0;
}

int xp_channels(const xp_options *o, xp_print *out)
{
  xp_work w;
  const form *kind = find_form(o->format);
  if (kind == NULL) {
    return 2;
  }
  int code = xp_prepare(o, XP_TO_MODEL, &w);
  code = code == 0 ? run(o, kind, &w.m, out) : code;
  xp_release(&w);
  return code;
}
