// profiler_net_test.c: what profilers are told of messages over the network.
#include "profiler_rig.h"

// ---- over the network

#define SOCKETS "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"

static void an_allreduce_over_sockets(void **state)
{
  (void)state;
  const char *const lists[] = {"123", "456"};
  for (int l = 0; l < 2; l++) {
    run_all(&(job){.n = 2,
                   .versions = lists[l],
                   .work = one_allreduce,
                   .env = ENV(SOCKETS, "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")});
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

// The longest, as NCCL has it, also where messages are of several lengths.
static void chunks_are_whole_elements(void **state)
{
  (void)state;
  run_all(&(job){
      .n = 2, .versions = "6", .work = odd_allreduce, .env = ENV(SOCKETS, "NCCL_ALGO=Ring", "NCCL_PROTO=Simple")});
  assert_non_null(strstr(record(0, 6), " steps=2 chunk=2000 send=1\n"));
  record(1, 6);
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
      cmocka_unit_test(an_allreduce_over_sockets), cmocka_unit_test(chunks_are_whole_elements),
      cmocka_unit_test(messages_over_sockets),     cmocka_unit_test(aborted_over_sockets),
      cmocka_unit_test(a_peer_that_dies),
  };
  return RUN_TESTS("profiler_net_test", tests, argc, argv);
}
