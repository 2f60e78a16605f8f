// plugin.c: a network plugin as a row of net.h. See plugin_priv.h.
//
// A connection here holds the plugin's and a place for each request, because the plugin's request does not name its
// connection. It counts them too: more than the version allows are "not now". Errors name the plugin, the function and
// the code. A connection that has failed is only closed.
#include <limits.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "nccl/net.h"
#include "net/plugin/plugin_priv.h"
#include "plugin/profiler/profiler.h"

// A network for one rank of one communicator. `refs`: the caller of tt_net_plugin_open, and each open context.
typedef struct tt_pnet {
  tt_net_ops ops;
  _Atomic int refs;
  tt_pnet_library *lib;
  void *ctx; // the plugin's
  tt_pnet_setup setup;
  _Atomic bool hinted;
  int rank;
  char name[TT_PNET_NAME];
} tt_pnet;

typedef struct comm comm;

typedef struct request {
  comm *of;
  void *real;
  int n; // buffers; 0: a send or a flush
  bool flush;
  size_t room[TT_PNET_GROUP];
} request;

// A connection or a listener.
struct comm {
  tt_pnet *net;
  void *real;
  int kind, dev;
  size_t max_bytes;
  uint32_t used;       // bits of requests[]
  ncclResult_t failed; // ncclSuccess: it has not
  const char *where;   // the function that failed
  ncclResult_t code;   // what the plugin gave
  request requests[NCCL_NET_MAX_REQUESTS];
};
_Static_assert(NCCL_NET_MAX_REQUESTS == 32, "a bit each");

enum { LAST_CALLS = 16 };
enum { NOT_WRITTEN = -0x7e57 }; // a size that no plugin reports

static const tt_net_ops operations;

// ---- errors

static ncclResult_t fail_plugin(const tt_pnet *n, const char *function, ncclResult_t code)
{
  char text[TT_PNET_FAILURE];
  return tt_fail(tt_pnet_code(code), "rank %d: network plugin %s", n->rank,
                 tt_pnet_failure(text, n->name, n->lib->plugin, function, code));
}

// The plugin's answer on a connection.
static ncclResult_t judge_answer(comm *c, const char *function, ncclResult_t res)
{
  if (TT_LIKELY(res == ncclSuccess || res == ncclInProgress)) {
    return ncclSuccess;
  }
  c->failed = tt_pnet_code(res);
  c->where = function;
  c->code = res;
  return fail_plugin(c->net, function, res);
}

// A connection that has failed fails again in the same way; the plugin is not called.
static ncclResult_t still_failed(const comm *c)
{
  return fail_plugin(c->net, c->where, c->code);
}

// ---- context

static void drop_network(tt_pnet *n)
{
  if (atomic_fetch_sub(&n->refs, 1) != 1) {
    return;
  }
  tt_pnet_lock();
  tt_pnet_mention(TT_PLUGIN_NET, n->name, "finalize", tt_pnet_library_finalize(n->lib, n->ctx));
  tt_pnet_library_close(n->lib);
  tt_pnet_unlock();
  tt_free(n);
}

static void release_network(const tt_net_ops *net)
{
  drop_network((tt_pnet *)(uintptr_t)net);
}

static ncclResult_t pnet_init(const tt_net_env *env, void **ctx)
{
  tt_pnet *n = (tt_pnet *)(uintptr_t)env->net;
  if (n == NULL) {
    return tt_fail(ncclInternalError, "rank %d: a network plugin is initialised without saying which", env->rank);
  }
  atomic_fetch_add(&n->refs, 1);
  *ctx = n;
  return ncclSuccess;
}

static ncclResult_t pnet_finalize(void *ctx)
{
  if (ctx != NULL) {
    drop_network(ctx);
  }
  return ncclSuccess;
}

static ncclResult_t pnet_devices(void *ctx, int *count)
{
  const tt_pnet *n = ctx;
  *count = atomic_load_explicit(&n->lib->nusable, memory_order_acquire);
  return ncclSuccess;
}

// The plugin's number of a device that counts.
static ncclResult_t find_usable(const tt_pnet *n, int dev, int *real)
{
  int count = atomic_load_explicit(&n->lib->nusable, memory_order_acquire);
  if (dev < 0 || dev >= count) {
    return tt_fail(ncclInvalidUsage, "rank %d: network plugin %s has no device %d, only 0 to %d", n->rank, n->name, dev,
                   count - 1);
  }
  *real = n->lib->usable[dev];
  return ncclSuccess;
}

static ncclResult_t pnet_properties(void *ctx, int dev, tt_net_props *props)
{
  const tt_pnet *n = ctx;
  int real = 0;
  TT_TRY(find_usable(n, dev, &real));
  *props = *n->lib->devs[real];
  return ncclSuccess;
}

// ---- connections

// Hints about the communicator, before its first connection.
static void hint_once(tt_pnet *n)
{
  if (n->lib->v->hint != NULL && !atomic_exchange(&n->hinted, true)) {
    n->lib->v->hint(n->lib->table, n->ctx, &n->setup);
  }
}

static ncclResult_t comm_new(tt_pnet *n, int kind, int dev, comm **out)
{
  comm *c = tt_calloc(1, kind == TT_PNET_LISTEN ? offsetof(comm, requests) : sizeof *c);
  if (c == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for a connection of network plugin %s", n->rank, n->name);
  }
  c->net = n;
  c->kind = kind;
  c->dev = dev;
  c->max_bytes = n->lib->devs[dev]->max_bytes;
  *out = c;
  return ncclSuccess;
}

static ncclResult_t pnet_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
  tt_pnet *n = ctx;
  comm *c = NULL;
  TT_TRY(find_usable(n, dev, &dev));
  hint_once(n);
  TT_TRY(comm_new(n, TT_PNET_LISTEN, dev, &c));
  memset(handle, 0, TT_NET_HANDLE);
  ncclResult_t res = n->lib->v->listen(n->lib->table, n->ctx, dev, handle, &c->real);
  if (res == ncclSuccess && c->real == NULL) {
    tt_free(c);
    return tt_fail(ncclInternalError, "rank %d: network plugin %s: listen on device %d gives no listener", n->rank,
                   n->name, dev);
  }
  if (res != ncclSuccess) {
    tt_free(c);
    return fail_plugin(n, "listen", res);
  }
  *listen_comm = c;
  return ncclSuccess;
}

// The plugin's connection as one of ours, if it is there. Without memory for that it is closed.
static ncclResult_t take_comm(tt_pnet *n, void *real, int kind, int dev, void **out)
{
  comm *c = NULL;
  *out = NULL;
  if (real == NULL) {
    return ncclSuccess;
  }
  ncclResult_t res = comm_new(n, kind, dev, &c);
  if (res != ncclSuccess) {
    n->lib->v->close(n->lib->table, real, kind);
    return res;
  }
  c->real = real;
  *out = c;
  return ncclSuccess;
}

static ncclResult_t pnet_connect(void *ctx, int dev, void *handle, void **send_comm)
{
  tt_pnet *n = ctx;
  void *real = NULL;
  TT_TRY(find_usable(n, dev, &dev));
  hint_once(n);
  ncclResult_t res = n->lib->v->connect(n->lib->table, n->ctx, &n->setup, dev, handle, &real);
  if (res != ncclSuccess && res != ncclInProgress) {
    return fail_plugin(n, "connect", res);
  }
  return take_comm(n, real, TT_PNET_SEND, dev, send_comm);
}

// The table has no function for this. A connection that a few more calls complete is closed; a slower attempt stays
// with the plugin.
static void pnet_cancel(void *ctx, int dev, const void *handle)
{
  tt_pnet *n = ctx;
  _Alignas(16) char notes[TT_NET_HANDLE];
  void *real = NULL;
  ncclResult_t res = find_usable(n, dev, &dev);
  memcpy(notes, handle, sizeof notes);
  for (int i = 0; i < LAST_CALLS && real == NULL && (res == ncclSuccess || res == ncclInProgress); i++) {
    res = n->lib->v->connect(n->lib->table, n->ctx, &n->setup, dev, notes, &real);
  }
  if (real != NULL) {
    n->lib->v->close(n->lib->table, real, TT_PNET_SEND);
  }
}

static ncclResult_t pnet_accept(void *listen_comm, void **recv_comm)
{
  comm *l = listen_comm;
  tt_pnet *n = l->net;
  void *real = NULL;
  ncclResult_t res = n->lib->v->accept(n->lib->table, l->real, &real);
  if (res != ncclSuccess && res != ncclInProgress) {
    return fail_plugin(n, "accept", res);
  }
  return take_comm(n, real, TT_PNET_RECV, l->dev, recv_comm);
}

static ncclResult_t pnet_close(void *any)
{
  static const char *const names[] = {"closeSend", "closeRecv", "closeListen"};
  comm *c = any;
  if (c == NULL) {
    return ncclSuccess;
  }
  tt_pnet *n = c->net;
  tt_pnet_mention(TT_PLUGIN_NET, n->name, names[c->kind], n->lib->v->close(n->lib->table, c->real, c->kind));
  tt_free(c);
  return ncclSuccess;
}

// ---- memory

static ncclResult_t pnet_reg_mr_dmabuf(void *any, const tt_net_dmabuf *memory, int type, void **mhandle)
{
  comm *c = any;
  const tt_pnet *n = c->net;
  void *handle = NULL;
  ncclResult_t res = n->lib->v->reg_mr(n->lib->table, c->real, memory, type, &handle);
  if (res != ncclSuccess) { // the connection goes on: memory of the user's that cannot be registered is copied
    return fail_plugin(n, memory->fd >= 0 ? "regMrDmaBuf" : "regMr", res);
  }
  *mhandle = handle;
  return ncclSuccess;
}

static ncclResult_t pnet_reg_mr(void *any, void *data, size_t size, int type, void **mhandle)
{
  return pnet_reg_mr_dmabuf(any, &(tt_net_dmabuf){.data = data, .size = size, .fd = -1}, type, mhandle);
}

static ncclResult_t pnet_dereg_mr(void *any, void *mhandle)
{
  comm *c = any;
  const tt_pnet *n = c->net;
  tt_pnet_mention(TT_PLUGIN_NET, n->name, "deregMr", n->lib->v->dereg_mr(n->lib->table, c->real, mhandle));
  return ncclSuccess;
}

// ---- messages

// A place for one more request; NULL: as many as the plugin takes are under way.
static request *request_new(comm *c, unsigned most)
{
  if ((unsigned)__builtin_popcount(c->used) >= most) {
    return NULL;
  }
  int i = __builtin_ctz(~c->used);
  request *r = &c->requests[i];
  *r = (request){.of = c};
  c->used |= 1u << i;
  return r;
}

static void request_free(request *r)
{
  r->of->used &= ~(1u << (r - r->of->requests));
}

static ncclResult_t check_message_size(const comm *c, size_t size)
{
  if (TT_UNLIKELY(size > c->max_bytes)) {
    return tt_fail(ncclInvalidUsage,
                   "rank %d: network plugin %s: a message of %zu bytes, of which device %d takes %zu at most",
                   c->net->rank, c->net->name, size, c->dev, c->max_bytes);
  }
  return ncclSuccess;
}

// What a plugin has answered to isend, irecv or iflush: with a request, "not now", or an error.
static ncclResult_t begin_request(request *r, const char *function, ncclResult_t res, void **out)
{
  res = judge_answer(r->of, function, res);
  if (res != ncclSuccess || r->real == NULL) {
    request_free(r);
    return res;
  }
  *out = r;
  return ncclSuccess;
}

static ncclResult_t pnet_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                               void **out)
{
  comm *c = send_comm;
  const tt_pnet_library *lib = c->net->lib;
  *out = NULL;
  if (TT_UNLIKELY(c->failed != ncclSuccess)) {
    return still_failed(c);
  }
  TT_TRY(check_message_size(c, size));
  request *r = request_new(c, lib->v->requests);
  if (r == NULL) {
    return ncclSuccess;
  }
  const tt_pnet_message m = {
      .n = 1, .data = &data, .sizes = &size, .tags = &tag, .mhandles = &mhandle, .phandles = &phandle};
  return begin_request(r, "isend", lib->v->isend(lib->table, c->real, &m, &r->real), out);
}

static ncclResult_t pnet_irecv(void *recv_comm, int n, void **data, const size_t *sizes, const int *tags,
                               void **mhandles, void **phandles, void **out)
{
  comm *c = recv_comm;
  const tt_pnet_library *lib = c->net->lib;
  void *none[TT_PNET_GROUP] = {NULL};
  *out = NULL;
  if (TT_UNLIKELY(c->failed != ncclSuccess)) {
    return still_failed(c);
  }
  if (n < 1 || n > lib->devs[c->dev]->max_recvs) {
    return tt_fail(ncclInvalidUsage, "network plugin %s: a receive takes 1 to %d buffers, not %d", c->net->name,
                   lib->devs[c->dev]->max_recvs, n);
  }
  // A message in two may need two flushes when one of its receives is long done: those must find places.
  request *r = request_new(c, lib->devs[c->dev]->force_flush ? lib->v->requests / 2 : lib->v->requests);
  if (r == NULL) {
    return ncclSuccess;
  }
  r->n = n;
  for (int i = 0; i < n; i++) {
    r->room[i] = sizes[i];
    ncclResult_t res = check_message_size(c, sizes[i]);
    if (res != ncclSuccess) {
      request_free(r);
      return res;
    }
  }
  const tt_pnet_message m = {.n = n,
                             .data = data,
                             .sizes = sizes,
                             .tags = tags,
                             .mhandles = mhandles != NULL ? mhandles : none,
                             .phandles = phandles != NULL ? phandles : none};
  return begin_request(r, "irecv", lib->v->irecv(lib->table, c->real, &m, &r->real), out);
}

static ncclResult_t pnet_iflush(void *recv_comm, int n, void **data, const int *sizes, void **mhandles, void **out)
{
  comm *c = recv_comm;
  const tt_pnet_library *lib = c->net->lib;
  size_t large[TT_PNET_GROUP];
  *out = NULL;
  if (TT_UNLIKELY(c->failed != ncclSuccess)) {
    return still_failed(c);
  }
  if (n < 1 || n > TT_PNET_GROUP) {
    return tt_fail(ncclInternalError, "network plugin %s: a flush takes 1 to %d buffers, not %d", c->net->name,
                   TT_PNET_GROUP, n);
  }
  request *r = request_new(c, lib->v->requests);
  if (r == NULL) {
    return tt_fail(ncclInternalError, "network plugin %s: a flush beside as many requests as it takes", c->net->name);
  }
  for (int i = 0; i < n; i++) {
    large[i] = (size_t)sizes[i];
  }
  r->flush = true;
  const tt_pnet_message m = {.n = n, .data = data, .sizes = large, .mhandles = mhandles};
  return begin_request(r, "iflush", lib->v->iflush(lib->table, c->real, &m, &r->real), out);
}

// Are the sizes that a receive reports possible? Some plugins report none (google-fastsocket): then `seen` is as it was
// before.
static ncclResult_t take_sizes(request *r, const int *seen, size_t *sizes)
{
  comm *c = r->of;
  for (int i = 0; i < r->n; i++) {
    if (seen[i] != NOT_WRITTEN && (seen[i] < 0 || (size_t)seen[i] > r->room[i])) {
      c->failed = ncclInternalError;
      c->where = "test";
      c->code = ncclInternalError;
      return tt_fail(ncclInternalError,
                     "rank %d: network plugin %s: test reports %d bytes received into a buffer of %zu", c->net->rank,
                     c->net->name, seen[i], r->room[i]);
    }
    if (sizes != NULL) {
      sizes[i] = seen[i] == NOT_WRITTEN ? TT_NET_SIZE_UNKNOWN : (size_t)seen[i];
    }
  }
  return ncclSuccess;
}

static ncclResult_t pnet_test(void *any, int *done, size_t *sizes)
{
  request *r = any;
  comm *c = r->of;
  const tt_pnet_library *lib = c->net->lib;
  int seen[TT_PNET_GROUP], is_done = 0;
  *done = 0;
  if (TT_UNLIKELY(c->failed != ncclSuccess)) {
    return still_failed(c);
  }
  for (int i = 0; i < TT_PNET_GROUP; i++) {
    seen[i] = NOT_WRITTEN;
  }
  TT_TRY(judge_answer(c, "test", lib->v->test(lib->table, r->real, &is_done, r->flush ? NULL : seen)));
  if (!is_done) {
    return ncclSuccess;
  }
  ncclResult_t res = take_sizes(r, seen, sizes);
  request_free(r);
  *done = res == ncclSuccess;
  return res;
}

// ---- the row

static const tt_net_ops operations = {.init = pnet_init,
                                      .devices = pnet_devices,
                                      .get_properties = pnet_properties,
                                      .listen = pnet_listen,
                                      .connect = pnet_connect,
                                      .cancel = pnet_cancel,
                                      .accept = pnet_accept,
                                      .reg_mr = pnet_reg_mr,
                                      .reg_mr_dmabuf = pnet_reg_mr_dmabuf,
                                      .dereg_mr = pnet_dereg_mr,
                                      .isend = pnet_isend,
                                      .irecv = pnet_irecv,
                                      .iflush = pnet_iflush,
                                      .test = pnet_test,
                                      .close_send = pnet_close,
                                      .close_recv = pnet_close,
                                      .close_listen = pnet_close,
                                      .finalize = pnet_finalize,
                                      .release = release_network};

// What a version or a plugin lacks, its row lacks.
static void fill_row(tt_pnet *n)
{
  const tt_pnet_library *lib = n->lib;
  n->ops = operations;
  n->ops.name = n->name;
  if (!lib->v->has(lib->table, TT_PNET_CAN_FLUSH)) {
    n->ops.iflush = NULL;
  }
  if (!lib->v->has(lib->table, TT_PNET_CAN_DMABUF)) {
    n->ops.reg_mr_dmabuf = NULL;
  }
}

typedef bool (*choice)(void *arg, const char *name);

// A network for a rank, with this library, of which the share becomes its own. *out NULL: it cannot be used, or is not
// wanted. The list's lock held, as for the next one.
static ncclResult_t new_network(tt_pnet_library *lib, const tt_net_env *env, choice wanted, void *arg,
                                const tt_net_ops **out)
{
  bool usable = false;
  tt_pnet *n = tt_calloc(1, sizeof *n);
  if (n == NULL) {
    tt_pnet_library_close(lib);
    return tt_fail(ncclSystemError, "rank %d: no memory for network plugin %s", env->rank, lib->name);
  }
  n->lib = lib;
  n->rank = env->rank;
  n->setup = (tt_pnet_setup){.comm_hash = env->comm_hash,
                             .traffic_class = env->traffic_class,
                             .nranks = env->nranks,
                             .profile = tt_profilers_net_callback};
  atomic_store(&n->refs, 1);
  ncclResult_t res = tt_pnet_library_init(lib, &n->setup, &n->ctx, &usable);
  if (usable && lib->late && !wanted(arg, lib->name)) { // only now has it a name
    tt_pnet_library_finalize(lib, n->ctx);
    usable = false;
  }
  if (!usable) {
    tt_pnet_library_close(lib);
    tt_free(n);
    return res;
  }
  memcpy(n->name, lib->name, sizeof n->name);
  fill_row(n);
  *out = &n->ops;
  return ncclSuccess;
}

static ncclResult_t open_network(const char *wish, const tt_net_env *env, choice wanted, void *arg,
                                 const tt_net_ops **out)
{
  tt_pnet_library *lib = NULL;
  TT_TRY(tt_pnet_library_open(wish, &lib));
  if (lib == NULL) {
    return ncclSuccess;
  }
  if (!lib->late && !wanted(arg, lib->name)) {
    tt_pnet_library_close(lib);
    return ncclSuccess;
  }
  return new_network(lib, env, wanted, arg, out);
}

ncclResult_t tt_net_plugin_open(const char *wish, const tt_net_env *env, choice wanted, void *arg,
                                const tt_net_ops **out)
{
  *out = NULL;
  tt_pnet_lock();
  ncclResult_t res = open_network(wish, env, wanted, arg, out);
  tt_pnet_unlock();
  return res;
}

tt_pnet_library *tt_pnet_library_of(const tt_net_ops *net)
{
  return net != NULL && net->release == release_network ? ((const tt_pnet *)(const void *)net)->lib : NULL;
}

tt_plugin_wishes tt_net_plugin_wishes(void)
{
  return (tt_plugin_wishes){.kind = TT_PLUGIN_NET, .list = tt_params_get()->net_plugin, .most = NCCL_NET_MAX_PLUGINS};
}

// In the network's library, then in those of NCCL_NET_PLUGIN. The list's lock held.
static ncclResult_t find_fallback(const tt_pnet_library *lib, tt_plugin_kind kind, tt_plugin **out)
{
  tt_plugin_wishes w = tt_net_plugin_wishes();
  if (lib != NULL) {
    TT_TRY(tt_plugin_also(lib->plugin, kind, out));
  }
  while (*out == NULL && tt_plugin_next_wish(&w)) {
    TT_TRY(tt_pnet_library_also(w.wish, kind, out));
  }
  return ncclSuccess;
}

static ncclResult_t open_fallback(const void *arg, tt_plugin_kind kind, tt_plugin **out)
{
  *out = NULL;
  tt_pnet_lock();
  ncclResult_t res = find_fallback(tt_pnet_library_of(arg), kind, out);
  tt_pnet_unlock();
  return res;
}

tt_plugin_fallback tt_net_plugin_fallback(const tt_net_ops *net)
{
  return (tt_plugin_fallback){.open = open_fallback, .arg = net};
}
