// merge_test.c: a plugin's devices become one as the parameters say, and traffic flows over what is made. Each case in
// a process of its own, because parameters are read once. With the libraries of tests/plugins/.
#include "net/plugin/plugin.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/result.h"
#include "base/util.h"
#include "nccl/net.h"
#include "net/plugin/plugin_priv.h"

#define ROOT "/sys/devices/no-such/pci0000:00/"
// Two functions of a card, a card behind the same switch, one behind a switch below that, one elsewhere, one on no bus.
#define PLACES                                                                               \
  ROOT "0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0," ROOT                           \
       "0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.1," ROOT                           \
       "0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0," ROOT                           \
       "0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0," ROOT \
       "0000:00:02.0/0000:08:00.0,"

typedef struct row {
  int version;
  const char *level, *policy, *force;
  const char *devices; // that count then; NULL: it is refused
} row;

static bool merge_any_name(void *arg, const char *name)
{
  return arg == NULL || name != NULL;
}

#define DEMAND(cond)                                                                  \
  do {                                                                                \
    if (!(cond)) {                                                                    \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #cond, tt_last_error()); \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

static void merge_one_message(const tt_net_ops *net, void *ctx, int dev)
{
  _Alignas(16) char handle[TT_NET_HANDLE];
  char out[64] = "over what was made", in[64] = "";
  void *listener = NULL, *send = NULL, *recv = NULL, *mr[2] = {NULL}, *r[2] = {NULL}, *to = in;
  size_t room = sizeof in;
  int tag = 3, left = 2;
  DEMAND(net->listen(ctx, dev, handle, &listener) == ncclSuccess);
  for (int i = 0; (send == NULL || recv == NULL) && i < 1000000; i++) {
    DEMAND(send != NULL || net->connect(ctx, dev, handle, &send) == ncclSuccess);
    DEMAND(recv != NULL || net->accept(listener, &recv) == ncclSuccess);
  }
  DEMAND(send != NULL && recv != NULL);
  net->close_listen(listener);
  DEMAND(net->reg_mr(send, out, sizeof out, TT_NET_PTR_HOST, &mr[0]) == ncclSuccess);
  DEMAND(net->reg_mr(recv, in, sizeof in, TT_NET_PTR_HOST, &mr[1]) == ncclSuccess);
  for (int i = 0; i < 100 && r[0] == NULL; i++) {
    DEMAND(net->irecv(recv, 1, &to, &room, &tag, &mr[1], NULL, &r[0]) == ncclSuccess);
  }
  for (int i = 0; i < 100 && r[1] == NULL; i++) {
    DEMAND(net->isend(send, out, sizeof out, tag, mr[0], NULL, &r[1]) == ncclSuccess);
  }
  DEMAND(r[0] != NULL && r[1] != NULL);
  for (int i = 0; left > 0; i++) {
    int done = 0;
    DEMAND(i < 1000000);
    if (r[i % 2] != NULL) {
      DEMAND(net->test(r[i % 2], &done, NULL) == ncclSuccess);
      r[i % 2] = done ? NULL : r[i % 2];
      left -= done;
    }
  }
  DEMAND(memcmp(in, out, sizeof in) == 0);
  net->dereg_mr(send, mr[0]);
  net->dereg_mr(recv, mr[1]);
  net->close_send(send);
  net->close_recv(recv);
}

static void merge_set(const char *name, const char *value)
{
  if (value != NULL) {
    setenv(name, value, 1);
  } else {
    unsetenv(name);
  }
}

static void merge_look(const tt_net_ops *net, const char *devices)
{
  char text[1024] = "";
  size_t used = 0;
  int count = 0;
  void *ctx = NULL;
  DEMAND(net->init(&(tt_net_env){.rank = 0, .nranks = 1, .net = net}, &ctx) == ncclSuccess);
  DEMAND(net->devices(ctx, &count) == ncclSuccess);
  for (int i = 0; i < count; i++) {
    tt_net_props p;
    DEMAND(net->get_properties(ctx, i, &p) == ncclSuccess);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? " " : "", p.name);
    DEMAND(p.speed == 25000 * TT_MAX(p.nparts, 1));
    for (int k = 0; k < p.nparts; k++) {
      DEMAND(strstr(p.name, p.parts[k]->name) != NULL && p.parts[k]->nparts == 0);
    }
    merge_one_message(net, ctx, i);
  }
  net->finalize(ctx);
  if (strcmp(text, devices) != 0) {
    fprintf(stderr, "the devices are %s, not %s\n", text, devices);
    exit(1);
  }
}

// Every communicator is refused alike, whether the library is opened anew or has stayed; unless it is makeVDevice that
// fails, nothing was made before.
static void stays_refused(const row *r, const char *path, const tt_net_env *env, const char *refused)
{
  void *held = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  DEMAND(held != NULL);
  for (int i = 0; i < 3; i++) {
    const tt_net_ops *net = NULL;
    tt_last_error_set("");
    ncclResult_t res = tt_net_plugin_open(path, env, merge_any_name, NULL, &net);
    DEMAND(res == ncclInvalidUsage && net == NULL && strstr(tt_last_error(), refused) != NULL);
  }
  if (r->version == 12 && getenv("TEST_NET_NO_MERGE") == NULL) {
    int n = 0;
    const ncclNet_v12_t *table = dlsym(held, "ncclNetPlugin_v12");
    DEMAND(table != NULL && table->devices(&n) == ncclSuccess && n == 6);
  }
  dlclose(held);
}

// In a child.
static void one_case(const row *r, const char *refused)
{
  char path[4096];
  const char *build = getenv("TUTTI_BUILD");
  const tt_net_ops *net = NULL, *again = NULL;
  snprintf(path, sizeof path, "%s/tests/plugins/libnet_v%d.so", build != NULL ? build : "build", r->version);
  merge_set("NCCL_NET_MERGE_LEVEL", r->level);
  merge_set("NCCL_NET_MERGE_POLICY", r->policy);
  merge_set("NCCL_NET_FORCE_MERGE", r->force);
  const tt_net_env env = {.rank = 1, .nranks = 2, .traffic_class = -1};
  if (r->devices == NULL) {
    stays_refused(r, path, &env, refused);
    return;
  }
  ncclResult_t res = tt_net_plugin_open(path, &env, merge_any_name, NULL, &net);
  DEMAND(res == ncclSuccess && net != NULL);
  merge_look(net, r->devices);
  DEMAND(tt_net_plugin_open(path, &env, merge_any_name, NULL, &again) == ncclSuccess &&
         again != NULL); // a second communicator finds them as they are
  merge_look(again, r->devices);
  tt_net_close(net);
  tt_net_close(again);
}

static void merge_in_child(const row *r, const char *refused)
{
  fflush(NULL);
  pid_t pid = fork();
  int status = -1;
  assert_true(pid >= 0);
  if (pid == 0) {
    one_case(r, refused);
    exit(0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (status != 0) {
    fail_msg("version %d, level %s, policy %s, force %s: status %d", r->version, r->level, r->policy, r->force, status);
  }
}

static void by_distance(void **state)
{
  (void)state;
  static const row rows[] = {
      {12, NULL, NULL, NULL, "tcp2 tcp3 tcp4 tcp5 tcp0+tcp1"},
      {12, "LOC", NULL, NULL, "tcp0 tcp1 tcp2 tcp3 tcp4 tcp5"},
      {12, "PORT", NULL, NULL, "tcp2 tcp3 tcp4 tcp5 tcp0+tcp1"},
      {12, "PIX", NULL, NULL, "tcp3 tcp4 tcp5 tcp0+tcp1+tcp2"},
      {12, "PXB", NULL, NULL, "tcp4 tcp5 tcp0+tcp1+tcp2+tcp3"},
      {12, "SYS", NULL, NULL, "tcp0+tcp1+tcp2+tcp3+tcp4+tcp5"},
      {12, "near", NULL, NULL, "tcp2 tcp3 tcp4 tcp5 tcp0+tcp1"}, // as if it were not set
      {11, "SYS", NULL, NULL, "tcp0+tcp1+tcp2+tcp3 tcp4+tcp5"},  // four at most
      {10, "PIX", NULL, NULL, "tcp3 tcp4 tcp5 tcp0+tcp1+tcp2"},
      {9, "PIX", "ALL", NULL, "tcp3 tcp4 tcp5 tcp0+tcp1+tcp2"},
      {8, "SYS", NULL, NULL, "tcp0 tcp1 tcp2 tcp3 tcp4 tcp5"}, // cannot
      {12, "SYS", "RAIL", NULL, "tcp0+tcp3 tcp1+tcp4 tcp2+tcp5"},
      {11, "SYS", "rail", NULL, "tcp0 tcp1 tcp2 tcp3 tcp4 tcp5"}, // tells no rails
      {12, "PIX", "other", NULL, "tcp3 tcp4 tcp5 tcp0+tcp1+tcp2"},
  };
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    merge_in_child(&rows[i], NULL);
  }
}

static void merge_by_name(void **state)
{
  (void)state;
  static const row rows[] = {
      {12, NULL, NULL, "tcp4,tcp0", "tcp1 tcp2 tcp3 tcp5 tcp0+tcp4"},
      {12, "PXB", NULL, "tcp5,tcp0:1;;tcp4;", "tcp4 tcp0+tcp5 tcp1+tcp2+tcp3"},
      {9, "LOC", NULL, "tcp0,tcp1,tcp2,tcp3;tcp4,tcp5", "tcp0+tcp1+tcp2+tcp3 tcp4+tcp5"},
      {8, NULL, NULL, "tcp0,tcp1", "tcp0 tcp1 tcp2 tcp3 tcp4 tcp5"}, // cannot
  };
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    merge_in_child(&rows[i], NULL);
  }
  merge_in_child(&(row){12, NULL, NULL, "tcp0,mlx5_0", NULL},
                 "tcp0,mlx5_0 names 2 devices, of which network plugin TestTcp has 1");
  merge_in_child(&(row){12, NULL, NULL, "tcp0,tcp1:7", NULL}, "names 2 devices, of which network plugin TestTcp has 1");
  merge_in_child(&(row){12, NULL, NULL, "tcp0,tcp1;tcp1,tcp2", NULL}, "tcp1 is in two groups");
  merge_in_child(&(row){10, NULL, NULL, "tcp0,tcp1;tcp1,tcp2", NULL}, "tcp1 is in two groups");
  merge_in_child(&(row){9, NULL, NULL, "tcp2,tcp3;tcp0,mlx5_0", NULL}, "tcp0,mlx5_0 names 2 devices");
  merge_in_child(&(row){11, NULL, NULL, "tcp0,tcp1,tcp2,tcp3,tcp4", NULL}, "more than the 4 devices");
}

static void where_it_fails(void **state)
{
  (void)state;
  setenv("TEST_NET_NO_MERGE", "1", 1);
  merge_in_child(&(row){12, "SYS", NULL, NULL, "tcp0 tcp1 tcp2 tcp3 tcp4 tcp5"}, NULL);
  merge_in_child(&(row){12, NULL, NULL, "tcp0,tcp1", NULL}, "makeVDevice of 2 devices fails with code 4");
  setenv("TEST_NET_NO_MERGE", "2", 1); // the second group
  merge_in_child(&(row){12, NULL, NULL, "tcp0,tcp1;tcp2,tcp3", NULL},
                 "tcp2,tcp3: network plugin TestTcp: makeVDevice of 2 devices fails");
  merge_in_child(&(row){9, NULL, NULL, "tcp0,tcp1;tcp2,tcp3", NULL},
                 "tcp2,tcp3: network plugin TestTcp: makeVDevice of 2 devices fails");
  unsetenv("TEST_NET_NO_MERGE");
}

// Devices that are on no bus are ports of one virtual card.
static void without_places(void **state)
{
  (void)state;
  unsetenv("TEST_NET_PCI");
  merge_in_child(&(row){12, NULL, NULL, NULL, "tcp0+tcp1"}, NULL);
  merge_in_child(&(row){12, "LOC", NULL, NULL, "tcp0 tcp1"}, NULL);
}

// A library that stays open while nobody has initialised its plugin, which forgets meanwhile what it has made.
static void one_that_forgets(void)
{
  char path[4096];
  const char *build = getenv("TUTTI_BUILD");
  const tt_net_env env = {.rank = 1, .nranks = 2, .traffic_class = -1};
  tt_pnet_library *lib = NULL;
  snprintf(path, sizeof path, "%s/tests/plugins/libnet_v12.so", build != NULL ? build : "build");
  merge_set("NCCL_NET_MERGE_LEVEL", "LOC");
  merge_set("NCCL_NET_FORCE_MERGE", "tcp4,tcp0");
  tt_pnet_lock();
  DEMAND(tt_pnet_library_open(path, &lib) == ncclSuccess && lib != NULL);
  tt_pnet_unlock();
  for (int i = 0; i < 3; i++) {
    const tt_net_ops *net = NULL;
    DEMAND(tt_net_plugin_open(path, &env, merge_any_name, NULL, &net) == ncclSuccess && net != NULL);
    merge_look(net, "tcp1 tcp2 tcp3 tcp5 tcp0+tcp4");
    tt_net_close(net);
  }
  tt_pnet_lock();
  tt_pnet_library_close(lib);
  tt_pnet_unlock();
}

static void made_anew(void **state)
{
  int status = -1;
  (void)state;
  setenv("TEST_NET_PCI", PLACES, 1);
  setenv("TEST_NET_FORGET", "1", 1);
  pid_t pid = fork();
  if (pid == 0) {
    one_that_forgets();
    exit(0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  unsetenv("TEST_NET_FORGET");
}

int main(void)
{
  setenv("TEST_NET_PCI", PLACES, 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(by_distance), cmocka_unit_test(merge_by_name),
                                     cmocka_unit_test(where_it_fails), cmocka_unit_test(without_places),
                                     cmocka_unit_test(made_anew)};
  return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
