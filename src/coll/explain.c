// explain.c: prints schedules.
#include "coll/explain.h"

static void print_ref(FILE *f, const tt_ref *ref, int source)
{
  switch (ref->kind) {
  case TT_IN: fprintf(f, "in[%u]", ref->chunk); break;
  case TT_OUT: fprintf(f, "out[%u]", ref->chunk); break;
  case TT_TMP: fprintf(f, "tmp[%u]", ref->chunk); break;
  case TT_FIFO: fprintf(f, "%s%d[%u]", source ? "from<" : "to>", ref->peer, ref->chunk); break;
  case TT_TOKEN: fprintf(f, "%s%d", source ? "hear<" : "tell>", ref->peer); break;
  case TT_PEER_IN: fprintf(f, "in@%d[%u]", ref->peer, ref->chunk); break;
  case TT_PEER_OUT: fprintf(f, "out@%d[%u]", ref->peer, ref->chunk); break;
  case TT_DRAIN: fprintf(f, "taken<%d", ref->peer); break;
  default: fprintf(f, "?%d", ref->kind); break;
  }
}

static void print_refs(FILE *f, const tt_ref *refs, int count, const char *between, int source)
{
  for (int i = 0; i < count; i++) {
    fputs(i > 0 ? between : "", f);
    print_ref(f, &refs[i], source);
  }
}

static const char *verb(const tt_step *step)
{
  if (step->flags & TT_STEP_REDUCE) {
    return step->flags & TT_STEP_FINAL ? "finish" : "reduce";
  }
  return "copy  ";
}

static void print_step(FILE *f, const tt_schedule *s, int number, const tt_step *step)
{
  fprintf(f, "  %3d: sub %u  %s  ", number, step->sub, verb(step));
  print_refs(f, s->refs + step->src, step->nsrc, step->flags & TT_STEP_REDUCE ? " + " : ", ", 1);
  fputs(step->nsrc > 0 ? " -> " : "-> ", f);
  print_refs(f, s->refs + step->dst, step->ndst, ", ", 0);
  fputc('\n', f);
}

void tt_schedule_print(FILE *f, const tt_schedule *s)
{
  fprintf(f, "rank %d of %d: input %d blocks, output %d blocks, %d chunks per block and pass, %d scratch slots\n", s->rank, s->nranks,
          s->in_blocks, s->out_blocks, s->nsub, s->ntmp);
  for (int k = 0; k < s->nstrands; k++) {
    fprintf(f, " strand %d\n", k);
    for (uint32_t i = 0; i < s->strands[k].count; i++) {
      print_step(f, s, (int)i, &s->steps[s->strands[k].first + i]);
    }
  }
}
