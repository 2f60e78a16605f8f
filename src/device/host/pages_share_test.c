// pages_share_test.c: huge pages on credit: pages.c with a kernel and a clock of this test's own, in which a page costs
// what the test says and nothing else takes time.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "os/clock.h"
#include "os/map.h"

static int slow_kernel(const void *addr, size_t size);
static uint64_t slow_clock(void);

#define tt_map_huge slow_kernel
#define tt_now_ns slow_clock
#include "device/host/pages.c"

enum { HUGE_BYTES = 2 << 20, MIB = 1 << 20, BASE = 1 << 30 };

static uint64_t clock_ns, page_ns, asked, longest_ns;
static int answer;

static uint64_t slow_clock(void)
{
  return clock_ns;
}

static int slow_kernel(const void *addr, size_t size)
{
  assert_int_equal((uintptr_t)addr % HUGE_BYTES, 0);
  assert_int_equal(size, HUGE_BYTES);
  asked++;
  clock_ns += page_ns;
  return answer;
}

static void begin(uint64_t ns, int error)
{
  clock_ns = 1000;
  page_ns = ns;
  asked = longest_ns = 0;
  answer = error;
}

// Calls with a buffer of so many MiB each, and with a second one of as many if `both`; longest_ns is how long one of
// them took at most. What they took together.
static uint64_t calls(tt_pages *t, size_t mib, bool both, int n)
{
  tt_buffer_use c = {.in = (void *)(uintptr_t)BASE,
                     .in_bytes = mib * MIB,
                     .out = (void *)(2 * (uintptr_t)BASE),
                     .out_bytes = both ? mib * MIB : 0};
  uint64_t start = clock_ns;
  for (int i = 0; i < n; i++) {
    uint64_t before = clock_ns;
    tt_pages_use(t, &c);
    longest_ns = TT_MAX(longest_ns, clock_ns - before);
  }
  return clock_ns - start;
}

// What calls take at 10 bytes per nanosecond.
static uint64_t share_of(size_t mib, int n)
{
  return (uint64_t)n * mib * MIB / 10;
}

// However long a page takes, and whether the kernel gives it or not, calls wait for their share together and for one
// page more, each for a few milliseconds and one page more.
static void never_more_than_the_share(void **state)
{
  (void)state;
  static const uint64_t costs[] = {1, 1000, 300000, 700000, 2800000, 20000000, 500000000};
  static const size_t sizes[] = {2, 3, 8, 64, 256, 1024};
  static const int answers[] = {0, EAGAIN, EINVAL};
  for (size_t i = 0; i < 7 * 6 * 3 * 2; i++) {
    size_t mib = sizes[i / 7 % 6];
    tt_pages t = {.huge = HUGE_BYTES};
    begin(costs[i % 7], answers[i / 42 % 3]);
    uint64_t waited = 0;
    for (int n = 1; n <= 2000; n++) {
      waited += calls(&t, mib, i >= 126, 1);
      assert_true(waited <= share_of(mib, n) + page_ns);
    }
    assert_true(longest_ns <= MOST_NS + page_ns);
    assert_true(asked > 0);
  }
}

// It is used, too: pages of 0.7 ms under 256 MiB, twice, and under smaller buffers too, are in place after 40 calls.
static void all_in_place(void **state)
{
  (void)state;
  static const size_t sizes[] = {8, 64, 256};
  for (int i = 0; i < 3; i++) {
    tt_pages t = {.huge = HUGE_BYTES};
    begin(700000, 0);
    calls(&t, sizes[i], true, 40);
    assert_true(t.made >= sizes[i]); // as many MiB as two buffers have pages
  }
}

// Credit is no reason to ask before a buffer has come back, nor to wait long after calls that saved much.
static void saved_up(void **state)
{
  (void)state;
  tt_pages t = {.huge = HUGE_BYTES};
  begin(1000000, 0);
  assert_int_equal(calls(&t, 1024, false, TT_PAGES_USES), 0);
  assert_int_equal(t.credit_ns, MOST_NS);
  assert_int_equal(calls(&t, 1024, false, 1), MOST_NS);
  assert_int_equal(t.made, MOST_NS / 1000000);
}

// After one page that took long, calls go on without until they have earned what it counts as.
static void debt(void **state)
{
  (void)state;
  tt_pages t = {.huge = HUGE_BYTES};
  begin(100000000, 0);
  calls(&t, 256, false, TT_PAGES_USES + 1);
  assert_int_equal(asked, 1);
  page_ns = 1000;
  assert_int_equal(calls(&t, 256, false, 28), 0);
  calls(&t, 256, false, 4);
  assert_true(asked > 1);
}

// What is in place is looked at again at once, though new pages are dear.
static void cheap_looks(void **state)
{
  (void)state;
  tt_pages t = {.huge = HUGE_BYTES};
  begin(2800000, 0);
  calls(&t, 8, false, 200);
  page_ns = 1000;
  calls(&t, 8, false, 200); // the first look waits for credit
  asked = 0;
  calls(&t, 8, false, TT_PAGES_REST + 1);
  assert_int_equal(asked, 4);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(never_more_than_the_share),
      cmocka_unit_test(all_in_place),
      cmocka_unit_test(saved_up),
      cmocka_unit_test(debt),
      cmocka_unit_test(cheap_looks),
  };
  return cmocka_run_group_tests_name("pages_share", tests, NULL, NULL);
}
