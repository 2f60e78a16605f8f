// one_sided_test.c: ncclPutSignal, ncclSignal, ncclWaitSignal: every byte is compared; ranks as processes and as
// threads, on one machine and on two, windows in memory that peers map and in ordinary memory; what is refused; peers
// that end. The same program runs with every pair on the network (cmake/tutti_tests.cmake).
#include "harness.h"

enum { RANKS = 4, BYTES = 3 << 20, SLOTS = 8, REPEATS = 20 };
enum { SMALL_PUTS = 100000 / SLOWER, SMALL_PUTS_FAR = 20000 / SLOWER, PLACES = BYTES / 8 };

// How ranks run, and what memory their windows are of.
typedef struct manner {
  bool threads, ordinary;
  bool nodes;      // two machines, as NCCL_HOSTID has it
  ncclUniqueId id; // of threads
  void (*body)(int rank, void *arg);
} manner;

// One rank, with a window of 2 * BYTES.
typedef struct side {
  int rank, n;
  ncclComm_t comm;
  cudaStream_t stream;
  bool ordinary;
  unsigned char *memory;
  ncclWindow_t window;
} side;

static side open_side(int rank, int n, const manner *m)
{
  side s = {.rank = rank, .n = n, .ordinary = m->ordinary};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.numRmaCtx = 2;
  config.numRmaSig = 3;
  if (m->nodes) {
    OK(setenv("NCCL_HOSTID", rank % 2 == 0 ? "even" : "odd", 1) == 0 ? ncclSuccess : ncclSystemError);
  }
  OK(tuttiSetDevice(rank));
  OK(ncclCommInitRankConfig(&s.comm, n, m->threads ? m->id : shared_id(0, rank), rank, &config));
  OK(tuttiStreamCreate(&s.stream, TUTTI_STREAM_DEFAULT));
  if (m->ordinary) {
    CHECK(posix_memalign((void **)&s.memory, 4096, 2 * (size_t)BYTES) == 0, "no memory");
    memset(s.memory, 0, 2 * (size_t)BYTES);
  } else {
    OK(ncclMemAlloc((void **)&s.memory, 2 * (size_t)BYTES));
  }
  OK(ncclCommWindowRegister(s.comm, s.memory, 2 * (size_t)BYTES, &s.window, NCCL_WIN_COLL_SYMMETRIC));
  return s;
}

static void close_side(side *s)
{
  OK(tuttiStreamSynchronize(s->stream));
  OK(ncclCommWindowDeregister(s->comm, s->window));
  OK(ncclCommDestroy(s->comm));
  OK(tuttiStreamDestroy(s->stream));
  if (s->ordinary) {
    free(s->memory);
  } else {
    OK(ncclMemFree(s->memory));
  }
}

static unsigned char pattern(int rank, int round, size_t i)
{
  return (unsigned char)(i * 7 + (size_t)rank * 31 + (size_t)round * 101 + (i >> 12));
}

static void write_pattern(unsigned char *at, size_t n, int rank, int round)
{
  for (size_t i = 0; i < n; i++) {
    at[i] = pattern(rank, round, i);
  }
}

static void check_pattern(const unsigned char *at, size_t n, int rank, int round)
{
  for (size_t i = 0; i < n; i++) {
    CHECK(at[i] == pattern(rank, round, i), "byte %zu of rank %d in round %d is %d", i, rank, round, at[i]);
  }
}

static void wait_for(const side *s, int count, int peer, int sig, int ctx)
{
  ncclWaitSignalDesc_t d = {.opCnt = count, .peer = peer, .sigIdx = sig, .ctx = ctx};
  OK(ncclWaitSignal(1, &d, s->comm, s->stream));
}

// All ranks have come so far: signals to all and from all.
static void barrier(const side *s)
{
  ncclWaitSignalDesc_t d[RANKS];
  for (int i = 0; i < s->n; i++) {
    OK(ncclSignal(i, 2, 1, 0, s->comm, s->stream));
    d[i] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = i, .sigIdx = 2, .ctx = 1};
  }
  OK(ncclWaitSignal(s->n, d, s->comm, s->stream));
  OK(tuttiStreamSynchronize(s->stream));
}

// Each writes into the next one's window, in sizes around those at which a put is cut.
static void ring_of_puts(int rank, void *arg)
{
  static const size_t sizes[] = {1, 0, 8, 4096, 8191, 65537, 104729, 131072, 131073, 1 << 20, (1 << 20) + 1, BYTES};
  side s = open_side(rank, RANKS, arg);
  int next = (rank + 1) % RANKS, before = (rank + RANKS - 1) % RANKS;
  for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++) {
    write_pattern(s.memory, sizes[i], rank, i);
    OK(ncclPutSignal(s.memory, sizes[i], ncclUint8, next, s.window, BYTES, 0, 0, 0, s.comm, s.stream));
    wait_for(&s, 1, before, 0, 0);
    OK(tuttiStreamSynchronize(s.stream));
    check_pattern(s.memory + BYTES, sizes[i], before, i);
    barrier(&s);
  }
  close_side(&s);
}

// All to all, own rank too, in one group with the wait; then the same from a graph.
static void group_of_puts(const side *s, size_t part)
{
  ncclWaitSignalDesc_t d[RANKS];
  OK(ncclGroupStart());
  for (int i = 0; i < RANKS; i++) {
    OK(ncclPutSignal(s->memory + (size_t)i * part, part / 4, ncclInt32, i, s->window, BYTES + (size_t)s->rank * part, 1,
                     0, 0, s->comm, s->stream));
    d[i] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = i, .sigIdx = 1, .ctx = 0};
  }
  OK(ncclWaitSignal(RANKS, d, s->comm, s->stream));
  OK(ncclGroupEnd());
}

static void check_round(const side *s, size_t part, int round)
{
  OK(tuttiStreamSynchronize(s->stream));
  for (int i = 0; i < RANKS; i++) {
    check_pattern(s->memory + BYTES + (size_t)i * part, part, i, round);
  }
  barrier(s);
}

static void all_to_all(int rank, void *arg)
{
  const size_t part = 40000;
  side s = open_side(rank, RANKS, arg);
  tuttiGraph_t graph;
  tuttiGraphExec_t exec;
  for (int round = 0; round < REPEATS; round++) {
    for (int i = 0; i < RANKS; i++) {
      write_pattern(s.memory + (size_t)i * part, part, rank, round);
    }
    if (round == REPEATS / 2) {
      OK(tuttiStreamBeginCapture(s.stream, tuttiCaptureThreadLocal));
      group_of_puts(&s, part);
      OK(tuttiStreamEndCapture(s.stream, &graph));
      OK(tuttiGraphInstantiate(&exec, graph));
    }
    if (round >= REPEATS / 2) {
      OK(tuttiGraphLaunch(exec, s.stream));
    } else {
      group_of_puts(&s, part);
    }
    check_round(&s, part, round);
  }
  OK(tuttiGraphExecDestroy(exec));
  OK(tuttiGraphDestroy(graph));
  close_side(&s);
}

// Rank 0 produces 8-byte elements into a queue of SLOTS in rank 1's window; a signal back frees a slot.
static void produce(const side *s, int elements)
{
  uint64_t *from = (uint64_t *)(void *)s->memory;
  for (int i = 0; i < elements; i++) {
    if (i >= SLOTS) {
      wait_for(s, 1, 1, 1, 1);
      OK(tuttiStreamSynchronize(s->stream));
    }
    from[i % SLOTS] = (uint64_t)i * 3 + 1;
    OK(ncclPutSignal(&from[i % SLOTS], 1, ncclUint64, 1, s->window, (size_t)(i % SLOTS) * 8, 0, 0, 0, s->comm,
                     s->stream));
  }
  wait_for(s, SLOTS, 1, 1, 1);
}

static void consume(const side *s, int elements)
{
  const uint64_t *to = (const uint64_t *)(void *)s->memory;
  for (int i = 0; i < elements; i++) {
    wait_for(s, 1, 0, 0, 0);
    OK(tuttiStreamSynchronize(s->stream));
    CHECK(to[i % SLOTS] == (uint64_t)i * 3 + 1, "element %d is %llu", i, (unsigned long long)to[i % SLOTS]);
    OK(ncclSignal(0, 1, 1, 0, s->comm, s->stream));
  }
}

static void queue(int rank, void *arg)
{
  side s = open_side(rank, 2, arg);
  (rank == 0 ? produce : consume)(&s, 10000 / SLOWER);
  close_side(&s);
}

// Many puts without a wait in between: none is lost, and the last one's data are there. TEST_SMALL_PUTS: how many, at
// most as many as the window has places for.
static int number_of_puts(void)
{
  const char *text = getenv("TEST_SMALL_PUTS");
  return text != NULL ? atoi(text) : over_network() ? SMALL_PUTS_FAR : SMALL_PUTS;
}

static uint64_t value_of(int rank, int i)
{
  return (uint64_t)i ^ (uint64_t)rank << 40;
}

// The last PLACES of them have places of their own.
static void small_puts(int rank, void *arg)
{
  side s = open_side(rank, 2, arg);
  uint64_t *values = (uint64_t *)(void *)s.memory;
  int n = number_of_puts();
  for (int i = 0; i < n; i++) {
    if (i % PLACES == 0) {
      OK(tuttiStreamSynchronize(s.stream)); // what is sent from there is written again
    }
    size_t at = (size_t)(i % PLACES);
    values[at] = value_of(rank, i);
    OK(ncclPutSignal(&values[at], 1, ncclUint64, 1 - rank, s.window, BYTES + 8 * at, 0, 0, 0, s.comm, s.stream));
  }
  wait_for(&s, n, 1 - rank, 0, 0);
  OK(tuttiStreamSynchronize(s.stream));
  for (int i = n > PLACES ? n - PLACES : 0; i < n; i++) {
    CHECK(values[PLACES + i % PLACES] == value_of(1 - rank, i), "put %d is not there", i);
  }
  close_side(&s);
}

// In a group, what waits in one context does not hold up another; and two streams count on one after the other.
static void contexts_and_streams(int rank, void *arg)
{
  side s = open_side(rank, 2, arg);
  cudaStream_t other;
  OK(tuttiStreamCreate(&other, TUTTI_STREAM_NON_BLOCKING));
  for (int round = 0; round < REPEATS; round++) {
    write_pattern(s.memory, 5000, rank, round);
    OK(ncclGroupStart());
    wait_for(&s, 1, 1 - rank, 0, 0);
    OK(ncclPutSignal(s.memory, 5000, ncclUint8, 1 - rank, s.window, BYTES, 1, 1, 0, s.comm, s.stream));
    OK(ncclSignal(1 - rank, 0, 0, 0, s.comm, other));
    OK(ncclGroupEnd());
    wait_for(&s, 1, 1 - rank, 1, 1);
    OK(tuttiStreamSynchronize(s.stream));
    check_pattern(s.memory + BYTES, 5000, 1 - rank, round);
    barrier(&s);
  }
  OK(tuttiStreamSynchronize(other));
  OK(tuttiStreamDestroy(other));
  close_side(&s);
}

static void thread_of(int rank, void *arg)
{
  ((manner *)arg)->body(rank, arg);
}

static void threads_of(int rank, void *arg)
{
  manner *m = arg;
  (void)rank;
  OK(ncclGetUniqueId(&m->id));
  run_threads(m->body == ring_of_puts || m->body == all_to_all ? RANKS : 2, thread_of, m);
}

static void in_all_manners(void (*body)(int rank, void *arg), int n)
{
  for (int i = 0; i < 4; i++) {
    manner m = {.threads = i == 2, .ordinary = i == 1, .nodes = i == 3, .body = body};
    PROCESSES(m.threads ? 1 : n, 60, m.threads ? threads_of : thread_of, &m);
  }
}

static void puts_go_round(void **state)
{
  (void)state;
  in_all_manners(ring_of_puts, RANKS);
}

static void puts_go_to_all(void **state)
{
  (void)state;
  in_all_manners(all_to_all, RANKS);
}

static void queues_keep_order(void **state)
{
  (void)state;
  in_all_manners(queue, 2);
}

static void no_put_is_lost(void **state)
{
  (void)state;
  in_all_manners(small_puts, 2);
}

static void contexts_are_apart(void **state)
{
  (void)state;
  in_all_manners(contexts_and_streams, 2);
}

// --- What is refused

static void refused_puts(const side *s)
{
  unsigned char elsewhere[8] = {0};
  ncclWindow_t win = s->window, unknown = (ncclWindow_t)(void *)elsewhere;
  const void *m = s->memory;
  ncclComm_t c = s->comm;
  cudaStream_t st = s->stream;
  const ncclResult_t bad = ncclInvalidArgument;
  REFUSED(ncclPutSignal(m, 1, ncclInt8, 0, win, 0, 0, 0, 0, NULL, st), bad, "ncclPutSignal");
  REFUSED(ncclPutSignal(m, 1, ncclInt8, 2, win, 0, 0, 0, 0, c, st), bad, "peer is 2", "rank");
  REFUSED(ncclPutSignal(m, 1, (ncclDataType_t)99, 0, win, 0, 0, 0, 0, c, st), bad, "datatype is 99");
  REFUSED(ncclPutSignal(m, 1, ncclInt8, 0, win, 0, 0, 2, 0, c, st), bad, "ctx is 2", "0 and 1");
  REFUSED(ncclPutSignal(m, 1, ncclInt8, 0, win, 0, 3, 0, 0, c, st), bad, "sigIdx is 3", "0 and 2");
  REFUSED(ncclPutSignal(m, 1, ncclInt8, 0, win, 0, 0, 0, 4, c, st), bad, "flags are 0x4");
  REFUSED(ncclPutSignal(m, 1, ncclInt8, 0, NULL, 0, 0, 0, 0, c, st), bad, "peerWin");
  REFUSED(ncclPutSignal(m, 1, ncclInt8, 0, unknown, 0, 0, 0, 0, c, st), bad, "not a handle");
  REFUSED(ncclPutSignal(NULL, 1, ncclInt8, 0, win, 0, 0, 0, 0, c, st), bad, "localbuff");
  REFUSED(ncclPutSignal(elsewhere, 1, ncclInt8, 0, win, 0, 0, 0, 0, c, st), bad, "do not lie in a window");
  REFUSED(ncclPutSignal(m, 2, ncclInt8, 1 - s->rank, win, 2 * (size_t)BYTES - 1, 0, 0, 0, c, st), bad, "2 bytes",
          "window of rank");
  REFUSED(ncclSignal(-1, 0, 0, 0, c, st), bad, "peer is -1");
  REFUSED(ncclSignal(0, -1, 0, 0, c, st), bad, "sigIdx is -1");
  REFUSED(ncclSignal(0, 0, 0, 1, c, st), bad, "flags are 0x1");
}

static void refused_waits(const side *s)
{
  static const struct {
    ncclWaitSignalDesc_t d;
    const char *text;
  } rows[] = {{{.opCnt = 0, .peer = 0, .sigIdx = 0, .ctx = 0}, "opCnt of descriptor 0 is 0"},
              {{.opCnt = 1, .peer = 7, .sigIdx = 0, .ctx = 0}, "peer is 7"},
              {{.opCnt = 1, .peer = 0, .sigIdx = 3, .ctx = 0}, "sigIdx is 3"},
              {{.opCnt = 1, .peer = 0, .sigIdx = 0, .ctx = -1}, "ctx is -1"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ncclWaitSignalDesc_t d = rows[i].d;
    REFUSED(ncclWaitSignal(1, &d, s->comm, s->stream), ncclInvalidArgument, "ncclWaitSignal", rows[i].text);
  }
  ncclWaitSignalDesc_t good = {.opCnt = 1};
  REFUSED(ncclWaitSignal(1, NULL, s->comm, s->stream), ncclInvalidArgument, "signalDescs");
  REFUSED(ncclWaitSignal(0, &good, s->comm, s->stream), ncclInvalidArgument, "nDesc is 0");
  REFUSED(ncclWaitSignal(-1, &good, s->comm, s->stream), ncclInvalidArgument, "nDesc is -1");
}

static void refusing(int rank, void *arg)
{
  side s = open_side(rank, 2, arg);
  barrier(&s);
  refused_puts(&s);
  refused_waits(&s);
  barrier(&s); // all goes on as before
  close_side(&s);
}

static void before_windows(int rank, void *arg)
{
  ncclComm_t comm = join_processes(0, 2, rank);
  (void)arg;
  REFUSED(ncclSignal(0, 0, 0, 0, comm, NULL), ncclInvalidUsage, "no window", "rmaEagerInit");
  OK(ncclCommDestroy(comm));
}

static void wrong_use(void **state)
{
  manner m = {.ordinary = false};
  (void)state;
  PROCESSES(2, 20, refusing, &m);
  PROCESSES(2, 20, before_windows, NULL);
}

// --- Peers that do not signal

// Rank 1 keeps its communicator; rank 0 is not signalled, and gives up.
static void signal_never_comes(int rank, void *arg)
{
  side s = open_side(rank, 2, arg);
  if (rank == 0) {
    wait_for(&s, 2, 1, 1, 0);
    REFUSED(tuttiStreamSynchronize(s.stream), ncclTimeout, "signal 1 of context 0 from rank 1 (0 of 2 have come)",
            "rank 1 has not signalled");
  }
  meet(2);
  OK(ncclCommAbort(s.comm));
}

// Waits until tuttiCommDiagnose says all of this.
static void expect_diagnosis(ncclComm_t c, const char *const *words)
{
  char *json = NULL;
  bool good = false;
  for (double end = seconds_now() + GENEROUS(10); !good && seconds_now() < end;) {
    sleep_ms(50);
    free(json);
    OK(tuttiCommDiagnose(c, &json));
    good = has_words(json, words);
  }
  CHECK(good, "%s", json);
  free(json);
}

// A wait for a signal, then a put into a window, that rank 1 is late with: rank 0 knows why.
static void waits_are_explained(int rank, void *arg)
{
  side s = open_side(rank, 2, arg);
  ncclWindow_t second;
  barrier(&s);
  if (rank == 0) {
    wait_for(&s, 1, 1, 1, 0);
    expect_diagnosis(s.comm, (const char *const[]){"\"class\":\"late\",\"cause\":1", "rank 1 has not signalled",
                                                   "\"waits\":{\"for\":1,\"to\":\"signal\"", NULL});
    OK(ncclCommWindowRegister(s.comm, s.memory, 4096, &second, NCCL_WIN_DEFAULT));
    OK(ncclPutSignal(s.memory, 8, ncclUint8, 1, second, 0, 0, 0, 0, s.comm, s.stream));
  }
  meet(2);
  if (rank == 1) {
    OK(ncclSignal(0, 1, 0, 0, s.comm, s.stream));
  } else {
    expect_diagnosis(s.comm,
                     (const char *const[]){"\"class\":\"late\",\"cause\":1", "rank 1 has not registered it", NULL});
  }
  meet(2);
  if (rank == 1) {
    OK(ncclCommWindowRegister(s.comm, s.memory, 4096, &second, NCCL_WIN_DEFAULT));
    wait_for(&s, 1, 0, 0, 0);
  }
  OK(tuttiStreamSynchronize(s.stream));
  close_side(&s);
}

// Each rank waits for the one before, and has its own signal behind that. It is proved, and both know.
static void signals_go_round(int rank, void *arg)
{
  side s = open_side(rank, RANKS, arg);
  barrier(&s);
  OK(tuttiStreamSynchronize(s.stream));
  wait_for(&s, 1, (rank + RANKS - 1) % RANKS, 0, 0);
  OK(ncclSignal((rank + 1) % RANKS, 0, 0, 0, s.comm, s.stream));
  REFUSED(tuttiStreamSynchronize(s.stream), ncclInvalidUsage, "deadlock: ranks wait for each other", "none can go on");
  meet(RANKS);
  OK(ncclCommAbort(s.comm));
}

// The same but for one rank, whose signal waits for nothing. Afterwards all go on.
static void a_signal_is_late(int rank, void *arg)
{
  side s = open_side(rank, RANKS, arg);
  cudaStream_t other;
  OK(tuttiStreamCreate(&other, TUTTI_STREAM_NON_BLOCKING));
  barrier(&s);
  OK(tuttiStreamSynchronize(s.stream));
  wait_for(&s, 1, (rank + RANKS - 1) % RANKS, 0, 0);
  if (rank == 1) {
    sleep_ms(3000); // longer than a proof takes
  }
  OK(ncclSignal((rank + 1) % RANKS, 0, 0, 0, s.comm, rank == 1 ? other : s.stream));
  OK(tuttiStreamSynchronize(s.stream));
  close_side(&s);
  OK(tuttiStreamDestroy(other));
}

static void a_peer_ends(int rank, void *arg)
{
  side s = open_side(rank, 2, arg);
  if (rank == 1) {
    OK(ncclSignal(0, 0, 0, 0, s.comm, s.stream));
    meet(2);
    _exit(0);
  }
  wait_for(&s, 1, 1, 0, 0); // what it has sent before still counts
  OK(tuttiStreamSynchronize(s.stream));
  wait_for(&s, 1, 1, 0, 0);
  meet(2);
  REFUSED(tuttiStreamSynchronize(s.stream), ncclRemoteError, "rank 1");
  OK(ncclCommAbort(s.comm));
}

// Rank 1 is killed while all put to all and wait for all. Every other rank learns it, is not stuck, and aborts at once.
static void a_peer_is_killed(int rank, void *arg)
{
  side s = open_side(rank, RANKS, arg);
  ncclResult_t res = ncclSuccess;
  for (int round = 0; res == ncclSuccess; round++) {
    if (rank == 1 && round == REPEATS) {
      raise(SIGKILL);
    }
    for (int i = 0; i < RANKS && res == ncclSuccess; i++) {
      size_t at = BYTES + (size_t)rank * 300000;
      res = ncclPutSignal(s.memory, 300000, ncclUint8, i, s.window, at, 0, 0, 0, s.comm, s.stream);
    }
    for (int i = 0; i < RANKS && res == ncclSuccess; i++) {
      ncclWaitSignalDesc_t d = {.opCnt = 1, .peer = i, .sigIdx = 0, .ctx = 0};
      res = ncclWaitSignal(1, &d, s.comm, s.stream);
    }
    res = res == ncclSuccess ? tuttiStreamSynchronize(s.stream) : res;
  }
  CHECK(res == ncclRemoteError && strstr(ncclGetLastError(s.comm), "rank 1") != NULL, "got %d", (int)res);
  double began = seconds_now();
  OK(ncclCommAbort(s.comm));
  CHECK(seconds_now() - began < GENEROUS(1), "ncclCommAbort took %g s", seconds_now() - began);
}

// Rank 1 deregisters its window while rank 0 puts into it. Then the memory is rank 1's, and rank 0 is told.
static void a_window_goes(int rank, void *arg)
{
  side s = open_side(rank, 2, arg);
  ncclResult_t res = ncclSuccess;
  barrier(&s);
  if (rank == 1) {
    sleep_ms(20);
    OK(ncclCommWindowDeregister(s.comm, s.window));
    memset(s.memory, 77, 2 * (size_t)BYTES);
    sleep_ms(100);
    for (size_t i = 0; i < 2 * (size_t)BYTES; i++) {
      CHECK(s.memory[i] == 77, "byte %zu was written after the window had gone", i);
    }
  }
  while (rank == 0 && res == ncclSuccess) {
    res = ncclPutSignal(s.memory, BYTES, ncclUint8, 1, s.window, BYTES, 0, 0, 0, s.comm, s.stream);
    res = res == ncclSuccess ? tuttiStreamSynchronize(s.stream) : res;
  }
  if (rank == 0) {
    CHECK(res == ncclInvalidUsage || res == ncclInvalidArgument, "got %d", (int)res);
    CHECK(strstr(ncclGetLastError(NULL), "deregistered") != NULL, "another error");
  }
  meet(2);
  OK(ncclCommAbort(s.comm));
}

// An abort waits for no signal.
static void aborted_while_waiting(int rank, void *arg)
{
  side s = open_side(rank, 2, arg);
  wait_for(&s, 1, 1 - rank, 0, 0);
  sleep_ms(50);
  double began = seconds_now();
  OK(ncclCommAbort(s.comm));
  CHECK(seconds_now() - began < GENEROUS(1), "ncclCommAbort took %g s", seconds_now() - began);
}

// A put into a window that the peer registers a second later waits; one into a window that it has given up is refused.
static void windows_come_and_go(int rank, void *arg)
{
  side s = open_side(rank, 2, arg);
  ncclWindow_t second;
  barrier(&s);
  if (rank == 1) {
    sleep_ms(300);
  }
  OK(ncclCommWindowRegister(s.comm, s.memory, 4096, &second, NCCL_WIN_DEFAULT));
  write_pattern(s.memory + 8192, 4096, rank, 1);
  OK(ncclPutSignal(s.memory + 8192, 4096, ncclUint8, 1 - rank, second, 0, 0, 0, 0, s.comm, s.stream));
  wait_for(&s, 1, 1 - rank, 0, 0);
  barrier(&s);
  check_pattern(s.memory, 4096, 1 - rank, 1);
  if (rank == 1) {
    OK(ncclCommWindowDeregister(s.comm, second));
  }
  barrier(&s);
  if (rank == 0) {
    REFUSED(ncclPutSignal(s.memory, 8, ncclUint8, 1, second, 0, 0, 0, 0, s.comm, s.stream), ncclInvalidArgument,
            "rank 1 has deregistered");
    OK(ncclCommWindowDeregister(s.comm, second));
  }
  close_side(&s);
}

static void peers_do_not_signal(void **state)
{
  manner m = {.ordinary = false};
  (void)state;
  assert_int_equal(
      run_processes(
          &(run){.n = 2, .seconds = 20, .fn = signal_never_comes, .arg = &m, .env = ENV("NCCL_STALL_ERROR_MS=700")}),
      0);
  PROCESSES(2, 20, waits_are_explained, &m);
  if (!over_network()) { // where messages may be under way it is no proof
    PROCESSES(RANKS, 20, signals_go_round, &m);
  }
  PROCESSES(RANKS, 20, a_signal_is_late, &m);
  PROCESSES(2, 20, a_peer_ends, &m);
  PROCESSES(2, 20, windows_come_and_go, &m);
  PROCESSES(2, 20, aborted_while_waiting, &m);
  PROCESSES(2, 20, a_window_goes, &m);
}

static void peers_are_killed(void **state)
{
  (void)state;
  for (int nodes = 0; nodes < 2; nodes++) {
    manner m = {.nodes = nodes != 0};
    ranks_set r;
    start_processes(&r, &(run){.n = RANKS, .seconds = 30, .fn = a_peer_is_killed, .arg = &m});
    r.expected[1] = -SIGKILL;
    assert_int_equal(finish_processes(&r), 0);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(puts_go_round),       cmocka_unit_test(puts_go_to_all),
                                     cmocka_unit_test(queues_keep_order),   cmocka_unit_test(no_put_is_lost),
                                     cmocka_unit_test(contexts_are_apart),  cmocka_unit_test(wrong_use),
                                     cmocka_unit_test(peers_do_not_signal), cmocka_unit_test(peers_are_killed)};
  return RUN_TESTS("one_sided", tests, argc, argv);
}
