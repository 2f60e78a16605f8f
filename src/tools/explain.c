// explain.c: prints schedules.
#include "tools/explain.h"

#include <stdbool.h>

// A schedule on its way to a file.
typedef struct print {
  FILE *f;
  const tt_schedule *s;
  const tt_layout *layout; // NULL: one node
} print;

// Between nodes the arrow is doubled.
static void print_peer(const print *p, const char *word, char arrow, int peer)
{
  if (peer >= p->s->nranks) {
    fprintf(p->f, "%s%c%cnet%d", word, arrow, arrow, peer - p->s->nranks);
    return;
  }
  bool crosses = p->layout && p->layout->node_of[p->s->rank] != p->layout->node_of[peer];
  fprintf(p->f, "%s%c%s%d", word, arrow, crosses ? (char[]){arrow, 0} : "", peer);
}

static void print_ref(const print *p, const tt_ref *ref, bool source)
{
  FILE *f = p->f;
  switch (ref->kind) {
  case TT_IN: fprintf(f, "in[%u]", ref->chunk); break;
  case TT_OUT: fprintf(f, "out[%u]", ref->chunk); break;
  case TT_TMP: fprintf(f, "tmp[%u]", ref->chunk); break;
  case TT_FIFO:
    print_peer(p, source ? "from" : "to", source ? '<' : '>', ref->peer);
    fprintf(f, "[%u]", ref->chunk);
    break;
  case TT_TOKEN:
    print_peer(p, source ? "hear" : "tell", source ? '<' : '>', ref->peer);
    if (ref->offer != TT_OFFER_NONE) {
      fprintf(f, ":%s[%u]", ref->offer == TT_OFFER_IN ? "in" : "out", ref->chunk);
    }
    break;
  case TT_PEER_IN: fprintf(f, "in@%d[%u]", ref->peer, ref->chunk); break;
  case TT_PEER_OUT: fprintf(f, "out@%d[%u]", ref->peer, ref->chunk); break;
  case TT_DRAIN: print_peer(p, "taken", '<', ref->peer); break;
  default: fprintf(f, "?%d", ref->kind); break;
  }
}

static void print_refs(const print *p, const tt_ref *refs, int count, const char *between, bool source)
{
  for (int i = 0; i < count; i++) {
    fputs(i > 0 ? between : "", p->f);
    print_ref(p, &refs[i], source);
  }
}

static const char *verb(const tt_step *step)
{
  if (step->flags & TT_STEP_REDUCE) {
    return step->flags & TT_STEP_FINAL ? "finish" : "reduce";
  }
  return "copy  ";
}

// What the mark behind a step means is in schedule.h, at the flags.
static const char *mark(const tt_step *step)
{
  return step->flags & TT_STEP_PUT_FAR      ? "   if mapped or pages"
         : step->flags & TT_STEP_PUT        ? "   if mapped"
         : step->flags & TT_STEP_UNLESS_PUT ? "   unless given"
                                            : "";
}

static void print_step(const print *p, int number, const tt_step *step)
{
  fprintf(p->f, "  %3d: sub %u  %s  ", number, step->sub, verb(step));
  print_refs(p, p->s->refs + step->src, step->nsrc, step->flags & TT_STEP_REDUCE ? " + " : ", ", true);
  fputs(step->nsrc > 0 ? " -> " : "-> ", p->f);
  print_refs(p, p->s->refs + step->dst, step->ndst, ", ", false);
  fprintf(p->f, "%s\n", mark(step));
}

void tt_schedule_print(FILE *f, const tt_schedule *s, const tt_layout *layout)
{
  print p = {.f = f, .s = s, .layout = layout};
  fprintf(f, "rank %d of %d", s->rank, s->nranks);
  if (layout) {
    fprintf(f, " on node %d of %d", layout->node_of[s->rank], layout->nnodes);
  }
  fprintf(f, ": input %d blocks, output %d blocks, %d chunks per block and pass, %d scratch slots\n", s->in_blocks,
          s->out_blocks, s->nsub, s->ntmp);
  for (int k = 0; k < s->nstrands; k++) {
    fprintf(f, " strand %d\n", k);
    for (uint32_t i = 0; i < s->strands[k].count; i++) {
      print_step(&p, (int)i, &s->steps[s->strands[k].first + i]);
    }
  }
}
