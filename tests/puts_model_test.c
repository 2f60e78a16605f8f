// puts_model_test.c: every interleaving of the threads that one-sided operations over the network use, as
// src/device/one_sided.c, rma_link.c and src/proxy/puts.c have it (explore.h): who launches, who puts, and both ranks'
// holders of the run flag. Rank 0 puts into rank 1's window.
//
// The two FIFOs of a pair are one here: the network moves nothing, and tells the other rank's thread that something has
// come. When a thread goes to rest is proxy_model_test's: here one that was kicked, or that the network woke, makes a
// round. A FIFO has two slots.
#include "explore_atomics.h"

#include "base/result.h"
#include "device/rma_link.h"
#include "os/clock.h"
#include "os/shm.h"
#include "proxy/puts.h"

#include <setjmp.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "explore.h"

enum { SLOTS = 2, SLOT = 2 * sizeof(tt_slot), NOTES = 4, PUT_BYTES = 65 };

// What threads share beside the explored code's variables.
static struct {
  char fifo[2][SLOTS * SLOT]; // what rank 0 sends, what rank 1 sends
  _Atomic uint32_t head[2];
  _Atomic uint32_t rung[2]; // a rank's thread shall make a round
  _Atomic uint32_t stopped; // rank 0's put was refused
  _Atomic uint32_t ended;   // threads
  _Atomic uint32_t given;   // 1 + what rank 1's window held when it was the user's again
  _Atomic uint32_t checked; // messages of rank 0 after which rank 1's window was looked at
  unsigned char window[80]; // rank 1's
} mem;

#define MUTEX(m) ((uint32_t *)(void *)(m))
#define pthread_mutex_lock(m) EX_CALL_UNTIL(MUTEX(m), 1, 1, "lock " #m)
#define pthread_mutex_trylock(m) EX_DO(EX_CAS, memory_order_seq_cst, MUTEX(m), 1, 0, "try to lock " #m)
#define pthread_mutex_unlock(m) EX_DO(EX_STORE, memory_order_release, MUTEX(m), 0, 0, "unlock " #m)
#define tt_bell_fence() atomic_thread_fence(memory_order_seq_cst)
#define tt_bell_fence_after_rmw() ((void)0)
#define tt_now_ns() ((uint64_t)0)
#define tt_sleep_ns(ns) ((void)0)
#undef tt_fail
#define tt_fail(code, ...) fails(code, __VA_ARGS__)
#define tt_port_stop(port, res) ((void)(port), (void)(res), EX_CALL_SET(&mem.stopped, 1, "stop"))
#define tt_proxy_conn_usable(c) true
#define tt_proxy_recv_round(c) false
#define tt_proxy_send_round(c) wakes_other(c)
#define TT_RMA_SLOT_BYTES 32u // two notes

static bool wakes_other(const tt_proxy_conn *c);

// A copy into the window is a step: other threads may be first.
static inline void *copies(void *to, const void *from, size_t n)
{
  if ((char *)to >= (char *)mem.window && (char *)to < (char *)mem.window + sizeof mem.window) {
    (void)atomic_load_explicit(&mem.given, memory_order_relaxed);
  }
  return __builtin_memcpy(to, from, n);
}
#define memcpy(to, from, n) copies(to, from, n)

static inline ncclResult_t fails(ncclResult_t code, ...)
{
  return code;
}

#include "device/one_sided.c" // NOLINT: the code that is explored
#include "device/rma_link.c"  // NOLINT
#include "proxy/puts.c"       // NOLINT

static struct {
  tt_rma rma[2];
  tt_rma_peer peers[2][2];
  tt_board_copy copies[2];
  tt_board boards[2];
  tt_signal_row own[2];
  uint64_t known[2][NOTES];
  tt_proxy proxies[2];
  tt_proxy_puts puts[2];
  tt_port ports[2];
  tt_rank_page pages[2];
  _Atomic uint64_t seen[2]; // messages of which the other rank's thread has been told
} fix;                      // what changes of it is in `spans`

#define PART(object, from, bytes) \
  {                               \
    &(object).from, (bytes)       \
  }
#define OF_RANK(r)                                                                                                  \
  PART(fix.rma[r], changes, sizeof(uint64_t)), PART(fix.boards[r], opened, sizeof(uint64_t)),                       \
      PART(fix.boards[r], windows[1], sizeof(tt_window_note)), PART(fix.copies[r], board.opened, sizeof(uint64_t)), \
      PART(fix.copies[r], board.windows[1], sizeof(tt_window_note)),                                                \
      PART(fix.copies[r], row.writing, sizeof(uint64_t)), PART(fix.copies[r], row.count[0], sizeof(uint64_t)),      \
      PART(fix, known[r], sizeof fix.known[r]), PART(fix.puts[r], link, sizeof(tt_rma_link)),                       \
      PART(fix.puts[r], recv, sizeof(tt_fifo)), PART(fix.puts[r], deaf, sizeof(bool)),                              \
      PART(fix, seen[r], sizeof(uint64_t))

static const ex_span spans[] = {OF_RANK(0), OF_RANK(1), {NULL, 0}};

static bool wakes_other(const tt_proxy_conn *c)
{
  int r = c == &fix.puts[1].peer.send;
  uint32_t written = atomic_load_explicit(&fix.puts[r].link.written, memory_order_acquire);
  if (written == fix.seen[r]) {
    return false;
  }
  fix.seen[r] = written;
  EX_CALL_SET(&mem.rung[1 - r], 1, "comes");
  return true;
}

static bool moves_nothing(void *self, bool insist)
{
  (void)insist;
  return self == NULL;
}

static void kicks(void *self, bool lazily)
{
  (void)lazily;
  EX_CALL_SET(&mem.rung[self == &fix.proxies[1]], 1, "kick");
}

static const tt_mover mover = {.progress = moves_nothing, .kick = kicks};

static tt_fifo fifo_of(int r)
{
  return (tt_fifo){.slots = mem.fifo[r],
                   .data = mem.fifo[r] + sizeof(tt_slot),
                   .head = &mem.head[r],
                   .stride = SLOT,
                   .data_stride = SLOT,
                   .mask = SLOTS - 1,
                   .capacity = sizeof(tt_slot)};
}

static void begin_rank(int r)
{
  fix.ports[r] =
      (tt_port){.rank = r, .nranks = 2, .page = &fix.pages[r], .mover = &mover, .mover_self = &fix.proxies[r]};
  fix.peers[r][r] =
      (tt_rma_peer){.board = &fix.boards[r], .out = &fix.own[r], .in = &fix.own[r], .page = &fix.pages[r]};
  fix.peers[r][1 - r] = (tt_rma_peer){
      .networked = true, .board = &fix.copies[r].board, .in = &fix.copies[r].row, .page = &fix.pages[1 - r]};
  fix.rma[r].port = &fix.ports[r];
  fix.rma[r].contexts = fix.rma[r].signals = 1;
  fix.rma[r].board = &fix.boards[r];
  fix.rma[r].peers = fix.peers[r];
  fix.proxies[r].port = &fix.ports[r];
  fix.proxies[r].puts.rma = &fix.rma[r];
  fix.proxies[r].puts.list = &fix.puts[r];
  fix.puts[r].link.peer = 1 - r;
  fix.puts[r].link.known = fix.known[r];
  fix.puts[r].link.send = fifo_of(r);
  fix.puts[r].recv = fifo_of(1 - r);
  fix.puts[r].peer.send.first = fix.puts[r].peer.recv.first = &fix.puts[r].items[0];
}

static void begin(void)
{
  begin_rank(0);
  begin_rank(1);
}

// Rank 1 has a window, of which rank 0 knows.
static void begin_open(void)
{
  begin();
  const tt_window_note note = {.base = (uintptr_t)mem.window, .size = sizeof mem.window};
  fix.boards[1].windows[1] = note;
  fix.copies[0].board.windows[1] = note;
  fix.boards[1].windows[1].number = fix.copies[0].board.windows[1].number = 1;
  fix.boards[1].opened = fix.copies[0].board.opened = 1;
  fix.rma[1].changes = fix.puts[1].link.sent_changes = 1;
  fix.known[1][1] = 1;
}

// ---- threads

static uint32_t in_window(void)
{
  return (uint32_t)mem.window[0] + mem.window[32] + mem.window[64];
}

static void rounds_of(int r)
{
  for (;;) {
    EX_CALL_UNTIL(&mem.rung[r], 0, 0, "rest");
    tt_puts_round(&fix.proxies[r]);
    uint32_t given = atomic_load_explicit(&mem.given, memory_order_acquire);
    ex_require(r == 0 || given == 0 || given == 1 + in_window(), "a window is written that is the user's again");
    if (r == 1) {
      atomic_store_explicit(&mem.checked, fix.puts[1].recv.next, memory_order_release);
    }
  }
}

static void rounds0(void)
{
  rounds_of(0);
}

static void rounds1(void)
{
  rounds_of(1);
}

// As batch_run of device/host/one_sided.c: the thread is kicked after what was written.
static void puts_of(size_t bytes)
{
  static const char data[PUT_BYTES] = {[0] = 1, [32] = 2, [64] = 4}; // a byte of each message
  tt_rma_op op = {.peer = 1, .window = 1, .from = data, .bytes = bytes};
  while (!op.passed) {
    tt_rma_link_put(&fix.rma[0], &fix.puts[0].link, &op);
    kicks(&fix.proxies[0], false);
  }
  atomic_fetch_add(&mem.ended, 1);
}

static void puts_bytes(void)
{
  puts_of(PUT_BYTES);
}

static void puts_byte(void)
{
  puts_of(1);
}

static void waits_for_signal(void)
{
  while (atomic_load_explicit(&fix.copies[1].row.count[0], memory_order_acquire) == 0) {
  }
  ex_require(in_window() == 7, "a signal comes before its data");
  atomic_fetch_add(&mem.ended, 1);
}

static void closes_window(void)
{
  tt_board_close(&fix.rma[1], 1);
  atomic_store(&mem.given, 1 + in_window());
  atomic_fetch_add(&mem.ended, 1);
}

static void opens_window(void)
{
  const tt_window_note note = {.base = 1, .size = 1};
  tt_board_open(&fix.rma[0], &note, 1);
  atomic_fetch_add(&mem.ended, 1);
}

// ---- scenes

static bool is_complete(void)
{
  return mem.ended == 2;
}

// All that rank 0 has sent was looked at by rank 1; the put is there, or refused, which rank 0 has learnt.
static bool is_decided(void)
{
  return mem.ended == 2 && (fix.copies[1].row.count[0] == 1 || mem.stopped == 1) && mem.checked == mem.head[0];
}

static bool is_told(void)
{
  return mem.ended == 2 && fix.copies[1].board.opened == 1 && fix.copies[1].board.windows[1].number == 1;
}

static void goes_on(void)
{
  ex_require(false, "something is left, and all rest");
}

#define SCENE(b, done) \
  .memory = &mem, .size = sizeof mem, .spans = spans, .begin = (b), .end = goes_on, .beyond = (done), .hides = true

static const ex_scene scenes[] = {
    {.name = "a signal stands behind its data",
     SCENE(begin_open, is_complete),
     .threads = {puts_bytes, rounds0, rounds1, waits_for_signal}},
    {.name = "a window is closed while a put comes",
     SCENE(begin_open, is_decided),
     .threads = {puts_byte, rounds0, rounds1, closes_window}},
    {.name = "a window is opened while another thread puts",
     SCENE(begin_open, is_told),
     .threads = {puts_byte, rounds0, rounds1, opens_window}},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

static void puts_arrive_or_are_refused(void **unused)
{
  (void)unused;
  for (int i = 0; i < SCENES; i++) {
    assert_null(ex_explore(&scenes[i], NULL));
  }
}

static void every_access_is_needed(void **unused)
{
  (void)unused;
  static const char *const harmless[] = {
      // nobody sleeps on the ranks' bells here
      "tt_puts_round: fence omitted",
      "tt_board_open: fence omitted",
      // a fence or locked access comes before others look
      "board_changed: add &rma->changes weakened",
      // is seen a little later
      "take_payload_of: subtract &p->in->writing weakened",
      "take_put: add &rma->peers[l->peer].in->count[h->ctx * rma->signals + h->sig] weakened",
      // who has been refused once is not interested in the second time
      "tt_rma_link_tell: store &l->refuses omitted",
      NULL,
  };
  ex_mutants(scenes, SCENES, harmless);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(puts_arrive_or_are_refused),
                                     cmocka_unit_test(every_access_is_needed)};
  return cmocka_run_group_tests_name("puts_model", tests, NULL, NULL);
}
