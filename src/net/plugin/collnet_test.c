// collnet_test.c: collective networks of every version, over the plugins of tests/plugins/: groups of threads reduce;
// what cannot be used, and what fails.
#include "net/collnet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/opcode.h"
#include "base/result.h"
#include "base/test_log.h"
#include "base/util.h"
#include "net/plugin/plugin.h"
#include "os/clock.h"
#include "os/thread.h"

enum { RANKS = 3, COUNT = 5000, PENDING = TT_COLLNET_REQUESTS };

static int collnet_group_start(void **state)
{
  (void)state;
  test_log_begin("INIT,NET");
  return 0;
}

static bool collnet_any_name(void *arg, const char *name)
{
  return arg == NULL && name != NULL;
}

static const tt_net_ops *collnet_open_net(const char *plugin, int rank)
{
  char path[4096];
  const char *build = getenv("TUTTI_BUILD");
  const tt_net_ops *net = NULL;
  const tt_net_env env = {.rank = rank, .nranks = RANKS, .comm_hash = 0xabc, .traffic_class = TT_NET_ANY_CLASS};
  snprintf(path, sizeof path, "%s/tests/plugins/lib%s.so", build != NULL ? build : "build", plugin);
  assert_int_equal(tt_net_plugin_open(path, &env, collnet_any_name, NULL, &net), ncclSuccess);
  assert_non_null(net);
  return net;
}

static tt_collnet *collnet_open_it(const char *plugin, int rank)
{
  const tt_net_ops *net = collnet_open_net(plugin, rank);
  const tt_net_env env = {.rank = rank, .nranks = RANKS, .comm_hash = 0xabc};
  tt_collnet *c = NULL;
  assert_int_equal(tt_collnet_open(net, &env, &c), ncclSuccess);
  tt_net_close(net);
  return c;
}

// One rank of a group, in a thread of its own.
typedef struct member {
  int rank;
  tt_thread thread;
  tt_collnet *net;
  tt_collnet_comm *comm;
  void *listener, *mr;
  const char *handles;
  ncclResult_t res;
  char text[512];
  int type, op; // of the reduction
  int64_t memory[2 * PENDING * COUNT];
} member;

static void collnet_note(member *m, ncclResult_t res)
{
  if (res != ncclSuccess && m->res == ncclSuccess) {
    m->res = res;
    snprintf(m->text, sizeof m->text, "%s", tt_last_error());
  }
}

static bool collnet_is_set(void *arg)
{
  return *(const bool *)arg;
}

static void *connect_main(void *arg)
{
  bool never = false;
  member *m = arg;
  const tt_collnet_group g = {
      .dev = 1, .rank = m->rank, .nranks = RANKS, .handles = m->handles, .listener = m->listener};
  collnet_note(m, tt_collnet_connect(m->net, &g, 20 * TT_NS_PER_S, collnet_is_set, &never, &m->comm));
  return NULL;
}

static void run_all(member *all, void *(*fn)(void *arg))
{
  for (int i = 0; i < RANKS; i++) {
    assert_int_equal(tt_thread_start(&all[i].thread, "member", fn, &all[i]), ncclSuccess);
  }
  for (int i = 0; i < RANKS; i++) {
    tt_thread_join(&all[i].thread);
  }
}

static member *group_open(const char *plugin)
{
  static char handles[RANKS * TT_NET_HANDLE];
  member *all = calloc(RANKS, sizeof *all);
  assert_non_null(all);
  for (int i = 0; i < RANKS; i++) {
    all[i].rank = i;
    all[i].handles = handles;
    all[i].net = collnet_open_it(plugin, i);
    assert_non_null(all[i].net);
    assert_int_equal(tt_collnet_devices(all[i].net), 2);
    assert_int_equal(tt_collnet_listen(all[i].net, 1, handles + i * TT_NET_HANDLE, &all[i].listener), ncclSuccess);
  }
  run_all(all, connect_main);
  return all;
}

static void group_close(member *all)
{
  for (int i = 0; i < RANKS; i++) {
    if (all[i].mr != NULL) {
      tt_collnet_dereg(all[i].comm, all[i].mr);
    }
    tt_collnet_disconnect(all[i].comm);
    tt_collnet_close(all[i].net);
  }
  free(all);
}

static tt_collnet_sum collnet_sum_of(member *m, int i)
{
  char *base = (char *)m->memory;
  size_t bytes = COUNT * sizeof(int64_t);
  return (tt_collnet_sum){.in = base + (size_t)i * bytes,
                          .out = base + (size_t)(PENDING + i) * bytes,
                          .count = (size_t)(COUNT - i),
                          .type = m->type,
                          .op = m->op,
                          .in_mr = m->mr,
                          .out_mr = m->mr};
}

// As many reductions at once as a connection takes; the oldest is asked for first.
static void *reduce_main(void *arg)
{
  member *m = arg;
  void *requests[PENDING];
  for (int i = 0; i < PENDING && m->res == ncclSuccess; i++) {
    tt_collnet_sum s = collnet_sum_of(m, i);
    requests[i] = NULL;
    while (m->res == ncclSuccess && requests[i] == NULL) {
      collnet_note(m, tt_collnet_begin(m->comm, &s, &requests[i]));
    }
  }
  for (int i = 0; i < PENDING; i++) {
    tt_collnet_sum s = collnet_sum_of(m, i);
    for (bool done = false; !done && m->res == ncclSuccess;) {
      collnet_note(m, tt_collnet_test(m->comm, requests[i], &s, &done));
    }
  }
  return NULL;
}

static int64_t collnet_input(int rank, int64_t i)
{
  return (rank + 1) * (i % 7 + 1);
}

static int64_t collnet_expected(int op, int64_t i)
{
  int64_t x = collnet_input(0, i);
  for (int r = 1; r < RANKS; r++) {
    int64_t y = collnet_input(r, i);
    x = op == ncclSum ? x + y : op == ncclProd ? x * y : op == ncclMax ? TT_MAX(x, y) : TT_MIN(x, y);
  }
  return x;
}

static void collnet_put(void *at, int64_t i, int type, int64_t value)
{
  type == ncclFloat64 ? (void)(((double *)at)[i] = (double)value)
  : type == ncclInt64 ? (void)(((int64_t *)at)[i] = value)
                      : (void)(((int32_t *)at)[i] = (int32_t)value);
}

static int64_t collnet_get(const void *at, int64_t i, int type)
{
  return type == ncclFloat64 ? (int64_t)((const double *)at)[i]
         : type == ncclInt64 ? ((const int64_t *)at)[i]
                             : ((const int32_t *)at)[i];
}

static void check_reductions(member *all, int type, int op)
{
  for (int r = 0; r < RANKS; r++) {
    all[r].type = type;
    all[r].op = op;
    for (int k = 0; k < PENDING; k++) {
      tt_collnet_sum s = collnet_sum_of(&all[r], k);
      for (int64_t i = 0; i < (int64_t)s.count; i++) {
        collnet_put((void *)(uintptr_t)s.in, i, type, collnet_input(r, i + k));
      }
    }
  }
  run_all(all, reduce_main);
  for (int r = 0; r < RANKS; r++) {
    assert_string_equal(all[r].text, "");
    for (int k = 0; k < PENDING; k++) {
      tt_collnet_sum s = collnet_sum_of(&all[r], k);
      for (int64_t i = 0; i < (int64_t)s.count; i++) {
        assert_int_equal(collnet_get(s.out, i, type), collnet_expected(op, i + k));
      }
    }
  }
}

static void register_all(member *all)
{
  for (int r = 0; r < RANKS; r++) {
    assert_string_equal(all[r].text, "");
    assert_non_null(all[r].comm);
    assert_int_equal(tt_collnet_reg(all[r].comm, all[r].memory, sizeof all[r].memory, &all[r].mr), ncclSuccess);
  }
}

static void test_every_version(void **state)
{
  static const int types[] = {ncclInt32, ncclInt64, ncclFloat64};
  (void)state;
  for (int v = 6; v <= 12; v++) {
    char name[32];
    snprintf(name, sizeof name, "collnet_v%d", v);
    member *all = group_open(name);
    register_all(all);
    assert_string_equal(tt_collnet_name(all[0].net), "TestColl");
    assert_int_equal(tt_collnet_longest(all[0].comm), v >= 9 ? 1 << 20 : 512 << 20);
    for (int i = 0; i < 3 * TT_COLLNET_OPS; i++) {
      check_reductions(all, types[i / TT_COLLNET_OPS], i % TT_COLLNET_OPS);
    }
    group_close(all);
  }
  const char *text = said();
  assert_null(strstr(text, "LEAK"));
  assert_null(strstr(text, "the caller is wrong"));
}

static void test_unwilling(void **state)
{
  (void)state;
  setenv("TEST_COLL_REFUSE", "3", 1);
  setenv("TEST_NET_FLUSH", "1", 1);
  member *all = group_open("collnet_v12");
  register_all(all);
  check_reductions(all, ncclInt64, ncclSum);
  group_close(all);
  unsetenv("TEST_COLL_REFUSE");
  unsetenv("TEST_NET_FLUSH");
  assert_null(strstr(said(), "the caller is wrong"));
}

static void test_support(void **state)
{
  (void)state;
  tt_collnet *c = collnet_open_it("collnet_v9", 0);
  assert_true(tt_collnet_support(c) == (1ull << (ncclNumTypes * TT_COLLNET_OPS)) - 1);
  tt_collnet_close(c);
  setenv("TEST_COLL_ONLY", "7:0", 1);
  c = collnet_open_it("collnet_v9", 0);
  assert_true(tt_collnet_support(c) == 1ull << (ncclFloat32 * TT_COLLNET_OPS + ncclSum));
  tt_collnet_close(c);
  setenv("TEST_COLL_ONLY", "99:0", 1);
  assert_null(collnet_open_it("collnet_v9", 0));
  assert_non_null(strstr(said(), "it reduces nothing"));
  unsetenv("TEST_COLL_ONLY");
  assert_int_equal(tt_collnet_op(ncclMin), ncclMin);
  assert_int_equal(tt_collnet_op(ncclAvg), ncclSum);
  assert_int_equal(tt_collnet_op(TT_OP_SCALED), ncclSum);
  for (int code = TT_OP_NONE; code < TT_OPCODES; code++) {
    assert_int_equal(tt_collnet_op(code), -1);
  }
}

static void test_none(void **state)
{
  const tt_net_env env = {.nranks = 1};
  tt_collnet *c = NULL;
  (void)state;
  assert_int_equal(tt_collnet_open(&tt_net_socket, &env, &c), ncclSuccess);
  assert_null(c);
  assert_non_null(strstr(said(), "network Socket cannot reduce"));
  assert_null(collnet_open_it("net_v12", 0));
  assert_non_null(strstr(said(), "has no collective network (ncclCollNetPlugin_v6 to _v12)"));
}

// The fault of `setting` on one rank of a group. connect's must leave nobody waiting in the plugin, so all get it.
static void test_faults(void **state)
{
  (void)state;
  setenv("TEST_COLL_FAIL", "init:1:2", 1);
  assert_null(collnet_open_it("collnet_v11", 0));
  assert_non_null(strstr(said(), "TestColl ("));
  setenv("TEST_COLL_FAIL", "devices:1:2", 1);
  assert_null(collnet_open_it("collnet_v12", 0));
  assert_non_null(strstr(said(), "devices gives none, or fails; number or code (2)"));
  setenv("TEST_COLL_FAIL", "iallreduce:3:6:1", 1);
  member *all = group_open("collnet_v8");
  register_all(all);
  all[1].type = ncclInt32;
  reduce_main(&all[1]);
  assert_int_equal(all[1].res, ncclRemoteError);
  assert_non_null(strstr(all[1].text, "rank 1: collective network plugin TestColl ("));
  assert_non_null(strstr(all[1].text, "version 8): iallreduce failed with code 6"));
  void *request = NULL;
  tt_collnet_sum s = collnet_sum_of(&all[1], 0);
  assert_int_equal(tt_collnet_begin(all[1].comm, &s, &request), ncclRemoteError); // and stays so
  group_close(all);
  unsetenv("TEST_COLL_FAIL");
  (void)said();
}

// What all ranks then do without is no error: the log says so at INFO, and the last error is the one it was.
static void test_what_falls_back(void **state)
{
  static const struct {
    int version; // one that has had no such fault yet
    const char *function;
  } rows[] = {{10, "listen"}, {9, "connect"}, {7, "regMr"}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    char name[32], fault[32], text[64], handle[TT_NET_HANDLE];
    bool never = false;
    void *listener = NULL, *mr = NULL;
    tt_collnet_comm *comm = NULL;
    (void)said();
    snprintf(name, sizeof name, "collnet_v%d", rows[i].version);
    snprintf(fault, sizeof fault, "%s:1:2", rows[i].function);
    snprintf(text, sizeof text, "version %d): %s failed with code 2", rows[i].version, rows[i].function);
    setenv("TEST_COLL_FAIL", fault, 1);
    tt_last_error_set("an earlier error");
    tt_collnet *c = collnet_open_it(name, 0);
    ncclResult_t res = tt_collnet_listen(c, 0, handle, &listener);
    if (res == ncclSuccess) {
      const tt_collnet_group g = {.nranks = 1, .handles = handle, .listener = listener};
      res = tt_collnet_connect(c, &g, 20 * TT_NS_PER_S, collnet_is_set, &never, &comm);
    }
    if (res == ncclSuccess) {
      res = tt_collnet_reg(comm, handle, sizeof handle, &mr);
    }
    assert_int_equal(res, ncclSystemError);
    assert_string_equal(tt_last_error(), "an earlier error");
    tt_collnet_disconnect(comm);
    tt_collnet_close(c);
    const char *log = said();
    assert_non_null(strstr(log, "not used: "));
    assert_non_null(strstr(log, text));
    assert_null(strstr(log, " WARN "));
    assert_null(strstr(log, "LEAK"));
    unsetenv("TEST_COLL_FAIL");
  }
}

// Devices that the network has fused are in the plugin's list three times: each part, and what was made of them, which
// does not count.
static void test_fused_devices(void **state)
{
  (void)state;
  for (int v = 9; v <= 12; v++) {
    char name[32];
    int devices = 0;
    snprintf(name, sizeof name, "collnet_v%d", v);
    const tt_net_ops *net = collnet_open_net(name, 0);
    void *ctx = NULL;
    assert_int_equal(net->init(&(tt_net_env){.nranks = RANKS, .net = net}, &ctx), ncclSuccess);
    assert_int_equal(net->devices(ctx, &devices), ncclSuccess);
    assert_int_equal(devices, 1);
    tt_collnet *c = collnet_open_it(name, 0);
    assert_int_equal(tt_collnet_devices(c), 2);
    tt_collnet_close(c);
    net->finalize(ctx);
    tt_net_close(net);
  }
}

// A plugin that never comes back from connect: the caller that waits is told in time, or when it is hopeless.
static void test_stalled_connect(void **state)
{
  char handle[TT_NET_HANDLE];
  void *listener = NULL;
  tt_collnet_comm *comm = NULL;
  bool hopeless = false;
  (void)state;
  setenv("TEST_COLL_STALL", "1", 1);
  tt_last_error_set("an earlier error");
  tt_collnet *c = collnet_open_it("collnet_v12", 0);
  assert_int_equal(tt_collnet_listen(c, 0, handle, &listener), ncclSuccess);
  tt_collnet_group g = {.nranks = 1, .handles = handle, .listener = listener};
  assert_int_equal(tt_collnet_connect(c, &g, TT_NS_PER_MS, collnet_is_set, &hopeless, &comm), ncclRemoteError);
  assert_non_null(strstr(said(), "has not connected 1 ranks"));
  hopeless = true;
  assert_int_equal(tt_collnet_listen(c, 0, handle, &g.listener), ncclSuccess);
  assert_int_equal(tt_collnet_connect(c, &g, 3600 * TT_NS_PER_S, collnet_is_set, &hopeless, &comm), ncclRemoteError);
  assert_non_null(strstr(said(), "given up"));
  assert_string_equal(tt_last_error(), "an earlier error");
  assert_null(comm);
  tt_collnet_close(c);
  unsetenv("TEST_COLL_STALL");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_version),   cmocka_unit_test(test_unwilling),
      cmocka_unit_test(test_support),         cmocka_unit_test(test_none),
      cmocka_unit_test(test_faults),          cmocka_unit_test(test_stalled_connect),
      cmocka_unit_test(test_what_falls_back), cmocka_unit_test(test_fused_devices),
  };
  return cmocka_run_group_tests(tests, collnet_group_start, test_log_end);
}
