// 64 ranks, as threads and as processes, on however few cores: in good time and in little memory.
#define _GNU_SOURCE
#include "harness.h"

#include <sched.h>

#include "comm/comm.h"

enum { CROWD = 64, LIMIT_MIB = 512, MOST = 1 << 20 };

static const size_t sizes[] = {8, 64, 512, 4096, 32768, 262144, MOST};

// KiB that this process has for itself, and its part of what it shares.
static long own_kib(void)
{
  return status_value("/proc/self/smaps_rollup", "Pss:");
}

// A few sums of every size; each rank gives its number. Returns how much memory the process had in the end.
static long sweep(int rank, int n, ncclComm_t comm)
{
  int *x = malloc(MOST), *y = malloc(MOST);
  cudaStream_t s;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
    size_t count = sizes[k] / sizeof *x;
    for (size_t i = 0; i < count; i++) {
      x[i] = rank + (int)(i % 7);
    }
    for (int round = 0; round < (SLOWER == 1 ? 3 : 1); round++) {
      OK(ncclAllReduce(x, y, count, ncclInt, ncclSum, comm, s));
      OK(tuttiStreamSynchronize(s));
    }
    for (size_t i = 0; i < count; i++) {
      int want = n * (n - 1) / 2 + n * (int)(i % 7);
      CHECK(y[i] == want, "rank %d, %zu bytes, element %zu: %d, not %d", rank, sizes[k], i, y[i], want);
    }
  }
  long kib = own_kib();
  OK(tuttiStreamDestroy(s));
  free(x);
  free(y);
  return kib;
}

static void thread_rank(int rank, void *arg)
{
  ncclUniqueId *id = arg;
  ncclComm_t comm = NULL;
  OK(ncclCommInitRank(&comm, CROWD, *id, rank));
  sweep(rank, CROWD, comm);
  OK(ncclCommDestroy(comm));
}

static void threads_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  ncclUniqueId id;
  OK(ncclGetUniqueId(&id));
  run_threads(CROWD, thread_rank, &id);
}

static void ranks_as_threads(void **state)
{
  (void)state;
  double start = seconds_now();
  PROCESSES(1, 40, threads_body, NULL);
  print_message("%d threads: %.1f s\n", CROWD, seconds_now() - start);
}

static void process_rank(int rank, void *arg)
{
  (void)arg;
  ncclComm_t comm = join_processes(0, CROWD, rank);
  atomic_fetch_add(&the_board->word[0], (uint64_t)sweep(rank, CROWD, comm));
  meet(CROWD);
  uint64_t mib = atomic_load(&the_board->word[0]) / 1024;
  if (rank == 0) {
    printf("%d processes: %llu MiB together\n", CROWD, (unsigned long long)mib);
  }
  CHECK(SLOWER > 1 || mib < LIMIT_MIB, "%d processes use %llu MiB; the limit is %d", CROWD, (unsigned long long)mib, LIMIT_MIB);
  OK(ncclCommDestroy(comm));
}

static void ranks_as_processes(void **state)
{
  (void)state;
  double start = seconds_now();
  PROCESSES(CROWD, 40, process_rank, NULL);
  print_message("%d processes: %.1f s\n", CROWD, seconds_now() - start);
}

// Four processes of 16 threads.
static void mixed_rank(int thread, void *arg)
{
  int rank = *(int *)arg * 16 + thread;
  ncclComm_t comm = NULL;
  OK(ncclCommInitRank(&comm, CROWD, the_board->ids[0], rank));
  sweep(rank, CROWD, comm);
  OK(ncclCommDestroy(comm));
}

static void mixed_body(int process, void *arg)
{
  (void)arg;
  shared_id(0, process);
  run_threads(16, mixed_rank, &process);
  meet(4);
}

static void ranks_as_both(void **state)
{
  (void)state;
  double start = seconds_now();
  PROCESSES(4, 40, mixed_body, NULL);
  print_message("4 processes of 16 threads: %.1f s\n", seconds_now() - start);
}

// Nodes that NCCL_HOSTID makes up share the cores of one machine.
static void fake_node(int rank, void *arg)
{
  int cores = *(int *)arg, taken = 0;
  char name[32];
  cpu_set_t all, few;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "affinity");
  CPU_ZERO(&few);
  for (int cpu = 0; cpu < CPU_SETSIZE && taken < cores; cpu++) {
    if (CPU_ISSET(cpu, &all)) {
      CPU_SET(cpu, &few);
      taken++;
    }
  }
  CHECK(sched_setaffinity(0, sizeof few, &few) == 0, "affinity");
  snprintf(name, sizeof name, "node%d", rank);
  setenv("NCCL_HOSTID", name, 1);
  ncclComm_t comm = join_processes(0, 2, rank);
  CHECK(comm->layout->nnodes == 2 && comm->local_ranks == 1, "%d nodes", comm->layout->nnodes);
  CHECK(comm->crowded == (taken < 2), "two ranks on %d cores: crowded %d", taken, comm->crowded);
  CHECK(tt_host_crowded() == comm->crowded, "waits think otherwise");
  OK(ncclCommDestroy(comm));
}

static void fake_nodes_share_cores(void **state)
{
  (void)state;
  for (int cores = 1; cores <= 2; cores++) { // 2: one, where the machine has no more
    PROCESSES(2, 20, fake_node, &cores);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_as_threads),
      cmocka_unit_test(ranks_as_processes),
      cmocka_unit_test(ranks_as_both),
      cmocka_unit_test(fake_nodes_share_cores),
  };
  return RUN_TESTS("crowd", tests, argc, argv);
}
