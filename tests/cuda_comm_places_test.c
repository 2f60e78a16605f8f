// cuda_comm_places_test.c: a communicator of ranks on the GPUs of the driver for tests, on a machine that NVML for
// tests shows: four GPUs in two pairs with more NVLinks. Rings follow the links, and what comes out is right.
#include "harness.h"

#include "base/util.h"
#include "comm/comm.h"
#include "comm/topology.h"
#include "device/cuda/gpu.h"

// Sanitizers make the driver's machine up to twenty times slower.
#if defined TT_TSAN || defined TT_ASAN
enum { MOST = 1 << 14 };
#else
enum { MOST = 1 << 18 };
#endif

enum { GPUS = 4, RANKS = 4, LIMIT = 120 };

static char machine[64] = "/tmp/cuda_comm_places.XXXXXX";

// The GPUs of tests/cudasim, in the order of their bus ids: 1 and 3, 2 and 4 have four links, all others one.
static int write_machine(void **state)
{
  static const int far[GPUS][GPUS] = {{0, 1, 4, 1}, {1, 0, 1, 4}, {4, 1, 0, 1}, {1, 4, 1, 0}};
  (void)state;
  int fd = mkstemp(machine);
  FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
  if (f == NULL) {
    return -1;
  }
  fprintf(f, "<system version=\"1\"><cpu numaid=\"0\">\n");
  for (int i = 0; i < GPUS; i++) {
    fprintf(f, "<pci busid=\"0000:%02x:00.0\" class=\"0x030200\"><gpu dev=\"%d\" sm=\"70\">\n", i + 1, i);
    for (int k = 0; k < GPUS; k++) {
      if (far[i][k] > 0) {
        fprintf(f, "<nvlink target=\"0000:%02x:00.0\" count=\"%d\" tclass=\"0x030200\"/>\n", k + 1, far[i][k]);
      }
    }
    fprintf(f, "</gpu></pci>\n");
  }
  fprintf(f, "</cpu></system>\n");
  return fclose(f);
}

static int remove_machine(void **state)
{
  (void)state;
  return remove(machine);
}

static void say_library(const char *name, const char *file)
{
  char path[600];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/lib/%s", build != NULL ? build : "build", file);
  OK(setenv(name, path, 1) == 0 ? ncclSuccess : ncclSystemError);
}

// All-reduce on device memory of all ranks.
typedef struct job {
  ncclComm_t comm[RANKS];
  CUstream stream[RANKS];
  CUdeviceptr at[RANKS];
} job;

static void add_up_on_gpus(const tt_cuda *cu, job *j, size_t n)
{
  static float values[MOST];
  for (int r = 0; r < RANKS; r++) {
    for (size_t i = 0; i < n; i++) {
      values[i] = (float)(i % 1000 + (size_t)r);
    }
    OK(tt_gpu_enter(r));
    CHECK(cu->MemcpyHtoD(j->at[r], values, n * sizeof(float)) == CUDA_SUCCESS, "rank %d: copy", r);
    tt_gpu_leave();
  }
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    float *x = (float *)(uintptr_t)j->at[r];
    OK(ncclAllReduce(x, x, n, ncclFloat, ncclSum, j->comm[r], (cudaStream_t)j->stream[r]));
  }
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) {
    OK(tt_gpu_enter(r));
    CHECK(cu->StreamSynchronize(j->stream[r]) == CUDA_SUCCESS, "rank %d: stream", r);
    CHECK(cu->MemcpyDtoH(values, j->at[r], n * sizeof(float)) == CUDA_SUCCESS, "rank %d: copy", r);
    tt_gpu_leave();
    for (size_t i = 0; i < n; i++) {
      CHECK(values[i] == (float)(RANKS * (i % 1000) + RANKS * (RANKS - 1) / 2), "rank %d: element %zu of %zu is %g", r,
            i, n, (double)values[i]);
    }
  }
}

// In every ring half of the edges are within the pairs that have most links.
static void rings_follow_links(ncclComm_t comm)
{
  int nchannels = 0, *orders = NULL;
  CHECK(!comm->topology->plain, "the machine is plain");
  OK(tt_topology_rings(comm->topology, &nchannels, &orders));
  CHECK(nchannels > 1, "%d channels", nchannels);
  for (int ch = 0; ch < nchannels; ch++) {
    const int *o = orders + ch * RANKS;
    int pairs = 0;
    for (int i = 0; i < RANKS; i++) {
      pairs += abs(o[i] - o[(i + 1) % RANKS]) == 2;
    }
    CHECK(pairs == 2, "channel %d: %d %d %d %d", ch, o[0], o[1], o[2], o[3]);
  }
  tt_free(orders);
}

static void places_body(int rank, void *arg)
{
  static const size_t counts[] = {1, 1000, 4099, MOST};
  job j = {.comm = {NULL}};
  const char *algo = arg;
  (void)rank;
  OK(algo == NULL || setenv("NCCL_ALGO", algo, 1) == 0 ? ncclSuccess : ncclSystemError);
  say_library("TUTTI_CUDA_DRIVER", "cudasim/libcuda.so.1");
  say_library("TUTTI_NVML", "fakenvml/libnvidia-ml.so.1");
  OK(setenv("FAKE_NVML", machine, 1) == 0 && setenv("CUDASIM", "devices=4,deadlock=60000", 1) == 0 ? ncclSuccess
                                                                                                   : ncclSystemError);
  const tt_cuda *cu = tt_cuda_get(NULL);
  CHECK(cu != NULL && tt_gpu_count() == GPUS, "no GPUs");
  for (int r = 0; r < RANKS; r++) {
    OK(tt_gpu_enter(r));
    CHECK(cu->StreamCreateWithPriority(&j.stream[r], CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS, "stream");
    CHECK(cu->MemAlloc(&j.at[r], MOST * sizeof(float)) == CUDA_SUCCESS, "memory");
    tt_gpu_leave();
  }
  OK(ncclCommInitAll(j.comm, RANKS, NULL));
  rings_follow_links(j.comm[0]);
  for (size_t i = 0; i < TT_COUNT(counts); i++) {
    add_up_on_gpus(cu, &j, counts[i]);
  }
  for (int r = 0; r < RANKS; r++) {
    OK(ncclCommDestroy(j.comm[r]));
  }
}

// The line that scripts look for names the GPU as the driver, NVML and PCI do.
static void names_body(int rank, void *arg)
{
  static const int physical[] = {3, 1};
  ncclComm_t comm[TT_COUNT(physical)];
  char path[64] = "/tmp/cuda_comm_places_log.XXXXXX", text[1 << 16] = "", line[128];
  const int fd = mkstemp(path);
  (void)rank;
  (void)arg;
  say_library("TUTTI_CUDA_DRIVER", "cudasim/libcuda.so.1");
  say_library("TUTTI_NVML", "fakenvml/libnvidia-ml.so.1");
  CHECK(fd >= 0 && setenv("FAKE_NVML", machine, 1) == 0 && setenv("CUDASIM", "devices=4,deadlock=60000", 1) == 0 &&
            setenv("CUDA_VISIBLE_DEVICES", "3,1", 1) == 0 && setenv("NCCL_DEBUG", "INFO", 1) == 0 &&
            setenv("NCCL_DEBUG_FILE", path, 1) == 0,
        "no environment");
  OK(ncclCommInitAll(comm, TT_COUNT(physical), NULL));
  CHECK(read(fd, text, sizeof text - 1) > 0, "%s is empty", path);
  for (int i = 0; i < (int)TT_COUNT(physical); i++) {
    snprintf(line, sizeof line, "rank %d nranks 2 cudaDev %d nvmlDev %d busId %x commId 0x", i, i, physical[i],
             (unsigned)(physical[i] + 1) << 12);
    CHECK(strstr(text, line) != NULL, "\"%s\" is not in the log", line);
    OK(ncclCommDestroy(comm[i]));
  }
  remove(path);
}

static void test_names(void **state)
{
  (void)state;
  PROCESSES(1, LIMIT, names_body, NULL);
}

static void test_places(void **state)
{
  (void)state;
  static char ring[] = "Ring", tree[] = "Tree";
  char *algos[] = {NULL, ring, tree}; // NULL: what the library takes
  for (size_t i = 0; i < TT_COUNT(algos); i++) {
    PROCESSES(1, LIMIT, places_body, algos[i]);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_places),
      cmocka_unit_test(test_names),
  };
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return cmocka_run_group_tests_name("cuda_comm_places", tests, write_machine, remove_machine);
}
