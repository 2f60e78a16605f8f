// Creating communicators with wrong arguments, without memory, in a forked child; and functions of later versions.
#include "harness.h"
#include "nccl_device.h"

#include "base/util.h"
#include "comm/comm.h"

// --- Ranks that cannot meet

typedef struct attempt {
  ncclUniqueId id;
  int nranks[MAX_RANKS], rank[MAX_RANKS];
  ncclResult_t res[MAX_RANKS];
  char text[MAX_RANKS][1024];
  ncclComm_t comm[MAX_RANKS];
} attempt;

static void attempt_one(int i, void *arg)
{
  attempt *a = arg;
  a->res[i] = ncclCommInitRank(&a->comm[i], a->nranks[i], a->id, a->rank[i]);
  snprintf(a->text[i], sizeof a->text[i], "%s", a->res[i] == ncclSuccess ? "" : ncclGetLastError(NULL));
}

// All ranks of `a` fail with `code` and a text that has these words.
static void expect_refusal(attempt *a, int n, ncclResult_t code, const char *const *words)
{
  double start = seconds_now();
  OK(ncclGetUniqueId(&a->id));
  run_threads(n, attempt_one, a);
  for (int i = 0; i < n; i++) {
    CHECK(a->res[i] == code && a->comm[i] == NULL, "rank %d of %d: %d, '%s', handle %p", a->rank[i], a->nranks[i],
          (int)a->res[i], a->text[i], (void *)a->comm[i]);
    CHECK(has_words(a->text[i], words), "rank %d of %d: the text is '%s'", a->rank[i], a->nranks[i], a->text[i]);
  }
  CHECK(seconds_now() - start < GENEROUS(5), "it took %g s", seconds_now() - start);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void meeting_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  expect_refusal(&(attempt){.nranks = {2, 3}, .rank = {0, 1}}, 2, ncclInvalidUsage,
                 WORDS("disagree", "2 ranks", "3 ranks"));
  expect_refusal(&(attempt){.nranks = {3, 3, 3}, .rank = {0, 2, 2}}, 3, ncclInvalidUsage, WORDS("rank 2"));
  expect_refusal(&(attempt){.nranks = {0}, .rank = {0}}, 1, ncclInvalidArgument, WORDS("ncclCommInitRank", "nranks"));
  expect_refusal(&(attempt){.nranks = {-5}, .rank = {0}}, 1, ncclInvalidArgument, WORDS("ncclCommInitRank", "nranks"));
}

// A rank that cannot be is refused without a word to the others, whatever the function, and the id stays good.
static void wrong_rank_body(int r, void *arg)
{
  static const int wrong[] = {2, -1, INT_MAX, INT_MIN};
  attempt a = {.nranks = {2, 2}, .rank = {0, 1}};
  ncclComm_t comm = NULL;
  (void)r, (void)arg;
  OK(ncclGetUniqueId(&a.id));
  for (size_t i = 0; i < TT_COUNT(wrong); i++) {
    char text[32];
    snprintf(text, sizeof text, "rank is %d", wrong[i]);
    REFUSED(ncclCommInitRank(&comm, 2, a.id, wrong[i]), ncclInvalidArgument, "ncclCommInitRank", text, "0 and 1");
    REFUSED(ncclCommInitRankConfig(&comm, 2, a.id, wrong[i], NULL), ncclInvalidArgument, "ncclCommInitRankConfig",
            text);
    REFUSED(ncclCommInitRankScalable(&comm, 2, wrong[i], 1, &a.id, NULL), ncclInvalidArgument,
            "ncclCommInitRankScalable", text);
    CHECK(comm == NULL, "a handle for rank %d", wrong[i]);
  }
  run_threads(2, attempt_one, &a);
  for (int i = 0; i < 2; i++) {
    CHECK(a.res[i] == ncclSuccess, "rank %d with the id that others used wrongly: %d %s", i, (int)a.res[i], a.text[i]);
    OK(ncclCommDestroy(a.comm[i]));
  }
}

static void ranks_out_of_range(void **state)
{
  (void)state;
  PROCESSES(1, 20, wrong_rank_body, NULL);
}

static void ranks_that_cannot_meet(void **state)
{
  (void)state;
  PROCESSES(1, 20, meeting_body, NULL);
}

static void meeting_process(int rank, void *arg)
{
  const int *same = arg;
  ncclComm_t comm = NULL;
  ncclUniqueId id = shared_id(0, rank);
  if (*same) {
    REFUSED(ncclCommInitRank(&comm, 3, id, rank == 0 ? 0 : 1), ncclInvalidUsage, "rank 1");
  } else {
    REFUSED(ncclCommInitRank(&comm, rank == 2 ? 4 : 3, id, rank), ncclInvalidUsage, "disagree", "3 ranks", "4 ranks");
  }
  CHECK(comm == NULL, "rank %d got a handle", rank);
  meet(3); // the root lives in process 0
}

static void processes_that_cannot_meet(void **state)
{
  (void)state;
  for (int same = 0; same < 2; same++) {
    PROCESSES(3, 10, meeting_process, &same);
  }
}

static void id_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  attempt a = {.nranks = {2, 2}, .rank = {0, 1}};
  ncclUniqueId bad = {{0}};
  ncclComm_t comm = NULL;
  REFUSED(ncclCommInitRank(&comm, 2, bad, 1), ncclInvalidArgument, "ncclGetUniqueId");
  memset(&bad, 0xff, sizeof bad);
  REFUSED(ncclCommInitRank(&comm, 2, bad, 1), ncclInvalidArgument, "ncclGetUniqueId");
  OK(ncclGetUniqueId(&a.id));
  for (size_t i = 0; i < sizeof bad; i += 3) {
    bad = a.id;
    bad.internal[i] ^= 0x55;
    GIVES(ncclCommInitRank(&comm, 2, bad, 1), ncclInvalidArgument);
    CHECK(comm == NULL, "a handle from an id with a wrong byte %zu", i);
  }
  run_threads(2, attempt_one, &a);
  for (int i = 0; i < 2; i++) {
    CHECK(a.res[i] == ncclSuccess, "the good id: %d %s", (int)a.res[i], a.text[i]);
  }
  attempt again = a;
  run_threads(2, attempt_one, &again);
  for (int i = 0; i < 2; i++) {
    CHECK(again.res[i] == ncclInvalidUsage && strstr(again.text[i], "used") != NULL, "id used again: %d %s",
          (int)again.res[i], again.text[i]);
    OK(ncclCommDestroy(a.comm[i]));
  }
}

static void bad_unique_ids(void **state)
{
  (void)state;
  PROCESSES(1, 20, id_body, NULL);
}

// --- Configuration

static ncclResult_t init_with(const ncclConfig_t *config, ncclComm_t *comm)
{
  ncclUniqueId id;
  ncclConfig_t copy = *config;
  OK(ncclGetUniqueId(&id));
  return ncclCommInitRankConfig(comm, 1, id, 0, &copy);
}

#define BAD_CONFIG(assignment, ...)                                  \
  do {                                                               \
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;                        \
    ncclComm_t comm = NULL;                                          \
    c.assignment;                                                    \
    REFUSED(init_with(&c, &comm), ncclInvalidArgument, __VA_ARGS__); \
    CHECK(comm == NULL, "a handle from %s", #assignment);            \
  } while (0)

static void bad_config_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  BAD_CONFIG(magic = 0, "ncclConfig_t", "NCCL_CONFIG_INITIALIZER");
  BAD_CONFIG(size = 3, "ncclConfig_t", "NCCL_CONFIG_INITIALIZER");
  BAD_CONFIG(blocking = 2, "blocking", "2");
  BAD_CONFIG(blocking = -1, "blocking", "-1");
  BAD_CONFIG(cgaClusterSize = 9, "cgaClusterSize", "9");
  BAD_CONFIG(minCTAs = 0, "minCTAs", "0");
  BAD_CONFIG(maxCTAs = 0, "maxCTAs", "0");
  BAD_CONFIG(splitShare = 7, "splitShare", "7");
  BAD_CONFIG(collnetEnable = 2, "collnetEnable", "2");
  BAD_CONFIG(CTAPolicy = 64, "CTAPolicy", "64");
  BAD_CONFIG(shrinkShare = 7, "shrinkShare", "7");
  BAD_CONFIG(nChannelsPerNetPeer = 0, "nChannelsPerNetPeer", "0");
  BAD_CONFIG(nChannelsPerNetPeer = 65, "nChannelsPerNetPeer", "65");
  BAD_CONFIG(nvlinkCentricSched = 5, "nvlinkCentricSched", "5");
  BAD_CONFIG(graphUsageMode = 3, "graphUsageMode", "3");
  BAD_CONFIG(numRmaCtx = -1, "numRmaCtx", "-1");
  BAD_CONFIG(trafficClass = -5, "trafficClass", "-5");
  BAD_CONFIG(launchOrderImplicit = 2, "launchOrderImplicit", "2");
  BAD_CONFIG(numRmaSig = -1, "numRmaSig", "-1");
  BAD_CONFIG(rmaEagerInit = 2, "rmaEagerInit", "2");
  BAD_CONFIG(hostCftMode = 4, "hostCftMode", "4");
  BAD_CONFIG(nvlsHostMode = -1, "nvlsHostMode", "-1");
}

static void refuses_bad_configurations(void **state)
{
  (void)state;
  PROCESSES(1, 10, bad_config_body, NULL);
}

// Signals are counted at places that follow from both numbers, so ranks must have the same.
static void rma_numbers_rank(int i, void *arg)
{
  ncclConfig_t contexts = NCCL_CONFIG_INITIALIZER, signals = NCCL_CONFIG_INITIALIZER;
  const ncclUniqueId *ids = arg;
  ncclComm_t comm = NULL;
  contexts.numRmaCtx = 2 + i;
  signals.numRmaSig = 3 - i;
  REFUSED(ncclCommInitRankConfig(&comm, 2, ids[0], i, &contexts), ncclInvalidUsage, "numRmaCtx", "rank 0 and rank 1");
  REFUSED(ncclCommInitRankConfig(&comm, 2, ids[1], i, &signals), ncclInvalidUsage, "numRmaSig", "rank 0 and rank 1");
}

static void rma_numbers_body(int rank, void *arg)
{
  ncclUniqueId ids[2];
  (void)rank;
  (void)arg;
  OK(ncclGetUniqueId(&ids[0]));
  OK(ncclGetUniqueId(&ids[1]));
  run_threads(2, rma_numbers_rank, ids);
}

static void rma_numbers_differ(void **state)
{
  (void)state;
  PROCESSES(1, 20, rma_numbers_body, NULL);
}

// Two ranks with this netName, and a child of theirs made with `child` as its own (NULL: no configuration).
typedef struct net_names {
  ncclUniqueId id;
  const char *parent, *child;
  ncclResult_t res[2];
  char text[2][1024];
} net_names;

static void net_name_rank(int i, void *arg)
{
  net_names *n = arg;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER, of_child = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL, child = NULL;
  config.netName = n->parent;
  of_child.netName = n->child;
  n->res[i] = ncclCommInitRankConfig(&comm, 2, n->id, i, &config);
  if (n->res[i] == ncclSuccess) {
    n->res[i] = ncclCommSplit(comm, 0, i, &child, n->child == NULL ? NULL : &of_child);
  }
  snprintf(n->text[i], sizeof n->text[i], "%s", n->res[i] == ncclSuccess ? "" : ncclGetLastError(NULL));
  if (n->res[i] == ncclSuccess) {
    CHECK(strcmp(child->config.net_name, n->child != NULL ? n->child : n->parent) == 0, "child's is '%s'",
          child->config.net_name);
    OK(ncclCommDestroy(child));
  }
  OK(ncclCommDestroy(comm));
}

static void net_name_body(int env_wins, void *arg)
{
  (void)arg;
  static const struct {
    const char *parent, *child;
    bool good;
  } rows[] = {{"Socket", NULL, true}, {"SOCKET", "socket", true}, {"IB", NULL, false}, {"Socket", "IB", false}};
  for (size_t k = 0; k < TT_COUNT(rows); k++) {
    net_names n = {.parent = rows[k].parent, .child = rows[k].child};
    OK(ncclGetUniqueId(&n.id));
    run_threads(2, net_name_rank, &n);
    for (int i = 0; i < 2; i++) {
      CHECK(n.res[i] == (rows[k].good || env_wins ? ncclSuccess : ncclInvalidUsage), "'%s', rank %d: %d",
            rows[k].parent, i, (int)n.res[i]);
      CHECK(n.res[i] == ncclSuccess || has_words(n.text[i], WORDS("IB", "netName", "Socket")), "rank %d: '%s'", i,
            n.text[i]);
    }
  }
}

// On one machine nobody needs the network, and a name that does not exist is refused all the same: by one rank, by two,
// from the environment.
static void unused_name_body(int by_env, void *arg)
{
  ncclComm_t comm = NULL;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  (void)arg;
  config.netName = by_env ? NULL : "NoSuchNet";
  REFUSED(init_with(&config, &comm), ncclInvalidUsage, "NoSuchNet", "netName", "Socket");
  config.netName = "socket";
  GIVES(init_with(&config, &comm), by_env ? ncclInvalidUsage : ncclSuccess);
  OK(ncclCommDestroy(comm));
  net_names n = {.parent = "NoSuchNet"};
  OK(ncclGetUniqueId(&n.id));
  run_threads(2, net_name_rank, &n);
  CHECK(n.res[0] == ncclInvalidUsage && n.res[1] == ncclInvalidUsage && has_words(n.text[0], WORDS("NoSuchNet")),
        "%d %d '%s'", (int)n.res[0], (int)n.res[1], n.text[0]);
}

static void unused_env_body(int rank, void *arg)
{
  (void)rank;
  unused_name_body(1, arg);
}

static void env_wins_body(int rank, void *arg)
{
  (void)rank;
  net_name_body(1, arg);
}

static void names_of_networks(void **state)
{
  (void)state;
  run r = {.n = 1, .seconds = 20, .fn = net_name_body, .env = ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")};
  assert_int_equal(run_processes(&r), 0);
  r.fn = env_wins_body;
  r.env = ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_NET=Socket");
  assert_int_equal(run_processes(&r), 0);
  r.fn = unused_name_body;
  r.env = NULL;
  assert_int_equal(run_processes(&r), 0);
  r.fn = unused_env_body;
  r.env = ENV("NCCL_NET=NoSuchNet");
  assert_int_equal(run_processes(&r), 0);
}

// The structures of earlier versions: the bytes that they have, then what the compiler made of the rest up to their
// size. That is not looked at.
static void sizes_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  static const struct {
    unsigned version;
    size_t used, size;
  } rows[] = {
      {NCCL_VERSION(2, 14, 3), offsetof(ncclConfig_t, cgaClusterSize), 24},
      {NCCL_VERSION(2, 17, 1), offsetof(ncclConfig_t, splitShare), 40},
      {NCCL_VERSION(2, 18, 1), offsetof(ncclConfig_t, trafficClass), 48},
      {NCCL_VERSION(2, 25, 1), offsetof(ncclConfig_t, trafficClass), 48},
      {NCCL_VERSION(2, 26, 2), offsetof(ncclConfig_t, commName), 48},
      {NCCL_VERSION(2, 27, 3), offsetof(ncclConfig_t, nChannelsPerNetPeer), 72},
      {NCCL_VERSION(2, 28, 3), offsetof(ncclConfig_t, graphUsageMode), 80},
      {NCCL_VERSION(2, 29, 2), offsetof(ncclConfig_t, maxP2pPeers), 88},
      {NCCL_VERSION(2, 30, 3), offsetof(ncclConfig_t, graphStreamOrdering), 96},
      {NCCL_VERSION(2, 30, 7), offsetof(ncclConfig_t, launchOrderImplicit), 96},
      {NCCL_VERSION(2, 31, 2), offsetof(ncclConfig_t, nvlsHostMode), 112},
      {NCCL_VERSION(2, 32, 3), offsetof(ncclConfig_t, nvlsHostMode) + sizeof(int), 120},
  };
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    // So that a sanitizer sees a read beyond the end.
    ncclConfig_t whole = NCCL_CONFIG_INITIALIZER, *old = malloc(rows[i].size);
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    whole.size = rows[i].size;
    whole.version = rows[i].version;
    whole.blocking = 0;
    memset(old, 0x5a, rows[i].size);
    memcpy(old, &whole, rows[i].used);
    OK(ncclGetUniqueId(&id));
    ncclResult_t res = ncclCommInitRankConfig(&comm, 1, id, 0, old);
    CHECK(res == ncclSuccess || res == ncclInProgress, "that of version %u: %d", rows[i].version, (int)res);
    CHECK(comm->config.blocking == 0, "that of version %u: blocking is lost", rows[i].version);
    OK(ncclCommDestroy(comm));
    free(old);
  }
  char newer[sizeof(ncclConfig_t) + 64] = {0}; // of a version to come: what we don't know is passed over
  ncclConfig_t whole = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL;
  ncclUniqueId id;
  whole.size = sizeof newer;
  memcpy(newer, &whole, sizeof whole);
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRankConfig(&comm, 1, id, 0, (ncclConfig_t *)(void *)newer));
  OK(ncclCommDestroy(comm));
}

static void good_config_body(int rank, void *arg)
{
  ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm;
  (void)rank, (void)arg;
  c.nChannelsPerNetPeer = 3;
  c.numRmaCtx = 0;
  c.minCTAs = 3;
  c.maxCTAs = 1000;
  OK(init_with(&c, &comm));
  CHECK(comm->config.min_ctas == 3 && comm->config.max_ctas == 64, "%d to %d channels", comm->config.min_ctas,
        comm->config.max_ctas);
  OK(ncclCommDestroy(comm));
  c = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
  c.minCTAs = 100; // alone: valid
  OK(init_with(&c, &comm));
  CHECK(comm->config.min_ctas == 64 && comm->config.max_ctas == 64, "minCTAs alone");
  OK(ncclCommDestroy(comm));
}

static void accepts_what_nccl_accepts(void **state)
{
  (void)state;
  PROCESSES(1, 10, good_config_body, NULL);
}

static void accepts_older_configurations(void **state)
{
  (void)state;
  PROCESSES(1, 10, sizes_body, NULL);
}

// --- No memory

typedef struct scarce {
  ncclUniqueId id;
  ncclResult_t res[2];
  ncclComm_t comm[2];
} scarce;

// Init, one operation, end. The first error ends it; ncclCommAbort takes what there is.
static ncclResult_t short_life(int nranks, ncclUniqueId id, int rank)
{
  static __thread float x[50000];
  ncclComm_t comm = NULL;
  ncclResult_t state = ncclSuccess, res = ncclCommInitRank(&comm, nranks, id, rank);
  if (res != ncclSuccess) {
    CHECK(comm == NULL, "a handle beside error %d", (int)res);
    return res;
  }
  res = ncclAllReduce(x, x, 50000, ncclFloat, ncclSum, comm, (cudaStream_t)2);
  for (double end = seconds_now() + GENEROUS(5);
       res == ncclSuccess && tuttiStreamQuery((cudaStream_t)2) == ncclInProgress;) {
    OK(ncclCommGetAsyncError(comm, &state));
    res = state;
    CHECK(seconds_now() < end, "rank %d: the operation does not end", rank);
  }
  OK(ncclCommGetAsyncError(comm, &state));
  res = res == ncclSuccess ? state : res;
  if (res == ncclSuccess) {
    OK(ncclCommDestroy(comm));
  } else {
    OK(ncclCommAbort(comm));
  }
  return res;
}

static void scarce_rank(int i, void *arg)
{
  scarce *s = arg;
  s->res[i] = short_life(2, s->id, i);
}

// How a life may end when there was no memory: the rank itself, or the root that others asked, says so; others see that
// it has gone, or, when they come late, find nobody.
static bool expected_end(ncclResult_t res)
{
  return res == ncclSuccess || res == ncclSystemError || res == ncclRemoteError || res == ncclInvalidUsage;
}

// The k-th allocation of a life with two ranks in one process fails.
static void scarce_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (long k = 1, left = 0; left <= 0; k++) {
    scarce s;
    OK(ncclGetUniqueId(&s.id));
    double start = seconds_now();
    tt_alloc_fail_at(k);
    run_threads(2, scarce_rank, &s);
    left = tt_alloc_fail_at(0);
    CHECK(seconds_now() - start < GENEROUS(4), "allocation %ld: it took %g s (results %d %d)", k, seconds_now() - start,
          (int)s.res[0], (int)s.res[1]);
    for (int i = 0; i < 2; i++) {
      CHECK(expected_end(s.res[i]), "allocation %ld, rank %d: %d", k, i, (int)s.res[i]);
    }
    CHECK(k < 2000, "it never ends");
  }
}

static void no_memory_in_one_process(void **state)
{
  (void)state;
  // Over the network each peer that is left alone first makes sure that nobody listens any more.
  assert_int_equal(
      run_processes(&(run){
          .n = 1, .seconds = over_network() ? 300 : 60, .fn = scarce_body, .env = ENV("NCCL_BOOTSTRAP_TIMEOUT=1")}),
      0);
}

// The k-th allocation of process `*arg` of two fails.
static void scarce_process(int rank, void *arg)
{
  int victim = *(int *)arg;
  bool going = true;
  for (int k = 1; going && k < MAX_RANKS; k++) {
    ncclUniqueId id = shared_id(k, rank);
    double start = seconds_now();
    tt_alloc_fail_at(rank == victim ? k : 0);
    ncclResult_t res = short_life(2, id, rank);
    bool reached = tt_alloc_fail_at(0) <= 0;
    CHECK(seconds_now() - start < GENEROUS(4), "allocation %d of rank %d: rank %d took %g s to end with %d", k, victim,
          rank, seconds_now() - start, (int)res);
    CHECK(expected_end(res), "allocation %d of rank %d: rank %d ends with %d", k, victim, rank, (int)res);
    atomic_fetch_add(&the_board->word[k], rank == victim && reached);
    meet(2);
    going = atomic_load(&the_board->word[k]) > 0;
  }
}

static void no_memory_between_processes(void **state)
{
  (void)state;
  for (int victim = 0; victim < 2; victim++) {
    assert_int_equal(
        run_processes(&(run){
            .n = 2, .seconds = 60, .fn = scarce_process, .arg = &victim, .env = ENV("NCCL_BOOTSTRAP_TIMEOUT=1")}),
        0);
  }
}

// With all connections made at init, too: either both have a communicator, or neither.
static void scarce_eager(int rank, void *arg)
{
  int victim = *(int *)arg;
  bool going = true;
  for (int k = 1; going && k < MAX_RANKS; k++) {
    ncclUniqueId id = shared_id(k, rank);
    ncclComm_t comm = NULL;
    tt_alloc_fail_at(rank == victim ? k : 0);
    ncclResult_t res = ncclCommInitRank(&comm, 2, id, rank);
    bool reached = tt_alloc_fail_at(0) <= 0;
    atomic_fetch_add(&the_board->word[k], res != ncclSuccess);
    atomic_fetch_add(&the_board->word[MAX_RANKS + k], rank == victim && reached);
    meet(2);
    uint64_t failed = atomic_load(&the_board->word[k]);
    CHECK(failed != 1, "allocation %d of rank %d: rank %d alone ends with %d", k, victim, rank, (int)res);
    OK(ncclCommDestroy(comm));
    going = atomic_load(&the_board->word[MAX_RANKS + k]) > 0;
  }
}

static void no_memory_to_connect(void **state)
{
  (void)state;
  for (int victim = 0; victim < 2; victim++) {
    assert_int_equal(run_processes(&(run){.n = 2,
                                          .seconds = 60,
                                          .fn = scarce_eager,
                                          .arg = &victim,
                                          .env = ENV("NCCL_BOOTSTRAP_TIMEOUT=1", "NCCL_RUNTIME_CONNECT=0")}),
                     0);
  }
}

// One rank of a group cannot begin: the others must not wait for it.
static void scarce_group_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (long k = 1, left = 0; left <= 0; k++) {
    ncclComm_t comm[2] = {NULL};
    double start = seconds_now();
    tt_alloc_fail_at(k);
    ncclResult_t res = ncclCommInitAll(comm, 2, NULL);
    left = tt_alloc_fail_at(0);
    CHECK(seconds_now() - start < GENEROUS(4), "allocation %ld: ncclCommInitAll took %g s to give %d", k,
          seconds_now() - start, (int)res);
    CHECK(res == ncclSuccess || res == ncclSystemError || res == ncclRemoteError,
          "allocation %ld: ncclCommInitAll gave %d", k, (int)res);
    for (int i = 0; i < 2; i++) {
      CHECK((res == ncclSuccess) == (comm[i] != NULL), "allocation %ld: result %d, handle %p", k, (int)res,
            (void *)comm[i]);
      OK(ncclCommDestroy(comm[i]));
    }
  }
}

static void no_memory_in_a_group(void **state)
{
  (void)state;
  PROCESSES(1, 30, scarce_group_body, NULL);
}

// --- Fork

static void check_sum(world *w, float want)
{
  float x[2] = {1, 2};
  for (int i = 0; i < 2; i++) {
    OK(ncclAllReduce(&x[i], &x[i], 1, ncclFloat, ncclSum, w->comm[i], w->stream[i]));
  }
  world_wait(w);
  CHECK(x[0] == want && x[1] == want, "%g %g", (double)x[0], (double)x[1]);
}

// What a forked child does with the parent's communicators, and with its own.
static void fork_child(world *parents)
{
  float x = 1;
  ncclResult_t state;
  world own;
  alarm(GENEROUS(10));
  REFUSED(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, parents->comm[0], NULL), ncclInvalidUsage, "ncclAllReduce",
          "parent", "fork");
  REFUSED(ncclCommGetAsyncError(parents->comm[1], &state), ncclInvalidUsage, "parent");
  REFUSED(ncclCommAbort(parents->comm[0]), ncclInvalidUsage, "ncclCommAbort", "parent");
  REFUSED(ncclCommDestroy(parents->comm[1]), ncclInvalidUsage, "ncclCommDestroy", "parent");
#if SLOWER != 10 // ThreadSanitizer has no threads after a fork
  world_open(&own, 2);
  check_sum(&own, 3);
  world_close(&own);
#endif
  (void)own;
  _exit(0);
}

static void fork_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  world_open(&w, 2);
  check_sum(&w, 3);
  for (int i = 0; i < 3; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      fork_child(&w);
    }
    check_sum(&w, 3);
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "child: status 0x%x", (unsigned)status);
    check_sum(&w, 3);
  }
  world_close(&w);
}

static void forked_children(void **state)
{
  (void)state;
  PROCESSES(1, 40, fork_body, NULL);
}

// A rank of several processes forks: the child's end is not the rank's.
static void fork_process(int rank, void *arg)
{
  (void)arg;
  ncclComm_t comm = join_processes(0, 2, rank);
  for (int i = 0; i < 5; i++) {
    float x = 1;
    pid_t pid = fork();
    if (pid == 0) {
      REFUSED(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidUsage, "parent");
      _exit(0);
    }
    OK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL));
    OK(tuttiStreamSynchronize(NULL));
    CHECK(x == 2, "%g", (double)x);
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "child: status 0x%x", (unsigned)status);
  }
  OK(ncclCommDestroy(comm));
}

static void forked_children_of_processes(void **state)
{
  (void)state;
  PROCESSES(2, 20, fork_process, NULL);
}

// --- What needs GPUs

// NCCL exports them, and installs no header that declares them.
ncclResult_t ncclGinOutboxCreateRequirement(int nBlocks, int size_log2, void *outHandle, void *outReq);
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nBlocks, int size_log2, void *outHandle,
                                              void *outReq);

static void gpu_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  REFUSED(ncclGinOutboxCreateRequirement(1, 10, NULL, NULL), ncclInvalidUsage, "ncclGinOutboxCreateRequirement", "GPU");
  REFUSED(ncclGinInboxA2ACreateRequirement((ncclTeam_t){1, 0, 1}, 1, 10, NULL, NULL), ncclInvalidUsage,
          "ncclGinInboxA2ACreateRequirement", "GPU");
}

static void functions_of_gpus(void **state)
{
  (void)state;
  PROCESSES(1, 10, gpu_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_that_cannot_meet),       cmocka_unit_test(ranks_out_of_range),
      cmocka_unit_test(processes_that_cannot_meet),   cmocka_unit_test(bad_unique_ids),
      cmocka_unit_test(refuses_bad_configurations),   cmocka_unit_test(accepts_older_configurations),
      cmocka_unit_test(accepts_what_nccl_accepts),    cmocka_unit_test(names_of_networks),
      cmocka_unit_test(rma_numbers_differ),           cmocka_unit_test(no_memory_in_one_process),
      cmocka_unit_test(no_memory_between_processes),  cmocka_unit_test(no_memory_to_connect),
      cmocka_unit_test(no_memory_in_a_group),         cmocka_unit_test(forked_children),
      cmocka_unit_test(forked_children_of_processes), cmocka_unit_test(functions_of_gpus),
  };
  return RUN_TESTS("wrong init", tests, argc, argv);
}
