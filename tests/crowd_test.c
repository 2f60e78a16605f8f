// More ranks than cores: 64, as threads and as processes, in good time and in little memory; 8, of which those that
// only send run ahead.
#define _GNU_SOURCE
#include "harness.h"

#include <sched.h>

#include "comm/comm.h"
#include "device/host/stream.h"

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
  CHECK(SLOWER > 1 || mib < LIMIT_MIB, "%d processes use %llu MiB; the limit is %d", CROWD, (unsigned long long)mib,
        LIMIT_MIB);
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

// The process may use so many cores from here on; returns how many it has.
static int keep_cores(int cores)
{
  int taken = 0;
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
  return taken;
}

enum { FEW = 8, AHEAD = 48 }; // more calls than LL has slots, fewer than TINY has

static void issue(ncclComm_t comm, cudaStream_t s, bool sum, int (*x)[2], int (*y)[2])
{
  for (int i = 0; i < AHEAD; i++) {
    OK(sum ? ncclReduce(x[i], y[i], 2, ncclInt, ncclSum, FEW - 1, comm, s)
           : ncclBroadcast(x[i], y[i], 2, ncclInt, 0, comm, s));
  }
  OK(tuttiStreamSynchronize(s));
}

// When it is a rank's turn: a broadcast's root comes first, a reduce's last; the others up or down.
static int turn_of(int rank, bool sum, bool down)
{
  int root = sum ? FEW - 1 : 0, other = sum ? rank : rank - 1;
  return rank == root ? root : (down ? FEW - 2 - other : other) + !sum;
}

// One rank after the other makes all its calls: nobody waits for a rank that has nothing for it, nor for slots.
static void ahead_rank(int rank, void *arg)
{
  (void)arg;
  int x[AHEAD][2], y[AHEAD][2];
  keep_cores(1);
  ncclComm_t comm = join_processes(0, FEW, rank);
  cudaStream_t s;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  CHECK(comm->machine.crowded, "%d ranks on one core are not too many?", FEW);
  for (int round = 0; round < 8; round++) { // with plans, and made ready
    bool sum = round % 2 != 0, checked = !sum || rank == FEW - 1;
    for (int i = 0; i < AHEAD; i++) {
      x[i][0] = x[i][1] = rank + 10 * i + round;
      y[i][0] = y[i][1] = -1;
    }
    for (int turn = 0; turn < FEW; turn++) {
      if (turn == turn_of(rank, sum, round & 2)) {
        issue(comm, s, sum, x, y);
      }
      meet(FEW);
    }
    for (int i = 0; i < AHEAD && checked; i++) {
      int want = sum ? FEW * (FEW - 1) / 2 + FEW * (10 * i + round) : 10 * i + round;
      CHECK(y[i][0] == want && y[i][1] == want, "rank %d, round %d, call %d: %d and %d, not %d", rank, round, i,
            y[i][0], y[i][1], want);
    }
  }
  OK(tuttiStreamDestroy(s));
  OK(ncclCommDestroy(comm));
}

static void senders_run_ahead(void **state)
{
  (void)state;
  PROCESSES(FEW, 40, ahead_rank, NULL);
}

// A rank that waits after every call may do so inside the call, but never for long: rank 0 makes its own when those
// that wait for it have returned from theirs. As that goes on, they do not even try any more.
typedef struct patience_case {
  int n;
  bool ring; // instead of a sum
} patience_case;

static void issue_late(const patience_case *c, int rank, ncclComm_t comm, cudaStream_t s, const int *x, int *y)
{
  if (!c->ring) {
    OK(ncclAllReduce(x, y, 2, ncclInt, ncclSum, comm, s));
    return;
  }
  OK(ncclGroupStart());
  OK(ncclSend(x, 2, ncclInt, (rank + 1) % c->n, comm, s));
  OK(ncclRecv(y, 2, ncclInt, (rank + c->n - 1) % c->n, comm, s));
  OK(ncclGroupEnd());
}

static void patient_rank(int rank, void *arg)
{
  enum { LATE = 24, TOGETHER = 200 };
  const patience_case *c = arg;
  int n = c->n, waiters = c->ring ? 1 : n - 1;
  bool waits = c->ring ? rank == 1 : rank > 0; // for rank 0 itself
  keep_cores(1);
  ncclComm_t comm = join_processes(0, n, rank);
  cudaStream_t s;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  CHECK(comm->machine.per_core == n, "%d ranks on one core: %d per core", n, comm->machine.per_core);
  for (int k = 0; k < LATE + TOGETHER; k++) {
    int x[2] = {rank + k, rank - k}, y[2] = {-1, -1}, before = (rank + n - 1) % n, sum = n * (n - 1) / 2;
    while (k < LATE && rank == 0 && atomic_load(&the_board->word[0]) < (uint64_t)((k + 1) * waiters)) {
      sleep_ms(0.1);
    }
    issue_late(c, rank, comm, s, x, y);
    atomic_fetch_add(&the_board->word[0], waits);
    OK(tuttiStreamSynchronize(s));
    int want[2] = {c->ring ? before + k : sum + n * k, c->ring ? before - k : sum - n * k};
    CHECK(memcmp(y, want, sizeof y) == 0, "rank %d, call %d: %d and %d, not %d and %d", rank, k, y[0], y[1], want[0],
          want[1]);
    if (k == LATE - 1 && waits) {
      CHECK(comm->attempts.failed >= 3 && comm->attempts.skip > 0,
            "rank %d has waited in vain %u times, and will %u times not", rank, comm->attempts.failed,
            comm->attempts.skip);
    }
  }
  OK(tuttiStreamDestroy(s));
  OK(ncclCommDestroy(comm));
}

static void calls_wait_for_nobody_long(void **state)
{
  (void)state;
  static patience_case cases[] = {{3, false}, {FEW, false}, {2, true}, {FEW, true}};
  for (int i = 0; i < 4; i++) {
    PROCESSES(cases[i].n, 40, patient_rank, &cases[i]);
  }
}

// Nodes that NCCL_HOSTID makes up share the cores of one machine.
static void fake_node(int rank, void *arg)
{
  char name[32];
  int taken = keep_cores(*(int *)arg);
  snprintf(name, sizeof name, "node%d", rank);
  setenv("NCCL_HOSTID", name, 1);
  ncclComm_t comm = join_processes(0, 2, rank);
  CHECK(comm->layout->nnodes == 2 && comm->machine.local_ranks == 1, "%d nodes", comm->layout->nnodes);
  CHECK(comm->machine.crowded == (taken < 2), "two ranks on %d cores: crowded %d", taken, comm->machine.crowded);
  CHECK(tt_host_crowded() == comm->machine.crowded, "waits think otherwise");
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
      cmocka_unit_test(senders_run_ahead),
      cmocka_unit_test(calls_wait_for_nobody_long),
      cmocka_unit_test(fake_nodes_share_cores),
  };
  return RUN_TESTS("crowd", tests, argc, argv);
}
