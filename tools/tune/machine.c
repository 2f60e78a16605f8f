// machine.c: measures this machine's figures (figures/figures.h): two processes, a core each, a tenth of a second for
// all.
//
// Both go through the same list, several times. Of each figure the best counts, since whatever else runs only makes it
// slower, once it came out so twice.
#define _GNU_SOURCE // cpu_set_t
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "device/reduce.h"
#include "figures/figures.h"
#include "os/bell.h"
#include "os/clock.h"
#include "os/proc.h"
#include "tools/sockets.h"
#include "tune.h"

#define USUAL_NS 60000000ull // so long, or so many passes, where all figures come out the same twice;
#define USUAL_PASSES 12
#define MOST_NS 1000000000ull // where they do not, something else runs, and measuring goes on for so long at most
#define LEAST_PASSES 3
#define PASS_ROUNDS 3
#define AGREE 1.15                // two times that differ by less are the same
#define SLEEP_NS 10000000ull      // longest sleep for a ring
#define PATIENCE_NS 5000000000ull // for the other process
#define PINGS 200
#define CALLS 100
#define SWITCHES 40
#define WAYS 20
#define CALL_WAYS 10
#define SLOTS 32
#define PASS ((size_t)16 << 10) // bytes handed over at once, through slots of as much memory as a connection has
#define CALL ((size_t)64 << 10) // copied by the kernel at once
#define ADD ((size_t)64 << 10)  // of each of three buffers, in a core's caches
#define ROOM ((size_t)1 << 20)  // of buffers, a third of it
#define NET ((size_t)32 << 10)  // sent at once: what the kernel takes without waiting
#define NET_TIMES 8

// What the two processes share.
typedef struct board {
  _Atomic int arrived, round, more;
  _Atomic uint32_t turn;
  _Atomic int refused; // the kernel does not let one process read the other
  uint64_t ns[2];
  tt_bell bell[2];
  struct {
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t n;
  } sent[2];
  _Alignas(4096) char slots[2][SLOTS][PASS];
} board;

typedef struct side {
  board *b;
  int rank;
  int fd[2];     // both ends of a connection; -1: there is none
  pid_t peer;    // the other
  char *mine;    // 3 * ROOM bytes; at the same address in both processes
  bool lost;     // the other one is gone, or stuck
  bool two;      // each has a core
  uint32_t slot; // the next one
  cpu_set_t may; // the cores they may use
} side;

// Waits until *word is no longer `old`. The peer has a core of its own; where it has none it gets this one now and
// then.
static void await_change(side *s, const _Atomic int *word, int old)
{
  uint64_t end = 0;
  for (unsigned look = 1; !s->lost && atomic_load_explicit(word, memory_order_acquire) == old; look++) {
    if (look % 1024 != 0) {
      continue;
    }
    sched_yield();
    uint64_t now = tt_now_ns();
    end = end == 0 ? now + PATIENCE_NS : end;
    s->lost = now > end;
  }
}

static void meet(side *s)
{
  int round = atomic_load(&s->b->round);
  if (atomic_fetch_add(&s->b->arrived, 1) == 1) {
    atomic_store(&s->b->arrived, 0);
    atomic_store(&s->b->round, round + 1);
  } else {
    await_change(s, &s->b->round, round);
  }
}

// Waits for the turn of that number.
static void await_turn(side *s, uint32_t turn)
{
  for (unsigned look = 1; atomic_load_explicit(&s->b->turn, memory_order_acquire) != turn; look++) {
    if (look % (1u << 16) == 0) { // about a millisecond: something else has the peer's core
      sched_yield();
      s->lost |= look >= 1u << 28;
      if (s->lost) {
        return;
      }
    }
  }
}

// Waits until the other has sent so many.
static void await_sent(side *s, uint32_t n)
{
  for (unsigned look = 1; atomic_load_explicit(&s->b->sent[1 - s->rank].n, memory_order_acquire) < n; look++) {
    if (look % (1u << 16) == 0) {
      sched_yield();
      s->lost |= look >= 1u << 28;
      if (s->lost) {
        return;
      }
    }
  }
}

static void end_turn(side *s, uint32_t turn)
{
  atomic_store_explicit(&s->b->turn, turn + 1, memory_order_release);
}

// ---- one round each: nanoseconds of what is meant, on the rank that knows them, else 0 ----

typedef uint64_t round_fn(side *s);

static uint64_t line_round(side *s)
{
  uint64_t start = tt_now_ns();
  for (uint32_t i = 0; i < PINGS && !s->lost; i++) {
    await_turn(s, 2 * i + (uint32_t)s->rank);
    end_turn(s, 2 * i + (uint32_t)s->rank);
  }
  return tt_now_ns() - start;
}

// Both send at once, as ranks do: each writes a piece into its next slot, and copies the other's out of its.
static uint64_t pass_round(side *s)
{
  uint64_t start = tt_now_ns();
  char(*mine)[PASS] = s->b->slots[s->rank], (*theirs)[PASS] = s->b->slots[1 - s->rank];
  for (uint32_t i = 0; i < WAYS && !s->lost; i++) {
    memcpy(mine[s->slot % SLOTS], s->mine, PASS);
    atomic_store_explicit(&s->b->sent[s->rank].n, i + 1, memory_order_release);
    await_sent(s, i + 1);
    memcpy(s->mine + PASS, theirs[s->slot++ % SLOTS], PASS);
  }
  return tt_now_ns() - start;
}

static void add(char *base, size_t bytes)
{
  const tt_redop op = {.type = ncclFloat32, .kind = TT_RED_SUM};
  const void *from[2] = {base, base + bytes};
  void *to = base + 2 * bytes;
  tt_reduce(&op, 1, &to, 2, from, NULL, bytes / sizeof(float), 0);
}

static uint64_t add_round(side *s)
{
  if (s->rank != 0) {
    return 0;
  }
  add(s->mine, ADD); // into the caches
  uint64_t start = tt_now_ns();
  for (int i = 0; i < WAYS; i++) {
    add(s->mine, ADD);
  }
  return tt_now_ns() - start;
}

static uint64_t read_peer(side *s, size_t bytes, int times)
{
  uint64_t start = tt_now_ns();
  for (int i = 0; i < times && !s->b->refused; i++) {
    s->b->refused = tt_proc_copy(s->peer, s->mine + ROOM, (uint64_t)(uintptr_t)s->mine, bytes, false) != 0;
  }
  return tt_now_ns() - start;
}

static uint64_t call_start_round(side *s)
{
  return s->rank == 0 ? read_peer(s, 8, CALLS) : 0;
}

// Both read at once what the other has just written.
static uint64_t call_round(side *s)
{
  uint64_t ns = 0;
  for (uint32_t i = 0; i < CALL_WAYS && !s->lost; i++) {
    memset(s->mine, (int)i, CALL);
    atomic_store_explicit(&s->b->sent[s->rank].n, 2 * i + 1, memory_order_release);
    await_sent(s, 2 * i + 1);
    ns += read_peer(s, CALL, 1);
    atomic_store_explicit(&s->b->sent[s->rank].n, 2 * i + 2, memory_order_release);
    await_sent(s, 2 * i + 2);
  }
  return ns;
}

// Both on one core: each wakes the other and sleeps.
static uint64_t switch_round(side *s)
{
  uint64_t start = tt_now_ns();
  for (uint32_t i = 0; i < SWITCHES && !s->lost; i++) {
    tt_bell *own = &s->b->bell[s->rank];
    while (atomic_load(&s->b->turn) != 2 * i + (uint32_t)s->rank && !s->lost) {
      uint32_t ticket = tt_bell_announce(own);
      if (atomic_load(&s->b->turn) != 2 * i + (uint32_t)s->rank) {
        tt_bell_sleep(&own, &ticket, 1, SLEEP_NS);
      }
      tt_bell_leave(own);
      s->lost |= tt_now_ns() - start > PATIENCE_NS;
    }
    end_turn(s, 2 * i + (uint32_t)s->rank);
    tt_bell_fence();
    tt_bell_ring(&s->b->bell[1 - s->rank]);
  }
  return tt_now_ns() - start;
}

// Receives all of it, looking until it is there.
static void take(side *s, int fd, void *data, size_t size)
{
  uint64_t end = tt_now_ns() + PATIENCE_NS;
  for (size_t at = 0; at < size && !s->lost;) {
    ssize_t n = tt_sock_recv(fd, (char *)data + at, size - at);
    at += n > 0 ? (size_t)n : 0;
    s->lost |= (n < 0 && n != -EAGAIN) || (n == -EAGAIN && tt_now_ns() > end);
  }
}

static void give(side *s, int fd, const void *data, size_t size)
{
  uint64_t end = tt_now_ns() + PATIENCE_NS;
  for (size_t at = 0; at < size && !s->lost;) {
    ssize_t n = tt_sock_send(fd, (const char *)data + at, size - at);
    at += n > 0 ? (size_t)n : 0;
    s->lost |= (n < 0 && n != -EAGAIN) || (n == -EAGAIN && tt_now_ns() > end);
  }
}

static uint64_t net_way_round(side *s)
{
  uint64_t start = tt_now_ns(), word = 0;
  for (int i = 0; i < WAYS && !s->lost; i++) {
    if (s->rank == 0) {
      give(s, s->fd[0], &word, sizeof word);
    }
    take(s, s->fd[s->rank], &word, sizeof word);
    if (s->rank == 1) {
      give(s, s->fd[1], &word, sizeof word);
    }
  }
  return tt_now_ns() - start;
}

static uint64_t net_bytes(side *s, size_t size, int times)
{
  uint64_t start = tt_now_ns();
  for (int i = 0; i < times && !s->lost; i++) {
    give(s, s->fd[0], s->mine, size);
    take(s, s->fd[1], s->mine + ROOM, size);
  }
  return tt_now_ns() - start;
}

static uint64_t net_call_round(side *s)
{
  return s->rank == 0 ? net_bytes(s, 8, WAYS) : 0;
}

static uint64_t net_round(side *s)
{
  return s->rank == 0 ? net_bytes(s, NET, NET_TIMES) : 0;
}

// ---- the list ----

typedef enum {
  ADDING,
  LINES,
  PASSING,
  STARTING,
  READING,
  NET_CALLS,
  NET_BYTES,
  NET_WAYS,
  SWITCHING,
  ROUNDS
} round_name;

// One kind of round: what it needs, and for how many of what a figure is in it its time is.
typedef struct round_kind {
  round_fn *run;
  bool two, net, copy; // needs two cores, the connection, the kernel's copies
  double count;
} round_kind;

static const round_kind kinds[ROUNDS] = {
    [ADDING] = {add_round, .count = WAYS},
    [LINES] = {line_round, .two = true, .count = 2 * PINGS},
    [PASSING] = {pass_round, .two = true, .count = WAYS},
    [STARTING] = {call_start_round, .copy = true, .count = CALLS},
    [READING] = {call_round, .two = true, .copy = true, .count = CALL_WAYS},
    [NET_CALLS] = {net_call_round, .net = true, .count = WAYS},
    [NET_BYTES] = {net_round, .net = true, .count = NET_TIMES},
    [NET_WAYS] = {net_way_round, .two = true, .net = true, .count = 2 * WAYS},
    [SWITCHING] = {switch_round, .count = 2 * SWITCHES},
};

// The two best passes of a kind of round. They agree: nothing disturbed them, or the machine is always so.
typedef struct result {
  double best, second; // nanoseconds; 0: none yet
} result;

static bool agrees(const result *r)
{
  return r->second > 0 && r->second <= AGREE * r->best;
}

static void note(result *r, double ns)
{
  if (r->best == 0 || ns < r->best) {
    r->second = r->best;
    r->best = ns;
  } else if (r->second == 0 || ns < r->second) {
    r->second = ns;
  }
}

// Nanoseconds of the best of a few rounds, on the slower rank.
static double pass_of(side *s, const round_kind *k)
{
  double least = 0;
  for (int i = 0; i < PASS_ROUNDS && !s->lost; i++) {
    if (s->rank == 0) {
      atomic_store(&s->b->turn, 0);
      atomic_store(&s->b->sent[0].n, 0);
      atomic_store(&s->b->sent[1].n, 0);
    }
    meet(s);
    s->b->ns[s->rank] = k->run(s);
    meet(s);
    double ns = (double)TT_MAX(s->b->ns[0], s->b->ns[1]);
    least = i == 0 || ns < least ? ns : least;
  }
  return least;
}

// Bytes of a core's second-level cache; 0: the system does not say.
static size_t level2_bytes(void)
{
#if defined(_SC_LEVEL2_CACHE_SIZE)
  long n = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return n > 0 ? (size_t)n : 0;
#else
  return 0;
#endif
}

// Binds this thread to the core number `nth` of those that it may use. False: there are not so many, or it may not.
static bool pin_to_core(int nth)
{
  cpu_set_t may, one;
  if (nth < 0 || sched_getaffinity(0, sizeof may, &may) != 0) {
    return false;
  }
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &may) && nth-- == 0) {
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      return sched_setaffinity(0, sizeof one, &one) == 0;
    }
  }
  return false;
}

// Puts the process on its core; for `together`, both on one. What it may use is set anew each time: a binding only ever
// narrows it.
static bool place_side(side *s, bool together)
{
  return sched_setaffinity(0, sizeof s->may, &s->may) == 0 && pin_to_core(together || !s->two ? 0 : s->rank);
}

static bool can(const side *s, const round_kind *k)
{
  return (s->two || !k->two) && (s->fd[0] >= 0 || !k->net) && (!k->copy || !atomic_load(&s->b->refused));
}

// One pass over all kinds. A busy moment spoils what it meets in this pass, and others in another.
static void measure_pass(side *s, result r[ROUNDS])
{
  for (int i = 0; i < ROUNDS && !s->lost; i++) {
    bool placed = i != SWITCHING || place_side(s, true);
    meet(s);
    if (can(s, &kinds[i]) && placed) {
      note(&r[i], pass_of(s, &kinds[i]));
    }
    meet(s);
  }
  place_side(s, false);
}

static bool all_agree(const side *s, const result r[ROUNDS])
{
  bool all = true;
  for (int i = 0; i < ROUNDS; i++) {
    all = all && (agrees(&r[i]) || !can(s, &kinds[i]));
  }
  return all;
}

static void measure_all(side *s, result r[ROUNDS])
{
  uint64_t start = tt_now_ns();
  for (int pass = 0;; pass++) {
    if (s->rank == 0) {
      uint64_t ns = tt_now_ns() - start;
      atomic_store(&s->b->more,
                   pass < LEAST_PASSES || (ns < USUAL_NS && pass < USUAL_PASSES) || (ns < MOST_NS && !all_agree(s, r)));
    }
    meet(s);
    bool more = atomic_load(&s->b->more);
    meet(s);
    if (s->lost || !more) {
      return;
    }
    measure_pass(s, r);
  }
}

// ---- figures of times ----

// Nanoseconds of one of what a round does; 0: it could not be measured, or not twice the same.
static double one_of(const result r[ROUNDS], round_name n)
{
  return agrees(&r[n]) ? r[n].best / kinds[n].count : 0;
}

// Puts a measured figure in its place. What cannot be done here is of no account to choices, and the library's own
// stands for it.
static void put(tt_figures *f, tt_figure which, double x)
{
  const tt_figure_row *row = tt_figure_row_at(which);
  if (x > 0) {
    f->value[which] = (uint32_t)TT_CLAMP(x + 0.5, (double)row->least, (double)row->most);
  } else {
    fprintf(stderr, "tutti-tune: %s cannot be measured here, or not twice the same: the library's own %u %s stays\n",
            row->name, row->own, row->unit);
  }
}

// MB/s: bytes in nanoseconds, of which `besides` are not theirs.
static double rate(double bytes, double ns, double besides)
{
  return ns > besides ? bytes * 1e3 / (ns - besides) : 0;
}

// How the cores speak to each other is known, all of it. Half of it, and half of the library's own, another machine's,
// would make choices that are right on neither. What a change of thread and the network take stands for itself.
static bool is_whole(const side *s, const result r[ROUNDS])
{
  static const char *const needed[ROUNDS] = {
      [ADDING] = "sums", [LINES] = "cache lines", [PASSING] = "messages", [STARTING] = "calls", [READING] = "copies"};
  if (!s->two) {
    fprintf(stderr,
            "tutti-tune: this process may use one core only: how fast two speak to each other cannot be measured\n");
    return false;
  }
  for (int i = 0; i < ROUNDS; i++) {
    if (needed[i] != NULL && can(s, &kinds[i]) && !agrees(&r[i])) {
      fprintf(stderr,
              "tutti-tune: too much else runs: %s did not take the same time twice (best %.0f ns, next %.0f ns)\n",
              needed[i], r[i].best, r[i].second);
      return false;
    }
  }
  return true;
}

static void take_figures(const result r[ROUNDS], tt_figures *f)
{
  double line = one_of(r, LINES), start = one_of(r, STARTING), call = one_of(r, NET_CALLS);
  put(f, TT_FIG_L2, (double)level2_bytes() / 1024);
  put(f, TT_FIG_ADD, rate(3.0 * ADD, one_of(r, ADDING), 0));
  put(f, TT_FIG_LINE, line * 1e3);
  put(f, TT_FIG_PASS, rate((double)PASS, one_of(r, PASSING), line));
  put(f, TT_FIG_CALL_START, start);
  put(f, TT_FIG_CALL, rate((double)CALL, one_of(r, READING), start));
  put(f, TT_FIG_SWITCH, one_of(r, SWITCHING));
  put(f, TT_FIG_NET_CALL, call / 2);
  put(f, TT_FIG_NET, rate((double)NET, one_of(r, NET_BYTES), call));
  put(f, TT_FIG_NET_WAY, one_of(r, NET_WAYS));
}

// Both ends of a connection over the loopback; -1: there is none.
static void connect_ends(int fd[2])
{
  tt_addr at = {.family = AF_INET, .ip = {127, 0, 0, 1}};
  const tt_until until = {.deadline_ns = tt_now_ns() + TT_NS_PER_S};
  int listener = -1;
  fd[0] = fd[1] = -1;
  if (tt_tcp_listen(&at, &listener, &at) == 0 && tt_tcp_connect(&at, &until, &fd[0]) == 0) {
    struct pollfd p = {.fd = listener, .events = POLLIN};
    if (tt_sock_poll(&p, 1, &until) <= 0 || tt_tcp_accept(listener, &fd[1], NULL) != 0) {
      tt_sock_close(&fd[0]);
    }
  }
  tt_sock_close(&listener);
}

static bool measure_with(side *s, tt_figures *f)
{
  result r[ROUNDS] = {{0}};
  pid_t parent = getpid(), child = fork();
  if (child < 0) {
    return false;
  }
  s->rank = child == 0;
  if (s->rank == 1) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
      _exit(0);
    }
  }
  s->peer = s->rank == 0 ? child : parent;
  place_side(s, false);
  memset(s->mine, s->rank, 3 * ROOM);
  meet(s);
  measure_all(s, r);
  if (s->rank == 1) {
    _exit(0);
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  if (s->lost || !is_whole(s, r)) {
    return false;
  }
  take_figures(r, f);
  return true;
}

bool tn_measure_machine(tt_figures *f)
{
  side s = {.b = mmap(NULL, sizeof *s.b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
            .mine = mmap(NULL, 3 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
  bool good = sched_getaffinity(0, sizeof s.may, &s.may) == 0 && (void *)s.b != MAP_FAILED && s.mine != MAP_FAILED;
  *f = tt_figures_default();
  f->measured = 1;
  f->when = (int64_t)time(NULL);
  if (good) {
    s.two = CPU_COUNT(&s.may) >= 2;
    connect_ends(s.fd);
    good = measure_with(&s, f);
    sched_setaffinity(0, sizeof s.may, &s.may);
    tt_sock_close(&s.fd[0]);
    tt_sock_close(&s.fd[1]);
  }
  if ((void *)s.b != MAP_FAILED) {
    munmap(s.b, sizeof *s.b);
  }
  if (s.mine != MAP_FAILED) {
    munmap(s.mine, 3 * ROOM);
  }
  return good;
}
