// verify_value.c: sets of contributions, how steps combine them, and what outputs must hold.
#include "base/util.h"
#include "tools/verify_priv.h"

enum { TAG_LEAF = 1, TAG_SCALED, TAG_FINAL, TAG_SUM };

static uint64_t mix(uint64_t h, uint64_t x)
{
  h ^= x + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdu;
  return h ^ h >> 33;
}

const tt_value *tt_value_leaf(tt_verifier *v, int rank, int pass, uint32_t chunk)
{
  tt_value *x = tt_verify_alloc(v, 1, sizeof *x);
  if (x) {
    *x = (tt_value){.pass = pass, .chunk = chunk, .only = rank};
    x->expr = mix(mix(mix(TAG_LEAF, (uint64_t)rank), (uint64_t)pass), chunk);
  }
  return x;
}

static bool check_operand(tt_verifier *v, const tt_actor *a, const tt_operand *x, int i)
{
  const tt_value *first = v->operands[0].value;
  if (x->raw && x->value->scaled) {
    return tt_verify_blame(v, TT_VERIFY_CONTENTS, a, "source %d is an input already overwritten by a partial result",
                           i);
  }
  if (!x->raw && !x->value->scaled) {
    return tt_verify_blame(v, TT_VERIFY_CONTENTS, a, "source %d was never pre-scaled", i);
  }
  if (x->value->final) {
    return tt_verify_blame(v, TT_VERIFY_CONTENTS, a, "source %d already had its final division", i);
  }
  if (x->value->pass != first->pass || x->value->chunk != first->chunk) {
    return tt_verify_blame(v, TT_VERIFY_CONTENTS, a, "source %d is of chunk %u pass %d, source 0 of chunk %u pass %d",
                           i, x->value->chunk, x->value->pass, first->chunk, first->pass);
  }
  return true;
}

static void add_counts(uint16_t *sum, const tt_value *x, int n)
{
  if (x->only >= 0) {
    sum[x->only]++;
    return;
  }
  for (int r = 0; r < n; r++) {
    sum[r] = (uint16_t)(sum[r] + x->counts[r]);
  }
}

// Are they the contributions of all ranks, rank 0 first?
static bool is_in_order(const tt_verifier *v, int count)
{
  for (int i = 0; i < count; i++) {
    if (v->operands[i].value->only != i) {
      return false;
    }
  }
  return count == v->n;
}

// A raw operand is scaled and rounded when it is added, a stored one when it was stored. The bits are the same, but the
// expressions are kept apart.
static uint64_t hash_of_sum(const tt_verifier *v, int count)
{
  if (count == 1) {
    return v->operands[0].raw ? mix(v->operands[0].value->expr, TAG_SCALED) : v->operands[0].value->expr;
  }
  uint64_t h = TAG_SUM;
  for (int i = 0; i < count; i++) {
    h = mix(mix(h, v->operands[i].value->expr), v->operands[i].raw ? TAG_SCALED : 0);
  }
  return h;
}

static const tt_value *sum_of(tt_verifier *v, const tt_actor *a, unsigned flags, int count)
{
  for (int i = 0; i < count; i++) {
    if (!check_operand(v, a, &v->operands[i], i)) {
      return NULL;
    }
  }
  tt_value *x = tt_verify_alloc(v, 1, sizeof *x);
  uint16_t *counts = count > 1 ? tt_verify_alloc(v, (size_t)v->n, sizeof *counts) : NULL;
  if (!x || (count > 1 && !counts)) {
    return NULL;
  }
  *x = *v->operands[0].value;
  x->expr = hash_of_sum(v, count);
  x->scaled = true;
  x->in_order = is_in_order(v, count) || (count == 1 && x->in_order);
  if (counts) {
    for (int i = 0; i < count; i++) {
      add_counts(counts, v->operands[i].value, v->n);
    }
    x->only = -1;
    x->counts = counts;
  }
  if (flags & TT_STEP_FINAL) {
    x->final = true;
    x->expr = mix(x->expr, TAG_FINAL);
  }
  return x;
}

const tt_value *tt_value_combine(tt_verifier *v, const tt_actor *a, unsigned flags, int count)
{
  return flags & TT_STEP_REDUCE ? sum_of(v, a, flags, count) : v->operands[0].value;
}

static int count_of(const tt_value *x, int rank)
{
  return x->only >= 0 ? x->only == rank : x->counts[rank];
}

// What is in an output; NULL: nothing.
static const tt_value *value_in(const tt_verifier *v, int sched, int pass, uint32_t out)
{
  const tt_schedule *s = v->all[sched];
  return v->memory[sched].out[pass * s->out_blocks * s->nsub + (int)out]->value;
}

// Contents of an output of a reducing function: every rank's `chunk` once.
static bool check_sum(tt_verifier *v, int sched, int pass, uint32_t out, uint32_t chunk)
{
  int rank = v->all[sched]->rank;
  const tt_value *x = value_in(v, sched, pass, out);
  if (!x || x->pass != tt_verify_pass(v, sched, pass) || x->chunk != chunk) {
    return tt_verify_blame(v, TT_VERIFY_CONTENTS, NULL, "rank %d: output chunk %u of pass %d ends with %s", rank, out,
                           pass, x ? "another chunk" : "nothing");
  }
  for (int r = 0; r < v->n; r++) {
    if (count_of(x, r) != 1) {
      return tt_verify_blame(v, TT_VERIFY_CONTENTS, NULL,
                             "rank %d: output chunk %u of pass %d has the part of rank %d %d times", rank, out, pass, r,
                             count_of(x, r));
    }
  }
  if (!x->scaled || !x->final) {
    return tt_verify_blame(v, TT_VERIFY_CONTENTS, NULL, "rank %d: output chunk %u of pass %d: %s", rank, out, pass,
                           x->scaled ? "no final division" : "not pre-scaled");
  }
  return !v->o->in_order || x->in_order ||
         tt_verify_blame(v, TT_VERIFY_CONTENTS, NULL,
                         "rank %d: output chunk %u of pass %d is not one sum in the order of the ranks", rank, out,
                         pass);
}

// Contents of an output of a copying function: chunk `chunk` of rank `owner`, untouched.
static bool check_copy(tt_verifier *v, int sched, int pass, uint32_t out, int owner, uint32_t chunk)
{
  int rank = v->all[sched]->rank;
  const tt_value *x = value_in(v, sched, pass, out);
  if (!x || x->pass != tt_verify_pass(v, sched, pass) || x->chunk != chunk || x->only != owner || x->scaled ||
      x->final) {
    return tt_verify_blame(v, TT_VERIFY_CONTENTS, NULL,
                           "rank %d: output chunk %u of pass %d is not chunk %u of rank %d", rank, out, pass, chunk,
                           owner);
  }
  return true;
}

// What output chunk `out` of the schedule's rank is made of, by the definition of the function: all ranks' chunk, or
// *owner's.
static void promised(const tt_verifier *v, const tt_schedule *s, uint32_t out, int *owner, uint32_t *chunk)
{
  uint32_t nsub = (uint32_t)s->nsub, sub = out % nsub;
  *owner = v->o->root;
  *chunk = out;
  switch (v->o->func) {
  case TT_FUNC_REDUCESCATTER:
  case TT_FUNC_SCATTER: *chunk = (uint32_t)s->rank * nsub + sub; break;
  case TT_FUNC_ALLGATHER:
  case TT_FUNC_GATHER:
    *owner = (int)(out / nsub);
    *chunk = sub;
    break;
  case TT_FUNC_ALLTOALL:
    *owner = (int)(out / nsub);
    *chunk = (uint32_t)s->rank * nsub + sub;
    break;
  default: break;
  }
}

static bool check_output(tt_verifier *v, int sched, int pass, uint32_t out)
{
  int owner;
  uint32_t chunk;
  promised(v, v->all[sched], out, &owner, &chunk);
  if (v->o->func == TT_FUNC_SEND || v->o->func == TT_FUNC_RECV) {
    owner = v->all[v->all[0]->in_blocks > 0 ? 0 : 1]->rank;
  }
  return tt_func_reduces(v->o->func) ? check_sum(v, sched, pass, out, chunk)
                                     : check_copy(v, sched, pass, out, owner, chunk);
}

static bool check_same_expression(tt_verifier *v)
{
  for (int s = 1; v->o->func == TT_FUNC_ALLREDUCE && s < v->nscheds; s++) {
    int first = s / v->n * v->n, chunks = v->o->loops * v->all[s]->nsub;
    for (int c = 0; c < chunks; c++) {
      if (v->memory[s].out[c]->value->expr != v->memory[first].out[c]->value->expr) {
        return tt_verify_blame(v, TT_VERIFY_CONTENTS, NULL,
                               "ranks 0 and %d compute output chunk %d by different expressions", s % v->n,
                               c % v->all[s]->nsub);
      }
    }
  }
  return true;
}

bool tt_value_check_outputs(tt_verifier *v)
{
  for (int s = 0; s < v->nscheds; s++) {
    int chunks = v->all[s]->out_blocks * v->all[s]->nsub;
    for (int i = 0; i < v->o->loops * chunks; i++) {
      if (!check_output(v, s, i / chunks, (uint32_t)(i % chunks))) {
        return false;
      }
    }
  }
  return check_same_expression(v);
}
