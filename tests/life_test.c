// Lives of communicators: non-blocking ones, aborted ones, splits, and their ends.
#include "buffers.h"

// --- Non-blocking communicators

static void await_ready(ncclComm_t comm, const char *what)
{
  ncclResult_t state = ncclInProgress;
  for (double end = seconds_now() + GENEROUS(10); state == ncclInProgress; sleep_ms(0.2)) {
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(seconds_now() < end, "%s: still in progress", what);
  }
  CHECK(state == ncclSuccess, "%s: state %d", what, (int)state);
}

static void nonblocking_open(world *w, int n, bool group)
{
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  w->n = n;
  OK(ncclGetUniqueId(&id));
  if (group) {
    OK(ncclGroupStart());
  }
  for (int i = 0; i < n; i++) {
    OK(tuttiSetDevice(i));
    w->comm[i] = NULL;
    CHECK(going(ncclCommInitRankConfig(&w->comm[i], n, id, i, &config)), "init of rank %d", i);
    CHECK(w->comm[i] != NULL, "no handle for rank %d", i);
    OK(tuttiStreamCreate(&w->stream[i], TUTTI_STREAM_DEFAULT));
  }
  if (group) {
    CHECK(going(ncclGroupEnd()), "end of the group");
  }
}

static void nonblocking_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int group = 0; group < 2; group++) {
    world w;
    buffers b;
    nonblocking_open(&w, 3, group != 0);
    for (int i = 0; i < 3; i++) {
      await_ready(w.comm[i], "init");
    }
    buffers_open(&b, 3, COUNT);
    OK(ncclGroupStart());
    for (int i = 0; i < 3; i++) {
      CHECK(going(sum(&w, &b, i)), "sum");
    }
    CHECK(going(ncclGroupEnd()), "end of the sum's group");
    for (int i = 0; i < 3; i++) {
      await_ready(w.comm[i], "sum");
    }
    world_wait(&w);
    expect_sum(&b, 3, "non-blocking");
    for (int i = 0; i < 3; i++) {
      CHECK(going(ncclCommFinalize(w.comm[i])), "finalize");
    }
    for (int i = 0; i < 3; i++) {
      await_ready(w.comm[i], "finalize");
    }
    world_close(&w);
    buffers_close(&b, 3);
  }
}

static void nonblocking_communicators(void **state)
{
  (void)state;
  PROCESSES(1, 30, nonblocking_body, NULL);
}

// Rank 0 of two begins, the other never comes.
static void abort_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  holdings before = {.threads = 0};
  for (int round = 0; round < 5; round++) {
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    ncclResult_t s;
    OK(ncclGetUniqueId(&id));
    CHECK(going(ncclCommInitRankConfig(&comm, 2, id, round % 2, &config)), "init");
    OK(ncclCommGetAsyncError(comm, &s));
    CHECK(s == ncclInProgress, "state %d before the other rank has come", (int)s);
    float x = 1;
    CHECK(!going(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL)),
          "an operation before the communicator is ready");
    sleep_ms(round * 5);
    double start = seconds_now();
    OK(ncclCommAbort(comm));
    CHECK(seconds_now() - start < GENEROUS(2), "the abort took %g s", seconds_now() - start);
    if (round == 0) {
      before = holdings_now();
    }
  }
  (void)before;
}

static void abort_during_init(void **state)
{
  (void)state;
  PROCESSES(1, 20, abort_body, NULL);
}

// --- Splits

// All ranks of `w` split in one group: colour by number, order reversed; checks and returns the children.
static void split_all(world *w, world *children, int ncolors, bool nonblocking, int without)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = nonblocking ? 0 : 1;
  children->n = w->n;
  OK(ncclGroupStart());
  for (int i = 0; i < w->n; i++) {
    children->comm[i] = NULL;
    children->stream[i] = w->stream[i];
    CHECK(going(ncclCommSplit(w->comm[i], i == without ? NCCL_SPLIT_NOCOLOR : i % ncolors, -i, &children->comm[i],
                              &config)),
          "split of rank %d", i);
  }
  CHECK(going(ncclGroupEnd()), "end of the group of splits");
  for (int i = 0; i < w->n; i++) {
    await_ready(w->comm[i], "the split's parent");
    if (i == without) {
      CHECK(children->comm[i] == NULL, "rank %d has a communicator", i);
      continue;
    }
    CHECK(children->comm[i] != NULL, "no child of rank %d", i);
    await_ready(children->comm[i], "split");
  }
}

// Each child's ranks are in reversed order, and sum over their colour only.
static void check_children(const world *c, int ncolors, int without)
{
  float in[MAX_RANKS], out[MAX_RANKS];
  OK(ncclGroupStart());
  for (int i = 0; i < c->n; i++) {
    in[i] = (float)(1 << i);
    if (i != without) {
      OK(ncclAllReduce(&in[i], &out[i], 1, ncclFloat, ncclSum, c->comm[i], c->stream[i]));
    }
  }
  CHECK(going(ncclGroupEnd()), "sum of the children");
  for (int i = 0; i < c->n; i++) {
    int place = 0, size = 0, is, count, want = 0;
    for (int k = 0; k < c->n; k++) {
      if (k % ncolors == i % ncolors && k != without) {
        want += 1 << k;
        size++;
        place += k > i;
      }
    }
    if (i != without) {
      OK(tuttiStreamSynchronize(c->stream[i]));
      OK(ncclCommUserRank(c->comm[i], &is));
      OK(ncclCommCount(c->comm[i], &count));
      CHECK(is == place && count == size, "child of rank %d is rank %d of %d, not %d of %d", i, is, count, place, size);
      CHECK(out[i] == (float)want, "child of rank %d: %g, not %d", i, (double)out[i], want);
    }
  }
}

static void drop_children(world *c)
{
  for (int i = 0; i < c->n; i++) {
    OK(ncclCommDestroy(c->comm[i]));
  }
}

static void split_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
    for (int n = 3; n <= N; n += 5) {
      world w, child, grandchild;
      world_open(&w, n);
      for (int round = 0; round < 3; round++) {
        split_all(&w, &child, round + 1, nonblocking != 0, round == 2 ? 1 : -1);
        check_children(&child, round + 1, round == 2 ? 1 : -1);
        if (round == 0) { // of the child's child in the child's order: reversed twice
          split_all(&child, &grandchild, 2, nonblocking != 0, -1);
          check_children(&grandchild, 2, -1);
          drop_children(&child); // before its children
          child = grandchild;
        }
        drop_children(&child);
      }
      world_close(&w);
    }
  }
}

static void splits_in_groups(void **state)
{
  (void)state;
  PROCESSES(1, 40, split_body, NULL);
}

// Several splits of one communicator in one group, without waiting in between; the parent must stay until they are
// over.
static void split_row_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  enum { SPLITS = 4 };
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  for (config.blocking = 0; config.blocking < 2; config.blocking++) {
    world w, child[SPLITS];
    world_open(&w, 3);
    OK(ncclGroupStart());
    for (int k = 0; k < SPLITS; k++) {
      child[k] = (world){.n = 3};
      for (int i = 0; i < 3; i++) {
        child[k].stream[i] = w.stream[i];
        CHECK(going(ncclCommSplit(w.comm[i], k == i ? NCCL_SPLIT_NOCOLOR : 0, -i, &child[k].comm[i], &config)),
              "split %d of rank %d", k, i);
      }
    }
    REFUSED(ncclCommDestroy(w.comm[1]), ncclInvalidUsage, "ncclCommDestroy", "rank 1", "split");
    REFUSED(ncclCommAbort(w.comm[2]), ncclInvalidUsage, "ncclCommAbort", "rank 2", "split");
    CHECK(going(ncclGroupEnd()), "end of the group of splits");
    for (int k = 0; k < SPLITS; k++) {
      for (int i = 0; i < 3; i++) {
        CHECK((child[k].comm[i] == NULL) == (k == i), "split %d of rank %d: handle %p", k, i, (void *)child[k].comm[i]);
        if (k != i) {
          await_ready(child[k].comm[i], "one of several splits");
        }
      }
      check_children(&child[k], 1, k);
    }
    world_close(&w);
    for (int k = 0; k < SPLITS; k++) {
      drop_children(&child[k]);
    }
  }
}

static void several_splits_in_a_group(void **state)
{
  (void)state;
  PROCESSES(1, 20, split_row_body, NULL);
}

// Rank 0 splits, the other does not: the rank that aborts the parent is rid of both.
static void split_abort_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  for (int color = -1; color < 1; color++) {
    world w;
    ncclComm_t child = NULL;
    ncclResult_t state;
    world_open(&w, 2);
    CHECK(going(ncclCommSplit(w.comm[0], color, 0, &child, &config)), "split");
    CHECK((child != NULL) == (color >= 0), "handle %p with colour %d", (void *)child, color);
    OK(ncclCommGetAsyncError(w.comm[0], &state));
    CHECK(state == ncclInProgress, "the parent's state is %d", (int)state);
    double start = seconds_now();
    OK(ncclCommAbort(w.comm[0]));
    OK(ncclCommAbort(child));
    OK(ncclCommAbort(w.comm[1]));
    CHECK(seconds_now() - start < GENEROUS(2), "three aborts took %g s", seconds_now() - start);
  }
}

static void abort_during_split(void **state)
{
  (void)state;
  PROCESSES(1, 20, split_abort_body, NULL);
}

// Rank 0 splits, the other does not. The child's abort ends its creation, also that of a second one that waits for its
// turn.
static void child_abort_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  for (int later_first = 0; later_first < 2; later_first++) {
    world w;
    ncclComm_t child[2] = {NULL, NULL}, other = NULL;
    world_open(&w, 2);
    CHECK(going(ncclCommSplit(w.comm[0], 0, 0, &child[0], &config)), "split");
    if (later_first) {
      ncclComm_t parent = w.comm[0];
      (void)ncclCommSplit(parent, 0, 0, &child[1], &config); // may be refused: the parent is in a call
      OK(ncclCommAbort(child[1]));
    }
    OK(ncclCommAbort(child[0]));
    CHECK(ncclCommSplit(w.comm[1], 0, 0, &other, NULL) == ncclRemoteError && other == NULL,
          "rank 1 splits with nobody");
    CHECK(strstr(ncclGetLastError(NULL), "rank 0 was aborted") != NULL, "text: %s", ncclGetLastError(NULL));
    OK(ncclCommAbort(w.comm[0]));
    OK(ncclCommAbort(w.comm[1]));
  }
}

static void abort_of_a_child(void **state)
{
  (void)state;
  PROCESSES(1, 20, child_abort_body, NULL);
}

// A split that one rank never calls ends, and names it.
static void lonely_split_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  ncclComm_t child = NULL;
  world_open(&w, 2);
  CHECK(ncclCommSplit(w.comm[0], 0, 0, &child, NULL) == ncclRemoteError && child == NULL, "a split without rank 1");
  const char *text = ncclGetLastError(NULL);
  CHECK(strstr(text, "ncclCommSplit") != NULL && strstr(text, "rank 1 has not") != NULL, "text: %s", text);
  CHECK(strstr(text, "NCCL_BOOTSTRAP_TIMEOUT") != NULL, "text: %s", text);
  OK(ncclCommAbort(w.comm[0]));
  OK(ncclCommAbort(w.comm[1]));
}

static void lonely_split(void **state)
{
  (void)state;
  assert_int_equal(
      run_processes(&(run){.n = 1, .seconds = 30, .fn = lonely_split_body, .env = ENV("NCCL_BOOTSTRAP_TIMEOUT=2")}), 0);
}

static void split_process(int rank, void *arg)
{
  int n = *(int *)arg;
  ncclComm_t comm = join_processes(0, n, rank), child = NULL;
  for (int round = 0; round < 5; round++) {
    int color = round == 4 && rank == 0 ? NCCL_SPLIT_NOCOLOR : rank % (round % 2 + 1), size;
    float x = 1;
    OK(ncclCommSplit(comm, color, rank, &child, NULL));
    if (color == NCCL_SPLIT_NOCOLOR) {
      CHECK(child == NULL, "a communicator without a colour");
      continue;
    }
    OK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, child, NULL));
    OK(tuttiStreamSynchronize(NULL));
    OK(ncclCommCount(child, &size));
    CHECK(x == (float)size, "sum %g in a child of %d", (double)x, size);
    OK(ncclCommDestroy(child));
  }
  OK(ncclCommDestroy(comm));
}

static void splits_between_processes(void **state)
{
  (void)state;
  int n = 3;
  PROCESSES(n, 20, split_process, &n);
}

// Finalize and destroy in every order of two ranks, with work still queued.
static void ends_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int order = 0; order < 4; order++) {
    world w;
    buffers b;
    world_open(&w, 2);
    buffers_open(&b, 2, LARGE);
    for (int i = 0; i < 2; i++) {
      OK(sum(&w, &b, i));
    }
    for (int i = 0; i < 2 && order < 2; i++) {
      OK(ncclCommFinalize(w.comm[order == 0 ? i : 1 - i]));
    }
    if (order < 2) {
      CHECK(!going(sum(&w, &b, 0)), "an operation after ncclCommFinalize");
    }
    for (int i = 0; i < 2; i++) {
      OK(ncclCommDestroy(w.comm[order % 2 == 0 ? 1 - i : i]));
    }
    expect_sum(&b, 2, "before the end");
    OK(tuttiStreamDestroy(w.stream[0]));
    OK(tuttiStreamDestroy(w.stream[1]));
    buffers_close(&b, 2);
  }
}

static void ends_in_any_order(void **state)
{
  (void)state;
  PROCESSES(1, 20, ends_body, NULL);
}

static void no_thread(int rank, void *arg)
{
  (void)rank, (void)arg;
}

// When everything is destroyed, the library's threads end: a process whose main thread has left with pthread_exit ends,
// too.
static void no_thread_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  buffers b;
  run_threads(1, no_thread, NULL); // a sanitizer adds its own thread to the first one
  int threads = holdings_now().threads;
  world_open(&w, 2);
  buffers_open(&b, 2, 2);
  for (int i = 0; i < 2; i++) {
    OK(sum(&w, &b, i));
  }
  world_wait(&w);
  for (int i = 0; i < 2; i++) {
    OK(ncclCommDestroy(w.comm[i]));
    OK(tuttiStreamDestroy(w.stream[i]));
  }
  buffers_close(&b, 2);
  while (holdings_now().threads > threads) { // the run has a limit
    sleep_ms(1);
  }
}

static void leaves_no_thread(void **state)
{
  (void)state;
  PROCESSES(1, 20, no_thread_body, NULL);
}

// --- Destruction that would wait

typedef struct destruction {
  ncclComm_t comm;
  _Atomic int done;
} destruction;

static void *destroy_now(void *arg)
{
  destruction *d = arg;
  OK(ncclCommDestroy(d->comm));
  atomic_store(&d->done, 1);
  return NULL;
}

// A healthy communicator's operations are not cut short: the destruction waits for a peer that comes late, and an abort
// by another thread ends the wait for one that never comes.
static void late_peer_body(int rank, void *arg)
{
  (void)arg;
  for (int round = 0; round < 2; round++) {
    bool comes = round == 0;
    ncclComm_t comm = join_processes(round, 2, rank);
    cudaStream_t s = new_stream();
    float x = (float)rank;
    if (rank == 1) {
      meet(2);
      sleep_ms(200);
      ncclResult_t res = comes ? ncclSend(&x, 1, ncclFloat, 0, comm, s) : ncclSuccess;
      CHECK(res == ncclSuccess, "the late send: %d", (int)res);
      CHECK(tuttiStreamSynchronize(s) == ncclSuccess, "the late send");
      meet(2);
      OK(ncclCommDestroy(comm));
      OK(tuttiStreamDestroy(s));
      continue;
    }
    destruction d = {.comm = comm};
    pthread_t t;
    OK(ncclRecv(&x, 1, ncclFloat, 1, comm, s));
    CHECK(pthread_create(&t, NULL, destroy_now, &d) == 0, "no thread");
    meet(2);
    sleep_ms(100);
    CHECK(atomic_load(&d.done) == 0, "the destruction has not waited for its operation");
    if (!comes) {
      REFUSED(ncclCommDestroy(comm), ncclInvalidArgument, "another thread");
      REFUSED(ncclCommRevoke(comm, 0), ncclInvalidArgument, "another thread");
      double start = seconds_now();
      OK(ncclCommAbort(comm));
      CHECK(seconds_now() - start < GENEROUS(1), "the abort took %g s", seconds_now() - start);
    }
    pthread_join(t, NULL);
    CHECK(x == (comes ? 1 : 0), "%g has come", (double)x);
    GIVES(ncclCommAbort(comm), ncclInvalidArgument);
    (void)tuttiStreamSynchronize(s);
    meet(2);
    OK(tuttiStreamDestroy(s));
  }
}

static void destruction_waits_and_can_be_aborted(void **state)
{
  (void)state;
  PROCESSES(2, 20, late_peer_body, NULL);
}

// An operation of a communicator that is revoked, or has lost rank 2, stands in a stream behind one of another that
// does not end: its destruction does not wait for that.
static void behind_others_body(int rank, void *arg)
{
  bool revokes = *(bool *)arg;
  ncclComm_t failed = join_processes(0, 3, rank), healthy = NULL;
  ncclResult_t state = ncclSuccess;
  cudaStream_t s = new_stream();
  float x = 5, y = 0;
  OK(ncclCommSplit(failed, rank == 2 ? NCCL_SPLIT_NOCOLOR : 0, rank, &healthy, NULL));
  if (rank == 0) {
    OK(ncclRecv(&x, 1, ncclFloat, 1, healthy, s));
    OK(ncclAllReduce(&y, &y, 1, ncclFloat, ncclSum, failed, s));
  }
  meet(3);
  if (rank == 2 && !revokes) {
    kill(getpid(), SIGKILL);
  }
  if (revokes) {
    OK(ncclCommRevoke(failed, 0));
  }
  while (!revokes && state == ncclSuccess) {
    OK(ncclCommGetAsyncError(failed, &state));
    sleep_ms(1);
  }
  double start = seconds_now();
  OK(ncclCommDestroy(failed));
  CHECK(seconds_now() - start < GENEROUS(1), "rank %d: the destruction took %g s", rank, seconds_now() - start);
  if (rank < 2) {
    meet(2);
  }
  x = rank == 1 ? 7 : x;
  if (rank == 1) {
    OK(ncclSend(&x, 1, ncclFloat, 0, healthy, s));
  }
  (void)tuttiStreamSynchronize(s); // tells of the operation that was dropped, too
  CHECK(rank == 2 || x == 7, "rank %d: the operation before: %g", rank, (double)x);
  OK(ncclCommDestroy(healthy));
  OK(tuttiStreamDestroy(s));
}

static void destruction_after_a_failure_waits_for_nobody(void **state)
{
  (void)state;
  for (int i = 0; i < 2; i++) {
    bool revokes = i == 1;
    ranks_set r;
    start_processes(&r, &(run){.n = 3, .seconds = 20, .fn = behind_others_body, .arg = &revokes});
    r.expected[2] = revokes ? 0 : -SIGKILL;
    assert_int_equal(finish_processes(&r), 0);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nonblocking_communicators),
      cmocka_unit_test(abort_during_init),
      cmocka_unit_test(splits_in_groups),
      cmocka_unit_test(several_splits_in_a_group),
      cmocka_unit_test(abort_during_split),
      cmocka_unit_test(splits_between_processes),
      cmocka_unit_test(ends_in_any_order),
      cmocka_unit_test(abort_of_a_child),
      cmocka_unit_test(lonely_split),
      cmocka_unit_test(leaves_no_thread),
      cmocka_unit_test(destruction_waits_and_can_be_aborted),
      cmocka_unit_test(destruction_after_a_failure_waits_for_nobody),
  };
  return RUN_TESTS("life", tests, argc, argv);
}
