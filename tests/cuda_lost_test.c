// cuda_lost_test.c: the driver refuses to queue the end of an operation: ranks on GPUs have an error, their buffers
// stay in use as long as what has been queued runs, and then all of it ends. Or it refuses a part of an operation of
// several ranks: each learns whose. On the driver for tests.
#include "cuda_windows.h"

#include "comm/comm.h"
#include "device/cuda/work/port_priv.h"
#include "device/cuda/work/rank.h"
#include "device/cuda/work/rma.h"

static CUresult (*write_word)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
static CUdeviceptr refused; // no stream writes this word,
static int refused_in;      // nor the word that is the so-many-th from now on
static uint32_t *gate;      // pinned: what the program's own work waits for

static CUresult write_or_refuse(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags)
{
  const bool now = refused_in > 0 && --refused_in == 0;
  return at == refused || now ? CUDA_ERROR_OUT_OF_MEMORY : write_word(stream, at, value, flags);
}

static CUresult (*launch_kernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 CUstream, void **, void **);
static int launch_refused = -1; // no kernel is launched on that device

static CUresult launch_or_refuse(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
  return tt_gpu_current() == launch_refused ? CUDA_ERROR_LAUNCH_FAILED
                                            : launch_kernel(fn, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

static void open_hooks(void)
{
  open_driver();
  if (write_word == NULL) {
    launch_kernel = cu->LaunchKernel;
    ((tt_cuda *)(uintptr_t)cu)->LaunchKernel = launch_or_refuse;
    write_word = cu->StreamWriteValue32;
    ((tt_cuda *)(uintptr_t)cu)->StreamWriteValue32 = write_or_refuse;
  }
}

static void close_gate(CUstream stream)
{
  ON(0, cu->MemHostAlloc((void **)&gate, 64, CU_MEMHOSTALLOC_PORTABLE));
  *gate = 0;
  ON(0, cu->StreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static void open_gate(void)
{
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

static void await_done(const tt_port *port, uint64_t done)
{
  const double end = seconds_now() + 60;
  while (atomic_load(&port->done) < done && seconds_now() < end) {
    tt_gpu_progress();
  }
  CHECK(atomic_load(&port->done) == done, "rank %d: a plan is not over, and its work has run", port->rank);
}

// The work stands behind the program's own: nothing of it is given back, however often one looks.
static void check_held(const tt_port *port, uint64_t done)
{
  for (int i = 0; i < 20; i++) {
    tt_gpu_progress();
    CHECK(atomic_load(&port->done) == done, "rank %d: a plan is over, and its work has not run", port->rank);
  }
}

static ncclResult_t all_reduce(void)
{
  OK(ncclGroupStart());
  for (int r = 0; r < 2; r++) {
    const side *s = &sides[r];
    OK(ncclAllReduce(s->memory, s->memory + HALF, 1000, ncclUint8, ncclSum, s->comm, stream_of(r)));
  }
  return ncclGroupEnd();
}

static void test_plan(void **state)
{
  (void)state;
  if (blocking || strstr(getenv("CUDASIM"), "launches=") != NULL) {
    skip(); // a launch waits for the program
  }
  open_hooks();
  open_comms(2);
  const tt_port *port = &sides[0].comm->port;
  OK(all_reduce());
  wait_all();
  await_done(port, 1);
  refused = gpu_address(&tt_gpu_rank_port(port)->flags->done);
  close_gate(sides[0].stream);
  const ncclResult_t res = all_reduce();
  CHECK(res == ncclUnhandledCudaError, "%d: %s", (int)res, ncclGetLastError(NULL));
  check_held(port, 1);
  open_gate();
  await_done(port, 2);
  close_comms();
  refused = 0;
  ON(0, cu->MemFreeHost(gate));
}

// Rank 1's GPU takes no kernel. A rank on another GPU has no fault of its own, but waits for rank 1.
static void test_launch(void **state)
{
  (void)state;
  open_hooks();
  open_comms(2);
  OK(all_reduce());
  wait_all();
  launch_refused = device_of(1);
  const ncclResult_t res = all_reduce();
  launch_refused = -1;
  CHECK(res == ncclUnhandledCudaError, "%d: %s", (int)res, ncclGetLastError(NULL));
  for (int r = 0; r < 2; r++) {
    const bool own = device_of(r) == device_of(1);
    ncclResult_t async = ncclSuccess;
    OK(ncclCommGetAsyncError(sides[r].comm, &async));
    const char *text = ncclGetLastError(sides[r].comm);
    CHECK(async == (own ? ncclUnhandledCudaError : ncclRemoteError), "rank %d: %d: %s", r, (int)async, text);
    CHECK(strstr(text, own ? "CUDA_ERROR_LAUNCH_FAILED" : "waits for rank 1") != NULL, "rank %d: %s", r, text);
  }
  for (int r = 0; r < 2; r++) {
    OK(ncclCommAbort(sides[r].comm));
    sides[r].comm = NULL;
  }
  close_comms();
}

static void test_batch(void **state)
{
  (void)state;
  if (blocking || apart || strstr(getenv("CUDASIM"), "launches=") != NULL) {
    skip();
  }
  open_hooks();
  open_comms(2);
  open_windows();
  const tt_gpu_port *port = tt_gpu_rank_port(&sides[0].comm->port);
  close_gate(sides[0].stream);
  refused_in = 2; // the first one says that the batch has begun
  wait_for(0, 1, 1, 0, 0);
  CHECK(refused_in == 0, "there is no second word");
  for (int i = 0; i < 20; i++) {
    tt_gpu_progress();
    CHECK(tt_gpu_rma_flies(port), "the wait is over, and has not begun");
  }
  open_gate();
  wait_all();
  const double end = seconds_now() + 60;
  while (tt_gpu_rma_flies(port) && seconds_now() < end) {
    tt_gpu_progress();
  }
  CHECK(!tt_gpu_rma_flies(port), "the wait is not over, and its stream has ended");
  for (int r = 0; r < 2; r++) {
    OK(ncclCommAbort(sides[r].comm));
    sides[r].comm = NULL;
  }
  close_comms();
  ON(0, cu->MemFreeHost(gate));
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan), cmocka_unit_test(test_batch),
                                     cmocka_unit_test(test_launch)};
  (void)number;
  return run_mode(modes, "lost", tests, TT_COUNT(tests));
}

int main(int argc, char **argv)
{
  return run_modes(argc, argv, in_mode);
}
