// net_test.c: ranks on the network: how they begin and end, what becomes of messages under way, and settings that only
// the network has. What holds everywhere is tested by the programs that run a second time over the network
// (cmake/tutti_tests.cmake).
#define _GNU_SOURCE // memfd_create
#include "reference.h"

#define NETWORK "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_SOCKET_IFNAME=lo"
// No peer is given up because it is silent: a peer that has gone is noticed by other signs.
#define PATIENT "NCCL_NET_TIMEOUT=10000"
#define OVER_NETWORK(count, limit, function, argument, ...)                               \
  assert_int_equal(run_processes(&(run){.n = (count),                                     \
                                        .seconds = (limit),                               \
                                        .fn = (function),                                 \
                                        .arg = (argument),                                \
                                        .env = ENV(NETWORK __VA_OPT__(, ) __VA_ARGS__)}), \
                   0)

// --- Samples

// One sample on one rank, checked.
static void check_sample(sample *s, ncclComm_t comm, int rank)
{
  part p = {.rank = rank, .comm = comm, .stream = (cudaStream_t)2};
  prepare(s, &p);
  OK(ncclGroupStart());
  call(s, &p);
  OK(ncclGroupEnd());
  OK(tuttiStreamSynchronize(p.stream));
  verify(s, &p);
}

// All functions at these sizes.
static void check_functions(ncclComm_t comm, int n, int rank, const size_t *counts, size_t ncounts)
{
  for (size_t i = 0; i < ncounts; i++) {
    for (int f = 0; f < FUNCS; f++) {
      sample s = {.func = f, .type = ncclInt32, .count = counts[i], .n = n, .root = (f + (int)i) % n};
      check_sample(&s, comm, rank);
    }
  }
}

// --- Settings

typedef struct setting {
  const char *all[3]; // "NAME=VALUE" for every rank
  const char *first;  // for rank 0 alone
} setting;

static const setting settings[] = {
    {{NULL}, NULL},
    {{"NCCL_RUNTIME_CONNECT=0"}, NULL},
    {{"NCCL_NET=Socket"}, NULL},
    {{"NCCL_NET=socket"}, NULL},
    {{"NCCL_BUFFSIZE=1"}, NULL},
    {{"NCCL_BUFFSIZE=33554432"}, NULL},
    {{"NCCL_BUFFSIZE=262144"}, "NCCL_BUFFSIZE=8192"},
    {{"NCCL_LL_BUFFSIZE=4096"}, "NCCL_LL_BUFFSIZE=65536"},
    {{"NCCL_P2P_NET_CHUNKSIZE=0"}, NULL},
    {{"NCCL_PROTO=LL"}, NULL},
    {{"NCCL_PROTO=Simple"}, NULL},
    {{"NCCL_SOCKET_NTHREADS=2", "NCCL_NSOCKS_PERTHREAD=2"}, NULL},
    {{"NCCL_SOCKET_NTHREADS=2", "NCCL_NSOCKS_PERTHREAD=2"}, "NCCL_NSOCKS_PERTHREAD=1"},
    {{"NCCL_PROGRESS_APPENDOP_FREQ=1"}, "NCCL_PROGRESS_APPENDOP_FREQ=1000"},
    {{"NCCL_HOST_SPIN_US=0"}, NULL},
};

static void setting_body(int rank, void *arg)
{
  static const size_t counts[] = {0, 1, 1009, 70001};
  const setting *set = arg;
  for (int i = 0; i < 3 && set->all[i] != NULL; i++) {
    putenv((char *)(uintptr_t)set->all[i]);
  }
  if (rank == 0 && set->first != NULL) {
    putenv((char *)(uintptr_t)set->first);
  }
  ncclComm_t comm = join_processes(0, 3, rank);
  check_functions(comm, 3, rank, counts, sizeof counts / sizeof counts[0]);
  OK(ncclCommDestroy(comm));
}

static void works_with_settings(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
    OVER_NETWORK(3, 30, setting_body, (void *)(uintptr_t)&settings[i]);
  }
}

static void counts_body(int rank, void *arg)
{
  static const size_t counts[] = {0, 1, 61, 10007};
  int n = *(int *)arg;
  ncclComm_t comm = join_processes(0, n, rank);
  check_functions(comm, n, rank, counts, sizeof counts / sizeof counts[0]);
  OK(ncclCommDestroy(comm));
}

static void any_number_of_ranks(void **state)
{
  (void)state;
  for (int n = 1; n <= 7; n += n < 3 ? 1 : 4) {
    OVER_NETWORK(n, 30, counts_body, &n);
  }
}

// Settings that cannot be: every rank says so, and none hangs.
static void refused_body(int rank, void *arg)
{
  ncclComm_t comm = NULL;
  ncclUniqueId id = shared_id(0, rank);
  ncclResult_t res = ncclCommInitRank(&comm, 2, id, rank);
  CHECK(res != ncclSuccess && comm == NULL, "a communicator in spite of %s", (const char *)arg);
  const char *text = ncclGetLastError(NULL);
  CHECK(strstr(text, (const char *)arg) != NULL || res == ncclRemoteError, "the text does not name %s: %s",
        (const char *)arg, text);
}

static void refuses_settings(void **state)
{
  (void)state;
  OVER_NETWORK(2, 30, refused_body, (void *)(uintptr_t) "NCCL_NET", "NCCL_NET=nonsense");
}

static void no_interface_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  ncclUniqueId id;
  setenv("NCCL_SOCKET_IFNAME", "nonsense", 1);
  REFUSED(ncclGetUniqueId(&id), ncclSystemError, "NCCL_SOCKET_IFNAME", "nonsense");
}

static void refuses_interfaces(void **state)
{
  (void)state;
  PROCESSES(1, 10, no_interface_body, NULL);
}

// --- Several communicators at once

enum { COMMS = 4, WORDS = 20000 };

// Communicator c counts the ranks from c on, and has a stream of its own.
static void several_body(int rank, void *arg)
{
  int n = *(int *)arg;
  ncclComm_t comm[COMMS];
  cudaStream_t stream[COMMS];
  static int x[COMMS][WORDS];
  for (int c = 0; c < COMMS; c++) {
    ncclUniqueId id = shared_id(c, rank);
    OK(ncclCommInitRank(&comm[c], n, id, (rank + c) % n));
    OK(tuttiStreamCreate(&stream[c], TUTTI_STREAM_NON_BLOCKING));
  }
  for (int round = 0; round < 20; round++) {
    size_t count = round % 2 == 0 ? 1 : WORDS;
    for (int c = 0; c < COMMS; c++) {
      x[c][0] = x[c][count - 1] = rank + c;
      OK(ncclAllReduce(x[c], x[c], count, ncclInt, ncclSum, comm[c], stream[c]));
    }
    for (int c = COMMS - 1; c >= 0; c--) {
      OK(tuttiStreamSynchronize(stream[c]));
      int sum = n * (n - 1) / 2 + n * c;
      CHECK(x[c][0] == sum && x[c][count - 1] == sum, "communicator %d: %d %d, not %d", c, x[c][0], x[c][count - 1],
            sum);
    }
  }
  for (int c = 0; c < COMMS; c++) {
    OK(ncclCommDestroy(comm[c]));
    OK(tuttiStreamDestroy(stream[c]));
  }
}

static void several_communicators(void **state)
{
  (void)state;
  int n = 3;
  OVER_NETWORK(n, 30, several_body, &n);
}

// --- Nodes

// Four ranks on two nodes, in an order that depends on the round; then children within the nodes, across them, and of
// one rank.
static void split_body(int rank, void *arg)
{
  static const size_t counts[] = {1, 5003};
  int scattered = *(int *)arg, n = 4;
  setenv("NCCL_HOSTID", (scattered ? rank % 2 : rank / 2) == 0 ? "here" : "there", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  ncclComm_t comm = join_processes(0, n, rank), child = NULL;
  check_functions(comm, n, rank, counts, 2);
  const int colors[][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 0, 0, NCCL_SPLIT_NOCOLOR}, {3, 2, 1, 0}};
  for (size_t i = 0; i < sizeof colors / sizeof colors[0]; i++) {
    int size, place;
    OK(ncclCommSplit(comm, colors[i][rank], -rank, &child, NULL));
    if (child != NULL) {
      OK(ncclCommCount(child, &size));
      OK(ncclCommUserRank(child, &place));
      check_functions(child, size, place, counts, 2);
      OK(ncclCommDestroy(child));
    }
  }
  OK(ncclCommDestroy(comm));
}

static void splits_over_nodes(void **state)
{
  (void)state;
  for (int scattered = 0; scattered < 2; scattered++) {
    PROCESSES(4, 30, split_body, &scattered);
  }
}

// Seven ranks on three nodes of one, two and four, side by side or scattered: the letter is the node.
static void uneven_body(int rank, void *arg)
{
  static const size_t counts[] = {0, 1, 6, 1009, 70001};
  const char *place = arg;
  char host[] = {place[rank], '\0'};
  setenv("NCCL_HOSTID", host, 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  ncclComm_t comm = join_processes(0, 7, rank);
  check_functions(comm, 7, rank, counts, sizeof counts / sizeof counts[0]);
  OK(ncclCommDestroy(comm));
}

static void nodes_of_different_sizes(void **state)
{
  (void)state;
  static const char *const places[] = {"abbcccc", "cbcacbc"};
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
    PROCESSES(7, 30, uneven_body, (void *)(uintptr_t)places[i]);
  }
}

// --- A message of more than 4 GiB

enum { PAGE = 4096, TURN = 16381 * PAGE, TAIL = 123456 }; // a prime number of pages
#define BEFORE_TAIL ((size_t)1 << 32)

// An address range that costs little memory: it shows the same TURN bytes again and again, and from 4 GiB on TAIL bytes
// of its own.
static char *wheel_open(void)
{
  int fd = memfd_create("wheel", MFD_CLOEXEC);
  CHECK(fd >= 0 && ftruncate(fd, TURN) == 0, "no memory for a wheel");
  char *base =
      mmap(NULL, BEFORE_TAIL + TURN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(base != MAP_FAILED, "no address range of 4 GiB");
  for (size_t at = 0; at < BEFORE_TAIL; at += TURN) {
    size_t size = BEFORE_TAIL - at < TURN ? BEFORE_TAIL - at : TURN;
    CHECK(mmap(base + at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED, "no turn at %zu",
          at);
  }
  close(fd);
  return base;
}

static uint64_t wheel_word(size_t i)
{
  return (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
}

static void huge_body(int rank, void *arg)
{
  (void)arg;
  ncclComm_t comm = join_processes(0, 2, rank);
  char *base = wheel_open();
  uint64_t *turn = (uint64_t *)(void *)base, *tail = (uint64_t *)(void *)(base + BEFORE_TAIL);
  for (size_t i = 0; rank == 0 && i < TURN / 8; i++) {
    turn[i] = wheel_word(i);
  }
  for (size_t i = 0; rank == 0 && i < TAIL / 8; i++) {
    tail[i] = ~wheel_word(i);
  }
  OK(rank == 0 ? ncclSend(base, BEFORE_TAIL + TAIL, ncclInt8, 1, comm, NULL)
               : ncclRecv(base, BEFORE_TAIL + TAIL, ncclInt8, 0, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  for (size_t i = 0; i < TURN / 8; i++) {
    CHECK(turn[i] == wheel_word(i), "word %zu of the turn: 0x%llx", i, (unsigned long long)turn[i]);
  }
  for (size_t i = 0; i < TAIL / 8; i++) {
    CHECK(tail[i] == ~wheel_word(i), "word %zu behind 4 GiB: 0x%llx", i, (unsigned long long)tail[i]);
  }
  CHECK(tail[TAIL / 8] == 0, "written behind the end");
  OK(ncclCommDestroy(comm));
  munmap(base, BEFORE_TAIL + TURN);
}

static void more_than_four_gib(void **state)
{
  (void)state;
  if (SLOWER > 1) {
    skip(); // minutes
  }
  OVER_NETWORK(2, 120, huge_body, NULL);
}

// --- Init that does not wait

static void nonblocking_body(int rank, void *arg)
{
  static const size_t counts[] = {1, 5003};
  int n = *(int *)arg;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL;
  config.blocking = 0;
  ncclUniqueId id = shared_id(0, rank);
  ncclResult_t state = ncclCommInitRankConfig(&comm, n, id, rank, &config);
  CHECK(state == ncclSuccess || state == ncclInProgress, "init began with %d", (int)state);
  while (state = ncclInvalidUsage, ncclCommGetAsyncError(comm, &state), state == ncclInProgress) {
    sleep_ms(0.1);
  }
  OK(state);
  check_functions(comm, n, rank, counts, 2);
  ncclResult_t res = ncclCommFinalize(comm);
  CHECK(res == ncclSuccess || res == ncclInProgress, "finalize gave %d", (int)res);
  while (ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress) {
    sleep_ms(0.1);
  }
  OK(state);
  OK(ncclCommDestroy(comm));
}

static void nonblocking_init(void **state)
{
  (void)state;
  int n = 3;
  OVER_NETWORK(n, 30, nonblocking_body, &n);
}

// --- The end of a peer

// Polls as a program does that never waits for a stream. Returns the communicator's state.
static ncclResult_t poll_to_the_end(ncclComm_t comm, cudaStream_t stream, double seconds)
{
  ncclResult_t state = ncclSuccess;
  double end = seconds_now() + GENEROUS(seconds);
  while (state == ncclSuccess && tuttiStreamQuery(stream) == ncclInProgress) {
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(seconds_now() < end, "the operation does not end");
    sleep_ms(0.1);
  }
  OK(ncclCommGetAsyncError(comm, &state));
  return state;
}

// Text of a remote error: it names another rank.
static void check_names_peer(ncclComm_t comm, int rank)
{
  const char *text = ncclGetLastError(comm);
  char own[16];
  snprintf(own, sizeof own, "rank %d", rank);
  const char *first = strstr(text, "rank ");
  CHECK(first != NULL && strlen(first) > 5, "the text names no rank: %s", text);
  for (const char *at = first; at != NULL; at = strstr(at + 1, "rank ")) {
    if (strncmp(at, own, strlen(own)) != 0) {
      return;
    }
  }
  CHECK(false, "the text names only rank %d itself: %s", rank, text);
}

enum { LEAVING = 8 }; // pairs at once: each spends most of its time with a rest between two dials

typedef struct leaving {
  ncclUniqueId id;
  int round;
} leaving;

// One of two ranks leaves at some moment while the other connects with it.
static void leaving_rank(int rank, void *arg)
{
  const leaving *l = arg;
  float x[1000] = {0};
  ncclComm_t comm = NULL;
  OK(ncclCommInitRank(&comm, 2, l->id, rank));
  sleep_ms((double)(mix((uint32_t)(2 * l->round + rank)) % 1024) / 300);
  if (rank == l->round % 2) {
    OK(l->round % 3 == 0 ? ncclCommDestroy(comm) : ncclCommAbort(comm));
    return;
  }
  OK(ncclAllReduce(x, x, 1000, ncclFloat, ncclSum, comm, (cudaStream_t)2));
  ncclResult_t state = poll_to_the_end(comm, (cudaStream_t)2, 5);
  CHECK(state == ncclRemoteError, "round %d: state %d", l->round, (int)state);
  check_names_peer(comm, rank);
  OK(ncclCommAbort(comm));
}

static void leaving_body(int rank, void *arg)
{
  (void)arg;
  for (int round = rank; round < 48 / SLOWER; round += LEAVING) {
    leaving l = {.round = round};
    OK(ncclGetUniqueId(&l.id));
    run_threads(2, leaving_rank, &l);
  }
}

static void leaves_while_connecting(void **state)
{
  (void)state;
  OVER_NETWORK(LEAVING, 60, leaving_body, NULL, PATIENT);
}

// Rank 0 sends, and is destroyed while the others still receive: they come late, and get everything.
static void last_words_body(int rank, void *arg)
{
  static const size_t counts[] = {1, 1000, 100000, 1000000};
  int n = *(int *)arg;
  for (int round = 0; round < 8; round++) {
    ncclComm_t comm = join_processes(round, n, rank);
    sample s = {.func = round % 2 == 0 ? BROADCAST : SCATTER, .type = ncclInt64, .count = counts[round / 2], .n = n};
    part p = {.rank = rank, .comm = comm, .stream = (cudaStream_t)2};
    prepare(&s, &p);
    sleep_ms(rank * 60);
    call(&s, &p);
    if (rank != 0) {
      OK(tuttiStreamSynchronize(p.stream));
    }
    OK(ncclCommDestroy(comm));
    OK(tuttiStreamSynchronize(p.stream));
    verify(&s, &p);
  }
}

static void last_words_arrive(void **state)
{
  (void)state;
  int n = 3;
  OVER_NETWORK(n, 60, last_words_body, &n);
}

enum { LARGE = 8000000 }; // floats: several passes, whatever the settings

// One rank gives up in the middle of a large sum, or of many small ones; the others learn who it was.
static void abort_body(int rank, void *arg)
{
  int n = *(int *)arg;
  float *x = calloc(LARGE, sizeof *x);
  CHECK(x != NULL, "no memory");
  for (int round = 0; round < 6; round++) {
    ncclComm_t comm = join_processes(round, n, rank);
    ncclResult_t res = ncclSuccess, state;
    double end = seconds_now() + GENEROUS(5);
    while (res == ncclSuccess) {
      CHECK(seconds_now() < end, "round %d: nobody notices", round);
      OK(ncclAllReduce(x, x, round % 2 == 0 ? LARGE : 10, ncclFloat, ncclSum, comm, NULL));
      if (rank == round % n) {
        sleep_ms((double)(mix((uint32_t)round) % 1024) / 100);
        break;
      }
      res = tuttiStreamSynchronize(NULL);
      CHECK(res == ncclSuccess || res == ncclRemoteError, "round %d: an operation ends with %d", round, (int)res);
    }
    if (res != ncclSuccess) {
      OK(ncclCommGetAsyncError(comm, &state));
      CHECK(state == ncclRemoteError, "round %d: state %d", round, (int)state);
      check_names_peer(comm, rank);
    }
    double start = seconds_now();
    OK(ncclCommAbort(comm));
    CHECK(seconds_now() - start < GENEROUS(5), "round %d: ncclCommAbort took %g s", round, seconds_now() - start);
    tuttiStreamSynchronize(NULL); // takes the stream's error
  }
  free(x);
}

static void abort_in_the_middle(void **state)
{
  (void)state;
  int n = 3;
  OVER_NETWORK(n, 60, abort_body, &n, PATIENT);
}

// --- Fork

enum { CHILD_PID, KILLED };

static void sums_with_child(int n, int rank, ncclComm_t comm, int rounds)
{
  for (int i = 0; i < rounds; i++) {
    sample s = {.func = ALLREDUCE, .type = ncclInt32, .count = i % 2 == 0 ? 3 : 100003, .n = n};
    check_sample(&s, comm, rank);
  }
}

// A rank forks while its connections live: a child that ends harms nobody, and one that lives on does not hide its
// parent's death.
static void fork_body(int rank, void *arg)
{
  int n = *(int *)arg;
  ncclComm_t comm = join_processes(0, n, rank);
  sums_with_child(n, rank, comm, 4);
  for (int i = 0; rank == 1 && i < 2; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) { // the first ends in order, the second at once
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      i == 0 ? exit(0) : _exit(0);
    }
    waitpid(pid, NULL, 0);
  }
  sums_with_child(n, rank, comm, 4);
  meet(n);
  if (rank == 1) {
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
      atomic_store(&the_board->word[CHILD_PID], (uint64_t)getpid());
      sleep_ms(1000.0 * GENEROUS(20));
      _exit(0);
    }
    while (atomic_load(&the_board->word[CHILD_PID]) == 0) {
      sleep_ms(1);
    }
    sums_with_child(n, rank, comm, 4);
    meet(n); // the others have what it sent
    kill(getpid(), SIGKILL);
  }
  sums_with_child(n, rank, comm, 4);
  meet(n);
  int x = 0;
  OK(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, NULL));
  double start = seconds_now();
  GIVES(tuttiStreamSynchronize(NULL), ncclRemoteError);
  CHECK(seconds_now() - start < GENEROUS(5), "the death was noticed after %g s", seconds_now() - start);
  OK(ncclCommAbort(comm));
  meet(n - 1);
  if (rank == 0) {
    kill((pid_t)atomic_load(&the_board->word[CHILD_PID]), SIGKILL);
  }
}

static void children(void **state)
{
  (void)state;
  int n = 3;
  ranks_set r;
  start_processes(&r, &(run){.n = n, .seconds = 30, .fn = fork_body, .arg = &n, .env = ENV(NETWORK, PATIENT)});
  r.expected[1] = -SIGKILL;
  assert_int_equal(finish_processes(&r), 0);
}

// The state of operations is read from outside while they wait.
static void states_body(int rank, void *arg)
{
  (void)arg;
  ncclComm_t comm = join_processes(0, 2, rank);
  tuttiProxyState_t s[4];
  int n = -1, x[3] = {rank, 5, 7};
  CHECK(tuttiCommProxyStates(comm, s, 4, NULL) == ncclInvalidArgument, "no count");
  CHECK(tuttiCommProxyStates(comm, NULL, 4, &n) == ncclInvalidArgument, "no states");
  CHECK(tuttiCommProxyStates(comm, s, -1, &n) == ncclInvalidArgument, "room for -1");
  CHECK(tuttiCommProxyStates(NULL, s, 4, &n) == ncclInvalidArgument, "no communicator");
  OK(tuttiCommProxyStates(comm, s, 4, &n));
  CHECK(n == 0, "%d operations before the first", n);
  if (rank == 0) {
    OK(ncclRecv(x, 3, ncclInt, 1, comm, NULL));
    double end = seconds_now() + GENEROUS(10);
    do { // rank 1 waits for the word, so the operation stays
      CHECK(seconds_now() < end, "the receive does not begin");
      OK(tuttiCommProxyStates(comm, s, 4, &n));
    } while (n == 0);
    CHECK(n == 1 && s[0].peer == 1 && s[0].send == 0 && s[0].behalf == 0 && s[0].startedNs != 0, "not the receive");
    CHECK(s[0].steps == 1 && s[0].received == 0 && s[0].done == 0, "%u of %u have come", s[0].received, s[0].steps);
    CHECK(s[0].connected == 0, "rank 1 has no reason to connect yet");
    OK(tuttiCommProxyStates(comm, NULL, 0, &n));
    CHECK(n == 1, "%d operations", n);
    atomic_store(&the_board->word[1], 1);
  } else {
    while (atomic_load(&the_board->word[1]) == 0) {
      sleep_ms(1);
    }
    OK(ncclSend(x, 3, ncclInt, 0, comm, NULL));
  }
  OK(tuttiStreamSynchronize(NULL));
  CHECK(x[0] == 1 && x[2] == 7, "wrong data");
  OK(ncclCommFinalize(comm));
  OK(tuttiCommProxyStates(comm, s, 4, &n));
  CHECK(n == 0, "%d operations are left", n);
  OK(ncclCommDestroy(comm));
}

static void states(void **state)
{
  (void)state;
  OVER_NETWORK(2, 30, states_body, NULL);
}

// Long messages are cut so that each piece fills whole segments of TCP: multiples of 60 KiB, as long as
// NCCL_P2P_NET_CHUNKSIZE allows.
static void pieces_body(int rank, void *arg)
{
  const struct {
    size_t bytes;
    unsigned pieces; // of at most 120 KiB
  } messages[] = {{64 << 10, 1}, {120 << 10, 1}, {128 << 10, 2}, {1 << 20, 9}};
  (void)arg;
  ncclComm_t comm = join_processes(0, 2, rank);
  char *x = calloc(1, 1 << 20);
  for (int i = 0; i < (int)(sizeof messages / sizeof messages[0]); i++) {
    size_t bytes = messages[i].bytes;
    if (rank == 0) {
      tuttiProxyState_t s[1];
      int n = 0;
      OK(ncclRecv(x, bytes, ncclInt8, 1, comm, NULL));
      OK(tuttiCommProxyStates(comm, s, 1, &n)); // rank 1 waits for the word, so the operation stays
      CHECK(n == 1 && s[0].steps == messages[i].pieces, "%d operations, %zu bytes in %u pieces", n, bytes, s[0].steps);
      atomic_store(&the_board->word[1], (uint32_t)i + 1);
    } else {
      while (atomic_load(&the_board->word[1]) != (uint32_t)i + 1) {
        sleep_ms(1);
      }
      x[0] = x[bytes - 1] = (char)(i + 1);
      OK(ncclSend(x, bytes, ncclInt8, 0, comm, NULL));
    }
    OK(tuttiStreamSynchronize(NULL));
    CHECK(x[0] == i + 1 && x[bytes - 1] == i + 1, "wrong data");
  }
  free(x);
  OK(ncclCommDestroy(comm));
}

static void pieces(void **state)
{
  (void)state;
  OVER_NETWORK(2, 30, pieces_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(works_with_settings),
      cmocka_unit_test(any_number_of_ranks),
      cmocka_unit_test(refuses_settings),
      cmocka_unit_test(refuses_interfaces),
      cmocka_unit_test(several_communicators),
      cmocka_unit_test(splits_over_nodes),
      cmocka_unit_test(nodes_of_different_sizes),
      cmocka_unit_test(more_than_four_gib),
      cmocka_unit_test(nonblocking_init),
      cmocka_unit_test(leaves_while_connecting),
      cmocka_unit_test(last_words_arrive),
      cmocka_unit_test(abort_in_the_middle),
      cmocka_unit_test(children),
      cmocka_unit_test(states),
      cmocka_unit_test(pieces),
  };
  return RUN_TESTS("net", tests, argc, argv);
}
