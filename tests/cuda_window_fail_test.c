// cuda_window_fail_test.c: windows of GPUs that are late, gone, too short or out of reach, calls that are refused, and
// ranks that do not signal, leave, abort or die.
#include "cuda_windows.h"

#include "comm/comm.h"

// ---- Windows that are not there yet, or no more ----

// The put is queued before its peer registers the window; it goes on then.
static void test_early(void **state)
{
  (void)state;
  if (blocking) {
    skip(); // the call would wait for its kernel
  }
  open_comms(2);
  for (int i = 0; i < 3; i++) {
    side *a = &sides[0], *b = &sides[1];
    write_pattern(a->memory, 5000, 0, i);
    OK(ncclCommWindowRegister(a->comm, a->memory, 2 * HALF, &a->window, 0));
    put(0, 0, 5000, 1, 16, 0, 0);
    sleep_ms(5);
    OK(tt_gpu_enter(0));
    assert_int_equal(cu->StreamQuery(a->stream), CUDA_ERROR_NOT_READY);
    tt_gpu_leave();
    OK(ncclCommWindowRegister(b->comm, b->memory, 2 * HALF, &b->window, 0));
    wait_for(1, 1, 0, 0, 0);
    wait_all();
    check_pattern(b->memory + HALF + 16, 5000, 0, i);
    close_windows();
  }
  close_comms();
}

static void abort_comms(void)
{
  for (int r = first; r < last; r++) {
    OK(ncclCommAbort(sides[r].comm));
  }
  if (on_host) {
    tuttiStreamSynchronize(stream_of(first)); // gives the error
  } else {
    wait_all(); // nothing of them is left in the streams
  }
  for (int r = first; r < last; r++) {
    sides[r].comm = NULL;
  }
  close_comms();
}

// A put into a window that turns out to be too short, or to be gone by the time that its stream comes to it.
static void test_wrong_place(void **state)
{
  (void)state;
  if (blocking) {
    skip();
  }
  open_comms(2);
  side *a = &sides[0], *b = &sides[1];
  OK(ncclCommWindowRegister(a->comm, a->memory, 2 * HALF, &a->window, 0));
  put(0, 0, 5000, 1, 0, 0, 0);
  OK(ncclCommWindowRegister(b->comm, b->memory, HALF + 4999, &b->window, 0));
  await_error(0, ncclInvalidArgument, (const char *const[]){"rank 0", "5000 bytes", "window 1 of rank 1", NULL});
  abort_comms();
  open_comms(2);
  open_windows();
  CUdeviceptr word;
  ON(0, cu->MemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_PORTABLE));
  memset((void *)word, 0, 4096);
  ON(0, cu->StreamWaitValue32(a->stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
  memset(b->memory + HALF, 5, 5000);
  put(0, 0, 5000, 1, 0, 0, 0);
  OK(ncclCommWindowDeregister(b->comm, b->window));
  __atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE);
  await_error(0, ncclInvalidUsage, (const char *const[]){"rank 0", "window 1 of rank 1", "deregistered", NULL});
  for (int i = 0; i < 5000; i++) {
    CHECK(b->memory[HALF + i] == 5, "a closed window is written");
  }
  abort_comms();
  OK(tt_gpu_enter(0));
  cu->MemFreeHost((void *)word);
  tt_gpu_leave();
}

// The same, of a peer that has aborted: the rank keeps in mind where that began, for others.
static void test_shut(void **state)
{
  (void)state;
  CUdeviceptr word;
  if (blocking) {
    skip();
  }
  open_comms(2);
  open_windows();
  const tt_port *port = &sides[0].comm->port;
  ON(0, cu->MemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_PORTABLE));
  *(uint32_t *)word = 0;
  ON(0, cu->StreamWaitValue32(sides[0].stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
  put(0, 0, 5000, 1, 0, 0, 0);
  OK(ncclCommAbort(sides[1].comm));
  sides[1].comm = NULL;
  __atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE);
  const double end = seconds_now() + 60;
  while (tt_port_status(port) == ncclSuccess && seconds_now() < end) {
    sleep_ms(0.1);
  }
  CHECK(tt_port_status(port) == ncclRemoteError, "%d", (int)tt_port_status(port));
  CHECK(tt_culprit_rank(__atomic_load_n(&port->page->culprit, __ATOMIC_RELAXED)) == 1, "rank 1 is not the culprit");
  last = 1;
  abort_comms();
  first = 1;
  last = 2;
  close_comms();
  ON(0, cu->MemFreeHost((void *)word));
}

static CUresult (*query_event)(CUevent);
static uint32_t *gates; // pinned words, for which two streams of rank 0 wait
static _Atomic int passed;

static void let_pass(int i, CUstream stream)
{
  __atomic_store_n(&gates[16 * i], 1, __ATOMIC_RELEASE);
  while (cu->StreamQuery(stream) == CUDA_ERROR_NOT_READY) {
    sleep_ms(0.1);
  }
}

// Takes the driver's place: batches are asked whether they have failed. The first one ends during a look, the second
// one during the next look, which has seen the end of the first.
static CUresult pass_and_query(CUevent event)
{
  const int stage = atomic_load(&passed);
  if (stage == 1 || stage == 2) {
    let_pass(stage - 1, stage == 1 ? sides[0].other : sides[0].stream);
    sleep_ms(2 * stage); // the next look asks again (NCCL_PEER_CHECK_MS)
    atomic_store(&passed, stage + 1);
  }
  return query_event(event);
}

// A put finds its window closed just when the end of another batch has been seen.
static void closing_body(int process, void *arg)
{
  (void)process;
  (void)arg;
  open_driver();
  query_event = cu->EventQuery;
  ((tt_cuda *)(uintptr_t)cu)->EventQuery = pass_and_query;
  open_comms(2);
  open_windows();
  const side *a = &sides[0];
  ON(0, cu->MemHostAlloc((void **)&gates, 4096, CU_MEMHOSTALLOC_PORTABLE));
  memset(gates, 0, 4096);
  ON(0, cu->StreamWaitValue32(a->other, (CUdeviceptr)(uintptr_t)&gates[0], 1, CU_STREAM_WAIT_VALUE_GEQ));
  OK(ncclSignal(1, 0, 1, 0, a->comm, (cudaStream_t)a->other));
  ON(0, cu->StreamWaitValue32(a->stream, (CUdeviceptr)(uintptr_t)&gates[16], 1, CU_STREAM_WAIT_VALUE_GEQ));
  put(0, 0, 5000, 1, 0, 0, 0);
  OK(ncclCommWindowDeregister(sides[1].comm, sides[1].window));
  atomic_store(&passed, 1);
  while (atomic_load(&passed) < 3) {
    sleep_ms(0.1);
  }
  await_error(0, ncclInvalidUsage, (const char *const[]){"rank 0", "window 1 of rank 1", "deregistered", NULL});
  abort_comms();
  ON(0, cu->MemFreeHost(gates));
}

static void test_closing(void **state)
{
  (void)state;
  if (blocking || apart || strstr(getenv("CUDASIM"), "launches=") != NULL) { // the second batch has no room
    skip();
  }
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = 60, .fn = closing_body, .env = ENV("NCCL_PEER_CHECK_MS=1")}),
                   0);
}

// What is refused, by the call.
static void test_refused(void **state)
{
  (void)state;
  CUgraph graph;
  ncclWindow_t window = NULL;
  open_comms(1);
  side *s = &sides[0];
  REFUSED(ncclSignal(0, 0, 0, 0, s->comm, stream_of(0)), ncclInvalidUsage, "no window");
  char *heap = malloc(8192);
  REFUSED(ncclCommWindowRegister(s->comm, heap, 4096, &window, 0), ncclInvalidArgument, "does not reach",
          "ncclMemAlloc");
  free(heap);
  open_windows();
  REFUSED(ncclPutSignal(s->memory, 2, ncclUint8, 0, s->window, 2 * HALF - 1, 0, 0, 0, s->comm, stream_of(0)),
          ncclInvalidArgument, "do not lie in the window");
  ON(0, cu->StreamBeginCapture(s->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  REFUSED(ncclSignal(0, 0, 0, 0, s->comm, stream_of(0)), ncclInvalidUsage, "captured", "one-sided");
  ON(0, cu->StreamEndCapture(s->stream, &graph));
  ON(0, cu->GraphDestroy(graph));
  ring_of_puts(); // nothing of it counts
  close_windows();
  close_comms();
}

// Pinned memory of the host, which no other process can map.
static unsigned char *host_window(int r)
{
  unsigned char *memory = NULL;
  ON(r, cu->MemHostAlloc((void **)&memory, 2 * HALF, CU_MEMHOSTALLOC_PORTABLE));
  OK(ncclMemFree(sides[r].memory));
  memset(memory, 0, 2 * HALF);
  sides[r].memory = memory;
  return memory;
}

static void close_host_window(int r, unsigned char *memory)
{
  ON(r, cu->MemFreeHost(memory));
  open_memory(r);
}

static void test_pinned(void **state)
{
  (void)state;
  open_comms(2);
  unsigned char *a = host_window(0), *b = host_window(1);
  open_windows();
  ring_of_puts();
  close_windows();
  close_host_window(0, a);
  close_host_window(1, b);
  close_comms();
}

// Of rank 1, which has a window of both kinds, and may wait before it has the second one.
static void pinned_body(int rank, void *arg)
{
  (void)arg;
  open_process(rank, 2);
  side *s = &sides[rank];
  unsigned char *mapped = s->memory;
  ncclWindow_t first_window;
  open_windows();
  first_window = s->window;
  s->memory = NULL;
  unsigned char *pinned = rank == 1 ? host_window(1) : (open_memory(rank), NULL);
  if (rank == 0) {
    for (int i = 0; i < 3; i++) {
      write_pattern(s->memory, 5000, 0, i);
      OK(ncclCommWindowRegister(s->comm, s->memory, 2 * HALF, &s->window, 0));
      put(0, 0, 5000, 1, 1, 0, 0); // also before the peer has registered it
      OK(ncclPutSignal(s->memory, 5000, ncclUint8, 1, first_window, HALF, 0, 0, 0, s->comm, (cudaStream_t)s->other));
      put(0, 0, 5000, 1, 1, 0, 0);
      barrier();
      ring_of_puts();
      close_windows();
    }
  } else {
    for (int i = 0; i < 3; i++) {
      sleep_ms(5);
      OK(ncclCommWindowRegister(s->comm, s->memory, 2 * HALF, &s->window, 0));
      wait_for(1, 3, 0, 0, 0);
      wait_all();
      check_pattern(s->memory + HALF + 1, 5000, 0, i);
      check_pattern(mapped + HALF, 5000, 0, i);
      barrier();
      ring_of_puts();
      close_windows();
    }
  }
  OK(ncclCommWindowDeregister(s->comm, first_window));
  OK(ncclCommDestroy(s->comm));
  s->comm = NULL;
  if (rank == 1) {
    close_host_window(1, pinned);
  }
  close_comms();
  OK(ncclMemFree(mapped));
}

static void test_pinned_apart(void **state)
{
  (void)state;
  PROCESSES(2, 60, pinned_body, NULL);
}

// A wait that places nothing has been queued before: what it is for could be there too late. Where it places what comes
// from ranks without access, there is nothing to be refused.
static void late_body(int rank, void *arg)
{
  (void)arg;
  open_process(rank, 2);
  if (rank == 1) {
    OK(ncclCommWindowRegister(sides[1].comm, sides[1].memory, 4096, &sides[1].window, 0));
    wait_for(1, 1, 0, 0, 0);
    OK(ncclCommWindowDeregister(sides[1].comm, sides[1].window));
  } else {
    OK(ncclCommWindowRegister(sides[0].comm, sides[0].memory, 4096, &sides[0].window, 0));
    OK(ncclCommWindowDeregister(sides[0].comm, sides[0].window));
  }
  unsigned char *kept = sides[1].memory, *pinned = rank == 1 ? (sides[1].memory = NULL, host_window(1)) : NULL;
  open_windows();
  meet(2);
  if (rank == 0) {
    write_pattern(sides[0].memory, 10, 0, 0);
    put(0, 0, 10, 1, 0, 0, 0);
  }
  if (rank == 0 && !apart) {
    await_error(0, ncclInvalidUsage,
                (const char *const[]){"rank 0", "window 2 of rank 1", "cannot map", "ncclMemAlloc", NULL});
  } else if (rank == 1 && apart) {
    wait_all();
    check_pattern(pinned + HALF, 10, 0, 0);
  }
  meet(2);
  OK(ncclCommAbort(sides[rank].comm));
  wait_all();
  sides[rank].comm = NULL;
  if (rank == 1) {
    close_host_window(1, pinned);
    OK(ncclMemFree(kept));
  }
  close_comms();
}

static void test_pinned_late(void **state)
{
  (void)state;
  if (blocking) {
    skip();
  }
  PROCESSES(2, 60, late_body, NULL);
}

// ---- Ranks that do not signal ----

static void test_abort(void **state)
{
  (void)state;
  open_comms(2);
  open_windows();
  wait_for(0, 1, 1, 0, 0);
  sleep_ms(20);
  OK(tt_gpu_enter(0));
  assert_int_equal(cu->StreamQuery(sides[0].stream), CUDA_ERROR_NOT_READY);
  tt_gpu_leave();
  abort_comms();
}

// The peer leaves in order: a wait for its signals that has begun ends, what it has signalled before still counts.
static void test_leave(void **state)
{
  (void)state;
  open_comms(2);
  open_windows();
  put(1, 0, 100, 0, 0, 0, 0);
  wait_for(0, 1, 1, 0, 0);
  wait_all();
  put(1, 0, 100, 0, 0, 0, 0);
  OK(ncclCommDestroy(sides[1].comm));
  sides[1].comm = NULL;
  wait_for(0, 1, 1, 0, 0);
  wait_all();
  wait_for(0, 1, 1, 0, 0);
  await_error(0, ncclRemoteError, (const char *const[]){"rank 0", "rank 1", NULL});
  last = 1;
  abort_comms();
  last = 2;
  first = 1;
  close_comms();
}

// Rank 1 is on the host, or all are on GPUs.
static void death_body(int rank, void *arg)
{
  on_host = *(const int *)arg && rank == 1;
  open_process(rank, 3);
  open_windows();
  barrier();
  meet(3); // all have come out of the barrier
  if (rank == 1) {
    raise(SIGKILL);
  }
  // Rank 2 waits for rank 0, which is not dead, but ends. The death may be known before the call.
  ncclWaitSignalDesc_t d = {.opCnt = 1, .peer = 1 - rank / 2};
  const ncclResult_t res = ncclWaitSignal(1, &d, sides[rank].comm, stream_of(rank));
  CHECK(res == ncclSuccess || res == ncclRemoteError, "ncclWaitSignal gave %d", (int)res);
  await_error(rank, ncclRemoteError, (const char *const[]){"rank 1", NULL});
  abort_comms();
  tt_gpu_leave();
}

static void test_death(void **state)
{
  (void)state;
  const char *const *const ways[] = {ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"), NULL, NULL};
  for (int i = 0; i < 3; i++) {
    ranks_set r;
    int hosts = i == 2;
    start_processes(&r, &(run){.n = 3, .seconds = 60, .fn = death_body, .arg = &hosts, .env = ways[i]});
    r.expected[1] = -SIGKILL;
    assert_int_equal(finish_processes(&r), 0);
  }
}

// Rank 1 has signalled once, and does no more. `arg`: which ranks are on the host, a bit each.
static void stall_body(int rank, void *arg)
{
  on_host = (*(const int *)arg >> rank) & 1;
  open_process(rank, 2);
  open_windows();
  if (rank == 1) {
    OK(ncclSignal(0, 0, 0, 0, sides[1].comm, stream_of(1)));
  }
  barrier();
  if (rank == 0) {
    wait_for(0, 3, 1, 0, 0);
    await_error(0, ncclTimeout, (const char *const[]){"rank 0 waits in WaitSignal", "from rank 1 (1 of 3", NULL});
  }
  meet(2);
  abort_comms();
  if (!on_host) {
    tt_gpu_leave();
  }
}

static void test_stall(void **state)
{
  (void)state;
  char error[40], warn[40];
  snprintf(error, sizeof error, "NCCL_STALL_ERROR_MS=%d", 2000 * SLOWER);
  snprintf(warn, sizeof warn, "NCCL_STALL_WARN_MS=%d", 1000 * SLOWER);
  const char *const *const ways[] = {ENV(error, warn, "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"), ENV(error, warn),
                                     ENV(error, warn), ENV(error, warn)};
  for (int i = 0; i < 4; i++) {
    int hosts = i < 2 ? 0 : i - 1;
    assert_int_equal(run_processes(&(run){.n = 2, .seconds = 60, .fn = stall_body, .arg = &hosts, .env = ways[i]}), 0);
  }
}

// A rank on a GPU whose process may not write the memory of one on the host.
static void unwritable_body(int rank, void *arg)
{
  ncclWindow_t window;
  (void)arg;
  on_host = rank == 1;
  open_process(rank, 2);
  OK(ncclCommWindowRegister(sides[rank].comm, sides[rank].memory, 4096, &window, 0));
  REFUSED(ncclSignal(1 - rank, 0, 0, 0, sides[rank].comm, stream_of(rank)), ncclInvalidArgument, "process_vm_writev");
  OK(ncclCommWindowDeregister(sides[rank].comm, window));
  close_comms();
}

static void test_unwritable(void **state)
{
  (void)state;
  const run job = {.n = 2, .seconds = 60, .fn = unwritable_body, .env = ENV("NCCL_CMA_ENABLE=0")};
  assert_int_equal(run_processes(&job), 0);
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pinned_apart), cmocka_unit_test(test_death),       cmocka_unit_test(test_stall),
      cmocka_unit_test(test_pinned_late),  cmocka_unit_test(test_unwritable),
      cmocka_unit_test(test_closing), // up to here the driver is not open
      cmocka_unit_test(test_early),        cmocka_unit_test(test_wrong_place), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_pinned),       cmocka_unit_test(test_abort),       cmocka_unit_test(test_leave),
      cmocka_unit_test(test_shut),
  };
  (void)number;
  return run_mode(modes, "window-fail", tests, TT_COUNT(tests));
}

int main(int argc, char **argv)
{
  return run_modes(argc, argv, in_mode);
}
