// executor.h: for executor_test.c and cuda_plans.h: n ranks in this thread, one operation on all of them, and what
// must come out, reckoned by code that shares nothing with the executor.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/result.h"
#include "coll/coll.h"
#include "coll/channels_rig.h"
#include "device/host/handover.h"
#include "device/lane.h"
#include "transport/segment.h"

enum { MOST = 64, GUARD = 16, MAX_WORDS = 1 << 21, MAX_LANES = 16 * MOST, CHANNELS = 4 };
enum { BIG = 70001 }; // elements: more than the bounce buffer holds

// ThreadSanitizer has nothing to find in one thread: fewer numbers of ranks and mixtures will do.
#ifdef TT_TSAN
enum { N_STEP = 11, FEWER = 4 };
#else
enum { N_STEP = 1, FEWER = 1 };
#endif

// ---- The world: n ranks in this process ----

typedef struct world {
  int n, slots;
  tt_access access;
  tt_geometry g;
  char *memory;
  size_t bytes;
  tt_port ports[MOST];
  tt_rank_page pages[MOST];
  tt_link *links;         // n * n
  tt_handover *handovers; // of them
  // Where copies come along with tokens (device/host/offer.h); else 0 and NULL.
  uint32_t box_bytes;
  char *boxes;
  tt_trials *trials;
  _Atomic uint32_t *wants; // from, to
} world;

static world w;

// Numbers all messages from `first` on: what is in the slots looks like what came before.
static void start_at(tt_fifo *f, uint32_t first)
{
  for (uint32_t m = first - f->mask - 1; m != first; m++) {
    tt_slot *s = (tt_slot *)(f->slots + (size_t)(m & f->mask) * f->stride);
    atomic_store(&s->seq, m + 1);
  }
  atomic_store(f->head, first);
  f->next = f->seen = first;
}

static void make_link(int rank, int peer, uint32_t first)
{
  tt_link *link = &w.links[rank * w.n + peer];
  size_t window = TT_ROUND_UP(tt_window_bytes(&w.g), 64);
  link->peer = peer;
  link->rank = rank;
  link->access = w.access;
  link->proc = tt_proc_self();
  link->page = &w.pages[peer];
  tt_window_view(&w.g, w.memory + (size_t)(rank * w.n + peer) * window, link->send);
  tt_window_view(&w.g, w.memory + (size_t)(peer * w.n + rank) * window, link->recv);
  for (int k = 0; k < TT_NFIFOS; k++) {
    if (k == TT_TOK) { // as few tokens as messages
      link->send[k].mask = link->recv[k].mask = (uint32_t)w.slots - 1;
    }
    if (first != 0) {
      start_at(&link->send[k], first);
      link->recv[k].next = first;
    }
  }
  link->handover = &w.handovers[rank * w.n + peer];
  link->handover->held = first;
  w.ports[rank].links[peer] = link;
}

static uint32_t ll_slot_bytes = 64;

// n ranks with FIFOs of so many slots; messages are numbered from `first`.
static void open_world(int n, int slots, tt_access access, uint32_t first)
{
  memset(&w, 0, sizeof w);
  w.n = n;
  w.slots = slots;
  w.access = access;
  w.g = (tt_geometry){.ll_slots = (uint32_t)slots,
                      .ll_slot_bytes = ll_slot_bytes,
                      .simple_slots = (uint32_t)slots,
                      .simple_slot_bytes = 256};
  w.bytes = (size_t)(n * n) * TT_ROUND_UP(tt_window_bytes(&w.g), 64);
  w.memory = mmap(NULL, w.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  w.links = tt_calloc((size_t)(n * n), sizeof *w.links);
  w.handovers = tt_calloc((size_t)(n * n), sizeof *w.handovers);
  assert_true(w.memory != MAP_FAILED && w.links != NULL && w.handovers != NULL);
  for (int i = 0; i < n; i++) {
    tt_port *p = &w.ports[i];
    *p = (tt_port){.rank = i, .nranks = n, .page = &w.pages[i]};
    p->links = tt_calloc((size_t)n, sizeof *p->links);
    p->operands = tt_calloc(TT_OPERANDS(n), sizeof *p->operands);
    p->bounce = access == TT_ACCESS_COPY ? tt_calloc_line(TT_BOUNCE_BYTES) : NULL;
    assert_true(p->links != NULL && p->operands != NULL);
    for (int k = 0; k < n; k++) {
      make_link(i, k, first);
    }
  }
}

// Gives every pair of ranks outboxes. How they are used the trials choose (change_wants), so nothing is measured.
__attribute__((unused)) static void add_outboxes(uint32_t bytes)
{
  size_t n = (size_t)w.n;
  w.box_bytes = bytes;
  w.boxes = tt_calloc_line(n * n * bytes);
  w.trials = tt_calloc(n * n, sizeof *w.trials);
  w.wants = tt_calloc(n * n, sizeof *w.wants);
  assert_true(w.boxes != NULL && w.trials != NULL && w.wants != NULL);
  for (size_t i = 0; i < n * n; i++) {
    tt_link *link = &w.links[i];
    size_t back = (size_t)link->peer * n + (size_t)link->rank;
    link->handover->outbox = (tt_outbox){.base = w.boxes + i * bytes, .size = bytes};
    link->handover->inbox = w.boxes + back * bytes;
    link->handover->inbox_size = bytes;
    link->handover->wanted = &w.wants[i];
    link->handover->wants = &w.wants[back];
    link->handover->trials = &w.trials[i];
    link->handover->trials->off = true;
  }
}

static void close_world(void)
{
  tt_free(w.boxes);
  tt_free(w.trials);
  tt_free((void *)w.wants);
  for (int i = 0; i < w.n * w.n; i++) {
    tt_pagepipe_close(&w.links[i].handover->pages);
    tt_pagetap_close(&w.links[i].handover->tap);
  }
  for (int i = 0; i < w.n; i++) {
    tt_free(w.ports[i].links);
    tt_free(w.ports[i].operands);
    tt_free(w.ports[i].bounce);
  }
  tt_free(w.links);
  tt_free(w.handovers);
  munmap(w.memory, w.bytes);
}

// ---- One operation on all ranks ----

enum { SUM, AVG, PREMUL };

typedef struct trial {
  const tt_algorithm *a;
  tt_func f;
  int root;     // of a message: the sender
  int to;       // of a message: the receiver
  size_t count; // elements per block
  size_t chunk;
  tt_proto proto;
  bool in_place;
  bool floats; // float32 instead of uint32
  int op;
  unsigned seed; // 0: round robin
} trial;

typedef struct side {
  tt_schedule *s;
  tt_schedule *more[CHANNELS - 1]; // of further channels, which run one after the other
  tt_call call;
  uint32_t *in, *out, *end; // in the arena; `end`: behind the last guard
  char *tmp;
  size_t nin, nout; // elements
} side;

static side sides[MOST];
static _Alignas(4096) uint32_t arena[MAX_WORDS + MOST * 4 * GUARD]; // from a page on: tests of GPUs pin it
static uint32_t sums[MAX_WORDS];
static double fsums[MAX_WORDS];
static tt_lane lanes[MAX_LANES];
static int lane_rank[MAX_LANES], nlanes;
static unsigned long runs, steps_run;

static bool is_p2p(tt_func f)
{
  return f == TT_FUNC_SEND || f == TT_FUNC_RECV;
}

static bool is_rooted(tt_func f)
{
  return f == TT_FUNC_BROADCAST || f == TT_FUNC_REDUCE || f == TT_FUNC_GATHER || f == TT_FUNC_SCATTER;
}

static int channels_of(const side *s)
{
  int n = 1;
  while (n < CHANNELS && s->more[n - 1] != NULL) {
    n++;
  }
  return n;
}

static const char *text_of(const trial *t)
{
  static char text[300];
  static const char *const ops[] = {"sum", "avg", "premul"};
  snprintf(text, sizeof text,
           "%s %s %s of %s, %d ranks, %d channels, root %d, to %d, count %zu, chunk %zu, %d slots, %s, %s, seed %u, "
           "access %d, outboxes of %u",
           t->a->name, tt_func_name(t->f), ops[t->op], t->floats ? "float32" : "uint32", w.n, channels_of(&sides[0]),
           t->root, t->to, t->count, t->chunk, w.slots, t->proto == TT_LL ? "LL" : "SIMPLE",
           t->in_place ? "in place" : "out of place", t->seed, (int)w.access, w.box_bytes);
  return text;
}

static uint32_t mix(uint32_t x)
{
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

// Element j of rank r's input. Where it is only copied, rank and position can be read off it.
static uint32_t word_at(const trial *t, int r, size_t j)
{
  if (t->floats) {
    float f = (float)(mix((uint32_t)(r * 40503 + (int)j)) % 20001) / 8.0f - 1250.0f;
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
  }
  if (t->op == AVG) {
    return mix((uint32_t)(r << 24) + (uint32_t)j) >> 7; // the sum of 64 does not wrap
  }
  return tt_func_reduces(t->f) ? mix((uint32_t)(r << 24) + (uint32_t)j) : (uint32_t)(r + 1) << 24 | (uint32_t)j;
}

static float as_float(uint32_t u)
{
  float f;
  memcpy(&f, &u, 4);
  return f;
}

// Rank r's factor for PREMUL.
static uint64_t scalar_of(const trial *t, int r)
{
  float f = (float)(r + 1) * 0.5f;
  uint32_t u = (uint32_t)(2 * r + 3);
  if (t->floats) {
    memcpy(&u, &f, 4);
  }
  return u;
}

// sums[j], fsums[j]: what the reduction of element j over all inputs must give.
static void reference_sums(const trial *t, size_t n)
{
  memset(sums, 0, n * sizeof *sums);
  memset(fsums, 0, t->floats ? n * sizeof *fsums : 0);
  for (int r = 0; r < w.n; r++) {
    uint32_t factor = t->op == PREMUL ? (uint32_t)scalar_of(t, r) : 1;
    double ffactor = t->op == PREMUL ? (r + 1) * 0.5 : t->op == AVG ? 1.0 / w.n : 1;
    for (size_t j = 0; j < n && t->floats; j++) {
      fsums[j] += (double)as_float(word_at(t, r, j)) * ffactor;
    }
    for (size_t j = 0; j < n && !t->floats; j++) {
      sums[j] += word_at(t, r, j) * factor;
    }
  }
  for (size_t j = 0; j < n && t->op == AVG; j++) {
    sums[j] /= (uint32_t)w.n;
  }
}

// Position of the element of `sums` that belongs at element e of rank r's output.
static size_t sum_index(const trial *t, int r, size_t e)
{
  return t->f == TT_FUNC_REDUCESCATTER ? (size_t)r * t->count + e : e;
}

// Element i of block b of rank r's output, for functions that only copy.
static uint32_t copied(const trial *t, int r, size_t b, size_t i)
{
  switch (t->f) {
  case TT_FUNC_ALLGATHER:
  case TT_FUNC_GATHER: return word_at(t, (int)b, i);
  case TT_FUNC_ALLTOALL: return word_at(t, (int)b, (size_t)r * t->count + i);
  case TT_FUNC_SCATTER: return word_at(t, t->root, (size_t)r * t->count + i);
  default: return word_at(t, t->root, i);
  }
}

// ---- Buffers ----

// Where the rank's buffers lie in the arena: guard, input, guard, output, guard; in place, one of them lies inside the
// other.
static uint32_t *place_buffers(const trial *t, side *s, int r, uint32_t *at)
{
  bool wide_in = t->f == TT_FUNC_REDUCESCATTER || t->f == TT_FUNC_SCATTER,
       wide_out = t->f == TT_FUNC_ALLGATHER || t->f == TT_FUNC_GATHER;
  bool both = s->nin > 0 && s->nout > 0 && t->f != TT_FUNC_ALLTOALL && !is_p2p(t->f);
  at += GUARD;
  s->in = s->nin > 0 ? at : NULL;
  if (t->in_place && both) {
    s->out = at + (wide_in ? (size_t)r * t->count : 0);
    s->in = at + (wide_out ? (size_t)r * t->count : 0);
    at += TT_MAX(s->nin, s->nout) + GUARD;
  } else {
    at += s->nin + GUARD;
    s->out = s->nout > 0 ? at : NULL;
    at += s->nout + GUARD;
  }
  s->end = at;
  return at;
}

static tt_redop op_of(const trial *t, int r)
{
  tt_redop op = {.type = t->floats ? ncclFloat32 : ncclUint32, .kind = TT_RED_SUM};
  if (t->op == AVG) {
    tt_redop_builtin(&op, (ncclDataType_t)op.type, ncclAvg, w.n);
  } else if (t->op == PREMUL) {
    op.prescale = 1;
    op.scalar = scalar_of(t, r);
  }
  return op;
}

static const tt_schedule *schedule_of(const side *s, int channel)
{
  return channel == 0 ? s->s : s->more[channel - 1];
}

// Where the part of a channel begins: any shares will do, if they are the same on all ranks. Some are empty.
static size_t share_of(const trial *t, int channel, int channels)
{
  size_t even = t->count * (size_t)channel / (size_t)channels;
  return channel == 0 || channel == channels ? even : even / (1 + t->seed % 3) / (1 + t->chunk % 2);
}

// The lanes of all channels; those of one follow those of the ones before.
static void add_lanes(const trial *t, side *s, int r)
{
  int first = nlanes, channels = channels_of(s);
  for (int c = 0; c < channels; c++) {
    int before = nlanes;
    const tt_schedule *sched = schedule_of(s, c);
    for (int i = 0; i < sched->nstrands; i++) {
      assert_true(nlanes < MAX_LANES);
      tt_lane *l = &lanes[nlanes];
      lane_rank[nlanes++] = r;
      tt_lane_init(l, sched, i, &s->call, t->chunk, t->proto);
      if (channels > 1) {
        tt_lane_share(l, share_of(t, c, channels), share_of(t, c + 1, channels));
        l->after = before - 1;
        l->nafter = before - first;
      }
    }
  }
}

// Fills the arena and makes the call and the lanes of the given side, which belongs to rank r.
static uint32_t *prepare(const trial *t, side *s, int r, uint32_t *at)
{
  s->nin = (size_t)s->s->in_blocks * t->count;
  s->nout = (size_t)s->s->out_blocks * t->count;
  uint32_t *end = place_buffers(t, s, r, at);
  assert_true(end <= arena + TT_COUNT(arena));
  memset(at, 0xa5, (size_t)(end - at) * 4);
  for (size_t j = 0; j < s->nin; j++) {
    s->in[j] = word_at(t, r, j);
  }
  int ntmp = 0;
  for (int c = 0; c < channels_of(s); c++) {
    ntmp = TT_MAX(ntmp, schedule_of(s, c)->ntmp);
  }
  s->tmp = ntmp > 0 ? malloc((size_t)ntmp * t->chunk * 4) : NULL;
  s->call = (tt_call){.in = (const char *)s->in,
                      .out = (char *)s->out,
                      .count = t->count,
                      .esize = 4,
                      .op = op_of(t, r),
                      .tmp = s->tmp,
                      .sig = tt_sig_make(is_p2p(t->f) ? 0 : (uint32_t)runs + 1, t->f, ncclUint32, t->op, 0),
                      .sig_count = t->count};
  if (is_p2p(t->f)) {
    s->call.sig = tt_sig_make(0, TT_FUNC_SEND, ncclInt8, 6, 0);
  }
  add_lanes(t, s, r);
  return end;
}

// ---- Running ----

static uint64_t rnd_state;

static unsigned rnd(unsigned below)
{
  rnd_state = rnd_state * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned)((rnd_state >> 33) % below);
}

static void shuffle(int *order, int n)
{
  for (int i = n - 1; i > 0; i--) {
    int j = (int)rnd((unsigned)i + 1), x = order[i];
    order[i] = order[j];
    order[j] = x;
  }
}

static void stuck(const trial *t)
{
  char text[600] = "";
  size_t used = 0;
  for (int i = 0; i < nlanes && used < sizeof text - 60; i++) {
    if (!lanes[i].done) {
      used += (size_t)snprintf(text + used, sizeof text - used, " %d->%d(step %u)", lane_rank[i], lanes[i].waits_for,
                               lanes[i].pc);
    }
  }
  fail_msg("%s: no lane can move; rank->peer it waits for:%s", text_of(t), text);
}

// Must the lane wait for others of its rank?
static bool is_early(const tt_lane *l)
{
  for (int i = l->after; i > l->after - l->nafter; i--) {
    if (i >= 0 && !lanes[i].done) {
      return true;
    }
  }
  return false;
}

// Some reader has other wishes all of a sudden: everything as copies, or everything as pages.
static void change_wants(void)
{
  atomic_store(&w.wants[rnd((unsigned)(w.n * w.n))], rnd(2) == 0 ? 0 : UINT32_MAX);
}

// One turn of one lane. Returns whether it moved.
static bool turn(const trial *t, int i)
{
  static const size_t budgets[] = {1, 1, 200, 3000, 1u << 30};
  size_t budget = t->seed == 0 ? 1u << 30 : budgets[rnd(TT_COUNT(budgets))], before = budget;
  if (w.box_bytes > 0 && t->seed % 2 != 0) { // else copies alone
    change_wants();
  }
  tt_run r = tt_lane_run(&w.ports[lane_rank[i]], &lanes[i], &budget);
  if (r == TT_RUN_FAILED) {
    fail_msg("%s: rank %d: %s", text_of(t), lane_rank[i], w.ports[lane_rank[i]].error);
  }
  assert_true(r == TT_RUN_DONE || r == TT_RUN_BLOCKED || r == TT_RUN_MORE);
  assert_int_equal(r == TT_RUN_DONE, lanes[i].done);
  if (r == TT_RUN_BLOCKED) {
    assert_in_range(lanes[i].waits_for, 0, w.n - 1);
  }
  return budget != before;
}

static void run_lanes(const trial *t)
{
  int order[MAX_LANES], left = nlanes;
  for (int i = 0; i < left; i++) {
    order[i] = i;
  }
  rnd_state = t->seed;
  while (left > 0) {
    bool moved = false;
    if (t->seed != 0) {
      shuffle(order, left);
    }
    for (int i = 0; i < left; i++) {
      moved |= !lanes[order[i]].done && !is_early(&lanes[order[i]]) && turn(t, order[i]);
    }
    int kept = 0;
    for (int i = 0; i < left; i++) {
      if (!lanes[order[i]].done) {
        order[kept++] = order[i];
      }
    }
    if (kept == left && !moved) {
      stuck(t);
    }
    left = kept;
  }
}

// What runs the lanes of a trial.
static void (*run_with)(const trial *t) = run_lanes;

// ---- Checking ----

static void check_word(const trial *t, int r, size_t e, uint32_t got, uint32_t want)
{
  if (got != want) {
    fail_msg("%s: rank %d element %zu is 0x%x, not 0x%x", text_of(t), r, e, got, want);
  }
}

static void check_copies(const trial *t, const side *s, int r)
{
  size_t e = 0;
  for (size_t b = 0; e < s->nout; b++) {
    for (size_t i = 0; i < t->count; i++, e++) {
      check_word(t, r, e, s->out[e], copied(t, r, b, i));
    }
  }
}

static void check_sums(const trial *t, const side *s, int r)
{
  for (size_t e = 0; e < s->nout; e++) {
    if (!t->floats) {
      check_word(t, r, e, s->out[e], sums[sum_index(t, r, e)]);
    } else if (!(fabs(as_float(s->out[e]) - fsums[sum_index(t, r, e)]) < 0.05)) {
      fail_msg("%s: rank %d element %zu is %g, not %g", text_of(t), r, e, (double)as_float(s->out[e]),
               fsums[sum_index(t, r, e)]);
    } else if (t->f == TT_FUNC_ALLREDUCE) { // the same bits everywhere
      check_word(t, r, e, s->out[e], sides[0].out[e]);
    }
  }
}

// Everything of the rank's memory that is not its output is as it was: the input (unless the call is in place) and the
// guards.
static void check_rest(const trial *t, const side *s, int r, const uint32_t *from)
{
  for (const uint32_t *p = from; p < s->end; p++) {
    bool in = s->nin > 0 && p >= s->in && p<s->in + s->nin, out = s->nout> 0 && p >= s->out && p < s->out + s->nout;
    if (!out && *p != (in ? word_at(t, r, (size_t)(p - s->in)) : 0xa5a5a5a5u)) {
      fail_msg("%s: rank %d: 0x%x was written to its %s, %ld elements from its output", text_of(t), r, *p,
               in ? "input" : "surroundings", s->out != NULL ? (long)(p - s->out) : -1);
    }
  }
}

static void check_fifos(const trial *t)
{
  for (int i = 0; i < w.n * w.n; i++) {
    tt_link *a = &w.links[i], *b = &w.links[a->peer * w.n + a->rank];
    for (int k = 0; k < TT_NFIFOS; k++) {
      if (a->send[k].next != b->recv[k].next || !tt_fifo_drained(&a->send[k])) {
        fail_msg("%s: rank %d sent %u messages of kind %d to rank %d, which took %u and gave back %u", text_of(t),
                 a->rank, a->send[k].next, k, a->peer, b->recv[k].next, atomic_load(a->send[k].head));
      }
    }
  }
}

static int rank_of_side(const trial *t, int i)
{
  return !is_p2p(t->f) ? i : i == 0 ? t->root : t->to;
}

// Runs one operation on all ranks and checks everything. The schedules stand in `sides`.
static void run_trial(const trial *t)
{
  int n = is_p2p(t->f) ? 2 : w.n;
  uint32_t *at = arena;
  uint32_t *starts[MOST];
  nlanes = 0;
  for (int i = 0; i < n; i++) {
    starts[i] = at;
    at = prepare(t, &sides[i], rank_of_side(t, i), at);
  }
  run_with(t);
  if (tt_func_reduces(t->f)) {
    reference_sums(t, (t->f == TT_FUNC_REDUCESCATTER ? (size_t)w.n : 1) * t->count);
  }
  for (int i = 0; i < n; i++) {
    (tt_func_reduces(t->f) ? check_sums : check_copies)(t, &sides[i], rank_of_side(t, i));
    check_rest(t, &sides[i], rank_of_side(t, i), starts[i]);
    free(sides[i].tmp);
    steps_run += (unsigned long)sides[i].s->nsteps;
  }
  if (w.n <= 9 || runs % 16 == 0) { // slow for many ranks; what is left over stays there
    check_fifos(t);
  }
  runs++;
}
