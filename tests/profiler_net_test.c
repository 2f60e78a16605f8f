// profiler_net_test.c: what profilers are told of messages over the network.
#include "profiler_rig.h"

// ---- over the network

#define SOCKETS "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"

// What happens to one event: "start RecvWait … stop".
static const char *story(const char *text, const char *name)
{
  static char out[512];
  size_t used = 0, len = strlen(name);
  out[0] = '\0';
  for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
    const char *subject = strchr(line, ' ');
    if (subject == NULL || strncmp(subject + 1, name, len) != 0 || (subject[1 + len] != ' ' && subject[1 + len] != '\n')) {
      continue;
    }
    char state[64] = "";
    sscanf(subject + 1 + len, " %63s", state);
    const char *word = line[0] == 's' && line[2] == 'a' && line[3] == 'r' ? "start" : line[2] == 'o' ? "stop" : state;
    used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", used > 0 ? " " : "", word);
  }
  return out;
}

// The value after `key` in the line that starts the event.
static long started_with(const char *text, const char *name, const char *key)
{
  char line[128];
  snprintf(line, sizeof line, "start %s ", name);
  const char *at = strstr(text, line), *value = at != NULL ? strstr(at, key) : NULL;
  assert_non_null(value);
  return strtol(value + strlen(key), NULL, 10);
}

// Bytes of all steps in a state.
static long bytes_in(const char *text, const char *state)
{
  long sum = 0;
  char key[64];
  snprintf(key, sizeof key, " %s size=", state);
  for (const char *at = strstr(text, key); at != NULL; at = strstr(at + 1, key)) {
    sum += strtol(at + strlen(key), NULL, 10);
  }
  return sum;
}

// Every step of every operation went its way, as this version is told of it.
static void assert_steps(const char *text, int version)
{
  const char *op_story = version >= 4 ? "start InProgress stop" : "start stop";
  const char *sent = version >= 4 ? "start SendGPUWait SendPeerWait SendWait stop" : "start SendGPUWait SendWait stop";
  int ops = count_lines(text, "start ProxyOp#"), steps = count_lines(text, "start ProxyStep#");
  long expected = 0;
  char name[64], parent[64];
  for (int i = 1; i <= ops; i++) {
    snprintf(name, sizeof name, "ProxyOp#%d", i);
    assert_string_equal(story(text, name), op_story);
    expected += started_with(text, name, " steps=");
  }
  assert_int_equal(steps, expected);
  for (int i = 1; i <= steps; i++) {
    snprintf(name, sizeof name, "ProxyStep#%d", i);
    snprintf(parent, sizeof parent, "ProxyOp#%ld", started_with(text, name, "parent=ProxyOp#"));
    assert_string_equal(story(text, name), started_with(text, parent, " send=") ? sent : "start RecvWait RecvFlushWait RecvGPUWait stop");
    assert_true(started_with(text, name, " step=") < started_with(text, parent, " steps="));
  }
}

static void an_allreduce_over_sockets(void **state)
{
  (void)state;
  const char *const lists[] = {"123", "456"};
  for (int l = 0; l < 2; l++) {
    run_all(&(job){.n = 2, .versions = lists[l], .work = one_allreduce, .env = ENV(SOCKETS, "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")});
    for (int v = 3 * l + 1; v <= 3 * l + 3; v++) {
      const char *text = record(0, v);
      assert_sound(text);
      assert_steps(text, v);
      assert_int_equal(count_lines(text, "start ProxyOp#"), 2);
      assert_non_null(strstr(text, " parent=Coll#1 rank=0 pid=own channel=0 peer=1 steps=2 chunk=2000 send=1\n"));
      assert_non_null(strstr(text, " parent=Coll#1 rank=0 pid=own channel=0 peer=1 steps=2 chunk=2000 send=0\n"));
      assert_true(count_lines(text, "start ProxyCtrl#") > 0);
      if (v >= 4) {
        assert_int_equal(bytes_in(text, "SendWait"), 4000);
        assert_int_equal(bytes_in(text, "RecvGPUWait"), 4000);
      }
      record(1, v);
    }
  }
}

static void messages_over_sockets(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "65", .work = mixed_group, .env = ENV(SOCKETS)});
  for (int v = 5; v <= 6; v++) {
    const char *text = record(0, v);
    assert_sound(text);
    assert_steps(text, v);
    assert_non_null(strstr(text, " parent=P2p#1 rank=0 pid=own channel=0 peer=1 steps=1 chunk=80 send=1\n"));
    assert_non_null(strstr(text, " parent=P2p#2 rank=0 pid=own channel=1 peer=1 steps=1 chunk=80 send=0\n"));
    record(1, v);
  }
}

static void aborted_over_sockets(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "456", .work = aborted, .keeps = true, .env = ENV(SOCKETS)});
  for (int v = 4; v <= 6; v++) {
    const char *text = record(0, v);
    assert_true(count_lines(text, "start ProxyOp#") > 0);
    assert_int_equal(count_lines(text, "finalize"), 1);
    assert_sound(text);
    record(1, v);
  }
}

static void peer_dies(int rank, int n, ncclComm_t comm)
{
  static float x[1 << 20];
  cudaStream_t stream;
  one_allreduce(rank, n, comm);
  meet(n);
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  if (rank == 1) {
    _exit(0);
  }
  OK(ncclAllReduce(x, x, 1 << 20, ncclFloat, ncclSum, comm, stream));
  CHECK(tuttiStreamSynchronize(stream) != ncclSuccess, "nobody was there");
  OK(ncclCommAbort(comm));
  OK(tuttiStreamDestroy(stream));
}

static void a_peer_that_dies(void **state)
{
  (void)state;
  const char *const *envs[] = {ENV(SOCKETS), NULL};
  for (int i = 0; i < 2; i++) {
    run_all(&(job){.n = 2, .versions = "6", .work = peer_dies, .keeps = true, .env = envs[i]});
    const char *text = record(0, 6);
    assert_int_equal(count_lines(text, "start Coll#"), 2);
    assert_sound(text);
    record(1, 6);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_allreduce_over_sockets),
      cmocka_unit_test(messages_over_sockets),
      cmocka_unit_test(aborted_over_sockets),
      cmocka_unit_test(a_peer_that_dies),
  };
  return RUN_TESTS("profiler_net_test", tests, argc, argv);
}
