// ncclCommInitRankScalable: several unique ids, in processes, in one group, non-blocking, and used wrongly.
#include "harness.h"

enum { COUNT = 1000 };

// Everybody's sum of ranks + 1; the communicator works.
static void sum_once(ncclComm_t comm, int rank, int n)
{
  int *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
  for (int i = 0; i < COUNT; i++) {
    in[i] = rank + 1;
  }
  OK(ncclAllReduce(in, out, COUNT, ncclInt, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  for (int i = 0; i < COUNT; i++) {
    CHECK(out[i] == n * (n + 1) / 2, "rank %d of %d: %d", rank, n, out[i]);
  }
  free(in);
  free(out);
}

static void process_body(int rank, void *arg)
{
  const run *r = arg;
  ncclUniqueId ids[MAX_RANKS];
  int slot = 0;
  OK(tuttiSetDevice(rank));
  for (int nids = 1; nids <= r->n; nids++) {
    ncclComm_t comm = NULL;
    for (int i = 0; i < nids; i++) {
      ids[i] = shared_id(slot++, rank);
    }
    OK(ncclCommInitRankScalable(&comm, r->n, rank, nids, ids, NULL));
    sum_once(comm, rank, r->n);
    OK(ncclCommDestroy(comm));
    meet(r->n);
  }
}

static void processes(void **state)
{
  (void)state;
  for (int n = 2; n <= 6; n += 2) {
    PROCESSES(n, 30, process_body, &(run){.n = n});
  }
}

// One thread makes all ranks in a group, and spoils its list of ids before the group ends.
static void group_body(int rank, void *arg)
{
  (void)rank;
  const int *blocking = arg;
  ncclUniqueId ids[3];
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  world w = {.n = 7};
  config.blocking = *blocking;
  for (int i = 0; i < 3; i++) {
    OK(ncclGetUniqueId(&ids[i]));
  }
  OK(ncclGroupStart());
  for (int i = 0; i < w.n; i++) {
    OK(tuttiSetDevice(i));
    ncclResult_t res = ncclCommInitRankScalable(&w.comm[i], w.n, i, 3, ids, &config);
    CHECK(res == ncclSuccess || res == ncclInProgress, "rank %d: %d", i, (int)res);
  }
  memset(ids, 0, sizeof ids);
  ncclResult_t state = ncclGroupEnd();
  CHECK(state == ncclSuccess || (state == ncclInProgress && !*blocking), "end of the group: %d", (int)state);
  for (int i = 0; i < w.n; i++) {
    do {
      OK(ncclCommGetAsyncError(w.comm[i], &state));
      sleep_ms(0.2);
    } while (state == ncclInProgress);
    CHECK(state == ncclSuccess, "rank %d: %d", i, (int)state);
  }
  for (int i = 0; i < w.n; i++) {
    int n = 0;
    OK(ncclCommCount(w.comm[i], &n));
    CHECK(n == w.n, "%d ranks", n);
    OK(ncclCommDestroy(w.comm[i]));
  }
}

static void groups(void **state)
{
  (void)state;
  for (int blocking = 0; blocking < 2; blocking++) {
    PROCESSES(1, 30, group_body, &blocking);
  }
}

static void wrong_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  ncclUniqueId ids[3];
  ncclComm_t comm = NULL;
  OK(ncclGetUniqueId(&ids[0]));
  OK(ncclGetUniqueId(&ids[1]));
  ids[2] = ids[0];
  REFUSED(ncclCommInitRankScalable(NULL, 2, 0, 2, ids, NULL), ncclInvalidArgument, "ncclCommInitRankScalable", "comm");
  REFUSED(ncclCommInitRankScalable(&comm, 2, 0, 2, NULL, NULL), ncclInvalidArgument, "ncclCommInitRankScalable",
          "unique ids");
  REFUSED(ncclCommInitRankScalable(&comm, 2, 0, 0, ids, NULL), ncclInvalidArgument, "ncclCommInitRankScalable",
          "0 unique ids");
  REFUSED(ncclCommInitRankScalable(&comm, 2, 0, 3, ids, NULL), ncclInvalidArgument, "3 unique ids", "2 ranks");
  REFUSED(ncclCommInitRankScalable(&comm, 3, 0, 3, ids, NULL), ncclInvalidArgument, "unique ids 0 and 2 are the same");
  CHECK(comm == NULL, "a handle");
  OK(ncclCommInitRankScalable(&comm, 1, 0, 1, ids, NULL));
  OK(ncclCommDestroy(comm));
}

static void wrong_use(void **state)
{
  (void)state;
  PROCESSES(1, 30, wrong_body, NULL);
}

static void mismatch_body(int rank, void *arg)
{
  (void)arg;
  ncclUniqueId ids[3];
  ncclComm_t comm = NULL;
  for (int i = 0; i < 3; i++) {
    ids[i] = shared_id(i, rank);
  }
  REFUSED(ncclCommInitRankScalable(&comm, 4, rank, rank == 1 ? 3 : 2, ids, NULL), ncclInvalidUsage,
          "number of unique ids", "has 2", "has 3");
  CHECK(comm == NULL, "a handle");
  meet(4); // the roots live in process 0
}

static void mismatches(void **state)
{
  (void)state;
  PROCESSES(4, 30, mismatch_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(processes),
      cmocka_unit_test(groups),
      cmocka_unit_test(wrong_use),
      cmocka_unit_test(mismatches),
  };
  return RUN_TESTS("scalable", tests, argc, argv);
}
