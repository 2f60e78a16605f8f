// verify_test.c: every algorithm, every function, every number of ranks up to 64 and every root, by the verifier; and
// the verifier itself by breaking schedules that are right.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/result.h"
#include "base/util.h"
#include "coll/build.h"
#include "tools/explain.h"
#include "tools/verify_rig.h"

static ranks write_all(const tt_algorithm *a, tt_func f, int n, int root, const int *order)
{
  return write_shape(a, (tt_shape){.func = f, .nranks = n, .root = root, .order = order});
}

// The two ends of a message from rank `from` to rank `to`.
static ranks write_p2p(const tt_algorithm *a, int n, int from, int to)
{
  ranks r = {.count = 2};
  tt_shape sender = {.func = TT_FUNC_SEND, .rank = from, .nranks = n, .root = to};
  tt_shape receiver = {.func = TT_FUNC_RECV, .rank = to, .nranks = n, .root = from};
  assert_int_equal(tt_algorithm_write(a, &sender, &r.s[0]), ncclSuccess);
  assert_int_equal(tt_algorithm_write(a, &receiver, &r.s[1]), ncclSuccess);
  return r;
}

static void every_n(const tt_algorithm *a, tt_func f)
{
  for (int n = 1; n <= MOST && !is_p2p(f); n++) {
    for (int root = 0; root < (is_rooted(f) ? n : 1); root++) {
      ranks r = write_all(a, f, n, root, NULL);
      check_ranks(&r, f, root, a->name,
                  n <= 9 || (n == 17 && !is_rooted(f)) ? FULL
                  : n <= 24 || !is_rooted(f)           ? FAIR
                                                       : BRIEF);
      free_ranks(&r);
    }
  }
}

static void test_every_n_every_root(void **state)
{
  (void)state;
  each_row(every_n);
}

static void every_pair(const tt_algorithm *a, tt_func f)
{
  for (int n = 1; n <= 6 && f == TT_FUNC_SEND; n++) {
    for (int k = 0; k < n * n; k++) {
      ranks r = write_p2p(a, n, k / n, k % n);
      check_ranks(&r, f, 0, a->name, FULL);
      free_ranks(&r);
    }
  }
}

static void test_every_pair(void **state)
{
  (void)state;
  each_row(every_pair);
}

static void every_order(const tt_algorithm *a, tt_func f)
{
  for (int n = 2; n <= 17 && !is_p2p(f); n++) {
    int order[MOST];
    for (int i = 0; i < n; i++) {
      order[i] = n - 1 - i;
    }
    for (int i = n - 1; i > 0; i--) {
      int j = (i * 7 + n * 3) % (i + 1), x = order[i];
      order[i] = order[j];
      order[j] = x;
    }
    for (int root = 0; root < (is_rooted(f) ? n : 1); root++) {
      ranks r = write_all(a, f, n, root, order);
      check_ranks(&r, f, root, a->name, FAIR);
      free_ranks(&r);
    }
  }
}

static void test_any_ring_order(void **state)
{
  (void)state;
  each_row(every_order);
}

// ---- breaking schedules ----

enum { DROP_STEP, SWAP_STEPS, DROP_TOKEN, WRONG_CHUNK, DOUBLE_SOURCE, DROP_SOURCE, OTHER_PEER, NO_FLAGS, NMUTATIONS };

static const char *const mutation_names[NMUTATIONS] = {"drop step",     "swap steps",  "drop token", "wrong chunk",
                                                       "double source", "drop source", "other peer", "other flags"};

static struct {
  int tried[NMUTATIONS], found[NMUTATIONS], classes[TT_VERIFY_NCLASSES];
} tally;

static int strand_of(const tt_schedule *s, int step)
{
  int k = 0;
  while ((uint32_t)step >= s->strands[k].first + s->strands[k].count) {
    k++;
  }
  return k;
}

// A copy with room for one more reference.
static tt_schedule *copy_schedule(const tt_schedule *s)
{
  tt_schedule *c = tt_calloc(1, sizeof *c);
  assert_non_null(c);
  *c = *s;
  c->strands = tt_calloc((size_t)s->nstrands + 1, sizeof *c->strands);
  c->steps = tt_calloc((size_t)s->nsteps + 1, sizeof *c->steps);
  c->refs = tt_calloc((size_t)s->nrefs + 1, sizeof *c->refs);
  assert_true(c->strands && c->steps && c->refs);
  memcpy(c->strands, s->strands, (size_t)s->nstrands * sizeof *c->strands);
  memcpy(c->steps, s->steps, (size_t)s->nsteps * sizeof *c->steps);
  memcpy(c->refs, s->refs, (size_t)s->nrefs * sizeof *c->refs);
  return c;
}

static int drop_step(tt_schedule *s, int at)
{
  int k = strand_of(s, at);
  s->strands[k].count--;
  for (int i = k + 1; i < s->nstrands; i++) {
    s->strands[i].first--;
  }
  memmove(&s->steps[at], &s->steps[at + 1], (size_t)(s->nsteps - at - 1) * sizeof *s->steps);
  s->nsteps--;
  return 1;
}

static int swap_steps(tt_schedule *s, int at)
{
  if (at + 1 >= s->nsteps || strand_of(s, at) != strand_of(s, at + 1)) {
    return 0;
  }
  tt_step x = s->steps[at];
  s->steps[at] = s->steps[at + 1];
  s->steps[at + 1] = x;
  return 1;
}

// Removes reference i of a step (sources first, then destinations).
static void remove_ref(tt_schedule *s, tt_step *step, int i)
{
  uint32_t at = i < step->nsrc ? step->src + (uint32_t)i : step->dst + (uint32_t)(i - step->nsrc);
  uint32_t end = i < step->nsrc ? step->src + step->nsrc : step->dst + step->ndst;
  memmove(&s->refs[at], &s->refs[at + 1], (end - at - 1) * sizeof *s->refs);
  *(i < step->nsrc ? &step->nsrc : &step->ndst) -= 1;
}

// The first reference of the step that the mutation applies to, one that moves no data (`token`) or one that does; -1:
// none.
static int find_ref(const tt_schedule *s, const tt_step *step, int token, int last)
{
  for (int i = 0; i < last; i++) {
    uint32_t at = i < step->nsrc ? step->src + (uint32_t)i : step->dst + (uint32_t)(i - step->nsrc);
    if ((s->refs[at].kind == TT_TOKEN || s->refs[at].kind == TT_DRAIN) == token) {
      return i;
    }
  }
  return -1;
}

static int double_source(tt_schedule *s, tt_step *step)
{
  int i = find_ref(s, step, 0, step->nsrc);
  if (i < 0 || !(step->flags & TT_STEP_REDUCE)) {
    return 0;
  }
  if (step->nsrc > 1) { // one source takes the place of another
    s->refs[step->src + (uint32_t)(i > 0 ? i - 1 : i + 1)] = s->refs[step->src + (uint32_t)i];
  } else {
    s->refs[s->nrefs] = s->refs[s->nrefs - 1];
    memmove(&s->refs[step->src + 1], &s->refs[step->src], ((uint32_t)s->nrefs - step->src) * sizeof *s->refs);
    for (int k = 0; k < s->nsteps; k++) {
      s->steps[k].src += s->steps[k].src > step->src;
      s->steps[k].dst += s->steps[k].dst > step->src;
    }
    step->nsrc++;
    s->nrefs++;
  }
  return 1;
}

static int other_chunk(tt_schedule *s, tt_step *step)
{
  int i = find_ref(s, step, 0, step->nsrc + step->ndst);
  if (i < 0) {
    return 0;
  }
  s->refs[i < step->nsrc ? step->src + (uint32_t)i : step->dst + (uint32_t)(i - step->nsrc)].chunk += (uint32_t)s->nsub;
  return 1;
}

static int other_peer(tt_schedule *s, tt_step *step)
{
  for (int i = 0; i < step->nsrc + step->ndst; i++) {
    tt_ref *ref = &s->refs[i < step->nsrc ? step->src + (uint32_t)i : step->dst + (uint32_t)(i - step->nsrc)];
    if (ref->kind >= TT_FIFO) {
      ref->peer = (ref->peer + 1) % s->nranks;
      return 1;
    }
  }
  return 0;
}

// Breaks step `at`; 0 when the mutation has nothing to break there.
static int mutate(tt_schedule *s, int kind, int at)
{
  tt_step *step = &s->steps[at];
  int token = find_ref(s, step, 1, step->nsrc + step->ndst), data = find_ref(s, step, 0, step->nsrc);
  switch (kind) {
  case DROP_STEP: return drop_step(s, at);
  case SWAP_STEPS: return swap_steps(s, at);
  case DROP_TOKEN:
    if (token >= 0) {
      remove_ref(s, step, token);
    }
    return token >= 0;
  case DROP_SOURCE:
    if (data >= 0) {
      remove_ref(s, step, data);
    }
    return data >= 0;
  case WRONG_CHUNK: return other_chunk(s, step);
  case DOUBLE_SOURCE: return double_source(s, step);
  case OTHER_PEER: return other_peer(s, step);
  default: step->flags ^= TT_STEP_FINAL; return data >= 0;
  }
}

static void try_mutation(const ranks *r, tt_func f, int kind, int rank, int at)
{
  tt_schedule *broken = copy_schedule(r->s[rank]);
  if (mutate(broken, kind, at)) {
    ranks all = *r;
    char why[600] = "";
    all.s[rank] = broken;
    tt_verify_options o = {
        .func = f, .root = 1, .slots = 2, .loops = 2, .in_place = kind != DROP_STEP, .count_classes = tally.classes};
    tally.tried[kind]++;
    if (tt_verify((const tt_schedule *const *)all.s, &o, why, sizeof why) != ncclSuccess) {
      assert_true(why[0] != 0);
      tally.found[kind]++;
    }
  }
  tt_schedule_free(broken);
}

static void break_ranks(const ranks *r, tt_func f)
{
  for (int k = 0; k < r->count; k++) {
    for (int at = 0; at < r->s[k]->nsteps * NMUTATIONS; at++) {
      try_mutation(r, f, at % NMUTATIONS, k, at / NMUTATIONS);
    }
  }
}

// On one node; on three of 1, 2 and 2 ranks; on two of 3 and 5.
static void break_row(const tt_algorithm *a, tt_func f)
{
  static const int names[2][8] = {{0, 1, 2, 1, 2}, {0, 1, 1, 0, 0, 1, 1, 1}};
  for (int i = 0; i < 4 && !is_p2p(f); i++) {
    tt_layout *l = NULL;
    int n = i % 2 ? 8 : 5;
    assert_true(i < 2 || tt_layout_create(n, names[i % 2], &l) == ncclSuccess);
    ranks r = write_shape(a, (tt_shape){.func = f, .nranks = n, .root = 1, .layout = l});
    break_ranks(&r, f);
    free_ranks(&r);
    tt_layout_destroy(l);
  }
}

// Two independent steps may change places; everything else must be noticed. (Steps are dropped out of place: in place
// an own copy is none.)
static void test_broken_schedules_are_noticed(void **state)
{
  (void)state;
  each_row(break_row);
  for (int m = 0; m < NMUTATIONS; m++) {
    print_message("  %-14s %5d tried, %5d noticed, %4d harmless\n", mutation_names[m], tally.tried[m], tally.found[m],
                  tally.tried[m] - tally.found[m]);
  }
  for (int c = 0; c < TT_VERIFY_NCLASSES; c++) {
    print_message("  noticed as %-9s %5d\n", tt_verify_class_name((tt_verify_class)c), tally.classes[c]);
    assert_true(tally.classes[c] > 0);
  }
  for (int m = 0; m < NMUTATIONS; m++) {
    assert_true(tally.tried[m] > 100);
    assert_true(m == SWAP_STEPS ? tally.found[m] > 0 : tally.found[m] == tally.tried[m]);
  }
}

// Breaks all ranks alike: removes from every schedule of `name` the steps [first, first + count).
static void expect_fault_without(const char *name, tt_func f, int first, int count, int in_place,
                                 tt_verify_class expected)
{
  int rows, classes[TT_VERIFY_NCLASSES] = {0};
  ranks r = write_all(&tt_algorithms(&rows)[tt_algorithm_find(name)], f, 4, 0, NULL);
  for (int i = 0; i < r.count; i++) {
    for (int k = 0; k < count; k++) {
      drop_step(r.s[i], first);
    }
  }
  tt_verify_options o = {.func = f, .slots = 2, .loops = 1, .in_place = in_place, .count_classes = classes};
  char why[600] = "";
  assert_int_equal(tt_verify((const tt_schedule *const *)r.s, &o, why, sizeof why), ncclInternalError);
  if (classes[expected] != 1) {
    fail_msg("%s %s: %s", name, tt_func_name(f), why);
  }
  free_ranks(&r);
}

static void test_owner_must_not_leave_early(void **state)
{
  (void)state;
  // Direct all-reduce: tell three, sum, tell, 3 fetches, tell, hear. Without the last two, peers read while the owner
  // is gone.
  expect_fault_without("Direct", TT_FUNC_ALLREDUCE, 8, 2, 0, TT_VERIFY_RACE);
  // Direct all-gather: tell, own copy, wait for the tokens, 3 fetches. The same for reduce-scatter: tell, sum, wait for
  // the tokens.
  expect_fault_without("Direct", TT_FUNC_ALLGATHER, 2, 1, 0, TT_VERIFY_RACE);
  expect_fault_without("Direct", TT_FUNC_REDUCESCATTER, 2, 1, 0, TT_VERIFY_RACE);
  // DirectWrite all-reduce: tell, sum, tell, hear. Outputs may be written after the owner is gone.
  expect_fault_without("DirectWrite", TT_FUNC_ALLREDUCE, 2, 2, 0, TT_VERIFY_RACE);
}

// Whether a gift is made is open: the schedule must be right either way.
static void expect_fault_of_gifts(bool keep_fetches)
{
  int rows, classes[TT_VERIFY_NCLASSES] = {0};
  ranks r = write_all(&tt_algorithms(&rows)[tt_algorithm_find("Direct")], TT_FUNC_ALLREDUCE, 3, 0, NULL);
  for (int i = 0; i < r.count; i++) {
    for (int k = 0; k < r.s[i]->nsteps; k++) {
      tt_step *step = &r.s[i]->steps[k];
      bool gift = (step->flags & TT_STEP_PUT) != 0, fetch = (step->flags & TT_STEP_UNLESS_PUT) != 0;
      step->ndst = gift && keep_fetches ? 1 : step->ndst; // into the own output alone, and yet the others do not fetch
      step->ndst = fetch && !keep_fetches ? 0 : step->ndst;
      // The token alone: right only where everything has been written.
      step->nsrc = fetch && !keep_fetches ? 1 : step->nsrc;
    }
  }
  tt_verify_options o = {.func = TT_FUNC_ALLREDUCE, .slots = 2, .loops = 2, .count_classes = classes};
  char why[600] = "";
  assert_int_equal(tt_verify((const tt_schedule *const *)r.s, &o, why, sizeof why), ncclInternalError);
  if (classes[TT_VERIFY_CONTENTS] != 1) {
    fail_msg("%s", why);
  }
  free_ranks(&r);
}

static void test_gifts_made_or_not(void **state)
{
  (void)state;
  expect_fault_of_gifts(true);
  expect_fault_of_gifts(false);
}

// Without the second round of tokens (and the waiting for them), sums are fetched before they are there.
static void test_unordered_access_is_a_race(void **state)
{
  (void)state;
  int rows;
  ranks r = write_all(&tt_algorithms(&rows)[tt_algorithm_find("Direct")], TT_FUNC_ALLREDUCE, 4, 0, NULL);
  for (int i = 0; i < r.count; i++) {
    for (int k = 5; k <= 7; k++) {
      r.s[i]->steps[k].src++; // the token is the first source
      r.s[i]->steps[k].nsrc--;
    }
    drop_step(r.s[i], 4);
  }
  tt_verify_options o = {.func = TT_FUNC_ALLREDUCE, .slots = 1, .loops = 1, .in_place = 1};
  char why[600] = "";
  assert_int_equal(tt_verify((const tt_schedule *const *)r.s, &o, why, sizeof why), ncclInternalError);
  assert_non_null(strstr(why, "race: "));
  free_ranks(&r);
}

// What a token offers must be what the step that takes it reads, and nothing else of that peer. words NULL: nothing is
// wrong.
static void expect_offer_fault(uint8_t offer, uint32_t chunk, const char *words)
{
  int rows;
  ranks r = write_all(&tt_algorithms(&rows)[tt_algorithm_find("Direct")], TT_FUNC_ALLTOALL, 3, 0, NULL);
  tt_ref *token = &r.s[1]->refs[r.s[1]->steps[0].dst];
  assert_int_equal(token->kind, TT_TOKEN);
  assert_int_equal(token->offer, TT_OFFER_IN);
  token->offer = offer;
  token->chunk = chunk;
  tt_verify_options o = {.func = TT_FUNC_ALLTOALL, .slots = 1, .loops = 2};
  char why[600] = "";
  assert_int_equal(tt_verify((const tt_schedule *const *)r.s, &o, why, sizeof why),
                   words == NULL ? ncclSuccess : ncclInternalError);
  if (words != NULL && strstr(why, words) == NULL) {
    fail_msg("%s", why);
  }
  free_ranks(&r);
}

static void test_offers_are_read(void **state)
{
  (void)state;
  expect_offer_fault(TT_OFFER_IN, 2, NULL); // for rank 2, the next one
  expect_offer_fault(TT_OFFER_NONE, 0, NULL);
  expect_offer_fault(TT_OFFER_IN, 0, "rank 1 offers chunk 0 of its input, which is read 0 times, and 1 other chunks");
  expect_offer_fault(TT_OFFER_OUT, 2, "rank 1 offers chunk 2 of its output");
  expect_offer_fault(TT_OFFER_IN, 3, "offers chunk 3, which does not exist");
}

// ---- offers that come along as copies ----

static void send_token(tt_build *b, tt_ref token)
{
  tt_build_step(b, 0, 0);
  tt_build_to(b, token);
}

static void wait_for(tt_build *b, tt_ref token)
{
  tt_build_step(b, 0, 0);
  tt_build_from(b, token);
}

// A copy in the step that takes a token.
static void take_and_copy(tt_build *b, int peer, tt_ref from, tt_ref to)
{
  tt_build_step(b, 0, 0);
  tt_build_from(b, tt_ref_token(peer));
  tt_build_from(b, from);
  tt_build_to(b, to);
}

// Rank 1 writes in the step that takes the token which lets it.
static void write_at_once(tt_build *b, int rank)
{
  tt_build_copy(b, 0, tt_ref_in(0), tt_ref_out((uint32_t)rank));
  if (rank == 0) {
    send_token(b, tt_ref_token(1));
    send_token(b, tt_ref_offer_in(1, 0));
    wait_for(b, tt_ref_drain(1));
  } else {
    take_and_copy(b, 0, tt_ref_in(0), tt_ref_peer_out(0, 1));
    take_and_copy(b, 0, tt_ref_peer_in(0, 0), tt_ref_out(0));
  }
}

// Rank 1 writes after that step, but before it takes what rank 0 offers. A drain that waits for this, too, has seen it
// write.
static void write_later(tt_build *b, int rank)
{
  if (rank == 0) {
    write_at_once(b, 0);
    return;
  }
  tt_build_copy(b, 0, tt_ref_in(0), tt_ref_out(1));
  wait_for(b, tt_ref_token(0));
  tt_build_copy(b, 0, tt_ref_in(0), tt_ref_peer_out(0, 1));
  take_and_copy(b, 0, tt_ref_peer_in(0, 0), tt_ref_out(0));
}

// Rank 0 offers what rank 1 has yet to write.
static void offer_early(tt_build *b, int rank)
{
  if (rank == 0) {
    tt_build_copy(b, 0, tt_ref_in(0), tt_ref_out(0));
    send_token(b, tt_ref_token(1));
    send_token(b, tt_ref_offer_out(1, 1));
    wait_for(b, tt_ref_drain(1));
  } else {
    take_and_copy(b, 0, tt_ref_peer_in(0, 0), tt_ref_out(0));
    tt_build_copy(b, 0, tt_ref_in(0), tt_ref_peer_out(0, 1));
    take_and_copy(b, 0, tt_ref_peer_out(0, 1), tt_ref_out(1));
  }
}

// Behind the drain rank 0 writes where it has offered something.
static void write_over_offer(tt_build *b, int rank)
{
  if (rank == 0) {
    tt_build_copy(b, 0, tt_ref_in(0), tt_ref_out(1));
    send_token(b, tt_ref_offer_out(1, 1));
    wait_for(b, tt_ref_drain(1));
    take_and_copy(b, 1, tt_ref_peer_in(1, 0), tt_ref_out(1));
    tt_build_copy(b, 0, tt_ref_in(0), tt_ref_out(0));
  } else {
    send_token(b, tt_ref_offer_in(0, 0));
    take_and_copy(b, 0, tt_ref_peer_out(0, 1), tt_ref_out(0));
    tt_build_copy(b, 0, tt_ref_in(0), tt_ref_out(1));
    wait_for(b, tt_ref_drain(0));
  }
}

// An all-gather of two ranks that is right as long as its tokens offer nothing. words: what is wrong when they do.
// NULL: nothing.
static void expect_of_copies(void (*write)(tt_build *b, int rank), const char *words)
{
  for (int offers = 0; offers < 2; offers++) {
    ranks r = {.count = 2};
    for (int i = 0; i < 2; i++) {
      tt_build b;
      tt_build_begin(&b, &(tt_shape){.func = TT_FUNC_ALLGATHER, .rank = i, .nranks = 2}, 1);
      tt_build_strand(&b);
      write(&b, i);
      assert_int_equal(tt_build_end(&b, &r.s[i]), ncclSuccess);
      for (int k = 0; k < r.s[i]->nrefs; k++) {
        r.s[i]->refs[k].offer = offers ? r.s[i]->refs[k].offer : TT_OFFER_NONE;
      }
    }
    tt_verify_options o = {.func = TT_FUNC_ALLGATHER, .slots = 2, .loops = 2};
    char why[600] = "";
    ncclResult_t expected = offers && words ? ncclInternalError : ncclSuccess,
                 res = tt_verify((const tt_schedule *const *)r.s, &o, why, sizeof why);
    if (res != expected || (expected != ncclSuccess && !strstr(why, words))) {
      fail_msg("%s offers: %s", offers ? "with" : "without", why);
    }
    free_ranks(&r);
  }
}

static void test_offers_may_be_copies(void **state)
{
  (void)state;
  expect_of_copies(write_at_once, NULL);
  expect_of_copies(write_later, "race: rank 0 may complete its call while rank 1 still uses its buffers");
  expect_of_copies(offer_early, "contents: rank 0 strand 0 step 2 pass 0: reads memory that was never written");
  expect_of_copies(write_over_offer, NULL);
}

// ---- how faults are told ----

// Three ranks that all take before they give.
static void test_deadlock_is_explained(void **state)
{
  (void)state;
  int rows;
  ranks r = write_all(&tt_algorithms(&rows)[tt_algorithm_find("Ring")], TT_FUNC_ALLGATHER, 3, 0, NULL);
  for (int i = 0; i < r.count; i++) {
    swap_steps(r.s[i], 0);
  }
  tt_verify_options o = {.func = TT_FUNC_ALLGATHER, .slots = 8, .loops = 1};
  char why[600] = "";
  assert_int_equal(tt_verify((const tt_schedule *const *)r.s, &o, why, sizeof why), ncclInternalError);
  assert_string_equal(why, "deadlock: rank 0 strand 0 step 0 pass 0 waits for a message from rank 2; "
                           "rank 2 strand 0 step 0 pass 0 waits for a message from rank 1; "
                           "rank 1 strand 0 step 0 pass 0 waits for a message from rank 0");
  free_ranks(&r);
}

// Sums in another order on one rank: each rank's result is right, but not the same bits.
static void test_same_expression_everywhere(void **state)
{
  (void)state;
  int rows;
  ranks r = write_all(&tt_algorithms(&rows)[tt_algorithm_find("Oneshot")], TT_FUNC_ALLREDUCE, 3, 0, NULL);
  tt_step *sum = &r.s[1]->steps[1];
  tt_ref x = r.s[1]->refs[sum->src];
  r.s[1]->refs[sum->src] = r.s[1]->refs[sum->src + 2];
  r.s[1]->refs[sum->src + 2] = x;
  tt_verify_options o = {.func = TT_FUNC_ALLREDUCE, .slots = 1, .loops = 1};
  char why[600] = "";
  assert_int_equal(tt_verify((const tt_schedule *const *)r.s, &o, why, sizeof why), ncclInternalError);
  assert_non_null(strstr(why, "different expressions"));
  free_ranks(&r);
}

// ---- the rest ----

// Of schedules that are right otherwise.
static void expect_out_of_order(const ranks *r, tt_func f)
{
  tt_verify_options o = {.func = f, .slots = 1, .loops = 1};
  char why[600] = "";
  expect_right(r, &o, "out of order");
  o.in_order = 1;
  assert_int_equal(tt_verify((const tt_schedule *const *)r->s, &o, why, sizeof why), ncclInternalError);
  assert_non_null(strstr(why, "in the order of the ranks"));
}

// A row's own order, and one in which the ranks' parts of a sum have changed places.
static void test_other_orders_are_noticed(void **state)
{
  (void)state;
  static const char *const names[] = {"Ring", "Tree", "RD"};
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    ranks r = write_all(&tt_algorithms(NULL)[tt_algorithm_find(names[i])], TT_FUNC_ALLREDUCE, 4, 0, NULL);
    expect_out_of_order(&r, TT_FUNC_ALLREDUCE);
    free_ranks(&r);
  }
  ranks r = write_all(&tt_algorithms(NULL)[TT_ALGO_ORDERED], TT_FUNC_REDUCE, 3, 0, NULL);
  tt_step *sum = &r.s[1]->steps[2];
  assert_int_equal(sum->nsrc, 3);
  tt_ref first = r.s[1]->refs[sum->src];
  r.s[1]->refs[sum->src] = r.s[1]->refs[sum->src + 2];
  r.s[1]->refs[sum->src + 2] = first;
  expect_out_of_order(&r, TT_FUNC_REDUCE);
  free_ranks(&r);
}

static void test_out_of_memory(void **state)
{
  (void)state;
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  tt_shape shape = {.func = TT_FUNC_ALLREDUCE, .rank = 1, .nranks = 20};
  for (int i = 0; i < count; i++) {
    ncclResult_t res = table[i].funcs >> TT_FUNC_ALLREDUCE & 1 ? ncclSystemError : ncclSuccess;
    for (int k = 1; res != ncclSuccess; k++) {
      tt_schedule *s = NULL;
      tt_alloc_fail_at(k);
      res = tt_algorithm_write(&table[i], &shape, &s);
      assert_true(res == ncclSuccess ? s != NULL : res == ncclSystemError && s == NULL);
      assert_true(k < 50);
      tt_schedule_free(s);
    }
    tt_alloc_fail_at(0);
  }
  ranks r = write_all(&table[0], TT_FUNC_ALLREDUCE, 20, 0, NULL);
  tt_verify_options o = {.func = TT_FUNC_ALLREDUCE, .slots = 1, .loops = 1};
  for (int k = 1; k <= 3; k++) {
    tt_alloc_fail_at(k);
    assert_int_equal(tt_verify((const tt_schedule *const *)r.s, &o, NULL, 0), ncclSystemError);
  }
  tt_alloc_fail_at(0);
  assert_int_equal(tt_verify((const tt_schedule *const *)r.s, &o, NULL, 0), ncclSuccess);
  free_ranks(&r);
}

static void test_senseless_shapes(void **state)
{
  (void)state;
  int count, names[] = {0, 0, 1}, order[] = {0, 1, 2, 3};
  const tt_algorithm *table = tt_algorithms(&count);
  tt_layout *three;
  assert_int_equal(tt_layout_create(3, names, &three), ncclSuccess);
  for (int i = 0; i < count; i++) {
    tt_schedule *s = NULL;
    tt_func any = (tt_func)__builtin_ctz(table[i].funcs);
    tt_shape other = {.func = any, .rank = 0, .nranks = 4, .layout = three};
    tt_shape both = {.func = any, .rank = 0, .nranks = 3, .layout = three, .order = order};
    assert_int_equal(tt_algorithm_write(&table[i], &other, &s), ncclInvalidArgument);
    assert_int_equal(tt_algorithm_write(&table[i], &both, &s), ncclInvalidArgument);
    tt_shape unknown = {.func = TT_NFUNCS, .rank = 0, .nranks = 4},
             none = {.func = TT_FUNC_ALLREDUCE, .rank = 0, .nranks = 0};
    tt_shape root = {.func = TT_FUNC_BROADCAST, .rank = 0, .nranks = 4, .root = 4};
    assert_int_equal(tt_algorithm_write(&table[i], &unknown, &s), ncclInvalidArgument);
    assert_int_equal(tt_algorithm_write(&table[i], &none, &s), ncclInvalidArgument);
    assert_int_equal(tt_algorithm_write(&table[i], &root, &s), ncclInvalidArgument);
    assert_null(s);
  }
  tt_layout_destroy(three);
}

static void expect_print(const tt_shape *shape, const char *name, const char *expected)
{
  char *text = NULL;
  size_t size = 0;
  tt_schedule *s;
  assert_int_equal(tt_algorithm_write(&tt_algorithms(NULL)[tt_algorithm_find(name)], shape, &s), ncclSuccess);
  FILE *f = open_memstream(&text, &size);
  assert_non_null(f);
  tt_schedule_print(f, s, shape->layout);
  fclose(f);
  assert_string_equal(text, expected);
  free(text);
  tt_schedule_free(s);
}

static void test_print(void **state)
{
  (void)state;
  tt_shape shape = {.func = TT_FUNC_ALLREDUCE, .rank = 0, .nranks = 2};
  expect_print(&shape, "rd",
               "rank 0 of 2: input 1 blocks, output 1 blocks, 1 chunks per block and pass, 0 scratch slots\n"
               " strand 0\n"
               "    0: sub 0  reduce  in[0] -> out[0], to>1[0]\n"
               "    1: sub 0  finish  out[0] + from<1[0] -> out[0]\n");
}

static void test_print_nodes(void **state)
{
  (void)state;
  static const int names[] = {0, 1, 0, 1};
  tt_layout *l;
  assert_int_equal(tt_layout_create(4, names, &l), ncclSuccess);
  tt_shape shape = {.func = TT_FUNC_ALLREDUCE, .rank = 0, .nranks = 4, .layout = l};
  expect_print(
      &shape, "hierrd",
      "rank 0 of 4 on node 0 of 2: input 1 blocks, output 1 blocks, 1 chunks per block and pass, 0 scratch slots\n"
      " strand 0\n"
      "    0: sub 0  reduce  in[0] + from<2[0] -> out[0], to>>1[0]\n"
      "    1: sub 0  finish  out[0] + from<<1[0] -> out[0], to>2[0]\n");
  tt_layout_destroy(l);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_n_every_root),
      cmocka_unit_test(test_every_pair),
      cmocka_unit_test(test_any_ring_order),
      cmocka_unit_test(test_broken_schedules_are_noticed),
      cmocka_unit_test(test_owner_must_not_leave_early),
      cmocka_unit_test(test_gifts_made_or_not),
      cmocka_unit_test(test_unordered_access_is_a_race),
      cmocka_unit_test(test_offers_are_read),
      cmocka_unit_test(test_offers_may_be_copies),
      cmocka_unit_test(test_deadlock_is_explained),
      cmocka_unit_test(test_same_expression_everywhere),
      cmocka_unit_test(test_other_orders_are_noticed),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_senseless_shapes),
      cmocka_unit_test(test_print),
      cmocka_unit_test(test_print_nodes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
