// profiler_pxn_test.c: what profilers are told where a neighbour of another process, or of the same one, sends a rank's
// messages (PXN). Two machines by NCCL_HOSTID, each with ranks on two devices of a network plugin
// (tests/plugins/net_tcp.h): rank 0 sends to rank 3 through rank 1.
#include "profiler_rig.h"

#include "nccl/profiler.h"

enum { RANKS = 4, MESSAGE = 50000 };

static const char *variables(void)
{
  static char text[512];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(text, sizeof text, "NCCL_NET_PLUGIN=%s/tests/plugins/libnet_events_v12.so", build != NULL ? build : "build");
  return text;
}

static void machine_of(int process, int processes)
{
  setenv("NCCL_HOSTID", process < processes / 2 ? "here" : "there", 1);
}

static void send_past(int rank, int n, ncclComm_t comm)
{
  static int x[RANKS][MESSAGE];
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  for (int i = 0; i < 3; i++) {
    x[rank][MESSAGE - 1] = rank == 0 ? i + 1 : 0;
    if (rank == 0) {
      OK(ncclSend(x[rank], MESSAGE, ncclInt, 3, comm, stream));
    } else if (rank == 3) {
      OK(ncclRecv(x[rank], MESSAGE, ncclInt, 0, comm, stream));
    }
    OK(tuttiStreamSynchronize(stream));
    CHECK((rank != 0 && rank != 3) || x[rank][MESSAGE - 1] == i + 1, "message %d is %d", i, x[rank][MESSAGE - 1]);
  }
  OK(tuttiStreamDestroy(stream));
  meet(n); // the neighbours stay as long as they are needed
}

// What a line that begins so tells behind `key`; "" when there is no such line.
static const char *value_in(const char *text, const char *beginning, const char *key)
{
  static char out[4][32];
  static int next;
  char *to = out[next++ % 4];
  const char *line = text;
  to[0] = '\0';
  while (*line != '\0' && strncmp(line, beginning, strlen(beginning)) != 0) {
    line += strcspn(line, "\n") + 1;
  }
  const char *value = *line != '\0' ? strstr(line, key) : NULL;
  if (value != NULL && value < strchr(line, '\n')) {
    sscanf(value + strlen(key), "%31s", to);
  }
  return to;
}

static void one_process_each(int process, void *arg)
{
  machine_of(process, RANKS);
  run_job(process, arg);
}

// The host tells of the messages, with the pid and the handle of the rank whose they are, and does not look at what is
// behind it.
static void another_process(void **state)
{
  (void)state;
  const job j = {.n = RANKS, .versions = "16", .work = send_past};
  const char *const env[] = {variables(),
                             "NCCL_P2P_PXN_LEVEL=1",
                             "NCCL_NET_MERGE_LEVEL=LOC",
                             "TUTTI_RECORD_HANDLES=1",
                             "NCCL_SOCKET_IFNAME=lo",
                             NULL};
  remove_records(&j);
  assert_int_equal(run_processes(&(run){
                       .n = RANKS, .seconds = 60, .fn = one_process_each, .arg = (void *)(uintptr_t)&j, .env = env}),
                   0);
  for (int v = 1; v <= 6; v += 5) {
    const char *sender = record(0, v), *host = record(1, v), *receiver = record(3, v);
    record(2, v);
    assert_sound(sender);
    assert_sound(host);
    assert_sound(receiver);
    assert_null(strstr(sender, "ProxyOp"));
    assert_int_equal(count_lines(host, "start ProxyOp#"), 3);
    assert_int_equal(count_lines(receiver, "start ProxyOp#"), 3);
    for (int i = 1; i <= 3; i++) {
      char op[128], p2p[64];
      snprintf(op, sizeof op, "start ProxyOp#%d parent=foreign rank=0 pid=other channel=0 peer=3 steps=", i);
      snprintf(p2p, sizeof p2p, "start P2p#%d ", i);
      const char *given = value_in(sender, p2p, " at="), *seen = value_in(host, op, " of=");
      assert_true(given[0] != '\0');
      assert_string_equal(seen, given);
      snprintf(op, sizeof op, "start ProxyOp#%d parent=P2p#%d rank=3 pid=own channel=0 peer=0 steps=", i, i);
      assert_int_equal(count_lines(receiver, op), 1);
    }
    assert_int_equal(count_lines(host, "start ProxyStep#"), count_lines(receiver, "start ProxyStep#"));
    assert_int_equal(strstr(host, "NetPlugin#1 parent=ProxyStep#") != NULL, v >= 3);
    assert_int_equal(strstr(sender, "NetPlugin") != NULL, 0);
  }
}

// ---- two ranks per process

typedef struct pair {
  const job *j;
  int process;
} pair;

static void one_rank(int thread, void *arg)
{
  const pair *p = arg;
  int rank = 2 * p->process + thread;
  ncclComm_t comm;
  OK(tuttiSetDevice(rank));
  OK(ncclCommInitRank(&comm, RANKS, shared_id(0, rank), rank));
  p->j->work(rank, RANKS, comm);
  if (!p->j->keeps) {
    OK(ncclCommDestroy(comm));
  }
}

static void two_ranks_each(int process, void *arg)
{
  pair p = {.j = arg, .process = process};
  machine_of(process, 2);
  setenv("TUTTI_RECORD", record_name(process), 1);
  setenv("NCCL_PROFILER_PLUGIN", plugin_list(p.j->versions), 1);
  run_threads(2, one_rank, &p);
}

static void run_pairs(const job *j)
{
  const char *const env[] = {variables(),
                             "NCCL_P2P_PXN_LEVEL=1",
                             "NCCL_NET_MERGE_LEVEL=LOC",
                             "NCCL_SOCKET_IFNAME=lo",
                             "TUTTI_RECORD_HANDLES=1",
                             NULL};
  remove_records(j);
  assert_int_equal(
      run_processes(&(run){.n = 2, .seconds = 60, .fn = two_ranks_each, .arg = (void *)(uintptr_t)j, .env = env}), 0);
}

static void the_same_process(void **state)
{
  (void)state;
  run_pairs(&(job){.n = 2, .versions = "6", .work = send_past});
  const char *sender = record(0, 6);
  assert_sound(sender);
  record(1, 6);
  for (int i = 1; i <= 3; i++) {
    char op[128];
    snprintf(op, sizeof op, "start ProxyOp#%d parent=P2p#%d rank=0 pid=own channel=0 peer=3 steps=", i, i);
    assert_string_equal(value_in(sender, op, " by="), "1");
  }
}

// How many contexts have been finalized in this process.
static int finalized(void)
{
  char name[256];
  static char text[TEXT];
  if (!find_record(0, 6, name, sizeof name)) {
    return 0;
  }
  FILE *f = fopen(name, "r");
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  return count_lines(text, "finalize");
}

// Rank 0 gives up while rank 1 sends for it, to somebody who does not receive.
static void sender_aborts(int rank, int n, ncclComm_t comm)
{
  static int x[1 << 22];
  cudaStream_t stream;
  send_past(rank, n, comm);
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  if (rank == 0) {
    OK(ncclSend(x, 1 << 22, ncclInt, 3, comm, stream));
    sleep_ms(20); // some of it is on its way, or none
    OK(ncclCommAbort(comm));
    CHECK(tuttiStreamSynchronize(stream) != ncclSuccess, "nobody has received it");
  }
  meet(RANKS);
  if (rank != 0) {
    OK(ncclCommAbort(comm));
  }
  meet(RANKS);
  while (rank == 0 && finalized() < 2) { // the last of it goes when the host has noticed
    sleep_ms(1);
  }
  OK(tuttiStreamDestroy(stream));
}

static void a_sender_that_aborts(void **state)
{
  (void)state;
  for (int i = 0; i < 5; i++) {
    run_pairs(&(job){.n = 2, .versions = "6", .work = sender_aborts, .keeps = true});
    const char *text = record(0, 6);
    assert_sound(text);
    assert_int_equal(count_lines(text, "finalize"), 2);
    record(1, 6);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(another_process),
      cmocka_unit_test(the_same_process),
      cmocka_unit_test(a_sender_that_aborts),
  };
  return RUN_TESTS("profiler_pxn_test", tests, argc, argv);
}
