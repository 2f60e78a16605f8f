// profiler_versions_test.c: the same jobs before profilers of all versions, several at once, every two versions
// together once: each is told exactly what its version has words for, and all the same.
#include "profiler_texts.h"

#define SOCKETS "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"
#define EVERYTHING "init GroupApi CollApi P2pApi Group Coll P2p KernelLaunch KernelCh ProxyOp ProxyStep"

// Any two versions stand together in one of these.
static const char *const pairs[] = {"1234", "3456", "1256", "1237", "4567", NULL};

// What a rank's profilers must be told, in version 6's words.
typedef struct told {
  int rank;
  const char *api, *kernel;
  const char *proxy; // the lines that begin ProxyOps, in any order; NULL: there are none
} told;

static char *lines_with(const char *text, const char *beginning)
{
  static char out[TEXT];
  size_t used = 0;
  out[0] = '\0';
  for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
    if (strncmp(line, beginning, strlen(beginning)) == 0) {
      used += (size_t)snprintf(out + used, TEXT - used, "%.*s\n", (int)strcspn(line, "\n"), line);
    }
  }
  return out;
}

// The lines without the events' own numbers, sorted: "start ProxyOp parent=…".
static char *unnumbered(const char *lines)
{
  static char outs[2][TEXT];
  static int next;
  char *out = outs[next++ % 2];
  size_t used = 0;
  bool number = false, first = true;
  for (const char *c = lines; *c != '\0'; c++) {
    number = number ? *c != ' ' && *c != '\n' : *c == '#' && first;
    first = *c == '\n' || (first && *c != '#');
    if (!number) {
      out[used++] = *c;
    }
  }
  out[used] = '\0';
  return sorted(out);
}

static void assert_told(const told *t, int version, const char *text)
{
  assert_sound(text);
  assert_string_equal(pick(text, API), told_to(t->api, version));
  assert_string_equal(pick(text, "KernelCh"), told_to(t->kernel, version));
  assert_steps(text, version);
  char begun[TEXT / 16];
  snprintf(begun, sizeof begun, "%s", t->proxy != NULL ? told_to(t->proxy, version) : "");
  assert_string_equal(unnumbered(lines_with(text, "start ProxyOp")), sorted(begun));
}

// Runs the job once with each list of versions, and looks at what some of its ranks were told.
static void compare(job j, const told *rows, size_t n)
{
  for (int l = 0; pairs[l] != NULL; l++) {
    j.versions = pairs[l];
    run_all(&j);
    for (size_t i = 0; i < n; i++) {
      int newest = pairs[l][3] - '0';
      char *base = strdup(pick(record(rows[i].rank, newest), EVERYTHING));
      assert_non_null(base);
      assert_told(&rows[i], newest, base);
      for (int k = 0; k < 3; k++) {
        int version = pairs[l][k] - '0';
        char *text = pick(record(rows[i].rank, version), EVERYTHING);
        assert_told(&rows[i], version, text);
        assert_string_equal(sorted(text), sorted(told_to(base, version)));
      }
      free(base);
    }
    remove_records(&j);
  }
}

#define COMPARE(the_job, ...)                               \
  do {                                                      \
    const told rows[] = {__VA_ARGS__};                      \
    compare((the_job), rows, sizeof rows / sizeof rows[0]); \
  } while (0)

static void an_allreduce_on_one_node(void **state)
{
  (void)state;
  const job j = {.n = 2, .work = one_allreduce, .env = ring_simple};
  COMPARE(j, {0, allreduce_v6, kernel_v6, NULL});
}

static const char ring_messages[] =
    "start ProxyOp parent=Coll#1 rank=0 pid=own channel=0 peer=1 steps=2 chunk=2000 send=0\n"
    "start ProxyOp parent=Coll#1 rank=0 pid=own channel=0 peer=1 steps=2 chunk=2000 send=1\n";

static void an_allreduce_over_sockets(void **state)
{
  (void)state;
  char api[2048];
  const job j = {.n = 2, .work = one_allreduce, .env = ENV(SOCKETS, "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")};
  snprintf(api, sizeof api, "%s", allreduce_v6);
  replace(api, sizeof api, "nodes=1", "nodes=2");
  COMPARE(j, {0, api, kernel_v6, ring_messages});
}

static void an_allreduce_told_with_its_messages(void **state)
{
  (void)state;
  const job j = {
      .n = 2, .work = one_allreduce, .env = ENV("NCCL_HOST_PROXY_EVENTS=1", "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")};
  COMPARE(j, {0, allreduce_v6, kernel_v6, ring_messages});
}

// The names of channels in the order in which they are told of: all starts of an operation, then its stops.
static const char mixed_kernel[] = "start KernelCh#1 parent=Coll#1 rank=0 channel=0 timer=set\n"
                                   "state KernelCh#1 KernelChStop timer=set\n"
                                   "stop KernelCh#1\n"
                                   "start KernelCh#2 parent=Coll#2 rank=0 channel=0 timer=set\n"
                                   "state KernelCh#2 KernelChStop timer=set\n"
                                   "stop KernelCh#2\n"
                                   "start KernelCh#3 parent=P2p#1 rank=0 channel=0 timer=set\n"
                                   "start KernelCh#4 parent=P2p#2 rank=0 channel=1 timer=set\n"
                                   "state KernelCh#3 KernelChStop timer=set\n"
                                   "stop KernelCh#3\n"
                                   "state KernelCh#4 KernelChStop timer=set\n"
                                   "stop KernelCh#4\n";

// Between the communicator's beginning and end.
static const char *job_of(const char *text, int rank)
{
  static char outs[2][8192];
  static int next;
  char *out = outs[next++ % 2];
  snprintf(out, sizeof outs[0], "init name=job id=set nodes=1 ranks=2 rank=%d\n%sfinalize rank=%d\n", rank, text, rank);
  return out;
}

static void a_group_of_mixed_operations(void **state)
{
  (void)state;
  const job j = {.n = 2, .work = mixed_group, .env = ring_simple};
  COMPARE(j, {0, job_of(mixed_v6, 0), mixed_kernel, NULL});
}

#define P2P(rank, peer, func)                                                                                     \
  "start GroupApi#1 parent=- rank=" rank " depth=1 graph=0\n"                                                     \
  "state GroupApi#1 GroupStartApiStop\n"                                                                          \
  "start P2pApi#1 parent=GroupApi#1 rank=" rank " func=" func " count=1000 type=ncclFloat64 stream=set graph=0\n" \
  "stop P2pApi#1\n"                                                                                               \
  "state GroupApi#1 GroupEndApiStart\n"                                                                           \
  "start Group#1 parent=- rank=" rank "\n"                                                                        \
  "start P2p#1 parent=P2pApi#1 rank=" rank " func=" func " buff=set count=1000 type=ncclFloat64 peer=" peer       \
  " channels=1 group=Group#1\n"                                                                                   \
  "stop P2p#1\n"                                                                                                  \
  "stop Group#1\n"                                                                                                \
  "start KernelLaunch#1 parent=GroupApi#1 rank=" rank " stream=set\n"                                             \
  "stop KernelLaunch#1\n"                                                                                         \
  "stop GroupApi#1\n"

#define P2P_KERNEL(rank)                                              \
  "start KernelCh#1 parent=P2p#1 rank=" rank " channel=0 timer=set\n" \
  "state KernelCh#1 KernelChStop timer=set\n"                         \
  "stop KernelCh#1\n"

static void a_send_and_its_receive(void **state)
{
  (void)state;
  const job j = {.n = 2, .work = send_and_receive, .env = ring_simple};
  COMPARE(j, {0, job_of(P2P("0", "1", "Send"), 0), P2P_KERNEL("0"), NULL},
          {1, job_of(P2P("1", "0", "Recv"), 1), P2P_KERNEL("1"), NULL});
}

// A communicator of two out of one of four: rank 2 becomes rank 1 of its half.
static void a_split(void **state)
{
  (void)state;
  static const char parent_begins[] = "init name=job id=set nodes=1 ranks=4 rank=2\n";
  const job j = {.n = 4, .work = split, .env = ring_simple};
  char api[4096], half[3072];
  snprintf(half, sizeof half, "%s", allreduce_v6);
  while (strstr(half, "rank=0") != NULL) {
    replace(half, sizeof half, "rank=0", "rank=1");
  }
  snprintf(api, sizeof api, "%s%sfinalize rank=2\n", parent_begins, half);
  COMPARE(j, {2, api,
              "start KernelCh#1 parent=Coll#1 rank=1 channel=0 timer=set\nstate KernelCh#1 KernelChStop "
              "timer=set\nstop KernelCh#1\n",
              NULL});
}

#define QUEUED(k, seq)                                                                                         \
  "start GroupApi#" k " parent=- rank=0 depth=1 graph=0\n"                                                     \
  "state GroupApi#" k " GroupStartApiStop\n"                                                                   \
  "start CollApi#" k " parent=GroupApi#" k                                                                     \
  " rank=0 func=AllReduce count=1000 type=ncclInt32 root=0 stream=set graph=0\n"                               \
  "stop CollApi#" k "\n"                                                                                       \
  "state GroupApi#" k " GroupEndApiStart\n"                                                                    \
  "start Group#" k " parent=- rank=0\n"                                                                        \
  "start Coll#" k " parent=CollApi#" k " rank=0 seq=" seq                                                      \
  " func=AllReduce in=set out=set count=1000 root=0 type=ncclInt32 channels=1 warps=1 algo=RING proto=SIMPLE " \
  "group=Group#" k "\n"                                                                                        \
  "stop Coll#" k "\n"                                                                                          \
  "stop Group#" k "\n"                                                                                         \
  "start KernelLaunch#" k " parent=GroupApi#" k " rank=0 stream=set\n"                                         \
  "stop KernelLaunch#" k "\n"                                                                                  \
  "stop GroupApi#" k "\n"

static void an_aborted_operation(void **state)
{
  (void)state;
  const job j = {.n = 2, .work = aborted, .keeps = true, .env = ring_simple};
  COMPARE(j, {0, job_of(QUEUED("1", "0") QUEUED("2", "1"), 0), kernel_v6, NULL});
}

// One of four cannot begin: it hears no more, and the others are told as if it was not there.
static void one_whose_init_fails(void **state)
{
  (void)state;
  for (int bad = 1; bad <= 7; bad++) {
    char list[40], fails[64];
    snprintf(list, sizeof list, "%d%d%d", bad % 7 + 1, bad, (bad + 2) % 7 + 1);
    snprintf(fails, sizeof fails, "TUTTI_RECORD_INIT_FAILS=%d", bad);
    const job j = {
        .n = 2, .versions = list, .work = one_allreduce, .env = ENV(fails, "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")};
    run_all(&j);
    const char *begun = bad <= 3 ? "init\n" : "init name=job id=set nodes=1 ranks=2 rank=0\n";
    char expected[128];
    snprintf(expected, sizeof expected, "%sinit fails\n", begun);
    assert_string_equal(record(0, bad), expected);
    for (int k = 0; k < 3; k += 2) {
      const told t = {0, allreduce_v6, kernel_v6, NULL};
      assert_told(&t, list[k] - '0', record(0, list[k] - '0'));
    }
    remove_records(&j);
  }
}

// Nothing more is said of an event without a handle, and its children have no parent.
static const char no_handles[] =
    "init name=job id=set nodes=1 ranks=2 rank=0\n"
    "start GroupApi- parent=- rank=0 depth=1 graph=0\n"
    "start CollApi- parent=- rank=0 func=AllReduce count=1000 type=ncclFloat32 root=0 stream=set graph=0\n"
    "start Group- parent=- rank=0\n"
    "start Coll- parent=- rank=0 seq=0 func=AllReduce " COLL " group=-\n"
    "start KernelLaunch- parent=- rank=0 stream=set\n"
    "finalize rank=0\n";

static void one_that_gives_no_handles(void **state)
{
  (void)state;
  for (int l = 0; pairs[l] != NULL; l++) {
    const job j = {.n = 2,
                   .versions = pairs[l],
                   .work = one_allreduce,
                   .env = ENV("TUTTI_RECORD_NO_HANDLE=0xffff", "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")};
    run_all(&j);
    for (int k = 0; k < 4; k++) {
      int version = pairs[l][k] - '0';
      const char *text = record(0, version);
      assert_null(strstr(text, "ERROR"));
      assert_string_equal(pick(text, API), told_to(no_handles, version));
      assert_string_equal(pick(text, "KernelCh"),
                          told_to("start KernelCh- parent=- rank=0 channel=0 timer=set\n", version));
      assert_int_equal(count_lines(text, "start Proxy"), 0);
    }
    remove_records(&j);
  }
}

// ---- version 7 alone

static void tagged_allreduce(int rank, int n, ncclComm_t comm)
{
  static float x[COUNT];
  cudaStream_t stream;
  (void)rank;
  (void)n;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.userProfilerTag = 1234567890123;
  OK(ncclAllReduceConfig(x, x, COUNT, ncclFloat, ncclSum, comm, stream, &config));
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiStreamDestroy(stream));
}

static void a_tag_and_phases(void **state)
{
  (void)state;
  const job j = {.n = 2, .versions = "67", .work = tagged_allreduce, .env = ring_simple};
  run_all(&j);
  char *newest = record(0, 7), *before = record(0, 6);
  assert_sound(newest);
  assert_sound(before);
  assert_int_equal(count_lines(newest, "start CollApi#1 parent=GroupApi#1"), 1);
  assert_int_equal(count_lines(lines_with(newest, "start Coll"), "start Coll"), 2);
  assert_non_null(strstr(newest, " graph=0 tag=1234567890123\n"));
  assert_non_null(strstr(newest, " variant=RING_SIMPLE sym=0 tag=1234567890123\n"));
  assert_string_equal(pick(newest, "KernelCh KernelPhase"),
                      "start KernelCh#1 parent=Coll#1 rank=0 channel=0 timer=set\n"
                      "start KernelPhase#1 parent=KernelCh#1 rank=0 channel=0 phase=0:initial_sync timer=set\n"
                      "state KernelPhase#1 KernelPhaseStop timer=set\n"
                      "stop KernelPhase#1\n"
                      "start KernelPhase#2 parent=KernelCh#1 rank=0 channel=0 phase=1:compute timer=set\n"
                      "state KernelPhase#2 KernelPhaseStop timer=set\n"
                      "stop KernelPhase#2\n"
                      "start KernelPhase#3 parent=KernelCh#1 rank=0 channel=0 phase=2:final_sync timer=set\n"
                      "state KernelPhase#3 KernelPhaseStop timer=set\n"
                      "stop KernelPhase#3\n"
                      "state KernelCh#1 KernelChStop timer=set\n"
                      "stop KernelCh#1\n");
  assert_null(strstr(before, "KernelPhase"));
  assert_null(strstr(before, "tag="));
  remove_records(&j);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_allreduce_on_one_node),
      cmocka_unit_test(an_allreduce_over_sockets),
      cmocka_unit_test(an_allreduce_told_with_its_messages),
      cmocka_unit_test(a_group_of_mixed_operations),
      cmocka_unit_test(a_send_and_its_receive),
      cmocka_unit_test(a_split),
      cmocka_unit_test(an_aborted_operation),
      cmocka_unit_test(one_whose_init_fails),
      cmocka_unit_test(one_that_gives_no_handles),
      cmocka_unit_test(a_tag_and_phases),
  };
  return RUN_TESTS("profiler_versions_test", tests, argc, argv);
}
