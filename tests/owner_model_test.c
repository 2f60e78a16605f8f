// owner_model_test.c: every interleaving of a writer and an owner that stops, as src/device/owner.h and port.c have it
// (explore.h).
//
// The writer writes two pieces into the owner's output, each under its name. Meanwhile the owner's port is stopped, and
// somebody waits until nobody writes and gives the output back to its user: the same thread (ncclCommAbort), or another
// one (a waiting thread that runs the failed plan). From then on nothing may be written, and nobody may sleep for ever,
// though the writer may die at any step.
#include "explore_atomics.h"

#include "os/proc.h"
#define tt_proc_holds(life, cookie) (!ex_is_dead())

#include "explore.h"

#include "device/host/port.c" // NOLINT: the code that is explored
#include "os/bell.c"          // NOLINT

#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>

enum { PIECES = 2, WRITER_RANK = 0, OWNER_RANK = 1 };

static struct {
  tt_rank_page writer, owner;
  tt_port port; // the owner's
  tt_link link;
  tt_link *links[2];
  _Atomic uint32_t output; // pieces that were written into it
  _Atomic uint32_t given;  // 1 + what was in it when it was given back
  ncclResult_t seen[2];    // by those that stop the port
} mem;

static void begin(void)
{
  mem.link = (tt_link){.peer = WRITER_RANK, .page = &mem.writer, .watched = true};
  mem.links[WRITER_RANK] = &mem.link;
  mem.port.rank = OWNER_RANK;
  mem.port.nranks = 2;
  mem.port.page = &mem.owner;
  mem.port.links = mem.links;
}

// As in step.c: begin_writing, a copy, end_writing.
static void writer(void)
{
  for (uint32_t i = 1; i <= PIECES; i++) {
    tt_writes_begin(&mem.writer, OWNER_RANK + 1);
    bool stopped = tt_page_stopped(&mem.owner);
    if (!stopped) {
      atomic_store_explicit(&mem.output, i, memory_order_relaxed);
    }
    tt_writes_end(&mem.writer);
    tt_writes_ring(&mem.owner);
    if (stopped) {
      return;
    }
  }
}

static void give_back(void)
{
  tt_port_await_writers(&mem.port);
  uint32_t written = atomic_load_explicit(&mem.output, memory_order_relaxed);
  atomic_store(&mem.given, written + 1);
}

static void stop_and_wait(void)
{
  tt_port_stop(&mem.port, ncclSystemError);
  give_back();
}

static void stop(void)
{
  tt_port_stop(&mem.port, ncclSystemError);
}

// A thread that looks once whether the port is stopped: if not, there is nothing to give back.
static void wait_if_stopped(void)
{
  if (tt_port_status(&mem.port) != ncclSuccess) {
    give_back();
  }
}

// Two threads stop the port: the second one changes nothing.
static void stop_and_look(int which, ncclResult_t code)
{
  tt_port_stop(&mem.port, code);
  mem.seen[which] = tt_port_status(&mem.port);
}

static void stop0(void)
{
  stop_and_look(0, ncclSystemError);
}

static void stop1(void)
{
  stop_and_look(1, ncclRemoteError);
}

static void one_code_counts(void)
{
  ex_require(mem.seen[0] != ncclSuccess && mem.seen[0] == mem.seen[1] && mem.port.stop == (uint32_t)mem.seen[0],
             "the code has changed");
  ex_require(mem.owner.state == TT_RANK_FAILED, "peers are not told");
}

static void nothing_was_written_late(void)
{
  ex_require(mem.given == 0 || mem.given == mem.output + 1, "something was written after the output was given back");
  ex_require(mem.owner.bell.sleepers == 0, "a sleeper is still counted");
}

#define SCENE(b, e) .memory = &mem, .size = sizeof mem, .begin = (b), .end = (e)

static const ex_scene scenes[] = {
    {.name = "ncclCommAbort: who stops the port waits",
     SCENE(begin, nothing_was_written_late),
     .threads = {writer, stop_and_wait}},
    {.name = "one thread stops the port, another waits",
     SCENE(begin, nothing_was_written_late),
     .threads = {writer, stop, wait_if_stopped}},
    {.name = "who stops the port waits, and the writer may die",
     SCENE(begin, nothing_was_written_late),
     .threads = {writer, stop_and_wait},
     .mortal = true},
    {.name = "another waits, and the writer may die",
     SCENE(begin, nothing_was_written_late),
     .threads = {writer, stop, wait_if_stopped},
     .mortal = true},
    {.name = "two threads stop the port", SCENE(begin, one_code_counts), .threads = {stop0, stop1}},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

static void nobody_writes_late_or_waits_for_ever(void **state)
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
      "tt_port_writer: store &port->unwritten omitted", // saves looks
      "tt_bell_announce: add &b->sleepers weakened",    // of one sleeper; of several: bell_model_test.c
      "tt_bell_leave: subtract &b->sleepers weakened",  "tt_bell_wake: futex weakened", NULL,
  };
  ex_mutants(scenes, SCENES, harmless);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_writes_late_or_waits_for_ever),
                                     cmocka_unit_test(every_access_is_needed)};
  return cmocka_run_group_tests_name("owner_model", tests, NULL, NULL);
}
