// run_flag_model_test.c: every interleaving of threads that run one stream, as src/device/host/stream.c has it
// (explore.h): an entry that waits for a publisher completes, whichever thread holds the run flag, and whichever sleeps
// meanwhile.
#include "explore_atomics.h"

#include "device/host/stream.h"
#define tt_worker_kick() ((void)0) // the library's own worker sleeps: those who wait have to manage without

#include "device/host/stream.c" // NOLINT: the code that is explored
#include "os/bell.c"            // NOLINT

#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>

#include "explore.h"

enum { BYTES = 1000 };

// An entry that is complete when `data` has come to its goal.
typedef struct entry {
  tt_work work; // first member
  uint32_t goal;
} entry;

static struct {
  tt_stream stream;
  tt_bell bell; // that the publisher rings
  _Atomic uint32_t data;
  entry entries[2];
  uint32_t done;
} mem;

static tt_run entry_run(tt_work *w, size_t *budget, ncclResult_t *result)
{
  (void)budget, (void)result;
  return atomic_load_explicit(&mem.data, memory_order_acquire) < ((entry *)w)->goal ? TT_RUN_BLOCKED : TT_RUN_DONE;
}

static void entry_done(tt_work *w)
{
  (void)w;
  mem.done++;
}

static tt_bell *entry_bell(tt_work *w)
{
  (void)w;
  return &mem.bell;
}

static const tt_work_ops ops = {.name = "entry", .run = entry_run, .done = entry_done, .bell = entry_bell};

static uint32_t entries; // of a scene; the publisher has something for each

// The entries wait already.
static void begin(uint32_t n)
{
  entries = n;
  mem.stream.queue_end = &mem.stream.queue;
  mem.stream.pending = n;
  mem.stream.state = TT_STREAM_LIVE;
  mem.stream.listed = true; // the list of busy streams belongs to the process: it is no part of a scene's memory
  for (uint32_t i = 0; i < n; i++) {
    mem.entries[i] = (entry){.work = {.ops = &ops}, .goal = i + 1};
    *mem.stream.queue_end = &mem.entries[i].work;
    mem.stream.queue_end = &mem.entries[i].work.next;
  }
}

static void begin_one(void)
{
  begin(1);
}

// The stream is empty: threads push entries themselves, which need nothing from a publisher.
static void begin_empty(void)
{
  begin(2);
  mem.stream.queue = NULL;
  mem.stream.queue_end = &mem.stream.queue;
  mem.stream.pending = 0;
  mem.entries[0].goal = mem.entries[1].goal = 0;
}

static void publishes(void)
{
  for (uint32_t i = 1; i <= entries; i++) {
    atomic_store_explicit(&mem.data, i, memory_order_release);
    tt_bell_fence();
    tt_bell_ring(&mem.bell);
  }
}

static void waits(void)
{
  tt_bell *bell = &mem.bell;
  while (!tt_stream_idle(&mem.stream)) {
    uint32_t ticket = tt_bell_announce(bell);
    tt_stream_progress(&mem.stream, BYTES, true);
    if (!tt_stream_idle(&mem.stream)) {
      tt_bell_sleep(&bell, &ticket, 1, 1000000000);
    }
    tt_bell_leave(bell);
  }
}

// Only tries: is not announced while it holds the run flag, so a publisher who finds no sleeper leaves it alone.
static void helps(void)
{
  tt_stream_progress(&mem.stream, BYTES, true);
  tt_stream_progress(&mem.stream, BYTES, false);
}

static void pushes_and_waits(void)
{
  tt_stream_push(&mem.stream, &mem.entries[0].work);
  waits();
}

static void pushes(void)
{
  tt_stream_push(&mem.stream, &mem.entries[1].work);
}

static void all_is_done(void)
{
  ex_require(mem.done == entries && mem.stream.pending == 0, "an entry is not complete");
  ex_require(mem.stream.run == 0, "the run flag is still taken");
  ex_require(mem.bell.sleepers == 0, "a sleeper is still counted");
}

static void all_is_done_but_what_was_pushed_late(void)
{
  ex_require(mem.done + mem.stream.pending == entries && mem.stream.run == 0, "an entry is lost");
}

// Two that wait can wake each other as often as they like, while the publisher does nothing.
static bool is_often(void)
{
  return mem.bell.seq > 2;
}

#define SCENE(b, e) .memory = &mem, .size = sizeof mem, .begin = (b), .end = (e), .beyond = is_often

static const ex_scene scenes[] = {
    {.name = "one pushes and waits, one pushes",
     SCENE(begin_empty, all_is_done_but_what_was_pushed_late),
     .threads = {pushes_and_waits, pushes}},
    {.name = "one waits, one helps", SCENE(begin_one, all_is_done), .threads = {waits, helps, publishes}},
    {.name = "two wait", SCENE(begin_one, all_is_done), .threads = {waits, waits, publishes}},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

static void every_entry_completes(void **state)
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
      "show_bell: store &s->bell omitted",               // those who wait here know the bell
      "stream_finish: store &s->bell omitted",           // the same
      "run_queue: store &s->takes_us omitted",           // a hint
      "tt_stream_push: store &s->pushes omitted",        // a count that may be lost
      "stream_release_run: store &s->again omitted",     // tt_stream_pass's, which is not tried here
      "stream_release_run: exchange &s->check omitted",  // nobody asks for a check here
      "stream_release_run: exchange &s->check weakened", // the same
      "stream_release_run: exchange &s->run weakened",   // the next exchange keeps the look behind it
      "tt_bell_wake: futex weakened",                    // a thread that is woken wakes the other
      NULL,
  };
  ex_mutants(scenes, SCENES, harmless);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_entry_completes), cmocka_unit_test(every_access_is_needed)};
  return cmocka_run_group_tests_name("run_flag_model", tests, NULL, NULL);
}
