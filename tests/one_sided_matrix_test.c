// one_sided_matrix_test.c: what programs do with one-sided operations, among 1, 2, 3 and 7 ranks, as processes and as
// threads: rings, all to all, barriers of signals, queues with signals back, a million small puts. Several windows,
// contexts and signals are in use at a time; every byte is compared, also those beside. The same program runs with
// every pair on the network (cmake/tutti_tests.cmake).
#include "harness.h"

enum { WINDOWS = 3, CONTEXTS = 3, SIGNALS = 4, BYTES = (1 << 20) + 4099, MOST_RANKS = 7 };
enum { PUTS = 1000000 / (SLOWER * SLOWER), ROUNDS = 2000 / SLOWER, SLOTS = 8, SLOT_BYTES = 1000 };

// One rank of a communicator. Puts are sent from `out`, window WINDOWS, to any other window.
typedef struct side {
  int rank, n;
  ncclComm_t comm;
  cudaStream_t stream;
  unsigned char *memory[WINDOWS + 1];
  ncclWindow_t window[WINDOWS + 1];
  size_t size; // of each window
} side;

typedef struct matrix_run {
  void (*body)(const side *s);
  int n;
  size_t size;
  bool threads;
  ncclUniqueId id; // of threads
} matrix_run;

static unsigned char *out_of(const side *s)
{
  return s->memory[WINDOWS];
}

// Window 1 is of ordinary memory, which peers cannot map.
static side open_side(int rank, const matrix_run *m)
{
  side s = {.rank = rank, .n = m->n, .size = m->size};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.numRmaCtx = CONTEXTS;
  config.numRmaSig = SIGNALS;
  OK(tuttiSetDevice(rank));
  OK(ncclCommInitRankConfig(&s.comm, s.n, m->threads ? m->id : shared_id(0, rank), rank, &config));
  OK(tuttiStreamCreate(&s.stream, TUTTI_STREAM_DEFAULT));
  for (int w = 0; w <= WINDOWS; w++) {
    if (w == 1) {
      CHECK(posix_memalign((void **)&s.memory[w], 4096, s.size) == 0, "no memory");
      memset(s.memory[w], 0, s.size);
    } else {
      OK(ncclMemAlloc((void **)&s.memory[w], s.size));
    }
    OK(ncclCommWindowRegister(s.comm, s.memory[w], s.size, &s.window[w], NCCL_WIN_COLL_SYMMETRIC));
  }
  return s;
}

static void close_side(side *s)
{
  OK(tuttiStreamSynchronize(s->stream));
  for (int w = 0; w <= WINDOWS; w++) {
    OK(ncclCommWindowDeregister(s->comm, s->window[w]));
  }
  OK(ncclCommDestroy(s->comm));
  OK(tuttiStreamDestroy(s->stream));
  for (int w = 0; w <= WINDOWS; w++) {
    if (w == 1) {
      free(s->memory[w]);
    } else {
      OK(ncclMemFree(s->memory[w]));
    }
  }
}

static void put(const side *s, size_t from, size_t n, int peer, int window, size_t to, int sig, int ctx)
{
  OK(ncclPutSignal(out_of(s) + from, n, ncclUint8, peer, s->window[window], to, sig, ctx, 0, s->comm, s->stream));
}

static ncclWaitSignalDesc_t signals_from(int peer, int count, int sig, int ctx)
{
  return (ncclWaitSignalDesc_t){.opCnt = count, .peer = peer, .sigIdx = sig, .ctx = ctx};
}

static void wait_for(const side *s, ncclWaitSignalDesc_t d)
{
  OK(ncclWaitSignal(1, &d, s->comm, s->stream));
}

// All ranks have come so far. The last signal of the last context is for this alone.
static void barrier(const side *s)
{
  ncclWaitSignalDesc_t d[MOST_RANKS];
  for (int i = 0; i < s->n; i++) {
    OK(ncclSignal(i, SIGNALS - 1, CONTEXTS - 1, 0, s->comm, s->stream));
    d[i] = signals_from(i, 1, SIGNALS - 1, CONTEXTS - 1);
  }
  OK(ncclWaitSignal(s->n, d, s->comm, s->stream));
  OK(tuttiStreamSynchronize(s->stream));
}

static unsigned char byte_of(int rank, int round, size_t i)
{
  return (unsigned char)(1 + (i * 7 + (size_t)rank * 31 + (size_t)round * 101 + (i >> 12)) % 255); // never 0
}

static void write_bytes(unsigned char *at, size_t n, int rank, int round)
{
  for (size_t i = 0; i < n; i++) {
    at[i] = byte_of(rank, round, i);
  }
}

static void check_bytes(const unsigned char *at, size_t n, int rank, int round)
{
  for (size_t i = 0; i < n; i++) {
    CHECK(at[i] == byte_of(rank, round, i), "byte %zu of %zu of rank %d in round %d is %d", i, n, rank, round, at[i]);
  }
}

static void check_zeros(const unsigned char *from, const unsigned char *to)
{
  for (; from < to; from++) {
    CHECK(*from == 0, "a byte beside a put is %d", *from);
  }
}

// Sizes around those at which a put is cut, and primes; each at the beginning, inside, and at the end of the windows in
// turn. Only the put's bytes change.
static void ring(const side *s)
{
  static const size_t sizes[] = {0, 1, 3, 8, 4099, 8191, 65521, 131071, 131072, 131101, 1 << 20, 1048583};
  int next = (s->rank + 1) % s->n, before = (s->rank + s->n - 1) % s->n;
  for (int i = 0; i < 3 * (int)(sizeof sizes / sizeof *sizes); i++) {
    size_t n = sizes[i / 3], at = i % 3 == 0 ? 0 : i % 3 == 1 ? (s->size - n) / 2 : s->size - n;
    int w = (i + i / 3) % WINDOWS;
    memset(s->memory[w], 0, s->size);
    write_bytes(out_of(s), n, s->rank, i);
    barrier(s);
    put(s, 0, n, next, w, at, i % SIGNALS, i % (CONTEXTS - 1));
    wait_for(s, signals_from(before, 1, i % SIGNALS, i % (CONTEXTS - 1)));
    OK(tuttiStreamSynchronize(s->stream));
    check_bytes(s->memory[w] + at, n, before, i);
    check_zeros(s->memory[w], s->memory[w] + at);
    check_zeros(s->memory[w] + at + n, s->memory[w] + s->size);
  }
  barrier(s);
}

// To every rank a put into every window with every context and signal, all in flight; one wait for all of them.
static void all_to_all(const side *s)
{
  enum { LINES = WINDOWS * CONTEXTS * (SIGNALS - 1), PART = 1009 };
  ncclWaitSignalDesc_t d[MOST_RANKS * LINES];
  for (int round = 0; round < 40 / SLOWER; round++) {
    write_bytes(out_of(s), (size_t)s->n * LINES * PART, s->rank, round);
    int n = 0;
    for (int line = 0; line < LINES; line++) {
      int ctx = line / WINDOWS % CONTEXTS, sig = line / WINDOWS / CONTEXTS;
      for (int i = 0; i < s->n; i++) {
        put(s, (size_t)(i * LINES + line) * PART, PART, i, line % WINDOWS, (size_t)(s->rank * LINES + line) * PART, sig,
            ctx);
        d[n++] = signals_from(i, 1, sig, ctx);
      }
    }
    OK(ncclWaitSignal(n, d, s->comm, s->stream));
    OK(tuttiStreamSynchronize(s->stream));
    for (int i = 0; i < s->n * LINES * PART; i++) {
      int from = i / PART / LINES, line = i / PART % LINES;
      size_t sent = (size_t)(s->rank * LINES + line) * PART + (size_t)(i % PART);
      CHECK(s->memory[line % WINDOWS][i] == byte_of(from, round, sent), "byte %d of round %d is wrong", i, round);
    }
    barrier(s);
  }
}

// Nobody leaves a barrier before all have come: each says before it where it is, in memory that the library knows not.
static void barriers(const side *s)
{
  for (uint64_t round = 1; round <= ROUNDS; round++) {
    atomic_store(&the_board->word[s->rank], round);
    barrier(s);
    for (int i = 0; i < s->n; i++) {
      uint64_t at = atomic_load(&the_board->word[i]);
      CHECK(at == round || at == round + 1, "rank %d is in round %d beside %d", i, (int)at, (int)round);
    }
  }
}

static size_t element_bytes(int i)
{
  return (size_t)(i * 61 % SLOT_BYTES);
}

static void produce(const side *s, int i)
{
  int next = (s->rank + 1) % s->n;
  size_t slot = (size_t)(i % SLOTS) * SLOT_BYTES;
  if (i >= SLOTS) { // a signal back: the slot is free
    wait_for(s, signals_from(next, 1, 1, 1));
    OK(tuttiStreamSynchronize(s->stream));
  }
  write_bytes(out_of(s) + slot, element_bytes(i), s->rank, i);
  put(s, slot, element_bytes(i), next, i % WINDOWS, slot, 0, 0);
}

// What was there is wiped out: an element that does not come is seen.
static void consume(const side *s, int i)
{
  int before = (s->rank + s->n - 1) % s->n;
  unsigned char *at = s->memory[i % WINDOWS] + (size_t)(i % SLOTS) * SLOT_BYTES;
  wait_for(s, signals_from(before, 1, 0, 0));
  OK(tuttiStreamSynchronize(s->stream));
  check_bytes(at, element_bytes(i), before, i);
  memset(at, 0, SLOT_BYTES);
  OK(ncclSignal(before, 1, 1, 0, s->comm, s->stream));
}

// Each rank fills the queue of the next one, and empties its own, in bursts of 1 to SLOTS elements.
static void queues(const side *s)
{
  int made = 0;
  for (int burst = 1; made < 2 * ROUNDS; burst = burst % SLOTS + 1) {
    for (int i = 0; i < burst; i++) {
      produce(s, made + i);
    }
    for (int i = 0; i < burst; i++) {
      consume(s, made + i);
    }
    made += burst;
  }
  wait_for(s, signals_from((s->rank + 1) % s->n, SLOTS, 1, 1)); // of the last ones
  barrier(s);
}

static uint64_t value_of(int rank, int i)
{
  return ((uint64_t)i + 1) ^ (uint64_t)rank << 40;
}

// PUTS puts of 8 bytes by all ranks together, to all ranks in turn, each to a place of its own.
static void small_puts(const side *s)
{
  uint64_t *values = (uint64_t *)(void *)out_of(s);
  int each = PUTS / s->n;
  for (int i = 0; i < each; i++) {
    values[i] = value_of(s->rank, i);
    put(s, 8 * (size_t)i, 8, i % s->n, 0, 8 * (size_t)(s->rank * each + i), 0, i / s->n % CONTEXTS);
  }
  for (int from = 0; from < s->n; from++) {
    int came[CONTEXTS] = {0};
    for (int i = s->rank; i < each; i += s->n) {
      came[i / s->n % CONTEXTS]++;
    }
    for (int ctx = 0; ctx < CONTEXTS; ctx++) {
      wait_for(s, signals_from(from, came[ctx], 0, ctx));
    }
  }
  OK(tuttiStreamSynchronize(s->stream));
  const uint64_t *have = (const uint64_t *)(void *)s->memory[0];
  for (int i = 0; i < s->n * each; i++) {
    uint64_t want = i % each % s->n == s->rank ? value_of(i / each, i % each) : 0;
    CHECK(have[i] == want, "put %d of rank %d: %llx", i % each, i / each, (unsigned long long)have[i]);
  }
  barrier(s);
}

static void run_side(int rank, void *arg)
{
  const matrix_run *m = arg;
  side s = open_side(rank, m);
  m->body(&s);
  close_side(&s);
}

static void run_sides(int rank, void *arg)
{
  matrix_run *m = arg;
  (void)rank;
  OK(ncclGetUniqueId(&m->id));
  run_threads(m->n, run_side, m);
}

static void in_every_shape(void (*body)(const side *s), size_t size)
{
  static const int numbers[] = {1, 2, 3, MOST_RANKS};
  for (int i = 0; i < 8; i++) {
    matrix_run m = {.body = body, .n = numbers[i / 2], .size = size, .threads = i % 2 == 1};
    PROCESSES(m.threads ? 1 : m.n, 40, m.threads ? run_sides : run_side, &m);
  }
}

#define SHAPES(name, body, size) \
  static void name(void **state) \
  {                              \
    (void)state;                 \
    in_every_shape(body, size);  \
  }

SHAPES(rings, ring, BYTES)
SHAPES(all_to_alls, all_to_all, BYTES)
SHAPES(barriers_of_signals, barriers, BYTES)
SHAPES(queues_with_signals_back, queues, BYTES)
SHAPES(a_million_small_puts, small_puts, 8 * (size_t)PUTS)

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(rings), cmocka_unit_test(all_to_alls),
                                     cmocka_unit_test(barriers_of_signals), cmocka_unit_test(queues_with_signals_back),
                                     cmocka_unit_test(a_million_small_puts)};
  return RUN_TESTS("one_sided_matrix", tests, argc, argv);
}
