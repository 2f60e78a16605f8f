// proxy_model_test.c: every interleaving of the threads that use a proxy, as src/proxy/proxy.c, progress.c and thread.c
// have it (explore.h): a launching thread posts operations, drives them or leaves them to the progress thread; the
// service thread makes the connection ready; the network brings what operations wait for. No operation stays where all
// sleep, and a proxy that goes is used by no thread any more.
//
// The operating system's calls are stubs: mutexes, the eventfd that wakes the thread, its set of descriptors, and time.
// A rest that has a limit ends at any time; others end by a ring or an event only, also those that end after a second
// in truth.
#include "explore_atomics.h"

#define IDLE_TICKS 0  // without operations the thread falls asleep at once,
#define RESTS_APART 0 // and ignores the networks as soon as it does not rest on them
#define STAMP_AFTER 0 // operations get no time

#include "base/param.h"
#include "base/result.h"
#include "device/device.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/proc.h"
#include "os/shm.h"
#include "os/thread.h"
#include "proxy/relay.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "explore.h"

enum { ITEMS = 2, NOW = 1000000000 };

// What threads share beside the proxy and the variables of the explored code.
static struct {
  tt_proxy_item items[ITEMS];
  _Atomic(tt_proxy_peer *) peers[1];
  _Atomic uint32_t driven; // 1: a thread is at the connection
  _Atomic uint32_t come;   // messages that the network has brought
  union {
    _Atomic uint16_t both;
    struct {
      _Atomic uint8_t rung, event; // wake_fd is readable; set_fd has an event
    };
  } fds;
  union {
    _Atomic uint16_t both;
    struct {
      _Atomic uint8_t network, sockets; // the network's descriptor is in set_fd; its sockets are in the network's set
    };
  } watched;
  _Atomic uint8_t start; // 1: a thread is started; 2: none is any more
  uint32_t ended;        // threads, but for the progress thread
} mem;

static void time_passes(void);

static inline void *zeroed(size_t size)
{
  return size == sizeof mem.peers ? memset(mem.peers, 0, size) : NULL; // there is no memory for further items
}

#define MUTEX(m) ((uint32_t *)(void *)(m))
#define pthread_mutex_lock(m) EX_CALL_UNTIL(MUTEX(m), 1, 1, "lock " #m)
#define pthread_mutex_unlock(m) EX_DO(EX_STORE, memory_order_release, MUTEX(m), 0, 0, "unlock " #m)
#define tt_bell_fence() atomic_thread_fence(memory_order_seq_cst) // each a site of its own
#define tt_now_ns() ((uint64_t)NOW)
#define tt_sleep_ns(ns) ((void)0)
#define tt_ring(fd) EX_CALL_SET(&mem.fds.both, 0x101, "ring")
#define tt_ring_clear(fd) EX_CALL_SET(&mem.fds.rung, 0, "clear")
#define tt_ring_wait(fd, ns) \
  ((ns) == TT_EVENTS_FOREVER ? EX_CALL_UNTIL(&mem.fds.rung, 0, 1, "wait for a ring") : time_passes())
#define tt_events_wait(fd, ns)                                                                      \
  ((ns) == TICK_NS ? (EX_CALL_SET(&mem.fds.event, 0, "wait for an event or a tick"), time_passes()) \
                   : EX_CALL_UNTIL(&mem.fds.event, 0, 0, "wait for an event"))
#define tt_events_add(set, fd, in) (EX_CALL_SET(&mem.watched.network, 1, "watch"), 0)
#define tt_events_remove(set, fd) EX_CALL_SET(&mem.watched.network, 0, "ignore")
#define tt_thread_start_detached(name, main, arg) (EX_CALL_SET(&mem.start, 1, "start"), ncclSuccess)
#define tt_proxy_service_start(p, env, where) ((void)(where), ncclSuccess)
#define tt_calloc(n, size) zeroed((n) * (size))
#define tt_free(p) ((void)(p))
#undef tt_fail
#define tt_fail(code, ...) (code)

#include "proxy/proxy.c" // NOLINT: the code that is explored

#include "proxy/progress.c" // NOLINT
#include "proxy/thread.c"   // NOLINT

static struct {
  _Alignas(TT_CACHE_LINE) tt_proxy places[TABLE_CHUNK];
  tt_proxy_peer peer;
  tt_port port;
  tt_rank_page page;
  watch watch;
} fix; // what changes of it is in `spans`

static tt_proxy *const proxy = &fix.places[0];
static tt_proxy_conn *const conn = &fix.peer.send;

#define FROM_TO(type, object, from, to)                                                \
  {                                                                                    \
    (char *)(object) + offsetof(type, from), offsetof(type, to) - offsetof(type, from) \
  }
#define ALL(variable)             \
  {                               \
    &(variable), sizeof(variable) \
  }

static const ex_span spans[] = {
    FROM_TO(tt_proxy, &fix.places[0], run, dropped),
    FROM_TO(tt_proxy, &fix.places[0], active, memory),
    FROM_TO(tt_proxy, &fix.places[0], posted, lone),
    ALL(fix.places[0].seen),
    FROM_TO(tt_proxy_conn, &fix.peer.send, proxy, text),
    FROM_TO(tt_proxy_conn, &fix.peer.send, attached, mrs),
    FROM_TO(tt_proxy_conn, &fix.peer.send, first, steps),
    ALL(table_lock),
    ALL(lock),
    ALL(count),
    ALL(free_places),
    ALL(state),
    ALL(attending),
    ALL(deserted),
    ALL(listening),
    ALL(nlistened),
    ALL(naps),
    ALL(deaf),
    {NULL, 0},
};

static void time_passes(void)
{
  proxy->seen.ns = 0;
}

// ---- the network: a message of an operation is done when the network says so

bool tt_proxy_send_round(tt_proxy_conn *c)
{
  uint32_t driven = atomic_exchange(&mem.driven, 1);
  ex_require(driven == 0, "two threads drive a connection");
  ex_require(c->comm != NULL, "a connection is used that is closed");
  uint32_t come = atomic_load(&mem.come);
  bool moves = c->first != NULL && tt_proxy_count(&proxy->finished) != come;
  if (moves) {
    ex_require(atomic_load_explicit(&c->first->busy, memory_order_relaxed), "an item is driven that is not posted");
    tt_proxy_retire(c);
  }
  atomic_store(&mem.driven, 0);
  return moves;
}

bool tt_proxy_recv_round(tt_proxy_conn *c)
{
  return c->first != NULL; // never: nothing is received
}

bool tt_proxy_recv_shut(tt_proxy_conn *c)
{
  return c->first == NULL; // nobody asks here
}

static ncclResult_t net_init(const tt_net_env *env, void **ctx)
{
  (void)env;
  *ctx = &fix;
  return ncclSuccess;
}

static ncclResult_t net_ignore(void *object)
{
  (void)object;
  return ncclSuccess;
}

static int net_watch(void *ctx, bool on)
{
  (void)ctx;
  atomic_store(&mem.watched.sockets, on);
  return 1;
}

static const tt_net_ops net = {.name = "net",
                               .init = net_init,
                               .finalize = net_ignore,
                               .close_send = net_ignore,
                               .close_recv = net_ignore,
                               .watch_events = net_watch};

static void frees_memory(void (*fn)(void *base, size_t size))
{
  (void)fn;
}

static const tt_device_ops device = {.on_free = frees_memory};

static uint32_t ops;

static void network(void)
{
  for (uint32_t i = 1; i <= ops; i++) {
    atomic_store(&mem.come, i);
    if (atomic_load(&mem.watched.both) == 0x101) {
      atomic_store(&mem.fds.event, 1);
    }
  }
  mem.ended++;
}

// ---- scenes

static void begin(uint32_t n, uint32_t items)
{
  ops = n;
  table[0] = fix.places;
  count = 1;
  wake_fd = set_fd = 0;
  tt_proxy_thread_tests.longest_ns = 0;
  fix.port.page = &fix.page;
  fix.port.row = &device;
  fix.watch = (watch){.key.size = 1, .net = &net};
  watched = NULL;
  tt_spans_add(&watched, &fix.watch.key);
  for (uint32_t i = 0; i < items; i++) {
    mem.items[i].after = &mem.items[(i + 1) % items];
    proxy->newest = &mem.items[0];
  }
  mem.peers[0] = &fix.peer;
  tt_proxy_conn_init(proxy, &fix.peer, conn, true);
  tt_proxy_conn_init(proxy, &fix.peer, &fix.peer.recv, false);
  conn->comm = &fix;
  conn->attached = true;
  conn->stage = TT_CONN_READY;
  conn->usable = true;
  conn->counts = true;
}

static void begin_alive(uint32_t n, uint32_t items)
{
  begin(n, items);
  proxy->life = TT_PROXY_LIVE;
  proxy->nranks = 1;
  proxy->port = &fix.port;
  proxy->net = &net;
  proxy->peers = mem.peers;
  proxy->append_every = 0; // so that it does not count rounds
  state = AWAKE;
}

static void begin_one(void)
{
  begin_alive(1, 1);
}

// The network has brought all before.
static void begin_early(void)
{
  begin_alive(1, 1);
  mem.come = 1;
}

static void begin_posted(uint32_t n, uint32_t items)
{
  begin_alive(n, items);
  mem.come = n;
  mem.items[0].conn = conn;
  mem.items[0].op.nsteps = 1;
  mem.items[0].busy = true;
  proxy->incoming = &mem.items[0];
  proxy->posted = 1;
}

static void begin_without_item(void)
{
  begin_posted(3, 1);
}

static void begin_with_item(void)
{
  begin_posted(2, 2);
}

// The thread sleeps on the network, and the connection is not there yet.
static void begin_unconnected(void)
{
  begin_early();
  state = POLLING;
  conn->comm = NULL;
  conn->stage = TT_CONN_NONE;
  conn->usable = false;
}

static void begin_without_proxy(void)
{
  begin(1, 1);
  mem.come = 1;
  watched = NULL;
  free_places = proxy;
}

static void progresses(void)
{
  progress_main(NULL);
}

static void post(void)
{
  while (tt_proxy_post(proxy, &(tt_proxy_op){.send = true, .nsteps = 1}) != ncclSuccess) {
  }
}

static void posts_and_kicks(void)
{
  for (uint32_t i = 0; i < ops; i++) {
    post();
    tt_proxy_kick(proxy, false);
  }
  mem.ended++;
}

static void drives_and_kicks(void)
{
  for (uint32_t i = 0; i < ops; i++) {
    post();
    tt_proxy_progress(proxy, true);
    tt_proxy_kick(proxy, false);
  }
  mem.ended++;
}

// One has been posted.
static void posts_others(void)
{
  for (uint32_t i = 1; i < ops; i++) {
    post();
    tt_proxy_kick(proxy, false);
  }
  mem.ended++;
}

static void attends(void)
{
  tt_proxy_attend(1);
  post();
  tt_proxy_progress(proxy, true);
  tt_proxy_attend(-1);
  mem.ended++;
}

static void makes_ready(void)
{
  tt_proxy_conn_ready(conn, &fix, false);
  mem.ended++;
}

static tt_proxy *create(void)
{
  static const tt_proxy_env env = {.nranks = 1, .port = &fix.port, .net = &net};
  tt_proxy *p = NULL;
  ex_require(tt_proxy_create(&env, &p, NULL) == ncclSuccess, "there is no proxy");
  return p;
}

static void await_end_of_thread(void)
{
  while (atomic_load(&state) != NONE) {
  }
  EX_CALL_SET(&mem.start, 2, "over");
}

// The thread may be at the operation meanwhile.
static void creates_posts_and_destroys(void)
{
  tt_proxy *p = create();
  p->peers[0] = &fix.peer;
  conn->comm = &fix;
  post();
  tt_proxy_kick(p, false);
  tt_proxy_destroy(p);
  await_end_of_thread();
}

// Between the two, the thread may end or not.
static void creates_and_destroys_twice(void)
{
  for (int i = 0; i < 2; i++) {
    tt_proxy *p = create();
    ex_require(atomic_load(&state) != NONE, "there is a proxy, and no thread");
    tt_proxy_destroy(p);
  }
  await_end_of_thread();
}

// Threads one after another, until there is none.
static void progresses_when_started(void)
{
  while (EX_DO(EX_UNTIL, memory_order_seq_cst, &mem.start, 0, 0, "started, or over") == 1) {
    progress_main(NULL);
  }
}

static bool is_done(void)
{
  return proxy->finished == ops && mem.ended != 0;
}

static void goes_on(void)
{
  ex_require(false, "an operation is left, and all sleep");
}

static void thread_ends(void)
{
  ex_require(state == NONE && attending == 0, "the thread has not ended");
}

static void thread_comes(void)
{
  ex_require(proxy->finished == proxy->posted || mem.fds.rung, "an operation is left, and the thread is not woken");
}

#define SCENE(b, e) .memory = &mem, .size = sizeof mem, .spans = spans, .begin = (b), .end = (e), .hides = true

static const ex_scene scenes[] = {
    {.name = "a connection comes up",
     SCENE(begin_unconnected, thread_comes),
     .threads = {drives_and_kicks, makes_ready}},
    {.name = "a connection comes up beside a kick",
     SCENE(begin_unconnected, thread_comes),
     .threads = {posts_and_kicks, makes_ready}},
    {.name = "post and kick", SCENE(begin_early, goes_on), .threads = {posts_and_kicks, progresses}, .beyond = is_done},
    {.name = "post and kick, network",
     SCENE(begin_one, goes_on),
     .threads = {posts_and_kicks, progresses, network},
     .beyond = is_done},
    {.name = "another operation comes meanwhile",
     SCENE(begin_with_item, goes_on),
     .threads = {posts_others, progresses},
     .beyond = is_done},
    {.name = "attend", SCENE(begin_early, goes_on), .threads = {attends, progresses}, .beyond = is_done},
    {.name = "a proxy goes with an operation",
     SCENE(begin_without_proxy, thread_ends),
     .threads = {creates_posts_and_destroys, progresses_when_started}},
    {.name = "a proxy comes and goes, twice",
     SCENE(begin_without_proxy, thread_ends),
     .threads = {creates_and_destroys_twice, progresses_when_started}},
    {.name = "an item comes back",
     SCENE(begin_without_item, goes_on),
     .threads = {posts_others, progresses},
     .beyond = is_done},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

static void no_operation_stays(void **unused)
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
      // the one that drives: otherwise the thread stands back a tick longer
      "tt_proxy_progress: store &p->driven omitted",
      "tt_proxy_progress: store &p->left omitted",
      "tt_proxy_kick: store &p->left omitted",
      "tt_proxy_attend: add &attending omitted",
      "tt_proxy_attend: add &attending weakened",
      "tt_proxy_attend: store &deserted omitted",
      // nobody sleeps on the rank's bell here
      "round_once: fence omitted",
      // costs looks, rings or time
      "look_once:",
      "sleep_as:",
      "rest: clear omitted",
      "rest: exchange &state omitted",
      "rest: exchange &state weakened",
      "wake_thread: compare and exchange &state omitted",
      "tt_proxy_items_drop: store &c->proxy->unsent omitted",
      // another fence or locked access is beside it
      "rest: fence omitted",
      "tt_proxy_attend: fence omitted",
      "rest: store &state weakened",
      "tt_proxy_run_release: exchange &p->run weakened",
      "tt_proxy_thread_start: store &state weakened",
      "tt_proxy_unseize: store &p->run weakened",
      "thread_has_ended: compare and exchange &state weakened",
      // networks that come and go are not tried here, nor two that create proxies
      "listen_to_networks: lock &lock omitted",
      "ignore_networks: lock &lock omitted",
      "stop_listening_to: ignore omitted",
      "tt_proxy_thread_watch: lock &lock omitted",
      "tt_proxy_thread_unwatch: lock &lock omitted",
      "tt_proxy_create: lock &table_lock omitted",
      "tt_proxy_bury: lock &table_lock omitted",
      "proxy_init:",
      NULL,
  };
  ex_mutants(scenes, SCENES, harmless);
}

int main(void)
{
  tt_params_get();
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_operation_stays), cmocka_unit_test(every_access_is_needed)};
  return cmocka_run_group_tests_name("proxy_model", tests, NULL, NULL);
}
