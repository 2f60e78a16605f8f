// profiler_shm_test.c: what profilers are told of messages between ranks that have memory in common
// (NCCL_HOST_PROXY_EVENTS).
#include "profiler_rig.h"

#define EVENTS "NCCL_HOST_PROXY_EVENTS=1"

enum { LARGE = 20000 };

static void an_allreduce(void **state)
{
  (void)state;
  const char *const lists[] = {"123", "456"};
  for (int l = 0; l < 2; l++) {
    run_all(&(job){.n = 2,
                   .versions = lists[l],
                   .work = one_allreduce,
                   .env = ENV(EVENTS, "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")});
    for (int v = 3 * l + 1; v <= 3 * l + 3; v++) {
      const char *text = record(0, v);
      assert_sound(text);
      assert_steps(text, v);
      assert_int_equal(count_lines(text, "start ProxyOp#"), 2);
      assert_non_null(strstr(text, " parent=Coll#1 rank=0 pid=own channel=0 peer=1 steps=2 chunk=2000 send=1\n"));
      assert_non_null(strstr(text, " parent=Coll#1 rank=0 pid=own channel=0 peer=1 steps=2 chunk=2000 send=0\n"));
      assert_int_equal(count_lines(text, "start ProxyCtrl#"), 0); // there is no proxy
      assert_int_equal(count_lines(text, "start KernelCh#"), v >= 3);
      if (v >= 4) {
        assert_int_equal(bytes_in(text, "SendWait"), 4000);
        assert_int_equal(bytes_in(text, "RecvFlushWait"), 4000);
        assert_int_equal(bytes_in(text, "RecvGPUWait"), 4000);
      }
      record(1, v);
    }
  }
}

// The longest, as NCCL has it, also where messages are of several lengths.
static void chunks_are_whole_elements(void **state)
{
  (void)state;
  run_all(&(job){
      .n = 2, .versions = "6", .work = odd_allreduce, .env = ENV(EVENTS, "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")});
  assert_non_null(strstr(record(0, 6), " steps=2 chunk=2000 send=1\n"));
  record(1, 6);
}

static void messages_of_a_group(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "65", .work = mixed_group, .env = ENV(EVENTS)});
  for (int v = 5; v <= 6; v++) {
    const char *text = record(0, v);
    assert_sound(text);
    assert_steps(text, v);
    assert_non_null(strstr(text, " parent=P2p#1 rank=0 pid=own channel=0 peer=1 steps=1 chunk=80 send=1\n"));
    assert_non_null(strstr(text, " parent=P2p#2 rank=0 pid=own channel=1 peer=1 steps=1 chunk=80 send=0\n"));
    record(1, v);
  }
}

// ---- every algorithm

static float x[4 * LARGE], y[4 * LARGE];

// All functions, small and large: FIFOs of both kinds, tokens.
static void everything(int rank, int n, ncclComm_t comm)
{
  const size_t counts[] = {2, LARGE};
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  for (int i = 0; i < 2; i++) {
    size_t count = counts[i];
    OK(ncclAllReduce(x, y, count, ncclFloat, ncclSum, comm, stream));
    OK(ncclAllReduce(x, x, count, ncclFloat, ncclSum, comm, stream));
    OK(ncclReduceScatter(x, y, count, ncclFloat, ncclSum, comm, stream));
    OK(ncclAllGather(x, y, count, ncclFloat, comm, stream));
    OK(ncclBroadcast(x, y, count, ncclFloat, 1, comm, stream));
    OK(ncclReduce(x, y, count, ncclFloat, ncclSum, n - 1, comm, stream));
    OK(ncclAlltoAll(x, y, count, ncclFloat, comm, stream));
    OK(ncclGather(x, y, count, ncclFloat, 0, comm, stream));
    OK(ncclScatter(y, x, count, ncclFloat, 0, comm, stream));
    OK(ncclGroupStart());
    OK(ncclSend(x, count, ncclFloat, (rank + 1) % n, comm, stream));
    OK(ncclSend(x, count, ncclFloat, rank, comm, stream));
    OK(ncclRecv(y, count, ncclFloat, (rank + n - 1) % n, comm, stream));
    OK(ncclRecv(y + count, count, ncclFloat, rank, comm, stream));
    OK(ncclGroupEnd());
  }
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiStreamDestroy(stream));
}

// Messages of all operations with a peer, in one direction.
static long messages_with(const char *text, int peer, int send)
{
  char key[32], direction[16];
  long sum = 0;
  snprintf(key, sizeof key, " peer=%d steps=", peer);
  snprintf(direction, sizeof direction, " send=%d", send);
  for (const char *line = text; *line != '\0'; line = line_end(line) + 1) {
    char one[256];
    snprintf(one, sizeof one, "%.*s", (int)(line_end(line) - line), line);
    const char *at = strstr(one, key);
    if (begins(one, "start ProxyOp#") && at != NULL && strstr(one, direction) != NULL) {
      sum += strtol(at + strlen(key), NULL, 10);
    }
  }
  return sum;
}

// What a rank sends to another is what that receives from it.
static void assert_both_ends(char *const *texts, int n)
{
  for (int a = 0; a < n; a++) {
    assert_int_equal(messages_with(texts[a], a, 0) + messages_with(texts[a], a, 1), 0); // to oneself
    for (int b = 0; b < n; b++) {
      assert_int_equal(messages_with(texts[a], b, 1), messages_with(texts[b], a, 0));
    }
  }
}

static void run_everything(const char *algo, const char *const *more)
{
  char *texts[4], choice[64];
  const char *env[8] = {EVENTS, choice};
  snprintf(choice, sizeof choice, "NCCL_ALGO=allreduce:%s", algo);
  for (int i = 0; i < 4 && more[i] != NULL; i++) {
    env[2 + i] = more[i];
  }
  run_all(&(job){.n = 4, .versions = "6", .work = everything, .env = env});
  for (int rank = 0; rank < 4; rank++) {
    texts[rank] = record(rank, 6);
    assert_sound(texts[rank]);
    assert_steps(texts[rank], 6);
    assert_int_equal(count_lines(texts[rank], "start Coll#"), 18);
    assert_true(messages_with(texts[rank], (rank + 1) % 4, 1) > 0);
  }
  assert_both_ends(texts, 4);
}

static void every_algorithm(void **state)
{
  (void)state;
  const char *const algos[] = {"Ring", "Tree", "RD", "Oneshot", "Direct", "DirectWrite"};
  for (size_t i = 0; i < sizeof algos / sizeof algos[0]; i++) {
    run_everything(algos[i], (const char *const[]){NULL});
  }
  run_everything("Ring", ENV("NCCL_CMA_ENABLE=0")); // nobody reads anybody's memory
}

// Bytes that are moved straight from memory to memory are told by the rank that moves them: two parts, each summed from
// the peer's input by its owner, then read from the owner's output or written to the peer's.
static void bytes_of_direct_access(void **state)
{
  (void)state;
  const struct {
    const char *algo;
    long read, written; // by both ranks
  } rows[] = {{"NCCL_ALGO=Direct", 8000, 0}, {"NCCL_ALGO=DirectWrite", 4000, 4000}};
  for (int i = 0; i < 2; i++) {
    long bytes_read = 0, written = 0;
    run_all(&(job){.n = 2, .versions = "6", .work = one_allreduce, .env = ENV(EVENTS, rows[i].algo)});
    for (int rank = 0; rank < 2; rank++) {
      const char *text = record(rank, 6);
      assert_sound(text);
      assert_steps(text, 6);
      bytes_read += bytes_in(text, "RecvGPUWait");
      written += bytes_in(text, "SendWait");
    }
    assert_int_equal(bytes_read, rows[i].read);
    assert_int_equal(written, rows[i].written);
  }
}

// Two nodes of two ranks: some messages are the proxy's, some are not.
static void node_job(int rank, void *arg)
{
  setenv("NCCL_HOSTID", rank / 2 == 0 ? "a" : "b", 1);
  run_job(rank, arg);
}

static void ranks_of_two_nodes(void **state)
{
  (void)state;
  char *texts[4];
  job j = {.n = 4, .versions = "6", .work = everything};
  remove_records(&j);
  assert_int_equal(run_processes(&(run){.n = 4, .seconds = 60, .fn = node_job, .arg = &j, .env = ENV(EVENTS)}), 0);
  for (int rank = 0; rank < 4; rank++) {
    texts[rank] = record(rank, 6);
    assert_sound(texts[rank]);
    assert_steps(texts[rank], 6);
    assert_true(messages_with(texts[rank], rank ^ 1, 1) > 0); // in memory
    assert_true(messages_with(texts[rank], rank ^ 2, 1) > 0); // over the network
    assert_true(count_lines(texts[rank], "start ProxyCtrl#") > 0);
  }
  assert_both_ends(texts, 4);
}

static void some_channels(int rank, int n, ncclComm_t comm)
{
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  OK(ncclAllReduce(x, y, 4 * LARGE, ncclFloat, ncclSum, comm, stream));
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiStreamDestroy(stream));
  (void)rank;
  (void)n;
}

// Over a network that reduces: what heads give to it and get from it goes to no rank.
static void ranks_and_a_network_that_reduces(void **state)
{
  (void)state;
  const struct {
    const char *algo, *name, *number;
  } rows[] = {{"NCCL_ALGO=allreduce:CollNetChain", " algo=COLLNET_CHAIN ", " algo=3 "},
              {"NCCL_ALGO=allreduce:CollNetDirect", " algo=COLLNET_DIRECT ", " algo=2 "}};
  char plugin[4096];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(plugin, sizeof plugin, "NCCL_NET_PLUGIN=%s/tests/plugins/libcollnet_v12.so",
           build != NULL ? build : "build");
  for (int i = 0; i < 2; i++) {
    char *texts[4];
    job j = {.n = 4, .versions = "61", .work = some_channels};
    remove_records(&j);
    assert_int_equal(run_processes(&(run){.n = 4,
                                          .seconds = 60,
                                          .fn = node_job,
                                          .arg = &j,
                                          .env = ENV(EVENTS, plugin, rows[i].algo, "NCCL_COLLNET_ENABLE=1",
                                                     "NCCL_COLLNET_NODE_THRESHOLD=2")}),
                     0);
    for (int rank = 0; rank < 4; rank++) {
      texts[rank] = record(rank, 6);
      assert_sound(texts[rank]);
      assert_steps(texts[rank], 6);
      assert_non_null(strstr(texts[rank], rows[i].name));
      assert_true(messages_with(texts[rank], rank ^ 1, 1) > 0); // in memory
      for (int network = 4; network < 8; network++) {
        assert_int_equal(messages_with(texts[rank], network, 0) + messages_with(texts[rank], network, 1), 0);
      }
      assert_non_null(strstr(record(rank, 1), rows[i].number));
    }
    assert_both_ends(texts, 4);
  }
}

// ---- several channels

static void each_channel_has_its_own(void **state)
{
  (void)state;
  run_all(&(job){.n = 2,
                 .versions = "6",
                 .work = some_channels,
                 .env = ENV(EVENTS, "NCCL_TOPO_FILE=tests/topologies/known/a100_4gpu_fullmesh_4nic/input.xml",
                            "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")});
  const char *text = record(0, 6);
  int channels = count_lines(text, "start KernelCh#");
  assert_true(channels > 1);
  assert_sound(text);
  assert_steps(text, 6);
  assert_int_equal(count_lines(text, "start ProxyOp#"), 2 * channels);
  for (int c = 0; c < channels; c++) {
    char sends[64];
    snprintf(sends, sizeof sends, " pid=own channel=%d peer=1 ", c);
    assert_non_null(strstr(text, sends));
  }
  assert_int_equal(bytes_in(text, "SendWait"), 16 * LARGE);
  record(1, 6);
}

// ---- endings

static void an_aborted_operation(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "456", .work = aborted, .keeps = true, .env = ENV(EVENTS)});
  for (int v = 4; v <= 6; v++) {
    const char *text = record(0, v);
    assert_true(count_lines(text, "start ProxyOp#") > 0);
    assert_true(count_lines(text, "start ProxyStep#") > 0);
    assert_int_equal(count_lines(text, "finalize"), 1);
    assert_sound(text);
    record(1, v);
  }
}

static void do_not_agree(int rank, int n, ncclComm_t comm)
{
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  OK(ncclAllReduce(x, x, (size_t)(COUNT - rank), ncclFloat, ncclSum, comm, stream));
  CHECK(tuttiStreamSynchronize(stream) != ncclSuccess, "calls that differ cannot succeed");
  meet(n);
  OK(ncclCommAbort(comm));
  OK(tuttiStreamDestroy(stream));
}

static void a_failed_operation(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "61", .work = do_not_agree, .keeps = true, .env = ENV(EVENTS)});
  for (int rank = 0; rank < 2; rank++) {
    assert_sound(record(rank, 6));
    assert_sound(record(rank, 1));
  }
}

// ---- what is wanted

static void what_the_mask_says(void **state)
{
  (void)state;
  const struct {
    const char *mask;
    int ops, steps, channels;
  } rows[] = {{"0x8", 2, 0, 0}, {"0x10", 2, 4, 0}, {"0x40", 0, 0, 1}, {"0x48", 2, 0, 1}, {"0x2", 0, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char mask[64];
    snprintf(mask, sizeof mask, "TUTTI_RECORD_MASK=%s", rows[i].mask);
    run_all(&(job){.n = 2,
                   .versions = "6",
                   .work = one_allreduce,
                   .env = ENV(EVENTS, mask, "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")});
    const char *text = record(0, 6);
    assert_sound(text);
    assert_int_equal(count_lines(text, "start ProxyOp#"), rows[i].ops);
    assert_int_equal(count_lines(text, "start ProxyStep#"), rows[i].steps);
    assert_int_equal(count_lines(text, "start KernelCh#"), rows[i].channels);
    record(1, 6);
  }
}

// A profiler that counts references finds an operation complete once: no child starts after all that have started have
// stopped. One thread does both ranks' work: the second to come finds everything there, and ends at its first turn.
static void both_ranks(int rank, void *arg)
{
  world w;
  (void)rank;
  (void)arg;
  setenv("TUTTI_RECORD", record_name(rank), 1);
  setenv("NCCL_PROFILER_PLUGIN", plugin_list("6"), 1);
  world_open(&w, 2);
  for (int r = 0; r < 2; r++) {
    OK(ncclAllReduce(x + r, x + r, 1, ncclFloat, ncclSum, w.comm[r], w.stream[r]));
  }
  world_wait(&w);
  world_close(&w);
}

static void an_operation_is_complete_once(void **state)
{
  (void)state;
  remove_records(&(job){.n = 1});
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = 60, .fn = both_ranks, .env = ENV(EVENTS)}), 0);
  const char *text = record(0, 6);
  assert_sound(text);
  for (int coll = 1; coll <= 2; coll++) {
    int children = 0, completed = 0;
    char below[32];
    snprintf(below, sizeof below, " parent=Coll#%d ", coll);
    for (const char *line = text; *line != '\0'; line = line_end(line) + 1) {
      char name[32] = "", start[64], one[256];
      snprintf(one, sizeof one, "%.*s", (int)(line_end(line) - line), line);
      children += begins(one, "start") && strstr(one, below) != NULL;
      if (sscanf(one, "stop %31s", name) == 1) {
        snprintf(start, sizeof start, "start %s parent=Coll#%d ", name, coll);
        bool mine = strstr(text, start) != NULL;
        children -= mine;
        completed += mine && children == 0;
      }
    }
    assert_int_equal(children, 0);
    assert_int_equal(completed, 1);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_allreduce),
      cmocka_unit_test(chunks_are_whole_elements),
      cmocka_unit_test(messages_of_a_group),
      cmocka_unit_test(every_algorithm),
      cmocka_unit_test(bytes_of_direct_access),
      cmocka_unit_test(ranks_of_two_nodes),
      cmocka_unit_test(ranks_and_a_network_that_reduces),
      cmocka_unit_test(each_channel_has_its_own),
      cmocka_unit_test(an_aborted_operation),
      cmocka_unit_test(a_failed_operation),
      cmocka_unit_test(what_the_mask_says),
      cmocka_unit_test(an_operation_is_complete_once),
  };
  return RUN_TESTS("profiler_shm_test", tests, argc, argv);
}
