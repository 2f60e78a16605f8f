// cuda_window_test.c: windows and one-sided operations of ranks on GPUs, through the public interface, on the driver
// for tests: every byte is compared; ranks of one thread, threads, processes, on one GPU or three.
#include "cuda_windows.h"

// To all, own rank too, and one wait for all. The wait comes first, in another context.
static void all_to_all(void)
{
  const size_t part = 5000;
  for (int r = first; r < last; r++) {
    write_pattern(sides[r].memory, part, r, 77);
    memset(sides[r].memory + HALF, 0, HALF);
  }
  barrier();
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    ncclWaitSignalDesc_t d[RANKS];
    for (int i = 0; i < nranks; i++) {
      d[i] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = i, .sigIdx = 1, .ctx = 0};
    }
    wait_for(r, 1, before(r), 0, 1);
    for (int i = 0; i < nranks; i++) {
      put(r, 0, part, i, (size_t)r * part, 1, 0);
    }
    OK(ncclWaitSignal(nranks, d, sides[r].comm, stream_of(r)));
    OK(ncclSignal(after(r), 0, 1, 0, sides[r].comm, (cudaStream_t)sides[r].other));
  }
  OK(ncclGroupEnd());
  wait_all();
  for (int r = first; r < last; r++) {
    for (int i = 0; i < nranks; i++) {
      check_pattern(sides[r].memory + HALF + (size_t)i * part, part, i, 77);
    }
  }
  barrier();
}

// Puts to one place, from two streams in turn: they arrive in the order of the calls, each before its signal.
static void order_of_puts(void)
{
  for (int r = first; r < last; r++) {
    for (int i = 0; i < MANY; i++) {
      memset(sides[r].memory + (size_t)i * 64, i + 1, 64);
    }
  }
  barrier();
  OK(ncclGroupStart());
  for (int i = 0; i < MANY; i++) {
    for (int r = first; r < last; r++) {
      const side *s = &sides[r];
      OK(ncclPutSignal(s->memory + (size_t)i * 64, 64, ncclUint8, after(r), s->window, HALF, i % SIGNALS, 0, 0, s->comm,
                       (cudaStream_t)(i % 2 == 0 ? s->stream : s->other)));
    }
  }
  for (int r = first; r < last; r++) {
    wait_for(r, (MANY - 1) / SIGNALS + 1, before(r), (MANY - 1) % SIGNALS, 0); // the last one's signal
  }
  OK(ncclGroupEnd());
  wait_all();
  for (int r = first; r < last; r++) {
    for (int i = 0; i < 64; i++) {
      CHECK(sides[r].memory[HALF + i] == MANY, "put %d came last", sides[r].memory[HALF + i]);
    }
  }
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) { // what the waits have left
    for (int sig = 0; sig < SIGNALS; sig++) {
      const int count = (MANY - 1 - sig) / SIGNALS + 1;
      if (sig != (MANY - 1) % SIGNALS) {
        wait_for(r, count, before(r), sig, 0);
      }
    }
  }
  OK(ncclGroupEnd());
  wait_all();
  barrier();
}

// A message goes round, each rank waits before it passes it on: calls of one group, in the order of the ranks or
// against it.
static void round_trip(void)
{
  const size_t n = 3000;
  for (int turn = 0; turn < 3; turn++) {
    if (first == 0) {
      write_pattern(sides[0].memory + HALF, n, 0, turn);
    }
    barrier();
    OK(ncclGroupStart());
    for (int k = first; k < last; k++) {
      const int r = turn == 1 ? first + last - 1 - k : k;
      const side *s = &sides[r];
      if (r != 0) {
        wait_for(r, 1, before(r), 0, 0);
      }
      OK(ncclPutSignal(s->memory + HALF, n, ncclUint8, after(r), s->window, r == nranks - 1 ? 0 : HALF, 0, 0, 0,
                       s->comm, stream_of(r)));
      if (r == 0) {
        wait_for(r, 1, before(r), 0, 0);
      }
    }
    OK(ncclGroupEnd());
    wait_all();
    for (int r = first; r < last; r++) {
      check_pattern(sides[r].memory + (r == 0 ? 0 : HALF), n, 0, turn);
    }
    barrier();
  }
}

// Collectives, and operations of both kinds in one group.
static void with_collectives(void)
{
  for (int i = 0; i < 4; i++) {
    for (int r = first; r < last; r++) {
      write_pattern(sides[r].memory, 100, r, i);
      *(float *)(void *)(sides[r].memory + 4096) = (float)(r + 1);
    }
    barrier();
    OK(ncclGroupStart());
    for (int r = first; r < last; r++) {
      const side *s = &sides[r];
      put(r, 0, 100, after(r), 0, 0, 0);
      OK(ncclAllReduce(s->memory + 4096, s->memory + 8192, 1, ncclFloat, ncclSum, s->comm, stream_of(r)));
      wait_for(r, 1, before(r), 0, 0);
    }
    OK(ncclGroupEnd());
    wait_all();
    for (int r = first; r < last; r++) {
      const float sum = (float)(nranks * (nranks + 1) / 2);
      CHECK(*(const float *)(const void *)(sides[r].memory + 8192) == sum, "the sum is wrong");
      check_pattern(sides[r].memory + HALF, 100, before(r), i);
    }
    barrier();
  }
}

// The peers' addresses: what is stored there, they have.
static void addresses(void)
{
  for (int r = first; r < last; r++) {
    const side *s = &sides[r];
    void *own, *at, *lsa;
    OK(ncclWinGetUserPtr(s->comm, s->window, &own));
    CHECK(own == s->memory, "the own address");
    for (int peer = 0; peer < nranks; peer++) {
      OK(ncclGetPeerDevicePointer(s->window, 4096, peer, &at));
      OK(ncclGetLsaDevicePointer(s->window, 4096, peer, &lsa));
      CHECK(at != NULL && at == lsa, "rank %d has no address of rank %d", r, peer);
      CHECK(peer < first || peer >= last || at == sides[peer].memory + 4096, "another address");
    }
    OK(ncclGetPeerDevicePointer(s->window, HALF, after(r), &at));
    ON(r, cu->MemsetD8Async((CUdeviceptr)(uintptr_t)at, (unsigned char)(r + 1), 100, s->stream));
  }
  barrier();
  for (int r = first; r < last; r++) {
    for (int i = 0; i < 100; i++) {
      CHECK(sides[r].memory[HALF + i] == before(r) + 1, "byte %d is %d", i, sides[r].memory[HALF + i]);
    }
  }
  barrier();
}

static bool no_access(void)
{
  const char *p2p = getenv("NCCL_P2P_DISABLE");
  return (apart && nranks > 1) || mixed || (p2p != NULL && p2p[0] == '1');
}

// Ranks that do not all reach each other have no addresses of others.
static void no_addresses(void)
{
  for (int r = first; r < last; r++) {
    for (int peer = 0; peer < nranks; peer++) {
      void *at = NULL;
      OK(ncclGetPeerDevicePointer(sides[r].window, 0, peer, &at));
      CHECK(at == (peer == r ? sides[r].memory : NULL), "rank %d has address %p of rank %d", r, at, peer);
    }
  }
  barrier();
}

// A put that is longer than all FIFOs: each rank's stream goes on, though its peer has not called anything that waits.
static void long_put(void)
{
  const size_t n = LONG_PUT;
  unsigned char *memory[RANKS];
  ncclWindow_t window[RANKS];
  for (int r = first; r < last; r++) {
    sides[r].longer = sides[r].longer != NULL ? sides[r].longer : long_memory(r, 2 * n);
    memory[r] = memset(sides[r].longer, 0, 2 * n);
    write_pattern(memory[r], n, r, 5);
    OK(ncclCommWindowRegister(sides[r].comm, memory[r], 2 * n, &window[r], 0));
  }
  barrier();
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    OK(ncclPutSignal(memory[r] + 1, n - 1, ncclUint8, after(r), window[r], n + 1, 0, 0, 0, sides[r].comm,
                     stream_of(r)));
  }
  OK(ncclGroupEnd());
  wait_all();
  for (int r = first; r < last; r++) {
    memset(memory[r], 0, n); // the put is complete
  }
  barrier();
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    wait_for(r, 1, before(r), 0, 0);
  }
  OK(ncclGroupEnd());
  wait_all();
  for (int r = first; r < last; r++) {
    for (size_t i = 1; i < n; i++) {
      CHECK(memory[r][n + i] == pattern(before(r), 5, i), "byte %zu of a long put is %d", i, memory[r][n + i]);
    }
    CHECK(memory[r][n] == 0, "written before the beginning");
  }
  barrier();
  for (int r = first; r < last; r++) {
    OK(ncclCommWindowDeregister(sides[r].comm, window[r]));
  }
}

static void all_operations(void)
{
  open_windows();
  ring_of_puts();
  all_to_all();
  order_of_puts();
  round_trip();
  with_collectives();
  long_put();
  if (!over_network()) {
    (no_access() ? no_addresses : addresses)();
  }
  close_windows();
}

static void one_thread(int n)
{
  open_comms(n);
  all_operations();
  open_windows(); // at the same addresses
  ring_of_puts();
  close_windows();
  close_comms();
}

static void test_one(void **state)
{
  (void)state;
  one_thread(1);
}

static void test_several(void **state)
{
  (void)state;
  static const int counts[] = {2, 3, 8};
  for (size_t i = 0; i < TT_COUNT(counts); i++) {
    one_thread(counts[i]);
  }
}

// ---- Threads and processes ----

typedef struct rank_thread {
  pthread_t thread;
  ncclUniqueId id;
  int rank;
} rank_thread;

// Signals go round: another thread queues one while this one looks whether it has.
static void hand_over(void)
{
  const int r = first;
  open_windows();
  for (int turn = 0; turn < (apart ? 1 : 20) * MANY; turn++) { // each wait is a turn of the library's thread there
    if (r != 0) {
      wait_for(r, 1, before(r), 0, 0);
    }
    OK(ncclSignal(after(r), 0, 0, 0, sides[r].comm, stream_of(r)));
    if (r == 0) {
      wait_for(r, 1, before(r), 0, 0);
    }
  }
  wait_all();
  close_windows();
}

static void *thread_body(void *arg)
{
  const rank_thread *t = arg;
  one_rank(t->rank, nranks, &t->id);
  all_operations();
  hand_over();
  close_comms();
  tt_gpu_leave();
  return NULL;
}

static void test_threads(void **state)
{
  (void)state;
  rank_thread threads[4];
  ncclUniqueId id;
  if (few_queues) {
    skip();
  }
  open_driver();
  OK(ncclGetUniqueId(&id));
  nranks = TT_COUNT(threads);
  for (int i = 0; i < nranks; i++) {
    threads[i] = (rank_thread){.id = id, .rank = i};
    assert_int_equal(pthread_create(&threads[i].thread, NULL, thread_body, &threads[i]), 0);
  }
  for (int i = 0; i < nranks; i++) {
    assert_int_equal(pthread_join(threads[i].thread, NULL), 0);
  }
}

// The library has used the rank's GPU alone.
static void check_devices(int rank)
{
  for (int d = 0; d < tt_gpu_count(); d++) {
    unsigned flags;
    int active = 0;
    CHECK(cu->DevicePrimaryCtxGetState(d, &flags, &active) == CUDA_SUCCESS, "GPU %d: no state", d);
    CHECK(active == (d == device_of(rank)), "rank %d: GPU %d has a context: %d", rank, d, active);
  }
}

static void process_body(int rank, void *arg)
{
  open_process(rank, *(const int *)arg);
  for (int i = 0; i < TIMES; i++) {
    all_operations();
  }
  if (!on_host && no_access()) {
    check_devices(rank);
  }
  close_comms();
  if (!on_host) {
    tt_gpu_leave();
  }
}

static void test_processes(void **state)
{
  (void)state;
  for (int n = 1; n <= 3; n++) {
    PROCESSES(n, 60, process_body, &n);
  }
}

// The same with every pair of ranks on the network.
static void test_network(void **state)
{
  (void)state;
  for (int n = 2; n <= 3; n++) {
    const run job = {
        .n = n, .seconds = 60, .fn = process_body, .arg = &n, .env = ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")};
    assert_int_equal(run_processes(&job), 0);
  }
}

// The same of GPUs that would reach each other.
static void test_forbidden(void **state)
{
  (void)state;
  int n = 3;
  const run job = {.n = n, .seconds = 60, .fn = process_body, .arg = &n, .env = ENV("NCCL_P2P_DISABLE=1")};
  assert_int_equal(run_processes(&job), 0);
}

// Odd ranks are on the host.
static void mixed_body(int rank, void *arg)
{
  on_host = rank % 2 != 0;
  mixed = true;
  process_body(rank, arg);
}

// On one machine, and on one each.
static void test_mixed(void **state)
{
  (void)state;
  int n = 4;
  PROCESSES(n, 60, mixed_body, &n);
  n = 3;
  const run job = {
      .n = n, .seconds = 60, .fn = mixed_body, .arg = &n, .env = ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")};
  assert_int_equal(run_processes(&job), 0);
}

// Processes with several ranks each, which one thread calls.
static void pair_body(int process, void *arg)
{
  const int n = *(const int *)arg;
  ncclConfig_t config = window_config();
  const ncclUniqueId id = shared_id(0, process);
  open_driver();
  nranks = 2 * n;
  first = 2 * process;
  last = first + 2;
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    open_stream(r);
    open_memory(r);
    OK(tt_gpu_enter(device_of(r)));
    OK(ncclCommInitRankConfig(&sides[r].comm, nranks, id, r, &config));
    tt_gpu_leave();
  }
  OK(ncclGroupEnd());
  all_operations();
  close_comms();
}

static void test_pairs(void **state)
{
  (void)state;
  int n = 2;
  PROCESSES(n, 60, pair_body, &n);
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_processes),
      cmocka_unit_test(test_network),
      cmocka_unit_test(test_mixed),
      cmocka_unit_test(test_forbidden),
      cmocka_unit_test(test_pairs), // up to here: their parent has not opened the
                                    // driver
      cmocka_unit_test(test_one),
      cmocka_unit_test(test_several),
      cmocka_unit_test(test_threads),
  };
  (void)number;
  return run_mode(modes, "window-test", tests, TT_COUNT(tests));
}

int main(int argc, char **argv)
{
  return run_modes(argc, argv, in_mode);
}
