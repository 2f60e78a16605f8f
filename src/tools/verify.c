// verify.c: runs the schedules of all ranks over bounded connections. What it proves and why: verify.h.
#include "tools/verify_priv.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/result.h"
#include "base/text.h"
#include "base/util.h"

struct tt_block {
  struct tt_block *next;
  max_align_t bytes[];
};

const char *tt_verify_class_name(tt_verify_class c)
{
  static const char *const names[TT_VERIFY_NCLASSES] = {"form", "deadlock", "contents", "race", "leftover"};
  return (unsigned)c < TT_VERIFY_NCLASSES ? names[c] : "?";
}

// ---- memory and faults ----

static bool add_block(tt_verifier *v, size_t least)
{
  v->block_size = TT_MAX(least, TT_MIN(TT_MAX(v->block_size * 2, (size_t)16 << 10), (size_t)1 << 20));
  struct tt_block *block = tt_calloc(1, sizeof *block + v->block_size);
  if (!block) {
    v->res = tt_fail(ncclSystemError, "out of memory: %zu bytes for verifying schedules", v->block_size);
    return false;
  }
  block->next = v->blocks;
  v->blocks = block;
  v->block_used = 0;
  return true;
}

void *tt_verify_alloc(tt_verifier *v, size_t n, size_t size)
{
  size_t bytes = TT_ROUND_UP(TT_MAX(n * size, (size_t)1), sizeof(void *));
  if (v->res != ncclSuccess) {
    return NULL;
  }
  if ((!v->blocks || v->block_used + bytes > v->block_size) && !add_block(v, bytes)) {
    return NULL;
  }
  void *p = (char *)v->blocks->bytes + v->block_used;
  v->block_used += bytes;
  return p;
}

static void free_blocks(tt_verifier *v)
{
  while (v->blocks) {
    struct tt_block *next = v->blocks->next;
    tt_free(v->blocks);
    v->blocks = next;
  }
}

bool tt_verify_blame(tt_verifier *v, tt_verify_class c, const tt_actor *a, const char *fmt, ...)
{
  if (v->res != ncclSuccess) {
    return false;
  }
  v->res = ncclInternalError;
  if (v->o->count_classes) {
    v->o->count_classes[c]++;
  }
  char where[96] = "", what[512];
  if (a && v->nstages > 1) {
    snprintf(where, sizeof where, "rank %d stage %d strand %d step %d pass %d: ", tt_actor_schedule(v, a)->rank,
             a->stage, a->strand, a->pos, a->pass);
  } else if (a) {
    snprintf(where, sizeof where, "rank %d strand %d step %d pass %d: ", tt_actor_schedule(v, a)->rank, a->strand,
             a->pos, a->pass);
  }
  va_list args;
  va_start(args, fmt);
  tt_vformat(what, sizeof what, fmt, args);
  va_end(args);
  if (v->why && v->whylen > 0) {
    snprintf(v->why, v->whylen, "%s: %s%s", tt_verify_class_name(c), where, what);
  }
  return false;
}

// ---- gifts ----

// Has rank `from` mapped the output of rank `to`?
static bool reaches(const tt_verifier *v, int from, int to)
{
  return v->reach == TT_REACH_ALL || (v->reach == TT_REACH_LATER && from < to);
}

// Does the step write anything but gifts that are not made in this run?
static bool makes_something(const tt_verifier *v, const tt_actor *a)
{
  const tt_schedule *s = tt_actor_schedule(v, a);
  const tt_step *step = tt_actor_step(v, a);
  for (int i = 0; i < step->ndst; i++) {
    const tt_ref *dst = &s->refs[step->dst + (uint32_t)i];
    if (tt_is_data(dst) && (dst->kind != TT_PEER_OUT || reaches(v, s->rank, dst->peer))) {
      return true;
    }
  }
  return false;
}

// Has the peer whose memory the step would read given the result already?
static bool has_result(const tt_verifier *v, const tt_actor *a)
{
  const tt_schedule *s = tt_actor_schedule(v, a);
  const tt_step *step = tt_actor_step(v, a);
  for (int i = 0; i < step->nsrc; i++) {
    const tt_ref *src = &s->refs[step->src + (uint32_t)i];
    if ((src->kind == TT_PEER_IN || src->kind == TT_PEER_OUT) && reaches(v, src->peer, s->rank)) {
      return true;
    }
  }
  return false;
}

// Of a step with gifts, or of what gifts spare: data that is not moved in this run.
static bool is_spared(const tt_verifier *v, const tt_actor *a, const tt_ref *ref, bool source)
{
  unsigned flags = tt_actor_step(v, a)->flags;
  if (flags & TT_STEP_UNLESS_PUT) {
    return has_result(v, a);
  }
  if (!(flags & TT_STEP_PUT)) {
    return false;
  }
  return source ? !makes_something(v, a)
                : ref->kind == TT_PEER_OUT && !reaches(v, tt_actor_schedule(v, a)->rank, ref->peer);
}

// ---- the run ----

static bool is_done(const tt_verifier *v, const tt_actor *a)
{
  return a->pass == v->o->loops;
}

// The connection that a FIFO or token reference of the actor means.
static tt_queue *queue_of(const tt_verifier *v, const tt_actor *a, const tt_ref *ref, bool source)
{
  int me = tt_actor_schedule(v, a)->rank;
  return *tt_queue_place(v, source ? ref->peer : me, source ? me : ref->peer, ref->kind == TT_TOKEN);
}

// Is there a token in the connection that came without a copy? A drain waits for those alone.
static bool is_held(const tt_verifier *v, const tt_queue *q)
{
  int i = 0;
  while (i < q->count && q->slot[(q->head + i) % v->o->slots].value) {
    i++;
  }
  return i < q->count;
}

static bool is_blocked(const tt_verifier *v, const tt_queue *q, tt_need need)
{
  switch (need) {
  case TT_NEED_MESSAGE: return q->count == 0;
  case TT_NEED_ROOM: return q->count == v->o->slots;
  default: return is_held(v, q);
  }
}

// The connection that the actor's next step waits for, or NULL when it can run. *need: what it lacks there.
static tt_queue *blocked_on(const tt_verifier *v, const tt_actor *a, tt_need *need)
{
  const tt_step *step = tt_actor_step(v, a);
  const tt_ref *refs = tt_actor_schedule(v, a)->refs;
  for (int i = 0; i < step->nsrc + step->ndst; i++) {
    bool source = i < step->nsrc;
    const tt_ref *ref = source ? &refs[step->src + (uint32_t)i] : &refs[step->dst + (uint32_t)(i - step->nsrc)];
    bool drain = ref->kind == TT_DRAIN;
    tt_queue *q = drain ? tt_actor_drain(v, a, ref) : tt_is_queue(ref) ? queue_of(v, a, ref, source) : NULL;
    *need = drain ? TT_NEED_DRAINED : source ? TT_NEED_MESSAGE : TT_NEED_ROOM;
    if (q && is_blocked(v, q, *need)) {
      return q;
    }
  }
  return NULL;
}

static void merge_clock(const tt_verifier *v, tt_actor *a, const uint32_t *clock)
{
  for (int i = 0; i < v->nactors; i++) {
    a->clock[i] = TT_MAX(a->clock[i], clock[i]);
  }
}

static bool take_message(tt_verifier *v, tt_actor *a, const tt_ref *ref, const tt_value **value)
{
  tt_queue *q = queue_of(v, a, ref, true);
  const tt_message *m = &q->slot[q->head];
  q->head = (q->head + 1) % v->o->slots;
  q->count--;
  merge_clock(v, a, m->clock);
  if (q->token) {
    a->heard[ref->peer] = a->pass + 1;
    v->along[ref->peer] = m->value;
  } else if (m->chunk != ref->chunk) {
    return tt_verify_blame(v, TT_VERIFY_CONTENTS, a, "expects chunk %u of rank %d, gets chunk %u", ref->chunk,
                           ref->peer, m->chunk);
  }
  *value = m->value;
  return true;
}

// `value`: of a message.
static bool put_message(tt_verifier *v, const tt_actor *a, const tt_ref *ref, const tt_value *value,
                        const uint32_t *clock)
{
  tt_queue *q = queue_of(v, a, ref, false);
  tt_message *m = &q->slot[(q->head + q->count++) % v->o->slots];
  *m = (tt_message){.value = q->token ? NULL : value, .clock = clock, .chunk = ref->chunk, .offer = ref->offer};
  const tt_ref own = {
      .kind = ref->offer == TT_OFFER_IN ? TT_IN : TT_OUT, .peer = tt_actor_schedule(v, a)->rank, .chunk = ref->chunk};
  return !v->copies || ref->offer == TT_OFFER_NONE || tt_memory_read(v, a, &own, &m->value);
}

// Does the step that takes the next token from `peer` read what it offers, and nothing else of the peer?
static bool offer_is_read(tt_verifier *v, const tt_actor *a, const tt_step *step, const tt_ref *src,
                          const tt_ref *token)
{
  const tt_queue *q = queue_of(v, a, token, true);
  const tt_message *m = &q->slot[q->head];
  int others = 0, kind = m->offer == TT_OFFER_IN ? TT_PEER_IN : TT_PEER_OUT, found = 0;
  for (int i = 0; i < step->nsrc && m->offer != TT_OFFER_NONE; i++) {
    bool peers = (src[i].kind == TT_PEER_IN || src[i].kind == TT_PEER_OUT) && src[i].peer == token->peer;
    found += peers && src[i].kind == kind && src[i].chunk == m->chunk;
    others += peers && (src[i].kind != kind || src[i].chunk != m->chunk);
  }
  return m->offer == TT_OFFER_NONE || (found == 1 && others == 0) ||
         tt_verify_blame(v, TT_VERIFY_CONTENTS, a,
                         "rank %d offers chunk %u of its %s, which is read %d times, and %d other chunks", token->peer,
                         m->chunk, m->offer == TT_OFFER_IN ? "input" : "output", found, others);
}

// The copy to read a source from, if one came with the step's token. offer_is_read has found the source: so no copy
// outlives the step.
static const tt_value *take_copy(tt_verifier *v, const tt_ref *src)
{
  const tt_value *copy = NULL;
  if (src->kind == TT_PEER_IN || src->kind == TT_PEER_OUT) {
    copy = v->along[src->peer];
    v->along[src->peer] = NULL;
  }
  return copy;
}

// First all connections, so that the clock knows everything the step has waited for; then memory.
static bool gather_sources(tt_verifier *v, tt_actor *a, const tt_step *step, const tt_ref *src, int *count)
{
  *count = 0;
  for (int i = 0; i < step->nsrc; i++) {
    const tt_value *value = NULL;
    if (src[i].kind == TT_TOKEN && !offer_is_read(v, a, step, src, &src[i])) {
      return false;
    }
    if (tt_is_queue(&src[i]) && !take_message(v, a, &src[i], &value)) {
      return false;
    }
    if (src[i].kind == TT_DRAIN && tt_actor_drain(v, a, &src[i])->taken) {
      merge_clock(v, a, tt_actor_drain(v, a, &src[i])->taken);
    }
    if (tt_is_data(&src[i]) && !is_spared(v, a, &src[i], true)) {
      v->operands[(*count)++] = (tt_operand){.value = value, .raw = src[i].kind == TT_IN || src[i].kind == TT_PEER_IN};
    }
  }
  a->clock[a->id]++;
  for (int i = 0, at = 0; i < step->nsrc; i++) {
    const tt_value *copy = take_copy(v, &src[i]);
    if (!tt_is_data(&src[i]) || is_spared(v, a, &src[i], true)) {
      continue;
    }
    if (copy) {
      v->operands[at].value = copy;
    } else if (!tt_is_queue(&src[i]) && !tt_memory_read(v, a, &src[i], &v->operands[at].value)) {
      return false;
    }
    at++;
  }
  return true;
}

// The data source of a copy; NULL for a reduction.
static const tt_ref *copied(const tt_step *step, const tt_ref *src)
{
  for (int i = 0; i < step->nsrc && !(step->flags & TT_STEP_REDUCE); i++) {
    if (tt_is_data(&src[i])) {
      return &src[i];
    }
  }
  return NULL;
}

// A copy of the actor's clock that lives as long as the verifier.
static const uint32_t *clock_now(tt_verifier *v, const tt_actor *a)
{
  uint32_t *clock = tt_verify_alloc(v, (size_t)v->nactors, sizeof *clock);
  return clock ? memcpy(clock, a->clock, (size_t)v->nactors * sizeof *clock) : NULL;
}

// Gives the tokens back: from now on their sender may know that this step is over. Of those with copies it does not
// wait to hear.
static bool give_back(tt_verifier *v, const tt_actor *a, const tt_step *step, const tt_ref *src)
{
  const uint32_t *clock = NULL;
  for (int i = 0; i < step->nsrc; i++) {
    tt_queue *q = src[i].kind == TT_TOKEN ? queue_of(v, a, &src[i], true) : NULL;
    if (q && !q->slot[(q->head + v->o->slots - 1) % v->o->slots].value) { // the one taken
      clock = clock ? clock : clock_now(v, a);
      q->taken = clock;
    }
  }
  return v->res == ncclSuccess;
}

static bool deliver(tt_verifier *v, const tt_actor *a, const tt_step *step, const tt_value *value)
{
  const tt_ref *src = &tt_actor_schedule(v, a)->refs[step->src], *dst = &tt_actor_schedule(v, a)->refs[step->dst];
  const tt_ref *from = copied(step, src);
  const uint32_t *clock = NULL;
  for (int i = 0; i < step->ndst; i++) { // first: what tokens offer is copied before the step writes
    if (tt_is_queue(&dst[i]) && ((!clock && !(clock = clock_now(v, a))) || !put_message(v, a, &dst[i], value, clock))) {
      return false;
    }
  }
  for (int i = 0; i < step->ndst && value; i++) {
    if (!tt_is_queue(&dst[i]) && !is_spared(v, a, &dst[i], false) && !(from && tt_memory_same(v, a, from, &dst[i])) &&
        !tt_memory_write(v, a, &dst[i], value)) {
      return false;
    }
  }
  return true;
}

static bool run_step(tt_verifier *v, tt_actor *a)
{
  const tt_schedule *s = tt_actor_schedule(v, a);
  const tt_step *step = tt_actor_step(v, a);
  const tt_value *value = NULL;
  int count;
  if (!gather_sources(v, a, step, &s->refs[step->src], &count)) {
    return false;
  }
  if (count > 0 && !(value = tt_value_combine(v, a, step->flags, count))) {
    return false;
  }
  if (!deliver(v, a, step, value) || !give_back(v, a, step, &s->refs[step->src])) {
    return false;
  }
  if (++a->pos == (int)s->strands[a->strand].count) {
    a->pos = 0;
    a->pass++;
    v->memory[a->sched].running -= is_done(v, a);
  }
  return true;
}

// A network that reduces: when there is a message of every rank that sends to it, and room for their sum with each, it
// sums them.
static bool run_network(tt_verifier *v, int net, bool *moved)
{
  uint32_t *clock = NULL;
  int count = 0;
  for (int r = 0; r < v->n; r++) {
    const tt_queue *q = *tt_queue_place(v, r, net, false), *back = *tt_queue_place(v, net, r, false);
    if (!q != !back) {
      return tt_verify_blame(v, TT_VERIFY_FORM, NULL,
                             "rank %d gives to network %d and takes nothing, or the other way round", r, net - v->n);
    }
    if (q && (q->count == 0 || back->count == v->o->slots)) {
      return true;
    }
    count += q != NULL;
  }
  if (count == 0 || !(clock = tt_verify_alloc(v, (size_t)v->nactors, sizeof *clock))) {
    return v->res == ncclSuccess;
  }
  uint32_t chunk = UINT32_MAX;
  for (int r = 0, at = 0; r < v->n; r++) {
    tt_queue *q = *tt_queue_place(v, r, net, false);
    const tt_message *m = q ? &q->slot[q->head] : NULL;
    for (int i = 0; m && i < v->nactors; i++) {
      clock[i] = TT_MAX(clock[i], m->clock[i]);
    }
    if (m && chunk != UINT32_MAX && m->chunk != chunk) {
      return tt_verify_blame(v, TT_VERIFY_CONTENTS, NULL, "network %d gets chunk %u of rank %d, chunk %u of another",
                             net - v->n, m->chunk, r, chunk);
    }
    if (m) {
      v->operands[at++] = (tt_operand){.value = m->value};
      chunk = m->chunk;
      q->head = (q->head + 1) % v->o->slots;
      q->count--;
    }
  }
  tt_message sum = {.value = tt_value_combine(v, NULL, TT_STEP_REDUCE, count), .clock = clock, .chunk = chunk};
  for (int r = 0; sum.value && r < v->n; r++) {
    tt_queue *back = *tt_queue_place(v, net, r, false);
    if (back) {
      back->slot[(back->head + back->count++) % v->o->slots] = sum;
    }
  }
  *moved = true;
  return sum.value != NULL;
}

// Follows who waits for whom from the first stuck strand on, until a strand comes up again or there is nobody to wait
// for.
static bool explain_deadlock(tt_verifier *v, const tt_actor *a)
{
  char text[512];
  size_t at = 0;
  const tt_actor *first = a;
  for (int hops = 0; hops < v->nactors && at < sizeof text; hops++) {
    tt_need need;
    const tt_queue *q = blocked_on(v, a, &need);
    bool room = need != TT_NEED_MESSAGE;
    const tt_schedule *s = tt_actor_schedule(v, a);
    int other = room ? q->reader[a->stage] : q->writer[a->stage];
    const char *what = need == TT_NEED_DRAINED ? "the end of a token" : q->token ? "a token" : "a message";
    bool nobody = other < 0 || is_done(v, &v->actors[other]);
    int end = room ? q->to : q->from;
    const char *why = end >= v->n ? ", which waits for others"
                      : other < 0 ? ", which never uses this connection"
                                  : ", which has ended";
    at += (size_t)snprintf(text + at, sizeof text - at, "%srank %d strand %d step %d pass %d waits for %s%s %s %s %d%s",
                           hops ? "; " : "", s->rank, a->strand, a->pos, a->pass,
                           need == TT_NEED_ROOM ? "room for " : "", what, room ? "to" : "from",
                           end < v->n ? "rank" : "network", end < v->n ? end : end - v->n, nobody ? why : "");
    if (nobody) {
      break;
    }
    a = &v->actors[other];
    if (a == first) {
      break;
    }
  }
  return tt_verify_blame(v, TT_VERIFY_DEADLOCK, NULL, "%s", text);
}

// Have all strands of the rank's earlier stages ended? Then what they did happened before the first step of this one.
static bool begun(const tt_verifier *v, tt_actor *a)
{
  for (int s = a->sched - v->n; s >= 0 && a->clock[a->id] == 0; s -= v->n) {
    if (v->memory[s].running > 0) {
      return false;
    }
    for (int k = 0; k < v->all[s]->nstrands; k++) {
      merge_clock(v, a, v->actors[v->memory[s].first_actor + k].clock);
    }
  }
  return true;
}

// Runs the actor until it has to wait. The connection it waits for is remembered: asking again is cheap.
static bool run_actor(tt_verifier *v, tt_actor *a, bool *moved)
{
  if (a->stage > 0 && !begun(v, a)) {
    return true;
  }
  while (!is_done(v, a)) {
    if (a->waits_for && is_blocked(v, a->waits_for, a->need)) {
      return true;
    }
    a->waits_for = blocked_on(v, a, &a->need);
    if (!a->waits_for) {
      *moved = true;
      if (!run_step(v, a)) {
        return false;
      }
    }
  }
  return true;
}

static bool run(tt_verifier *v)
{
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < v->nactors; i++) {
      if (!run_actor(v, &v->actors[i], &moved)) {
        return false;
      }
    }
    for (int net = v->n; net < v->ends; net++) {
      if (!run_network(v, net, &moved)) {
        return false;
      }
    }
  }
  for (int i = 0; i < v->nactors; i++) {
    if (!is_done(v, &v->actors[i])) {
      return explain_deadlock(v, &v->actors[i]);
    }
  }
  return true;
}

static bool check_leftovers(tt_verifier *v)
{
  for (const tt_queue *q = v->all_queues; q; q = q->next) {
    if (q->count > 0) {
      return tt_verify_blame(v, TT_VERIFY_LEFTOVER, NULL, "%d %s from rank %d to rank %d never received", q->count,
                             q->token ? "tokens" : "messages", q->from, q->to);
    }
  }
  return true;
}

// ---- setting up ----

static bool create_actors(tt_verifier *v)
{
  for (int s = 0; s < v->nscheds; s++) {
    v->nactors += v->all[s]->nstrands;
  }
  v->actors = tt_verify_alloc(v, (size_t)v->nactors, sizeof *v->actors);
  v->last_touch = tt_verify_alloc(v, (size_t)v->nscheds * (size_t)v->nactors, sizeof *v->last_touch);
  v->memory = tt_verify_alloc(v, (size_t)v->nscheds, sizeof *v->memory);
  for (int s = 0, id = 0; v->res == ncclSuccess && s < v->nscheds; s++) {
    v->memory[s].first_actor = id;
    for (int k = 0; v->res == ncclSuccess && k < v->all[s]->nstrands; k++, id++) {
      bool empty = v->all[s]->strands[k].count == 0;
      v->actors[id] = (tt_actor){
          .id = id, .sched = s, .strand = k, .stage = v->nstages > 1 ? s / v->n : 0, .pass = empty ? v->o->loops : 0};
      v->memory[s].running += !empty;
      v->actors[id].clock = tt_verify_alloc(v, (size_t)v->nactors, sizeof(uint32_t));
      v->actors[id].heard = tt_verify_alloc(v, (size_t)v->n, sizeof(int));
    }
  }
  return v->res == ncclSuccess;
}

static bool set_up(tt_verifier *v)
{
  if (!tt_form_place(v) || !create_actors(v) || !tt_form_check(v)) {
    return false;
  }
  v->operands = tt_verify_alloc(v, (size_t)v->max_sources, sizeof *v->operands);
  v->along = tt_verify_alloc(v, (size_t)v->n, sizeof *v->along);
  return v->along && tt_memory_create(v);
}

static bool has_gifts(const tt_schedule *const *all, int count)
{
  for (int i = 0; i < count; i++) {
    for (int k = 0; k < all[i]->nsteps; k++) {
      if (all[i]->steps[k].flags & (TT_STEP_PUT | TT_STEP_UNLESS_PUT)) {
        return true;
      }
    }
  }
  return false;
}

static bool has_offers(const tt_schedule *const *all, int count)
{
  for (int i = 0; i < count; i++) {
    for (int k = 0; k < all[i]->nrefs; k++) {
      if (all[i]->refs[k].offer != TT_OFFER_NONE) {
        return true;
      }
    }
  }
  return false;
}

ncclResult_t tt_verify(const tt_schedule *const *all, const tt_verify_options *o, char *why, size_t whylen)
{
  bool p2p = o->func == TT_FUNC_SEND || o->func == TT_FUNC_RECV;
  if (o->slots < 1 || o->loops < 1 || o->count < 0 || (unsigned)o->func >= TT_NFUNCS || p2p != (o->count == 2) ||
      o->stages < 0 || (p2p && o->stages > 1)) {
    return tt_fail(ncclInvalidArgument, "verifier: function %d, %d slots, %d loops, %d schedules, %d stages", o->func,
                   o->slots, o->loops, o->count, o->stages);
  }
  int n = all[0]->nranks, nstages = TT_MAX(o->stages, 1), nscheds = o->count > 0 ? o->count : n * nstages;
  int reaches = has_gifts(all, nscheds) ? TT_REACH_COUNT : 1, runs = reaches * (has_offers(all, nscheds) ? 2 : 1);
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < runs && res == ncclSuccess; i++) {
    tt_verifier v = {.all = all,
                     .o = o,
                     .n = n,
                     .nstages = nstages,
                     .nscheds = nscheds,
                     .reach = (tt_reach)(i % reaches),
                     .copies = i >= reaches,
                     .why = why,
                     .whylen = whylen,
                     .res = ncclSuccess};
    if (set_up(&v) && run(&v) && check_leftovers(&v) && tt_value_check_outputs(&v)) {
      tt_memory_check_owners(&v);
    }
    free_blocks(&v);
    res = v.res;
  }
  return res;
}
