// stall_test.c: when a wait is reported whose cause is on a machine of which this rank knows nothing.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "device/stall.h"
#include "device/stall_chain.h"
#include "os/clock.h"

enum { RANKS = 3, MARK = 5 };

// Rank 0 waits for rank 1, which waits for rank 2; rank 0 is connected with rank 1 alone.
static tt_port port;
static tt_link link_to_1;
static tt_link *links[RANKS];
static tt_rank_page pages[2];

static void make_port(void)
{
  uint64_t now = tt_now_ns();
  link_to_1.page = &pages[1];
  links[1] = &link_to_1;
  port.nranks = RANKS;
  port.links = links;
  port.page = &pages[0];
  atomic_store(&pages[0].state, TT_RANK_RUNNING);
  atomic_store(&pages[1].state, TT_RANK_RUNNING);
  tt_wait_show(pages[1].wait, &(tt_wait){.since_ns = now - TT_NS_PER_S, .seen_ns = now, .peer = 2, .number = 1});
}

// Has a wait of 60 s been reported, which was to be reported after `next_ns`? At the second look with the same result.
static bool is_reported(uint64_t next_ns)
{
  uint64_t now = tt_now_ns();
  tt_wait w = {.peer = 1};
  tt_stall s = {.since_ns = now - 60 * TT_NS_PER_S,
                .seen_ns = now - 1,
                .waited_ns = 60 * TT_NS_PER_S,
                .next_ns = next_ns,
                .mark = MARK,
                .cause = 2};
  const tt_stalled k = {.port = &port, .stall = &s, .mark = MARK, .wait = &w};
  assert_int_equal(tt_stall_look_at(&k, now), ncclSuccess);
  assert_int_equal(s.cause, 2);
  assert_int_equal(s.hash, tt_wait_least(0, 0));
  assert_int_equal(s.how, TT_WAIT_LEAST);
  assert_true(s.said ? s.next_ns >= 120 * TT_NS_PER_S : s.next_ns == next_ns);
  return s.said;
}

// Twice two seconds later than others; and never where reports are off (NCCL_STALL_WARN_MS=0: the time is UINT64_MAX).
static void unknown_causes_are_reported_late(void **state)
{
  (void)state;
  make_port();
  assert_true(is_reported(27 * TT_NS_PER_S));
  assert_false(is_reported(29 * TT_NS_PER_S));
  assert_false(is_reported(UINT64_MAX - TT_STALL_PROOF_NS));
  assert_false(is_reported(UINT64_MAX));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(unknown_causes_are_reported_late)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
