// collnet.c: networks that reduce, out of plugins' libraries. See net/collnet.h, and collnet_priv.h for the versions.
//
// Ownership: a tt_collnet (one rank of one communicator) has a context of the plugin's and a share of its library;
// connections, listeners and attempts to connect hold it. Versions without finalize are initialised once per process
// and stay open, as networks are (library.c), under the same lock.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/opcode.h"
#include "base/result.h"
#include "base/util.h"
#include "nccl/net.h"
#include "net/plugin/collnet_priv.h"
#include "net/plugin/plugin_priv.h"
#include "os/clock.h"
#include "os/thread.h"

enum { DEVICES = 256, LOOK_NS = 1000000 };

struct tt_collnet {
  _Atomic int refs;
  tt_plugin *plugin;
  const tt_cnet_version *v;
  const void *table;
  void *ctx; // the plugin's
  int rank;
  uint64_t support;
  int ndevs; // those that can be used
  int number[DEVICES];
  tt_cnet_device devs[DEVICES];
  char name[TT_PNET_NAME];
};

typedef struct request {
  bool used, flushing;
  void *real;
} request;

struct tt_collnet_comm {
  tt_collnet *net;
  void *real;
  const tt_cnet_device *dev;
  ncclResult_t failed; // ncclSuccess: it has not
  request requests[TT_COLLNET_REQUESTS];
};

const tt_cnet_version *tt_cnet_version_of(int version)
{
  static const tt_cnet_version *const all[] = {&tt_cnet_v6,  &tt_cnet_v7,  &tt_cnet_v8, &tt_cnet_v9,
                                               &tt_cnet_v10, &tt_cnet_v11, &tt_cnet_v12};
  return version >= 6 && version < 6 + (int)TT_COUNT(all) ? all[version - 6] : NULL;
}

static ncclResult_t fail_collnet(const tt_collnet *c, const char *function, ncclResult_t code)
{
  char text[TT_PNET_FAILURE];
  return tt_fail(tt_pnet_code(code), "rank %d: collective network plugin %s", c->rank,
                 tt_pnet_failure(text, c->name, c->plugin, function, code));
}

// A failure before the first reduction: all ranks do without the network then. It is no error of the communicator, and
// the last error stays.
static ncclResult_t decline(const tt_collnet *c, const char *function, ncclResult_t code)
{
  char text[TT_PNET_FAILURE];
  tt_info(TT_INIT | TT_NET, "COLLNET/Plugin: rank %d: not used: %s", c->rank,
          tt_pnet_failure(text, c->name, c->plugin, function, code));
  return tt_pnet_code(code);
}

static bool refuse_collnet(const tt_collnet *c, const char *what, long long value)
{
  tt_info(TT_INIT | TT_NET, "COLLNET/Plugin: %s (%s) is not used: %s (%lld)", c->name, tt_plugin_path(c->plugin), what,
          value);
  return false;
}

// ---- opening

static bool find_collnet_devices(tt_collnet *c)
{
  int n = 0;
  ncclResult_t res = c->v->devices(c->table, &n);
  if (res != ncclSuccess || n < 1) {
    return refuse_collnet(c, "devices gives none, or fails; number or code", res != ncclSuccess ? (long long)res : n);
  }
  for (int i = 0; i < TT_MIN(n, (int)DEVICES); i++) {
    tt_cnet_device d;
    res = c->v->properties(c->table, i, &d);
    if (res != ncclSuccess) {
      return refuse_collnet(c, "getProperties fails; its code", res);
    }
    if (d.host_memory && !d.made) {
      d.max_bytes = d.max_bytes == 0 ? MAX_COLLNET_SIZE : TT_MIN(d.max_bytes, (size_t)MAX_COLLNET_SIZE);
      c->number[c->ndevs] = i;
      c->devs[c->ndevs++] = d;
    }
  }
  return c->ndevs > 0 || refuse_collnet(c, "no physical device takes host memory; devices", n);
}

static bool query_support(tt_collnet *c)
{
  for (int type = 0; type < ncclNumTypes; type++) {
    for (int op = 0; op < TT_COLLNET_OPS; op++) {
      int supported = 0;
      ncclResult_t res = c->v->support(c->table, type, op, &supported); // an error: it does not know the type
      c->support |= res == ncclSuccess && supported ? 1ull << (type * TT_COLLNET_OPS + op) : 0;
    }
  }
  return c->support != 0 || refuse_collnet(c, "it reduces nothing; types", ncclNumTypes);
}
_Static_assert(ncclNumTypes *TT_COLLNET_OPS <= 64, "a bit each");

// The lock of library.c held. A version without finalize is initialised once; then its library stays open.
static bool init_collnet(tt_collnet *c, tt_pnet_library *lib, uint64_t comm_hash)
{
  if (c->v->own_context || !lib->reduces) {
    ncclResult_t res = c->v->init(c->table, comm_hash, &c->ctx);
    if (res != ncclSuccess) {
      return refuse_collnet(c, "init fails; its code", res);
    }
    lib->reduces = !c->v->own_context;
  }
  if (find_collnet_devices(c) && query_support(c)) {
    return true;
  }
  if (c->v->finalize != NULL) {
    tt_pnet_mention(TT_PLUGIN_COLLNET, c->name, "finalize", c->v->finalize(c->table, c->ctx));
  }
  return false;
}

static ncclResult_t new_collnet(tt_pnet_library *lib, tt_plugin *plugin, const tt_net_env *env, tt_collnet **out)
{
  const tt_cnet_version *v = tt_cnet_version_of(tt_plugin_version(plugin));
  tt_collnet *c = NULL;
  ncclResult_t res = ncclSuccess;
  if (!tt_plugin_complete(TT_PLUGIN_COLLNET, plugin, v->needs, v->nneeds)) {
    goto fail;
  }
  c = tt_calloc(1, sizeof *c);
  if (c == NULL) {
    res = tt_fail(ncclSystemError, "rank %d: no memory for a collective network", env->rank);
    goto fail;
  }
  *c = (tt_collnet){.plugin = plugin, .v = v, .table = tt_plugin_table(plugin), .rank = env->rank};
  atomic_store(&c->refs, 1);
  snprintf(c->name, sizeof c->name, "%s", v->name(c->table));
  tt_pnet_lock();
  bool usable = init_collnet(c, lib, env->comm_hash);
  tt_pnet_unlock();
  if (!usable) {
    goto fail;
  }
  *out = c;
  return ncclSuccess;
fail:
  tt_plugin_close(plugin);
  tt_free(c);
  return res;
}

ncclResult_t tt_collnet_open(const tt_net_ops *net, const tt_net_env *env, tt_collnet **out)
{
  tt_pnet_library *lib = tt_pnet_library_of(net);
  tt_plugin *plugin = NULL;
  *out = NULL;
  if (lib == NULL) {
    tt_info(TT_INIT | TT_NET, "COLLNET: network %s cannot reduce: it is no plugin's", net->name);
    return ncclSuccess;
  }
  TT_TRY(tt_plugin_also(lib->plugin, TT_PLUGIN_COLLNET, &plugin));
  if (plugin == NULL) {
    tt_info(TT_INIT | TT_NET, "COLLNET/Plugin: %s has no collective network (ncclCollNetPlugin_v6 to _v12)",
            tt_plugin_path(lib->plugin));
    return ncclSuccess;
  }
  return new_collnet(lib, plugin, env, out);
}

static void hold_collnet(tt_collnet *c)
{
  atomic_fetch_add(&c->refs, 1);
}

void tt_collnet_close(tt_collnet *c)
{
  if (c == NULL || atomic_fetch_sub(&c->refs, 1) != 1) {
    return;
  }
  if (c->v->finalize != NULL) {
    tt_pnet_lock();
    tt_pnet_mention(TT_PLUGIN_COLLNET, c->name, "finalize", c->v->finalize(c->table, c->ctx));
    tt_pnet_unlock();
  }
  tt_plugin_close(c->plugin);
  tt_free(c);
}

const char *tt_collnet_name(const tt_collnet *c)
{
  return c->name;
}

int tt_collnet_devices(const tt_collnet *c)
{
  return c->ndevs;
}

uint64_t tt_collnet_support(const tt_collnet *c)
{
  return c->support;
}

int tt_collnet_op(int code)
{
  if (code > TT_OP_SCALED) {
    return -1;
  }
  return code < TT_COLLNET_OPS ? code : ncclSum;
}

// ---- the group

ncclResult_t tt_collnet_listen(tt_collnet *c, int dev, void *handle, void **listener)
{
  _Alignas(16) char notes[TT_NET_HANDLE] = {0};
  void *l = NULL;
  ncclResult_t res = c->v->listen(c->table, c->ctx, c->number[dev % c->ndevs], notes, &l);
  if (res != ncclSuccess || l == NULL) {
    return decline(c, "listen", res != ncclSuccess ? res : ncclInternalError);
  }
  memcpy(handle, notes, sizeof notes);
  *listener = l;
  return ncclSuccess;
}

void tt_collnet_close_listen(tt_collnet *c, void *listener)
{
  if (listener != NULL) {
    tt_pnet_mention(TT_PLUGIN_COLLNET, c->name, "closeListen", c->v->close_listen(c->table, listener));
  }
}

// An attempt to connect, shared by the thread that calls the plugin and the thread that waits for it.
typedef struct attempt {
  pthread_mutex_t lock;
  bool done, left; // the plugin has answered; the waiting thread has left
  ncclResult_t res;
  void *real;
  tt_collnet *net;
  int rank, nranks;
  void *listener;
  char *handles;
  void *handle[]; // nranks, each in handles
} attempt;

static void attempt_free(attempt *a)
{
  tt_collnet_close(a->net);
  pthread_mutex_destroy(&a->lock);
  tt_free(a->handles);
  tt_free(a);
}

static attempt *attempt_new(tt_collnet *c, const tt_collnet_group *g)
{
  size_t n = (size_t)g->nranks;
  attempt *a = tt_calloc(1, sizeof *a + n * sizeof a->handle[0]);
  char *handles = tt_calloc_line(n * TT_NET_HANDLE);
  if (a == NULL || handles == NULL) {
    tt_free(a);
    tt_free(handles);
    return NULL;
  }
  memcpy(handles, g->handles, n * TT_NET_HANDLE);
  for (size_t i = 0; i < n; i++) {
    a->handle[i] = handles + i * TT_NET_HANDLE;
  }
  a->handles = handles;
  pthread_mutex_init(&a->lock, NULL);
  a->net = c;
  a->rank = g->rank;
  a->nranks = g->nranks;
  a->listener = g->listener;
  hold_collnet(c);
  return a;
}

static void *attempt_main(void *arg)
{
  attempt *a = arg;
  tt_collnet *c = a->net;
  void *real = NULL;
  ncclResult_t res = c->v->connect(c->table, a->handle, a->nranks, a->rank, a->listener, &real);
  if (res == ncclSuccess) { // after a failure it is the plugin's, as with NCCL
    tt_collnet_close_listen(c, a->listener);
  }
  pthread_mutex_lock(&a->lock);
  a->done = true;
  a->res = res;
  a->real = real;
  bool left = a->left;
  pthread_mutex_unlock(&a->lock);
  if (left) {
    if (res == ncclSuccess && real != NULL) {
      tt_pnet_mention(TT_PLUGIN_COLLNET, c->name, "closeColl", c->v->close(c->table, real));
    }
    attempt_free(a);
  }
  return NULL;
}

// Is it done? If not, and `leave` is set, it is its thread's from now on.
static bool is_attempt_done(attempt *a, bool leave)
{
  pthread_mutex_lock(&a->lock);
  bool done = a->done;
  a->left = leave && !done;
  pthread_mutex_unlock(&a->lock);
  return done;
}

// Makes a connection of the plugin's.
static ncclResult_t take_connection(attempt *a, int dev, tt_collnet_comm **out)
{
  tt_collnet *c = a->net;
  if (a->res != ncclSuccess) {
    return decline(c, "connect", a->res);
  }
  if (a->real == NULL) {
    return decline(c, "connect, which gives no connection,", ncclInternalError);
  }
  tt_collnet_comm *comm = tt_calloc(1, sizeof *comm);
  if (comm == NULL) {
    tt_pnet_mention(TT_PLUGIN_COLLNET, c->name, "closeColl", c->v->close(c->table, a->real));
    return tt_fail(ncclSystemError, "rank %d: no memory for a connection with collective network %s", c->rank, c->name);
  }
  *comm = (tt_collnet_comm){.net = c, .real = a->real, .dev = &c->devs[dev % c->ndevs]};
  hold_collnet(c);
  *out = comm;
  return ncclSuccess;
}

ncclResult_t tt_collnet_connect(tt_collnet *c, const tt_collnet_group *g, uint64_t timeout_ns,
                                bool (*hopeless)(void *arg), void *arg, tt_collnet_comm **out)
{
  attempt *a = attempt_new(c, g);
  ncclResult_t res = a == NULL
                         ? tt_fail(ncclSystemError, "rank %d: no memory to connect %d ranks over collective network %s",
                                   c->rank, g->nranks, c->name)
                         : tt_thread_start_detached("tutti collnet", attempt_main, a);
  if (res != ncclSuccess) {
    tt_collnet_close_listen(c, g->listener);
    if (a != NULL) {
      attempt_free(a);
    }
    return res;
  }
  uint64_t end = tt_now_ns() + timeout_ns;
  bool lost = false;
  while (!is_attempt_done(a, false) && !lost && tt_now_ns() < end) {
    tt_sleep_ns(LOOK_NS);
    lost = hopeless(arg);
  }
  if (!is_attempt_done(a, true)) {
    if (lost) {
      tt_info(TT_INIT | TT_NET,
              "COLLNET/Plugin: rank %d: given up while collective network %s connects %d ranks: one has gone, or the "
              "communicator is aborted",
              c->rank, c->name, g->nranks);
    } else {
      tt_info(TT_INIT | TT_NET,
              "COLLNET/Plugin: rank %d: collective network %s has not connected %d ranks in %.1f s (NCCL_NET_TIMEOUT); "
              "does connect of the "
              "plugin wait for a rank that has gone?",
              c->rank, c->name, g->nranks, (double)timeout_ns / TT_NS_PER_S);
    }
    return ncclRemoteError;
  }
  res = take_connection(a, g->dev, out);
  attempt_free(a);
  return res;
}

void tt_collnet_disconnect(tt_collnet_comm *c)
{
  if (c != NULL) {
    tt_pnet_mention(TT_PLUGIN_COLLNET, c->net->name, "closeColl", c->net->v->close(c->net->table, c->real));
    tt_collnet_close(c->net);
    tt_free(c);
  }
}

// ---- reductions

ncclResult_t tt_collnet_reg(tt_collnet_comm *c, void *data, size_t size, void **mhandle)
{
  ncclResult_t res = c->net->v->reg_mr(c->net->table, c->real, data, size, mhandle);
  return res == ncclSuccess ? ncclSuccess : decline(c->net, "regMr", res);
}

void tt_collnet_dereg(tt_collnet_comm *c, void *mhandle)
{
  tt_pnet_mention(TT_PLUGIN_COLLNET, c->net->name, "deregMr", c->net->v->dereg_mr(c->net->table, c->real, mhandle));
}

size_t tt_collnet_longest(const tt_collnet_comm *c)
{
  return c->dev->max_bytes;
}

// The plugin's answer on a connection.
static ncclResult_t judge_reduction(tt_collnet_comm *c, const char *function, ncclResult_t res)
{
  if (TT_LIKELY(res == ncclSuccess || res == ncclInProgress)) {
    return ncclSuccess;
  }
  c->failed = tt_pnet_code(res);
  return fail_collnet(c->net, function, res);
}

ncclResult_t tt_collnet_begin(tt_collnet_comm *c, const tt_collnet_sum *s, void **out)
{
  request *r = c->requests;
  *out = NULL;
  while (r < c->requests + TT_COLLNET_REQUESTS && r->used) {
    r++;
  }
  if (r == c->requests + TT_COLLNET_REQUESTS || c->failed != ncclSuccess) {
    return c->failed;
  }
  void *real = NULL;
  TT_TRY(judge_reduction(c, "iallreduce", c->net->v->allreduce(c->net->table, c->real, s, &real)));
  if (real != NULL) {
    *r = (request){.used = true, .real = real};
    *out = r;
  }
  return ncclSuccess;
}

ncclResult_t tt_collnet_test(tt_collnet_comm *c, void *any, const tt_collnet_sum *s, bool *done)
{
  request *r = any;
  const tt_cnet_version *v = c->net->v;
  *done = false;
  if (c->failed != ncclSuccess) {
    return c->failed;
  }
  int over = 0, size = 0;
  TT_TRY(judge_reduction(c, r->flushing ? "test of a flush" : "test", v->test(c->net->table, r->real, &over, &size)));
  if (!over) {
    return ncclSuccess;
  }
  if (c->dev->flush && !r->flushing) {
    size_t bytes = s->count * tt_type_size(s->type);
    r->flushing = true;
    r->real = NULL;
    TT_TRY(judge_reduction(c, "iflush", v->flush(c->net->table, c->real, s->out, bytes, s->out_mr, &r->real)));
    if (r->real != NULL) {
      return ncclSuccess;
    }
  }
  r->used = false;
  *done = true;
  return ncclSuccess;
}
