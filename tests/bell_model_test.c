// bell_model_test.c: every interleaving of the sleep-and-wake protocol, as src/os/bell.h and bell.c have it
// (explore.h).
#include "explore_atomics.h"

#include "os/bell.c" // NOLINT: the code that is explored

#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>

#include "explore.h"

// What threads share: each publisher's count of what it has published, and the bells.
static struct {
  tt_bell bell[2];
  _Atomic uint32_t data[2];
} mem;

static unsigned rounds, publishers;

static void publish(int which)
{
  for (unsigned i = 1; i <= rounds; i++) {
    atomic_store_explicit(&mem.data[which], i, memory_order_release);
    tt_bell_fence();
    tt_bell_ring(&mem.bell[0]);
  }
}

static void publisher0(void)
{
  publish(0);
}

static void publisher1(void)
{
  publish(1);
}

// Two bells, one fence.
static void publisher_of_two(void)
{
  for (unsigned i = 1; i <= rounds; i++) {
    atomic_store_explicit(&mem.data[0], i, memory_order_release);
    tt_bell_fence();
    tt_bell_ring(&mem.bell[0]);
    tt_bell_ring(&mem.bell[1]);
  }
}

static bool all_there(void)
{
  for (unsigned i = 0; i < publishers; i++) {
    if (atomic_load_explicit(&mem.data[i], memory_order_acquire) < rounds) {
      return false;
    }
  }
  return true;
}

static void wait_on(tt_bell *bell)
{
  while (!all_there()) {
    uint32_t ticket = tt_bell_announce(bell);
    if (!all_there()) {
      tt_bell_sleep(&bell, &ticket, 1, 1000000000);
    }
    tt_bell_leave(bell);
  }
}

static void waits(void)
{
  wait_on(&mem.bell[0]);
}

static void waits_on_second(void)
{
  wait_on(&mem.bell[1]);
}

static void nobody_is_left(void)
{
  ex_require(mem.bell[0].sleepers == 0 && mem.bell[1].sleepers == 0, "a sleeper is still counted");
}

static void one_publisher(void)
{
  rounds = 3, publishers = 1;
}

static void two_publishers(void)
{
  rounds = 2, publishers = 2;
}

#define SCENE(b, e) .memory = &mem, .size = sizeof mem, .begin = (b), .end = (e)

static const ex_scene scenes[] = {
    {.name = "one waits, one publishes three times",
     SCENE(one_publisher, nobody_is_left),
     .threads = {waits, publisher0}},
    {.name = "two wait on one bell", SCENE(one_publisher, nobody_is_left), .threads = {waits, waits, publisher0}},
    {.name = "one waits, two publish",
     SCENE(two_publishers, nobody_is_left),
     .threads = {waits, publisher0, publisher1}},
    {.name = "two wait on bells of their own, one fence for both",
     SCENE(one_publisher, nobody_is_left),
     .threads = {waits, waits_on_second, publisher_of_two}},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

static void no_wake_up_is_lost(void **state)
{
  (void)state;
  for (int i = 0; i < SCENES; i++) {
    assert_null(ex_explore(&scenes[i], NULL));
  }
}

static void every_access_is_needed(void **state)
{
  (void)state;
  static const char *const harmless[] = {
      NULL,
  };
  ex_mutants(scenes, SCENES, harmless);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_wake_up_is_lost), cmocka_unit_test(every_access_is_needed)};
  return cmocka_run_group_tests_name("bell_model", tests, NULL, NULL);
}
