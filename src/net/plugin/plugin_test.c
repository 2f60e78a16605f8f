// plugin_test.c: plugins of every version as networks of ours; those that cannot be used. With the libraries of
// tests/plugins/.
#define _GNU_SOURCE // memfd_create
#include "net/plugin/plugin_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/result.h"
#include "base/test_log.h"
#include "base/util.h"

static int plug_group_start(void **state)
{
  (void)state;
  setenv("NCCL_NET_MERGE_LEVEL", "LOC", 1); // see merge_test.c
  test_log_begin("INIT,NET");
  return 0;
}

static const char *plug_plugin_file(const char *name)
{
  static char path[4096];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/tests/plugins/lib%s.so", build != NULL ? build : "build", name);
  return path;
}

static bool plug_any_name(void *arg, const char *name)
{
  return arg == NULL || strcmp(arg, name) == 0;
}

static const tt_net_env env = {.rank = 1, .nranks = 3, .comm_hash = 0xabc, .traffic_class = 5};

static const tt_net_ops *plug_open_it(const char *name)
{
  const tt_net_ops *net = NULL;
  assert_int_equal(tt_net_plugin_open(plug_plugin_file(name), &env, plug_any_name, NULL, &net), ncclSuccess);
  return net;
}

// ---- two ends

enum { SIZE = 100000 };

typedef struct pair {
  const tt_net_ops *net;
  void *ctx, *send, *recv, *send_mr, *recv_mr;
  char out[SIZE], in[SIZE];
} pair;

static pair *plug_pair_open(const char *name)
{
  _Alignas(16) char handle[TT_NET_HANDLE];
  pair *p = calloc(1, sizeof *p);
  void *listener = NULL;
  assert_non_null(p);
  p->net = plug_open_it(name);
  assert_non_null(p->net);
  tt_net_env e = env;
  e.net = p->net;
  assert_int_equal(p->net->init(&e, &p->ctx), ncclSuccess);
  tt_net_close(p->net); // the context keeps it
  assert_int_equal(p->net->listen(p->ctx, 1, handle, &listener), ncclSuccess);
  for (int i = 0; (p->send == NULL || p->recv == NULL) && i < 1000000; i++) {
    if (p->send == NULL) {
      assert_int_equal(p->net->connect(p->ctx, 0, handle, &p->send), ncclSuccess);
    }
    if (p->recv == NULL) {
      assert_int_equal(p->net->accept(listener, &p->recv), ncclSuccess);
    }
  }
  assert_non_null(p->send);
  assert_non_null(p->recv);
  assert_int_equal(p->net->close_listen(listener), ncclSuccess);
  assert_int_equal(p->net->reg_mr(p->send, p->out, SIZE, TT_NET_PTR_HOST, &p->send_mr), ncclSuccess);
  assert_int_equal(p->net->reg_mr(p->recv, p->in, SIZE, TT_NET_PTR_HOST, &p->recv_mr), ncclSuccess);
  for (int i = 0; i < SIZE; i++) {
    p->out[i] = (char)(i * 7 + i / 251);
  }
  return p;
}

static void plug_pair_close(pair *p)
{
  p->net->dereg_mr(p->send, p->send_mr);
  p->net->dereg_mr(p->recv, p->recv_mr);
  p->net->close_send(p->send);
  p->net->close_recv(p->recv);
  p->net->finalize(p->ctx);
  free(p);
}

static void *sent(const pair *p, const char *data, size_t size, int tag)
{
  void *r = NULL;
  for (int i = 0; r == NULL && i < 100; i++) {
    assert_int_equal(p->net->isend(p->send, (void *)(uintptr_t)data, size, tag, p->send_mr, NULL, &r), ncclSuccess);
  }
  assert_non_null(r);
  return r;
}

static void *posted(const pair *p, int n, void **data, const size_t *sizes, const int *tags)
{
  void *r = NULL, *mrs[8];
  for (int i = 0; i < n; i++) {
    mrs[i] = p->recv_mr;
  }
  for (int i = 0; r == NULL && i < 100; i++) {
    assert_int_equal(p->net->irecv(p->recv, n, data, sizes, tags, mrs, NULL, &r), ncclSuccess);
  }
  assert_non_null(r);
  return r;
}

// Until all are done; a NULL request is.
static void plug_finish(const pair *p, void **requests, int n, size_t *sizes)
{
  for (int left = n, tries = 0; left > 0; tries++) {
    assert_true(tries < 10000000);
    for (int i = 0; i < n; i++) {
      int done = 0;
      if (requests[i] != NULL) {
        assert_int_equal(p->net->test(requests[i], &done, i == 0 ? sizes : NULL), ncclSuccess);
        requests[i] = done ? NULL : requests[i];
        left -= done;
      }
    }
  }
}

static void plug_one_message(pair *p)
{
  void *to = p->in;
  size_t got = 0, room = SIZE;
  int tag = 3;
  void *r[2] = {posted(p, 1, &to, &room, &tag), sent(p, p->out, 77777, 3)};
  plug_finish(p, r, 2, &got);
  assert_int_equal(got, 77777);
  assert_memory_equal(p->in, p->out, 77777);
}

// Three messages for one receive, told apart by their tags.
static void a_group(pair *p)
{
  void *to[3] = {p->in, p->in + 1000, p->in + 2000};
  size_t rooms[3] = {1000, 1000, 1000}, got[3] = {0};
  int tags[3] = {1, 2, 3};
  void *r[4] = {posted(p, 3, to, rooms, tags), sent(p, p->out, 10, 3), sent(p, p->out + 10, 20, 1),
                sent(p, p->out + 30, 0, 2)};
  plug_finish(p, r, 4, got);
  assert_int_equal(got[0], 20);
  assert_int_equal(got[1], 0);
  assert_int_equal(got[2], 10);
  assert_memory_equal(p->in, p->out + 10, 20);
  assert_memory_equal(p->in + 2000, p->out, 10);
  void *none = NULL, *many[9] = {0};
  assert_int_equal(p->net->irecv(p->recv, 9, many, (size_t[9]){0}, (int[9]){0}, many, NULL, &none), ncclInvalidUsage);
}

// No more requests than the version has room for, then "not now".
static void as_many_as_there_is_room_for(pair *p, int version)
{
  int most = version <= 7 ? 8 : 32, n = 0;
  void *r[64] = {NULL}, *to = p->in, *one;
  size_t room = 64;
  int tag = 0;
  for (int tries = 0; tries < 200 && n < 64; tries++) {
    assert_int_equal(p->net->irecv(p->recv, 1, &to, &room, &tag, &p->recv_mr, NULL, &r[n]), ncclSuccess);
    n += r[n] != NULL;
  }
  assert_int_equal(n, most);
  for (int i = 0; i < most; i++) {
    one = sent(p, p->out, 8, 0);
    void *both[2] = {r[i], one};
    plug_finish(p, both, 2, NULL);
  }
}

static void every_version_carries_messages(void **state)
{
  (void)state;
  for (int v = 6; v <= 12; v++) {
    char name[32];
    snprintf(name, sizeof name, "net_v%d", v);
    pair *p = plug_pair_open(name);
    assert_string_equal(p->net->name, "TestTcp");
    int ndevs = 0;
    tt_net_props props;
    assert_int_equal(p->net->devices(p->ctx, &ndevs), ncclSuccess);
    assert_int_equal(ndevs, 2);
    assert_int_equal(p->net->get_properties(p->ctx, 2, &props), ncclInvalidUsage);
    assert_int_equal(p->net->get_properties(p->ctx, 1, &props), ncclSuccess);
    assert_string_equal(props.name, "tcp1");
    assert_int_equal(props.speed, 25000);
    assert_int_equal(props.guid, 101);
    assert_int_equal(props.rail, v >= 12 ? 1 : -1);
    assert_int_equal(props.max_recvs, 8);
    plug_one_message(p);
    a_group(p);
    as_many_as_there_is_room_for(p, v);
    void *none = NULL;
    assert_int_equal(p->net->isend(p->send, p->out, ((size_t)1 << 41) + 8, 0, p->send_mr, NULL, &none),
                     ncclInvalidUsage);
    assert_int_equal(p->net->isend(p->send, p->out, ((size_t)1 << 32) + 8, 0, p->send_mr, NULL, &none),
                     ncclInvalidUsage);
    assert_null(none);
    plug_one_message(p); // it was refused before the plugin heard of it
    plug_pair_close(p);
    const char *text = said();
    assert_null(strstr(text, "caller is wrong"));
    assert_null(strstr(text, "LEAK"));
    assert_true((strstr(text, "communicator abc traffic class 5") != NULL) == (v >= 11));
    assert_true((strstr(text, "a connection of traffic class 5") != NULL) == (v == 10));
  }
}

// Memory with a descriptor, from some offset on.
static void memory_with_a_descriptor(void **state)
{
  (void)state;
  enum { SKIP = 8192, BYTES = 3 * SKIP };
  setenv("TEST_NET_DMABUF", "1", 1);
  for (int v = 6; v <= 12; v++) {
    char name[32];
    snprintf(name, sizeof name, "net_v%d", v);
    pair *p = plug_pair_open(name);
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    char *all = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(all != MAP_FAILED);
    memcpy(all, p->out, BYTES);
    tt_net_dmabuf m = {.data = all + SKIP, .size = BYTES - SKIP, .offset = SKIP, .fd = fd};
    void *mr = NULL, *r[2] = {NULL}, *to = p->in;
    size_t room = SIZE, got = 0;
    int tag = 1;
    assert_int_equal(p->net->reg_mr_dmabuf(p->send, &m, TT_NET_PTR_CUDA, &mr), ncclSuccess);
    r[0] = posted(p, 1, &to, &room, &tag);
    for (int i = 0; r[1] == NULL && i < 100; i++) {
      assert_int_equal(p->net->isend(p->send, m.data, m.size, tag, mr, NULL, &r[1]), ncclSuccess);
    }
    plug_finish(p, r, 2, &got);
    assert_int_equal(got, m.size);
    assert_memory_equal(p->in, p->out + SKIP, m.size);
    assert_int_equal(p->net->dereg_mr(p->send, mr), ncclSuccess);
    assert_null(strstr(said(), "caller is wrong"));
    m.offset = 0; // other memory
    assert_int_not_equal(p->net->reg_mr_dmabuf(p->send, &m, TT_NET_PTR_CUDA, &mr), ncclSuccess);
    assert_non_null(strstr(tt_last_error(), "regMrDmaBuf failed with code 3"));
    assert_non_null(strstr(said(), "a dma-buf of other memory"));
    m = (tt_net_dmabuf){.data = all, .size = BYTES, .fd = 1 << 20}; // no descriptor at all
    assert_int_equal(p->net->reg_mr_dmabuf(p->send, &m, TT_NET_PTR_CUDA, &mr), ncclSystemError);
    plug_one_message(p); // the connection goes on
    munmap(all, BYTES);
    close(fd);
    plug_pair_close(p);
    assert_null(strstr(said(), "LEAK"));
  }
  unsetenv("TEST_NET_DMABUF");
}

static int plug_count(const char *text, const char *what)
{
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)) != NULL; at++) {
    n++;
  }
  return n;
}

static void before_version_11_there_is_one_init(void **state)
{
  (void)state;
  for (int v = 10; v <= 11; v++) {
    const tt_net_ops *a = plug_open_it(v == 10 ? "net_v10" : "net_v11"),
                     *b = plug_open_it(v == 10 ? "net_v10" : "net_v11");
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    const char *text = said();
    assert_int_equal(plug_count(text, "test plugin: init"), v == 10 ? 1 : 2);
    assert_int_equal(plug_count(text, "NET/Plugin: loaded"), 1);
    tt_net_close(a);
    tt_net_close(b);
    tt_net_close(NULL);
    tt_net_close(plug_open_it(v == 10 ? "net_v10" : "net_v11")); // one that cannot be finalized has stayed
    text = said();
    assert_int_equal(plug_count(text, "test plugin: init"), v == 10 ? 0 : 1);
    assert_int_equal(plug_count(text, "NET/Plugin: loaded"), v == 10 ? 0 : 1);
  }
}

static void virtual_devices(void **state)
{
  (void)state;
  for (int v = 8; v <= 12; v++) {
    char name[32], why[256];
    int dev = -1;
    tt_pnet_library *lib = NULL;
    snprintf(name, sizeof name, "net_v%d", v);
    pair *p = plug_pair_open(name);
    tt_pnet_lock();
    assert_int_equal(tt_pnet_library_open(plug_plugin_file(name), &lib), ncclSuccess); // the pair's
    assert_true(lib->v->has(lib->table, TT_PNET_CAN_MERGE) == (v >= 9));
    if (v >= 9) {
      assert_true(tt_pnet_make_virtual(lib, (int[]){0, 1}, 2, &dev, why, sizeof why));
      assert_int_equal(dev, 2);
      assert_int_equal(lib->ndevs, 3);
      assert_string_equal(lib->devs[2]->name, "tcp0+tcp1");
      assert_int_equal(lib->devs[2]->nparts, 2);
      assert_string_equal(lib->devs[2]->parts[1]->name, "tcp1");
      assert_false(tt_pnet_make_virtual(lib, (int[9]){0}, 9, &dev, why, sizeof why));
    }
    tt_pnet_library_close(lib);
    tt_pnet_unlock();
    plug_pair_close(p);
  }
  said();
}

static void flushes_where_the_plugin_wants_them(void **state)
{
  (void)state;
  setenv("TEST_NET_FLUSH", "1", 1);
  pair *p = plug_pair_open("net_v11");
  tt_net_props props;
  void *r = NULL, *to = p->in;
  int done = 0, size = 8;
  assert_int_equal(p->net->get_properties(p->ctx, 0, &props), ncclSuccess);
  assert_true(props.force_flush);
  assert_int_equal(p->net->iflush(p->recv, 1, &to, &size, &p->recv_mr, &r), ncclSuccess);
  assert_non_null(r);
  plug_finish(p, &r, 1, NULL);
  assert_int_equal(p->net->iflush(p->recv, 9, &to, &size, &p->recv_mr, &r), ncclInternalError);
  (void)done;
  plug_pair_close(p);
  unsetenv("TEST_NET_FLUSH");
  assert_null(strstr(said(), "caller is wrong"));
}

// ---- what goes wrong

static void errors_have_names(void **state)
{
  (void)state;
  setenv("TEST_NET_FAIL", "isend:2:3", 1);
  pair *p = plug_pair_open("net_faulty");
  void *r = NULL;
  p->net->isend(p->send, p->out, 1, 0, p->send_mr, NULL, &r);
  assert_int_equal(p->net->isend(p->send, p->out, 1, 0, p->send_mr, NULL, &r), ncclInternalError);
  assert_non_null(strstr(tt_last_error(), "rank 1: network plugin TestFaulty ("));
  assert_non_null(strstr(tt_last_error(), "libnet_faulty.so, version 12): isend failed with code 3 (internal error"));
  setenv("TEST_NET_FAIL", "none", 1);
  assert_int_equal(p->net->isend(p->send, p->out, 1, 0, p->send_mr, NULL, &r), ncclInternalError); // it stays so
  plug_pair_close(p);
  setenv("TEST_NET_FAIL", "listen:1:99", 1); // no code at all
  const tt_net_ops *net = plug_open_it("net_faulty");
  void *ctx, *listener = NULL;
  char handle[TT_NET_HANDLE];
  tt_net_env e = env;
  e.net = net;
  net->init(&e, &ctx);
  assert_int_equal(net->listen(ctx, 0, handle, &listener), ncclInternalError);
  assert_non_null(strstr(tt_last_error(), "listen failed with code 99"));
  net->finalize(ctx);
  tt_net_close(net);
  unsetenv("TEST_NET_FAIL");
  assert_null(strstr(said(), "LEAK"));
}

static void sizes_that_cannot_be_are_errors(void **state)
{
  (void)state;
  setenv("TEST_NET_LIE", "1", 1);
  pair *p = plug_pair_open("net_faulty");
  void *to = p->in;
  size_t room = 100, got = 0;
  int tag = 0, done = 0;
  void *r = posted(p, 1, &to, &room, &tag), *s = sent(p, p->out, 100, 0);
  plug_finish(p, &s, 1, NULL);
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < 1000000 && res == ncclSuccess; i++) {
    res = p->net->test(r, &done, &got);
  }
  assert_int_equal(res, ncclInternalError);
  assert_non_null(strstr(tt_last_error(), "test reports 101 bytes received into a buffer of 100"));
  plug_pair_close(p);
  unsetenv("TEST_NET_LIE");
  said();
}

static void bad_ones_are_refused_with_the_reason(void **state)
{
  (void)state;
  static const char *const rows[][2] = {{"init", "init fails with code 2"},
                                        {"code", "init fails with code 77"},
                                        {"devices", "devices gives 2 with code 3"},
                                        {"none", "devices gives 0 with code 0; 1 to 256 can be used"},
                                        {"negative", "devices gives -1"},
                                        {"many", "devices gives 1073741824"},
                                        {"properties", "getProperties fails; its code (device 1: 2)"},
                                        {"gpu", "netDeviceType is not NCCL_NET_DEVICE_HOST (device 0: 1)"},
                                        {"memory", "ptrSupport lacks NCCL_PTR_HOST (device 0: 2)"}};
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    setenv("TEST_NET_BAD", rows[i][0], 1);
    assert_null(plug_open_it("net_bad"));
    const char *text = said();
    assert_non_null(strstr(text, rows[i][1]));
    assert_non_null(strstr(text, "is not used: "));
    assert_null(strstr(text, "LEAK"));
  }
  assert_null(plug_open_it("net_hollow"));
  assert_non_null(strstr(said(), "its table of version 8 lacks: getProperties listen connect accept regMr deregMr test "
                                 "closeSend closeRecv closeListen"));
  assert_null(plug_open_it("two_kinds"));
  assert_non_null(strstr(said(), "no NET plugin of versions 6 to 12; it has NET version 5"));
  const tt_net_ops *net = NULL;
  assert_int_equal(tt_net_plugin_open("/etc/passwd", &env, plug_any_name, NULL, &net), ncclSuccess);
  assert_null(net);
  assert_non_null(strstr(said(), "is there but cannot be loaded"));
  assert_int_equal(
      tt_net_plugin_open(plug_plugin_file("net_v6"), &env, plug_any_name, (void *)(uintptr_t) "Other", &net),
      ncclSuccess);
  assert_null(net);
  said();
}

static void init_may_fill_the_table(void **state)
{
  static const char *const plugins[] = {"net_late", "net_late_v10"};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(plugins); i++) {
    const tt_net_ops *net = NULL; // its name is what init makes it
    assert_int_equal(
        tt_net_plugin_open(plug_plugin_file(plugins[i]), &env, plug_any_name, (void *)(uintptr_t) "TestLate", &net),
        ncclSuccess);
    assert_null(net);
    assert_int_equal(
        tt_net_plugin_open(plug_plugin_file(plugins[i]), &env, plug_any_name, (void *)(uintptr_t) "TestChosen", &net),
        ncclSuccess);
    assert_non_null(net);
    assert_string_equal(net->name, "TestChosen");
    tt_net_close(net);
    pair *p = plug_pair_open(plugins[i]);
    plug_one_message(p);
    plug_pair_close(p);
    assert_null(strstr(said(), "LEAK"));
  }
}

static int plug_count_of(const char *text, const char *what)
{
  int n = 0;
  for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what)) {
    n++;
  }
  return n;
}

#define DEMAND(cond)                                             \
  do {                                                           \
    if (!(cond)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
      _exit(1);                                                  \
    }                                                            \
  } while (0)

// In a child: a plugin that was of no use stays so. It is initialised once, however often it is asked for; all are told
// why; and finalized where it can be.
static void hollow_once(const char *plugin, const char *how)
{
  bool finalizes = strcmp(how, "finalize") == 0;
  setenv("TEST_NET_LATE", how, 1);
  for (int i = 0; i < 3; i++) {
    const tt_net_ops *net = NULL;
    DEMAND(tt_net_plugin_open(plug_plugin_file(plugin), &env, plug_any_name, NULL, &net) == ncclSuccess && net == NULL);
    const char *text = said();
    DEMAND(strstr(text, "lacks: devices getProperties listen") != NULL);
    DEMAND(plug_count_of(text, "tcp test plugin: init number") == (i == 0));
    DEMAND(plug_count_of(text, "finalize of a table that is not full") == (finalizes && i == 0));
  }
  _exit(0);
}

// In a child: a plugin without finalize is one library under all its spellings, and is initialised once.
static void spelled_twice(const char *plugin)
{
  const char *path = plug_plugin_file(plugin), *file = strrchr(path, '/');
  char other[4200];
  const tt_net_ops *nets[2] = {NULL, NULL};
  snprintf(other, sizeof other, "%.*s/.%s", (int)(file - path), path, file);
  DEMAND(tt_net_plugin_open(path, &env, plug_any_name, NULL, &nets[0]) == ncclSuccess && nets[0] != NULL);
  DEMAND(plug_count_of(said(), "tcp test plugin: init number") == 1);
  DEMAND(tt_net_plugin_open(other, &env, plug_any_name, NULL, &nets[1]) == ncclSuccess && nets[1] != NULL);
  const char *text = said();
  DEMAND(plug_count_of(text, "tcp test plugin: init number") == 0);
  DEMAND(strstr(text, "is open already under another name") != NULL);
  DEMAND(tt_pnet_library_of(nets[0]) == tt_pnet_library_of(nets[1])); // so its collective network's mark is one, too
  tt_net_close(nets[0]);
  tt_net_close(nets[1]);
  _exit(0);
}

static void two_spellings_are_one_library(void **state)
{
  static const char *const rows[] = {"net_v6", "net_v10"};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
      spelled_twice(rows[i]);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    said();
  }
}

static void init_may_fill_nothing(void **state)
{
  static const char *const rows[][2] = {{"net_late", "hollow"}, {"net_late", "finalize"}, {"net_late_v10", "hollow"}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
      hollow_once(rows[i][0], rows[i][1]);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    said();
  }
}

static void what_is_absurd_is_put_right(void **state)
{
  (void)state;
  setenv("TEST_NET_BAD", "absurd", 1);
  const tt_net_ops *net = plug_open_it("net_bad");
  assert_non_null(net);
  void *ctx;
  tt_net_props props;
  tt_net_env e = env;
  e.net = net;
  net->init(&e, &ctx);
  assert_int_equal(net->get_properties(ctx, 0, &props), ncclSuccess);
  assert_string_equal(props.name, "TestBad");
  assert_int_equal(props.speed, 10000);
  assert_int_equal(props.max_comms, 65536);
  assert_int_equal(props.max_recvs, 8);
  assert_true(props.max_bytes > 0);
  assert_null(net->iflush);
  assert_null(net->reg_mr_dmabuf);
  net->finalize(ctx);
  tt_net_close(net);
  const char *text = said();
  assert_non_null(strstr(text, "speed -3, maxComms 0"));
  assert_non_null(
      strstr(text, "has a collective network too, version 12: for communicators with NCCL_COLLNET_ENABLE=1"));
  assert_non_null(strstr(text, "has a GIN plugin too, version 13: recognised, not used here"));
  unsetenv("TEST_NET_BAD");
}

static void plug_opened_and_closed_a_thousand_times(void **state)
{
  (void)state;
  for (int i = 0; i < 500; i++) {
    const tt_net_ops *a = plug_open_it("net_v6"), *b = plug_open_it("net_v12");
    assert_non_null(a);
    assert_non_null(b);
    tt_net_close(i % 2 ? a : b);
    tt_net_close(i % 2 ? b : a);
    if (i % 16 == 0) {
      assert_null(strstr(said(), "LEAK"));
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(before_version_11_there_is_one_init),
      cmocka_unit_test(every_version_carries_messages),
      cmocka_unit_test(memory_with_a_descriptor),
      cmocka_unit_test(virtual_devices),
      cmocka_unit_test(flushes_where_the_plugin_wants_them),
      cmocka_unit_test(errors_have_names),
      cmocka_unit_test(sizes_that_cannot_be_are_errors),
      cmocka_unit_test(bad_ones_are_refused_with_the_reason),
      cmocka_unit_test(two_spellings_are_one_library),
      cmocka_unit_test(init_may_fill_nothing),
      cmocka_unit_test(init_may_fill_the_table),
      cmocka_unit_test(what_is_absurd_is_put_right),
      cmocka_unit_test(plug_opened_and_closed_a_thousand_times),
  };
  return cmocka_run_group_tests(tests, plug_group_start, test_log_end);
}
