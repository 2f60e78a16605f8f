// verify_memory.c: chunks of memory, which actor touched them when, and whether that was ordered.
#include "base/util.h"
#include "tools/verify_priv.h"

// Input chunk that shares memory with output chunk `out` of schedule s when the call is in place; -1: none.
static int alias_of(const tt_verifier *v, const tt_schedule *s, int out)
{
  int block = out / s->nsub, sub = out % s->nsub;
  if (!v->o->in_place || s->in_blocks == 0) {
    return -1;
  }
  switch (v->o->func) {
  case TT_FUNC_BROADCAST:
  case TT_FUNC_REDUCE:
  case TT_FUNC_ALLREDUCE: return out;
  case TT_FUNC_ALLGATHER:
  case TT_FUNC_GATHER: return block == s->rank ? sub : -1;
  case TT_FUNC_REDUCESCATTER:
  case TT_FUNC_SCATTER: return s->rank * s->nsub + sub;
  default: return -1;
  }
}

static bool create_inputs(tt_verifier *v, int sched)
{
  const tt_schedule *s = v->all[sched];
  tt_memory *m = &v->memory[sched];
  int chunks = s->in_blocks * s->nsub;
  m->in = tt_verify_alloc(v, (size_t)v->o->loops * (size_t)chunks, sizeof *m->in);
  for (int i = 0; m->in && i < v->o->loops * chunks; i++) {
    m->in[i].value = tt_value_leaf(v, s->rank, tt_verify_pass(v, sched, i / chunks), (uint32_t)(i % chunks));
  }
  return v->res == ncclSuccess;
}

// Scratch is the same for all stages of a rank: as much as the most of them want.
static bool create_scratch(tt_verifier *v, int sched)
{
  int most = 0, hop = v->nstages > 1 ? v->n : v->nscheds;
  for (int s = sched; s < v->nscheds; s += hop) {
    most = TT_MAX(most, v->all[s]->ntmp);
  }
  v->memory[sched].tmp = sched >= v->n && v->nstages > 1
                             ? v->memory[sched % v->n].tmp
                             : tt_verify_alloc(v, (size_t)most, sizeof *v->memory[sched].tmp);
  return v->res == ncclSuccess;
}

static bool create_outputs(tt_verifier *v, int sched)
{
  const tt_schedule *s = v->all[sched];
  tt_memory *m = &v->memory[sched];
  int chunks = s->out_blocks * s->nsub;
  size_t total = (size_t)v->o->loops * (size_t)chunks;
  tt_cell *cells = tt_verify_alloc(v, total, sizeof *cells);
  m->out = tt_verify_alloc(v, total, sizeof(tt_cell *));
  for (int i = 0; v->res == ncclSuccess && i < (int)total; i++) {
    int in = alias_of(v, s, i % chunks);
    m->out[i] = in < 0 ? &cells[i] : &m->in[i / chunks * s->in_blocks * s->nsub + in];
  }
  return v->res == ncclSuccess;
}

bool tt_memory_create(tt_verifier *v)
{
  for (int i = 0; i < v->nscheds; i++) {
    if (!create_inputs(v, i) || !create_outputs(v, i) || !create_scratch(v, i)) {
      return false;
    }
  }
  return true;
}

static int schedule_of(const tt_verifier *v, const tt_actor *a, const tt_ref *ref)
{
  return ref->kind == TT_PEER_IN ? v->in_at[ref->peer] : ref->kind == TT_PEER_OUT ? v->out_at[ref->peer] : a->sched;
}

static tt_cell *cell_of(const tt_verifier *v, const tt_actor *a, const tt_ref *ref)
{
  int at = schedule_of(v, a, ref);
  const tt_schedule *s = v->all[at];
  tt_memory *m = &v->memory[at];
  switch (ref->kind) {
  case TT_TMP: return &m->tmp[ref->chunk];
  case TT_IN:
  case TT_PEER_IN: return &m->in[a->pass * s->in_blocks * s->nsub + (int)ref->chunk];
  default: return m->out[a->pass * s->out_blocks * s->nsub + (int)ref->chunk];
  }
}

static bool is_memory(const tt_ref *ref)
{
  return ref->kind != TT_FIFO && ref->kind != TT_TOKEN && ref->kind != TT_DRAIN;
}

bool tt_memory_same(const tt_verifier *v, const tt_actor *a, const tt_ref *x, const tt_ref *y)
{
  return is_memory(x) && is_memory(y) && cell_of(v, a, x) == cell_of(v, a, y);
}

static uint32_t now(const tt_actor *a)
{
  return a->clock[a->id];
}

// Did `before` happen before the actor's current step?
static bool ordered(tt_verifier *v, const tt_actor *a, const tt_access *before, const tt_ref *ref, const char *what)
{
  static const char *const kinds[] = {"input", "output", "scratch", "", "", "input", "output"};
  if (a->clock[before->actor] >= before->time) {
    return true;
  }
  const tt_actor *b = &v->actors[before->actor];
  const tt_schedule *s = tt_actor_schedule(v, b);
  int count = (int)s->strands[b->strand].count, t = (int)before->time - 1;
  return tt_verify_blame(v, TT_VERIFY_RACE, a,
                         "%s chunk %u of rank %d's %s, not ordered after its use by rank %d strand %d step %d pass %d",
                         what, ref->chunk, ref->peer, kinds[ref->kind], s->rank, b->strand, t % count, t / count);
}

// A peer's memory is open to a strand that has heard from the peer in this pass.
static bool touch(tt_verifier *v, const tt_actor *a, const tt_ref *ref)
{
  int at = schedule_of(v, a, ref);
  if ((ref->kind == TT_PEER_IN || ref->kind == TT_PEER_OUT) && a->heard[ref->peer] != a->pass + 1) {
    return tt_verify_blame(v, TT_VERIFY_RACE, a, "touches memory of rank %d without a token from it in this pass",
                           ref->peer);
  }
  v->last_touch[at * v->nactors + a->id] = now(a);
  return true;
}

static bool note_read(tt_verifier *v, const tt_actor *a, tt_cell *cell)
{
  for (tt_access *r = cell->reads; r; r = r->next) {
    if (r->actor == a->id) {
      r->time = now(a);
      return true;
    }
  }
  tt_access *r = tt_verify_alloc(v, 1, sizeof *r);
  if (!r) {
    return false;
  }
  *r = (tt_access){.next = cell->reads, .actor = a->id, .time = now(a)};
  cell->reads = r;
  return true;
}

bool tt_memory_read(tt_verifier *v, const tt_actor *a, const tt_ref *ref, const tt_value **value)
{
  tt_cell *cell = cell_of(v, a, ref);
  if (!touch(v, a, ref) || (cell->write.time > 0 && !ordered(v, a, &cell->write, ref, "reads"))) {
    return false;
  }
  if (!cell->value) {
    return tt_verify_blame(v, TT_VERIFY_CONTENTS, a, "reads memory that was never written");
  }
  *value = cell->value;
  return note_read(v, a, cell);
}

bool tt_memory_write(tt_verifier *v, const tt_actor *a, const tt_ref *ref, const tt_value *value)
{
  tt_cell *cell = cell_of(v, a, ref);
  if (!touch(v, a, ref) || (cell->write.time > 0 && !ordered(v, a, &cell->write, ref, "writes"))) {
    return false;
  }
  for (const tt_access *r = cell->reads; r; r = r->next) {
    if (!ordered(v, a, r, ref, "writes")) {
      return false;
    }
  }
  cell->value = value;
  cell->write = (tt_access){.actor = a->id, .time = now(a)};
  cell->reads = NULL;
  return true;
}

// What the end of call `s` knows of actor `id`: the latest of what its strands know.
static uint32_t holds_at_end(const tt_verifier *v, int s, int id)
{
  uint32_t latest = 0;
  for (int k = 0; k < v->all[s]->nstrands; k++) {
    latest = TT_MAX(latest, v->actors[v->memory[s].first_actor + k].clock[id]);
  }
  return latest;
}

bool tt_memory_check_owners(tt_verifier *v)
{
  for (int s = 0; s < v->nscheds; s++) {
    for (int id = 0; id < v->nactors; id++) {
      uint32_t touched = v->last_touch[s * v->nactors + id];
      if (touched > 0 && v->actors[id].sched != s && holds_at_end(v, s, id) < touched) {
        return tt_verify_blame(v, TT_VERIFY_RACE, NULL,
                               "rank %d may complete its call while rank %d still uses its buffers", v->all[s]->rank,
                               tt_actor_schedule(v, &v->actors[id])->rank);
      }
    }
  }
  return true;
}
