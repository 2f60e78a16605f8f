// redop_test.c: handles of operations that a program makes: those that live are found, freed ones are refused until all
// other numbers have been given, those of other ranks too.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/result.h"
#include "base/util.h"
#include "comm/comm.h"
#include "comm/redop.h"

enum { NUMBERS = (int)tuttiBitAnd - (int)ncclNumOps };

static struct ncclComm *new_comm(int rank, int nranks)
{
  struct ncclComm *c = tt_calloc_line(sizeof *c);
  assert_non_null(c);
  c->rank = rank;
  c->nranks = nranks;
  c->hash = 0x123456789abcdefull;
  return c;
}

static void free_comm(struct ncclComm *c)
{
  tt_free(c->userops.ops);
  tt_free(c);
}

static void nothing(const void *in, void *inout, size_t count, ncclDataType_t type, void *arg)
{
  (void)in, (void)inout, (void)count, (void)type, (void)arg;
}

// Operation number i of a test: of either kind, and known by its number.
static tt_userop numbered(uint64_t i)
{
  if (i % 2 == 0) {
    return (tt_userop){.code = TT_OP_SCALED, .type = ncclFloat64, .scalar = i};
  }
  return (tt_userop){.code = i % 4 == 1 ? TT_OP_FUNCTION : TT_OP_ORDERED, .fn = nothing, .arg = (void *)(uintptr_t)i};
}

static ncclRedOp_t create(struct ncclComm *c, uint64_t i)
{
  tt_userop u = numbered(i);
  ncclRedOp_t op = ncclSum;
  assert_int_equal(tt_op_create(c, "test", &u, &op), ncclSuccess);
  assert_in_range(op, ncclNumOps, (int)tuttiBitAnd - 1);
  return op;
}

// What a call with this operation gets: the number of the operation in *i.
static ncclResult_t take(struct ncclComm *c, ncclRedOp_t op, uint64_t *i)
{
  tt_task t = {.comm = c, .op = op, .type = ncclFloat64, .kind = tt_task_kind(TT_FUNC_ALLREDUCE, ncclFloat64, op, 0)};
  ncclResult_t res = tt_op_take(&t, "test");
  *i = t.fn != NULL ? (uint64_t)(uintptr_t)t.arg : t.scalar;
  return res;
}

static void check_lives(struct ncclComm *c, ncclRedOp_t op, uint64_t i)
{
  uint64_t found;
  assert_int_equal(take(c, op, &found), ncclSuccess);
  assert_int_equal(found, i);
}

static void check_refused(struct ncclComm *c, ncclRedOp_t op)
{
  uint64_t found;
  assert_int_equal(take(c, op, &found), ncclInvalidArgument);
  assert_int_equal(tt_op_destroy(c, op), ncclInvalidArgument);
  assert_non_null(strstr(tt_last_error(), "not a live handle"));
}

static void test_handles_of_every_age_are_refused(void **state)
{
  enum { CYCLES = 20000 };
  static ncclRedOp_t stale[CYCLES];
  struct ncclComm *c = new_comm(0, 1);
  (void)state;
  ncclRedOp_t kept = create(c, 77);
  for (int i = 0; i < CYCLES; i++) {
    stale[i] = create(c, (uint64_t)i);
    check_lives(c, stale[i], (uint64_t)i);
    assert_int_equal(tt_op_destroy(c, stale[i]), ncclSuccess);
    check_refused(c, stale[i]);
    check_refused(c, stale[i / 2]);
  }
  ncclRedOp_t now = create(c, 78);
  for (int i = 0; i < CYCLES; i++) {
    check_refused(c, stale[i]);
  }
  check_lives(c, now, 78);
  check_lives(c, kept, 77);
  assert_int_equal(c->userops.live, 2);
  free_comm(c);
}

// Many that live, which come and go in any order; those that have gone are refused.
static void test_many_live_and_go(void **state)
{
  enum { MOST = 1000, STEPS = 60000 };
  static struct {
    ncclRedOp_t op;
    uint64_t number;
  } live[MOST];
  static ncclRedOp_t stale[STEPS];
  struct ncclComm *c = new_comm(2, 3);
  int n = 0, gone = 0;
  uint64_t seed = 1;
  (void)state;
  for (uint64_t step = 0; step < STEPS; step++) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    unsigned random = (unsigned)(seed >> 33);
    if (n == 0 || (n < MOST && random % 100 < (step % 20000 < 10000 ? 60u : 40u))) {
      live[n].op = create(c, step);
      live[n++].number = step;
    } else {
      int i = (int)(random % (unsigned)n);
      check_lives(c, live[i].op, live[i].number);
      assert_int_equal(tt_op_destroy(c, live[i].op), ncclSuccess);
      stale[gone++] = live[i].op;
      live[i] = live[--n];
    }
    assert_int_equal(c->userops.live, n);
    if (gone > 0) {
      check_refused(c, stale[random % (unsigned)gone]);
    }
  }
  for (int i = 0; i < gone; i++) {
    check_refused(c, stale[i]);
  }
  for (int i = 0; i < n; i++) {
    check_lives(c, live[i].op, live[i].number);
  }
  free_comm(c);
}

// Behind the last number comes the first one; those of living operations are left out.
static void test_numbers_begin_again(void **state)
{
  enum { BEFORE = 5, CYCLES = 12 };
  struct ncclComm *c = new_comm(0, 1);
  ncclRedOp_t op[CYCLES];
  (void)state;
  ncclRedOp_t kept = create(c, 1);
  c->userops.next = 1; // the place of its number may be any
  ncclRedOp_t low = create(c, 2);
  c->userops.next = NUMBERS - BEFORE;
  for (int i = 0; i < CYCLES; i++) {
    op[i] = create(c, 3);
    assert_true(op[i] != low && op[i] != kept);
    assert_int_equal(tt_op_destroy(c, op[i]), ncclSuccess);
    for (int k = 0; k < i; k++) {
      assert_true(op[k] != op[i]);
    }
  }
  assert_true(op[0] > low && op[CYCLES - 1] > low && op[CYCLES - 1] < op[0]);
  check_lives(c, low, 2);
  check_lives(c, kept, 1);
  free_comm(c);
}

// Ranks of a communicator that have made the same number of operations, some thousands apart at most.
static void test_handles_of_other_ranks(void **state)
{
  enum { RANKS = 64, EACH = 50 };
  struct ncclComm *c[RANKS];
  static ncclRedOp_t op[RANKS][EACH];
  (void)state;
  for (int r = 0; r < RANKS; r++) {
    c[r] = new_comm(r, RANKS);
    for (int i = 0; i < 100 * r; i++) {
      assert_int_equal(tt_op_destroy(c[r], create(c[r], 0)), ncclSuccess);
    }
    for (int i = 0; i < EACH; i++) {
      op[r][i] = create(c[r], 1);
    }
  }
  for (int r = 0; r < RANKS; r++) {
    for (int i = 0; i < RANKS * EACH; i++) {
      if (i / EACH != r) {
        check_refused(c[r], op[i / EACH][i % EACH]);
      }
    }
  }
  for (int r = 0; r < RANKS; r++) {
    free_comm(c[r]);
  }
}

static void test_what_is_no_handle(void **state)
{
  struct ncclComm *c = new_comm(0, 1);
  static const int no[] = {
      ncclSum,  ncclAvg, -1, INT32_MIN, ncclNumOps, (int)tuttiBitAnd, (int)tuttiBitOr + 1, (int)tuttiBitAnd - 1,
      INT32_MAX};
  (void)state;
  for (int made = 0; made < 2; made++) {
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
      assert_int_equal(tt_op_destroy(c, (ncclRedOp_t)no[i]), ncclInvalidArgument);
    }
    create(c, 1);
  }
  free_comm(c);
}

static void test_no_memory(void **state)
{
  struct ncclComm *c = new_comm(0, 1);
  tt_userop u = numbered(1);
  ncclRedOp_t op = ncclSum;
  (void)state;
  for (int i = 0; i < 100; i++) {
    tt_alloc_fail_at(1);
    ncclResult_t res = tt_op_create(c, "test", &u, &op);
    tt_alloc_fail_at(0);
    bool full = c->userops.live == c->userops.room / 2;
    assert_true(res == ncclSuccess || (res == ncclSystemError && full && op == ncclSum));
    if (res != ncclSuccess) {
      assert_non_null(strstr(tt_last_error(), "no memory"));
      op = create(c, 1);
    }
    check_lives(c, op, 1);
    op = ncclSum;
  }
  free_comm(c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_handles_of_every_age_are_refused),
      cmocka_unit_test(test_many_live_and_go),
      cmocka_unit_test(test_numbers_begin_again),
      cmocka_unit_test(test_handles_of_other_ranks),
      cmocka_unit_test(test_what_is_no_handle),
      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
