// A profiler with a function of CUDA's that nobody calls.
extern int cudaEventCreateWithFlagsOfNobody(void *, unsigned);

int tutti_test_never_called(void);
int tutti_test_never_called(void)
{
  return cudaEventCreateWithFlagsOfNobody((void *)0, 0);
}

const void *const ncclProfiler_v4[8] = {"needs cuda", (const void *)0, "third"};
