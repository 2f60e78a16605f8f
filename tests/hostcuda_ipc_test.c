// hostcuda_ipc_test.c: CUDA's handles between two programs: this one, and itself started again.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <cuda_runtime.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 300000 };

// What the parent tells its child.
typedef struct letter {
  cudaIpcMemHandle_t memory, from_nccl;
  cudaIpcEventHandle_t filled, read;
} letter;

static int to, from; // pipes to the other side

static void tell(const void *p, size_t size)
{
  if (write(to, p, size) != (ssize_t)size) {
    _exit(100);
  }
}

static void hear(void *p, size_t size)
{
  for (size_t got = 0; got < size;) {
    ssize_t n = read(from, (char *)p + got, size - got);
    if (n <= 0) {
      _exit(101);
    }
    got += (size_t)n;
  }
}

// ---- The child ----

#define WANT(cond)                                                                           \
  do {                                                                                       \
    if (!(cond)) {                                                                           \
      fprintf(stderr, "child: line %d: %s (%s)\n", __LINE__, #cond, ncclGetLastError(NULL)); \
      _exit(1);                                                                              \
    }                                                                                        \
  } while (0)
#define GOOD(call) WANT((call) == cudaSuccess)

// Its stream waits until the parent's stream has filled the memory, adds to it, and tells the parent's stream.
static int child_main(void)
{
  letter l;
  char *p, *again, *q, x;
  unsigned char *copy = malloc(SIZE);
  cudaEvent_t filled, done;
  cudaStream_t s;
  struct cudaPointerAttributes a;
  alarm(60);
  hear(&l, sizeof l);
  WANT(cudaIpcOpenMemHandle((void **)&p, l.memory, 0) == cudaErrorInvalidValue);
  GOOD(cudaIpcOpenMemHandle((void **)&p, l.memory, cudaIpcMemLazyEnablePeerAccess));
  GOOD(cudaIpcOpenMemHandle((void **)&again, l.memory, cudaIpcMemLazyEnablePeerAccess));
  GOOD(cudaIpcOpenMemHandle((void **)&q, l.from_nccl, cudaIpcMemLazyEnablePeerAccess));
  WANT(p == again && p != q && q[77] == 'n');
  GOOD(cudaPointerGetAttributes(&a, p + 5));
  WANT(a.type == cudaMemoryTypeDevice && a.device == 2);
  WANT(cudaFree(p) == cudaErrorInvalidValue);
  GOOD(cudaIpcOpenEventHandle(&filled, l.filled));
  GOOD(cudaIpcOpenEventHandle(&done, l.read));
  WANT(cudaEventQuery(filled) == cudaErrorNotReady);
  GOOD(cudaStreamCreate(&s));
  GOOD(cudaStreamWaitEvent(s, filled, 0));
  GOOD(cudaMemcpyAsync(q, p, SIZE, cudaMemcpyDeviceToDevice, s));
  GOOD(cudaMemsetAsync(p, 'c', SIZE, s));
  GOOD(cudaEventRecord(done, s));
  tell("x", 1); // all is queued; the parent opens its gate
  GOOD(cudaStreamSynchronize(s));
  GOOD(cudaMemcpy(copy, q, SIZE, cudaMemcpyDeviceToHost));
  WANT(copy[0] == 'p' && copy[SIZE - 1] == 'p');
  hear(&x, 1);
  GOOD(cudaEventDestroy(filled));
  GOOD(cudaEventDestroy(done));
  GOOD(cudaIpcCloseMemHandle(p));
  WANT(p[0] == 'c'); // once more to close
  GOOD(cudaIpcCloseMemHandle(p));
  WANT(cudaIpcCloseMemHandle(p) == cudaErrorInvalidValue);
  GOOD(cudaIpcCloseMemHandle(q));
  WANT(cudaIpcOpenMemHandle((void **)&p, l.memory, 1) == cudaErrorInvalidResourceHandle); // the parent has freed it
  WANT(cudaIpcOpenEventHandle(&filled, l.filled) == cudaErrorInvalidResourceHandle);
  GOOD(cudaStreamDestroy(s));
  free(copy);
  tell("x", 1);
  return 0;
}

// ---- The parent ----

static pid_t start_child(void)
{
  int down[2], up[2];
  assert_int_equal(pipe(down), 0);
  assert_int_equal(pipe(up), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    char in[16], out[16];
    snprintf(in, sizeof in, "%d", down[0]);
    snprintf(out, sizeof out, "%d", up[1]);
    close(down[1]);
    close(up[0]);
    execl("/proc/self/exe", "hostcuda_ipc_test", "child", in, out, (char *)NULL);
    _exit(102);
  }
  close(down[0]);
  close(up[1]);
  to = down[1];
  from = up[0];
  return child;
}

static void stay(void *open)
{
  for (int i = 0; i < 60000 && !atomic_load((_Atomic int *)open); i++) {
    usleep(1000);
  }
}

static void test_two_programs(void **state)
{
  static _Atomic int open;
  letter l;
  char *p, *n, *mine, x;
  void *own;
  int status;
  cudaEvent_t filled, done, plain;
  cudaStream_t s;
  unsigned char *copy = malloc(SIZE);
  (void)state;
  pid_t child = start_child();
  assert_int_equal(cudaSetDevice(2), cudaSuccess);
  assert_int_equal(cudaMalloc((void **)&p, SIZE), cudaSuccess);
  assert_int_equal(cudaMalloc((void **)&mine, SIZE), cudaSuccess);
  assert_int_equal(ncclMemAlloc((void **)&n, SIZE), ncclSuccess);
  n[77] = 'n';
  assert_int_equal(cudaEventCreateWithFlags(&filled, cudaEventInterprocess | cudaEventDisableTiming), cudaSuccess);
  assert_int_equal(cudaEventCreateWithFlags(&done, cudaEventInterprocess | cudaEventDisableTiming), cudaSuccess);
  assert_int_equal(cudaEventCreate(&plain), cudaSuccess);
  assert_int_equal(cudaIpcGetMemHandle(&l.memory, p + 100), cudaSuccess);
  assert_int_equal(cudaIpcGetMemHandle(&l.from_nccl, n), cudaSuccess);
  assert_int_equal(cudaIpcGetEventHandle(&l.filled, filled), cudaSuccess);
  assert_int_equal(cudaIpcGetEventHandle(&l.read, done), cudaSuccess);
  assert_int_equal(cudaIpcGetEventHandle(&l.read, plain), cudaErrorInvalidResourceHandle);
  assert_int_equal(cudaIpcGetMemHandle(&l.memory, copy), cudaErrorInvalidValue);
  assert_int_equal(cudaIpcOpenMemHandle(&own, l.memory, 1), cudaErrorDeviceUninitialized);
  assert_int_equal(cudaIpcOpenEventHandle(&plain, l.filled), cudaErrorDeviceUninitialized);
  assert_int_equal(cudaStreamCreate(&s), cudaSuccess);
  assert_int_equal(cudaLaunchHostFunc(s, stay, &open), cudaSuccess);
  assert_int_equal(cudaMemsetAsync(p, 'p', SIZE, s), cudaSuccess);
  assert_int_equal(cudaEventRecord(filled, s), cudaSuccess);
  tell(&l, sizeof l);
  hear(&x, 1);
  assert_int_equal(cudaEventQuery(done), cudaErrorNotReady);
  assert_int_equal(cudaStreamWaitEvent(s, done, 0), cudaSuccess);
  assert_int_equal(cudaMemcpyAsync(mine, p, SIZE, cudaMemcpyDeviceToDevice, s), cudaSuccess);
  atomic_store(&open, 1);
  assert_int_equal(cudaEventSynchronize(done), cudaSuccess);
  assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
  assert_int_equal(cudaMemcpy(copy, mine, SIZE, cudaMemcpyDeviceToHost), cudaSuccess);
  assert_true(copy[0] == 'c' && copy[SIZE - 1] == 'c');
  assert_int_equal(cudaFree(p), cudaSuccess);
  assert_int_equal(cudaFree(mine), cudaSuccess);
  assert_int_equal(ncclMemFree(n), ncclSuccess);
  assert_int_equal(cudaEventDestroy(filled), cudaSuccess);
  assert_int_equal(cudaEventDestroy(done), cudaSuccess);
  assert_int_equal(cudaEventDestroy(plain), cudaSuccess);
  tell("x", 1);
  hear(&x, 1);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(cudaStreamDestroy(s), cudaSuccess);
  free(copy);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_programs)};
  if (argc == 4) {
    from = atoi(argv[2]);
    to = atoi(argv[3]);
    return child_main();
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
