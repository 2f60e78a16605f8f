// rig.h: tests of the simulated driver. Each runs in processes of its own, since a process reads its modes once, with
// the driver opened as the library opens it. With CUDA_TEST_DRIVER (../cuda_modes.h) they ask a real driver, in the
// modes that it has, whether it does what the simulated one does; what that one says about it is not looked for.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../cuda_modes.h"
#include "device/cuda/driver.h"

#define RIG __attribute__((unused)) static

// In the process of a test: the driver, and its number there.
RIG tt_cuda cu;
RIG int rank;

// What the processes of a test share.
enum { RIG_PROCESSES = 8, RIG_SHARED = 1 << 20 };
RIG char *shared;

// The last byte of it says that one has failed.
RIG void rig_fail(int line, const char *what)
{
  fprintf(stderr, "line %d: rank %d: %s\n", line, rank, what);
  shared[RIG_SHARED - 1] = 1;
  _exit(1);
}

// These end the process, which fails the test.
#define CHECK(x)              \
  do {                        \
    if (!(x)) {               \
      rig_fail(__LINE__, #x); \
    }                         \
  } while (0)
#define GIVES(code, call)                                     \
  do {                                                        \
    CUresult gives_ = (call);                                 \
    if (gives_ != (code)) {                                   \
      rig_fail(__LINE__, #call " gives another than " #code); \
    }                                                         \
  } while (0)
#define OK(call) GIVES(CUDA_SUCCESS, call)

// Kernels: add(p, v) adds v to the word at p; spin(p, v) stores 1 into the word behind and polls the word until it is
// v; put(p, v) stores v; fill(p, v) stores v into one word per thread of the whole grid; count(p, v) adds v to the
// variable `counter`; busy(p, v) computes for ever.
static const char rig_ptx[] =
    ".version 6.3\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .u32 counter;\n"
    ".visible .entry add(.param .u64 add_0, .param .u32 add_1)\n"
    "{\n .reg .b32 %r<4>;\n .reg .b64 %rd<3>;\n"
    " ld.param.u64 %rd1, [add_0];\n ld.param.u32 %r1, [add_1];\n cvta.to.global.u64 %rd2, %rd1;\n"
    " atom.global.add.u32 %r2, [%rd2], %r1;\n ret;\n}\n"
    ".visible .entry busy(.param .u64 busy_0, .param .u32 busy_1)\n"
    "{\n .reg .b32 %r<2>;\n mov.u32 %r1, 0;\nAGAIN:\n add.u32 %r1, %r1, 1;\n bra AGAIN;\n}\n"
    ".visible .entry put(.param .u64 put_0, .param .u32 put_1)\n"
    "{\n .reg .b32 %r<4>;\n .reg .b64 %rd<3>;\n"
    " ld.param.u64 %rd1, [put_0];\n ld.param.u32 %r1, [put_1];\n cvta.to.global.u64 %rd2, %rd1;\n"
    " st.global.u32 [%rd2], %r1;\n ret;\n}\n"
    ".visible .entry count(.param .u64 count_0, .param .u32 count_1)\n"
    "{\n .reg .b32 %r<4>;\n .reg .b64 %rd<3>;\n"
    " ld.param.u32 %r1, [count_1];\n mov.u64 %rd1, counter;\n cvta.to.global.u64 %rd2, %rd1;\n"
    " ld.global.u32 %r2, [%rd2];\n add.u32 %r2, %r2, %r1;\n st.global.u32 [%rd2], %r2;\n ret;\n}\n"
    ".visible .entry fill(.param .u64 fill_0, .param .u32 fill_1)\n"
    "{\n .reg .b32 %r<6>;\n .reg .b64 %rd<5>;\n"
    " ld.param.u64 %rd1, [fill_0];\n ld.param.u32 %r1, [fill_1];\n cvta.to.global.u64 %rd2, %rd1;\n"
    " mov.u32 %r2, %ctaid.x;\n mov.u32 %r3, %ntid.x;\n mov.u32 %r4, %tid.x;\n mad.lo.s32 %r5, %r2, %r3, %r4;\n"
    " mul.wide.u32 %rd3, %r5, 4;\n add.s64 %rd4, %rd2, %rd3;\n st.global.u32 [%rd4], %r1;\n ret;\n}\n"
    ".visible .entry spin(.param .u64 spin_0, .param .u32 spin_1)\n"
    "{\n .reg .pred %p<2>;\n .reg .b32 %r<4>;\n .reg .b64 %rd<3>;\n"
    " ld.param.u64 %rd1, [spin_0];\n ld.param.u32 %r1, [spin_1];\n cvta.to.global.u64 %rd2, %rd1;\n"
    " mov.u32 %r3, 1;\n st.global.u32 [%rd2+4], %r3;\n"
    "AGAIN:\n ld.acquire.sys.global.u32 %r2, [%rd2];\n setp.ne.s32 %p1, %r2, %r1;\n @%p1 bra AGAIN;\n ret;\n}\n";

RIG CUcontext rig_context(int device)
{
  CUcontext context;
  OK(cu.DevicePrimaryCtxRetain(&context, device));
  OK(cu.CtxSetCurrent(context));
  return context;
}

RIG CUstream rig_stream(void)
{
  CUstream stream;
  OK(cu.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  return stream;
}

RIG CUmodule rig_module(void)
{
  CUmodule module;
  OK(cu.ModuleLoadDataEx(&module, rig_ptx, 0, NULL, NULL));
  return module;
}

RIG CUfunction rig_kernel(const char *name)
{
  CUfunction function;
  OK(cu.ModuleGetFunction(&function, rig_module(), name));
  return function;
}

RIG CUdeviceptr rig_memory(size_t bytes)
{
  CUdeviceptr ptr;
  OK(cu.MemAlloc(&ptr, bytes));
  return ptr;
}

// Pinned words of the host, zeroed.
RIG _Atomic uint32_t *rig_words(size_t count)
{
  void *words;
  OK(cu.MemHostAlloc(&words, count * 4, CU_MEMHOSTALLOC_PORTABLE));
  return words;
}

RIG CUdeviceptr at(_Atomic uint32_t *word)
{
  return (CUdeviceptr)(uintptr_t)word;
}

RIG CUresult rig_launch(CUfunction function, unsigned ctas, unsigned threads, CUdeviceptr ptr, uint32_t value,
                        CUstream stream)
{
  void *params[] = {&ptr, &value};
  return cu.LaunchKernel(function, ctas, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}

RIG void rig_sleep_ms(long ms)
{
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

// ---- Running ----

// Where a process needs something of its own before the driver is opened.
RIG void (*rig_before)(void);

RIG void rig_process(const char *modes, void (*test)(void), int number, int err)
{
  char why[TT_LIBRARY_WHY], all[512];
  rank = number;
  if (rig_before != NULL) {
    rig_before();
  }
  alarm(240); // where another has died it could wait for ever
  dup2(err, STDERR_FILENO);
  snprintf(all, sizeof all, "%s%sbox=test-%d", modes, *modes != '\0' ? "," : "", (int)getppid());
  setenv("CUDASIM", all, 1);
  if (real_driver()) {
    real_modes(modes, true);
  }
  use_driver();
  if (tt_cuda_open(getenv("TUTTI_CUDA_DRIVER"), &cu, why) != TT_CUDA_OPEN) {
    fprintf(stderr, "%s\n", why);
    _exit(2);
  }
  test();
  exit(0); // with the library's destructors
}

// What is written to the pipe until all ends are closed.
RIG void rig_read(int fd, char *out, size_t size)
{
  char rest[256];
  size_t used = 0;
  ssize_t n;
  while ((n = used + 1 < size ? read(fd, out + used, size - 1 - used) : read(fd, rest, sizeof rest)) > 0) {
    used += used + 1 < size ? (size_t)n : 0;
  }
  out[used] = '\0';
}

// Runs test() in n processes that share devices and `shared`, in these modes. err: what they wrote to standard error.
// status: of each, as waitpid has it; where it is NULL all must end with 0.
RIG void rig_run_some(const char *modes, int n, void (*test)(void), char *err, size_t size, int *status)
{
  int fds[2], bad = 0, one;
  pid_t pid[RIG_PROCESSES];
  if (real_driver() && !real_modes(modes, false)) {
    skip();
  }
  shared = mmap(NULL, RIG_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED && pipe(fds) == 0);
  fflush(NULL);
  for (int i = 0; i < n; i++) {
    pid[i] = fork();
    if (pid[i] == 0) {
      close(fds[0]);
      rig_process(modes, test, i, fds[1]);
    }
  }
  close(fds[1]);
  rig_read(fds[0], err, size);
  close(fds[0]);
  for (int i = 0; i < n; i++) {
    assert_int_equal(waitpid(pid[i], status != NULL ? &status[i] : &one, 0), pid[i]);
    bad += status == NULL && one != 0;
  }
  munmap(shared, RIG_SHARED);
  if (bad > 0) {
    print_error("modes \"%s\", %d of %d processes failed:\n%s", modes, bad, n, err);
    fail();
  }
}

RIG char rig_err[1 << 16];

RIG void rig_run(const char *modes, int n, void (*test)(void))
{
  if (real_driver() && !real_modes(modes, false)) {
    return; // a test may have several modes
  }
  rig_run_some(modes, n, test, rig_err, sizeof rig_err, NULL);
}

// As rig_run; what the test wrote must have the text.
RIG void rig_says(const char *modes, int n, void (*test)(void), const char *text)
{
  rig_run(modes, n, test);
  if (!real_driver() && strstr(rig_err, text) == NULL) {
    print_error("\"%s\" is not in:\n%s", text, rig_err);
    fail();
  }
}

// As rig_run, where the driver must find nothing wrong.
RIG void rig_quiet(const char *modes, int n, void (*test)(void))
{
  rig_run(modes, n, test);
  if (!real_driver() && rig_err[0] != '\0') {
    print_error("modes \"%s\": unexpected:\n%s", modes, rig_err);
    fail();
  }
}

// All ranks have come here, or one has failed.
RIG void rig_barrier(int n)
{
  static int round;
  _Atomic int *arrived = (_Atomic int *)(void *)shared + 16 * round++;
  atomic_fetch_add(arrived, 1);
  while (atomic_load(arrived) < n) {
    CHECK(*(volatile char *)&shared[RIG_SHARED - 1] == 0);
    rig_sleep_ms(1);
  }
}

// Where tests put what they share, behind the barriers.
RIG void *rig_shared(void)
{
  return shared + (1 << 16);
}
