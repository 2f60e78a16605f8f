// verify_form.c: whether schedules are well formed, and the connections that their references name.
#include "base/util.h"
#include "tools/verify_priv.h"

static tt_queue *create_queue(tt_verifier *v, int from, int to, bool token)
{
  tt_queue *q = tt_verify_alloc(v, 1, sizeof *q + (size_t)v->o->slots * sizeof(tt_message));
  int *ends = tt_verify_alloc(v, 2 * (size_t)v->nstages, sizeof *ends);
  if (!q || !ends) {
    return NULL;
  }
  for (int i = 0; i < 2 * v->nstages; i++) {
    ends[i] = -1;
  }
  *q = (tt_queue){
      .next = v->all_queues, .from = from, .to = to, .token = token, .writer = ends, .reader = ends + v->nstages};
  v->all_queues = q;
  return q;
}

// Creates the connection at first sight and makes the actor the owner of one end in its stage.
static bool claim_queue(tt_verifier *v, const tt_actor *a, const tt_ref *ref, bool source, int step)
{
  int me = tt_actor_schedule(v, a)->rank, from = source ? ref->peer : me, to = source ? me : ref->peer;
  tt_queue **place = tt_queue_place(v, from, to, ref->kind == TT_TOKEN);
  if (!*place) {
    *place = create_queue(v, from, to, ref->kind == TT_TOKEN);
    if (!*place) {
      return false;
    }
  }
  tt_queue *q = *place;
  int *end = source ? &q->reader[a->stage] : &q->writer[a->stage];
  if (*end >= 0 && *end != a->id) {
    return tt_verify_blame(v, TT_VERIFY_FORM, a, "%s of rank %d to %d are %s by two strands",
                           q->token ? "tokens" : "messages", from, to, source ? "received" : "sent");
  }
  if (q->marked == step) {
    return tt_verify_blame(v, TT_VERIFY_FORM, a, "names a connection with rank %d twice", ref->peer);
  }
  *end = a->id;
  q->marked = step;
  return true;
}

// Chunks that a memory reference may name; for scratch, slots.
static int room_of(const tt_verifier *v, const tt_schedule *s, const tt_ref *ref)
{
  switch (ref->kind) {
  case TT_IN: return s->in_blocks * s->nsub;
  case TT_OUT: return s->out_blocks * s->nsub;
  case TT_TMP: return s->ntmp;
  case TT_PEER_IN: return v->in_at[ref->peer] < 0 ? 0 : v->all[v->in_at[ref->peer]]->in_blocks * s->nsub;
  case TT_PEER_OUT: return v->out_at[ref->peer] < 0 ? 0 : v->all[v->out_at[ref->peer]]->out_blocks * s->nsub;
  default: return 0;
  }
}

static bool check_ref(tt_verifier *v, const tt_actor *a, const tt_ref *ref, bool source, int step)
{
  const tt_schedule *s = tt_actor_schedule(v, a);
  if (ref->peer < 0 || ref->peer >= (ref->kind == TT_FIFO ? v->ends : v->n) || ref->kind > TT_DRAIN ||
      (ref->kind <= TT_TMP && ref->peer != s->rank)) {
    return tt_verify_blame(v, TT_VERIFY_FORM, a, "reference of kind %d to rank %d", ref->kind, ref->peer);
  }
  if (v->nstages > 1 && ref->kind > TT_FIFO) {
    return tt_verify_blame(v, TT_VERIFY_FORM, a, "tokens or direct access in a row of schedules");
  }
  if (ref->kind == TT_DRAIN) {
    const tt_queue *q = tt_actor_drain(v, a, ref);
    return (source && q && q->writer[0] == a->id) ||
           tt_verify_blame(v, TT_VERIFY_FORM, a, "waits for tokens to rank %d that it has not sent", ref->peer);
  }
  bool named = ref->kind != TT_TMP && (ref->kind != TT_TOKEN || ref->offer != TT_OFFER_NONE);
  if (named && ref->chunk % (uint32_t)s->nsub != tt_actor_step(v, a)->sub) {
    return tt_verify_blame(v, TT_VERIFY_FORM, a, "chunk %u is not of sub-chunk %u", ref->chunk,
                           tt_actor_step(v, a)->sub);
  }
  const tt_ref own = {.kind = ref->offer == TT_OFFER_IN ? TT_IN : TT_OUT, .peer = s->rank};
  if (ref->offer != TT_OFFER_NONE && (source || ref->kind != TT_TOKEN || ref->chunk >= (uint32_t)room_of(v, s, &own))) {
    return tt_verify_blame(v, TT_VERIFY_FORM, a,
                           "offers chunk %u, which does not exist, or offers it otherwise than by sending a token",
                           ref->chunk);
  }
  if (tt_is_queue(ref)) {
    return claim_queue(v, a, ref, source, step);
  }
  if (ref->chunk >= (uint32_t)room_of(v, s, ref)) {
    return tt_verify_blame(v, TT_VERIFY_FORM, a, "chunk %u of kind %d at rank %d does not exist", ref->chunk, ref->kind,
                           ref->peer);
  }
  if (!source && (ref->kind == TT_IN || ref->kind == TT_PEER_IN)) {
    return tt_verify_blame(v, TT_VERIFY_FORM, a, "writes an input");
  }
  return true;
}

// A step has data destinations only if it has data sources: one to copy, or any number to reduce.
static bool check_step(tt_verifier *v, const tt_actor *a, int number)
{
  const tt_schedule *s = tt_actor_schedule(v, a);
  const tt_step *step = tt_actor_step(v, a);
  int data_in = 0, data_out = 0;
  for (int i = 0; i < step->nsrc; i++) {
    data_in += tt_is_data(&s->refs[step->src + (uint32_t)i]);
    if (!check_ref(v, a, &s->refs[step->src + (uint32_t)i], true, 2 * number)) {
      return false;
    }
  }
  for (int i = 0; i < step->ndst; i++) {
    data_out += tt_is_data(&s->refs[step->dst + (uint32_t)i]);
    if (!check_ref(v, a, &s->refs[step->dst + (uint32_t)i], false, 2 * number + 1)) {
      return false;
    }
  }
  v->max_sources = TT_MAX(v->max_sources, data_in);
  if (step->nsrc + step->ndst > TT_STEP_REFS * (v->n + 2)) {
    return tt_verify_blame(v, TT_VERIFY_FORM, a, "%d references", step->nsrc + step->ndst);
  }
  bool reduce = step->flags & TT_STEP_REDUCE;
  if ((data_in > 0) != (data_out > 0) || (!reduce && data_in > 1) || (reduce && data_in == 0) ||
      (!reduce && step->flags & TT_STEP_FINAL)) {
    return tt_verify_blame(v, TT_VERIFY_FORM, a, "%d data sources, %d data destinations, flags %u", data_in, data_out,
                           step->flags);
  }
  return true;
}

bool tt_form_check(tt_verifier *v)
{
  v->queues = tt_verify_alloc(v, (size_t)v->ends * (size_t)v->ends * 2, sizeof(tt_queue *));
  if (v->res != ncclSuccess) {
    return false;
  }
  int number = 1;
  for (int i = 0; i < v->nactors; i++) {
    tt_actor at = v->actors[i];
    int count = (int)tt_actor_schedule(v, &at)->strands[at.strand].count;
    for (at.pos = 0; at.pos < count; at.pos++) {
      if (!check_step(v, &at, number++)) {
        return false;
      }
    }
  }
  return true;
}

// Do strands, steps and references lie within their arrays?
static bool check_bounds(tt_verifier *v, int i)
{
  const tt_schedule *s = v->all[i];
  bool good = s->in_blocks >= 0 && s->out_blocks >= 0 && s->ntmp >= 0;
  for (int k = 0; k < s->nstrands; k++) {
    good = good && (uint64_t)s->strands[k].first + s->strands[k].count <= (uint64_t)s->nsteps;
  }
  for (int k = 0; k < s->nsteps; k++) {
    good = good && (uint64_t)s->steps[k].src + s->steps[k].nsrc <= (uint64_t)s->nrefs &&
           (uint64_t)s->steps[k].dst + s->steps[k].ndst <= (uint64_t)s->nrefs;
  }
  return good || tt_verify_blame(v, TT_VERIFY_FORM, NULL,
                                 "schedule %d: a size is negative, or a strand or step leaves its array", i);
}

// Ranks, their buffers, and that all schedules cut the message alike.
static bool place_schedules(tt_verifier *v)
{
  v->in_at = tt_verify_alloc(v, (size_t)v->n, sizeof *v->in_at);
  v->out_at = tt_verify_alloc(v, (size_t)v->n, sizeof *v->out_at);
  for (int r = 0; v->res == ncclSuccess && r < v->n; r++) {
    v->in_at[r] = v->out_at[r] = -1;
  }
  for (int i = 0; v->res == ncclSuccess && i < v->nscheds; i++) {
    const tt_schedule *s = v->all[i];
    bool rank_fits = v->o->count > 0 ? s->rank >= 0 && s->rank < v->n : s->rank == i % v->n;
    const tt_schedule *first = v->all[v->nstages > 1 ? i / v->n * v->n : 0];
    if (s->nranks != v->n || !rank_fits || s->nsub < 1 || s->nsub != first->nsub) {
      return tt_verify_blame(v, TT_VERIFY_FORM, NULL, "schedule %d: rank %d of %d, nsub %d", i, s->rank, s->nranks,
                             s->nsub);
    }
    if (!check_bounds(v, i)) {
      return false;
    }
    if (i < v->n || v->nstages == 1) {
      v->in_at[s->rank] = s->in_blocks > 0 ? i : v->in_at[s->rank];
      v->out_at[s->rank] = s->out_blocks > 0 ? i : v->out_at[s->rank];
    }
  }
  return v->res == ncclSuccess;
}

// Do the buffers' blocks fit the function?
static bool check_blocks(tt_verifier *v)
{
  for (int i = 0; i < v->nscheds; i++) {
    const tt_schedule *s = v->all[i];
    bool p2p = v->o->func == TT_FUNC_SEND || v->o->func == TT_FUNC_RECV;
    tt_shape shape = {.func = v->o->func, .rank = s->rank, .nranks = v->n, .root = v->o->root};
    if (p2p ? s->in_blocks + s->out_blocks != 1 || s->in_blocks == v->all[1 - i]->in_blocks
            : s->in_blocks != tt_func_in_blocks(&shape) || s->out_blocks != tt_func_out_blocks(&shape)) {
      return tt_verify_blame(v, TT_VERIFY_FORM, NULL, "rank %d: %d input and %d output blocks do not fit %s", s->rank,
                             s->in_blocks, s->out_blocks, tt_func_name(v->o->func));
    }
  }
  return true;
}

// How many networks the schedules speak to; no more than there are ranks.
static void count_networks(tt_verifier *v)
{
  v->ends = v->n;
  for (int i = 0; i < v->nscheds; i++) {
    for (int k = 0; k < v->all[i]->nrefs; k++) {
      const tt_ref *ref = &v->all[i]->refs[k];
      v->ends = ref->kind == TT_FIFO && ref->peer < 2 * v->n ? TT_MAX(v->ends, ref->peer + 1) : v->ends;
    }
  }
  v->max_sources = v->ends > v->n ? v->n : 0;
}

bool tt_form_place(tt_verifier *v)
{
  if (!place_schedules(v) || !check_blocks(v)) {
    return false;
  }
  count_networks(v);
  return true;
}
