// connect.c: the connecting side: first the control socket, to whichever address answers, then the data sockets to the same. See
// socket_priv.h.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "net/socket/socket_priv.h"
#include "os/clock.h"
#include "os/random.h"

#define HIGHER_WAITS_NS TT_NS_PER_S
#define LOWER_WAITS_NS (5 * TT_NS_PER_MS)

// A connection that is being made.
struct tt_snet_call {
  tt_snet *net;
  tt_snet_call *next;
  uint64_t cookie; // which listener; finds the call again
  uint32_t attempt;
  tt_addrs to;
  uint64_t deadline_ns;
  uint64_t ready_ns; // when all dials were done
  int open;          // dials that are not done
  tt_dial *dials[1 + TT_SNET_SOCKS];
  tt_snet_ends ends;
};

static tt_snet_call *find_call(const tt_snet *net, const tt_snet_handle *h, int dev)
{
  for (tt_snet_call *call = net->calls; call != NULL; call = call->next) {
    if (call->cookie == h->cookie && call->ends.peer == h->rank && call->ends.dev == dev) {
      return call;
    }
  }
  return NULL;
}

static void unlink_call(tt_snet_call *call)
{
  pthread_mutex_lock(&call->net->lock);
  for (tt_snet_call **at = &call->net->calls; *at != NULL; at = &(*at)->next) {
    if (*at == call) {
      __atomic_store_n(at, call->next, __ATOMIC_RELEASE);
      break;
    }
  }
  pthread_mutex_unlock(&call->net->lock);
}

void tt_snet_call_destroy(tt_snet_call *call)
{
  unlink_call(call);
  for (int i = 0; i < 1 + TT_SNET_SOCKS; i++) {
    tt_dial_cancel(call->dials[i]);
    tt_sock_close(&call->ends.fds[i]);
  }
  tt_free(call);
}

// Starts to dial for socket `i`.
static int start(tt_snet_call *call, int i, const tt_addrs *to)
{
  const tt_net_env *env = &call->net->env;
  tt_snet_tag tag = {.index = (uint8_t)i, .nsocks = (uint8_t)call->ends.nsocks, .attempt = call->attempt};
  tt_hello hello = {.kind = TT_HELLO_NET, .rank = env->rank, .to = call->ends.peer, .nranks = env->nranks, .cookie = call->cookie};
  memcpy(&hello.tag, &tag, sizeof(tag));
  int e = tt_dial_start(to, &env->key, &hello, call->deadline_ns, &call->dials[i]);
  call->open += e == 0;
  return e;
}

// The listener would like a number of data sockets, and so does this rank: the smaller one is good for both.
static tt_snet_call *begin(tt_snet *net, const tt_snet_handle *h, int dev)
{
  tt_snet_call *call = tt_calloc(1, sizeof(*call));
  if (call == NULL) {
    return NULL;
  }
  call->net = net;
  call->cookie = h->cookie;
  call->deadline_ns = tt_now_ns() + net->timeout_s * TT_NS_PER_S;
  call->ends = (tt_snet_ends){.send = true, .peer = h->rank, .dev = dev, .nsocks = TT_MIN(h->nsocks, net->devs[dev].nsocks)};
  memset(call->ends.fds, -1, sizeof(call->ends.fds));
  tt_random(&call->attempt, sizeof(call->attempt));
  call->attempt |= 1; // not 0
  tt_snet_handle_addrs(h, &net->devs[dev], &call->to);
  if (start(call, 0, &call->to) != 0) {
    tt_free(call);
    return NULL;
  }
  pthread_mutex_lock(&net->lock);
  call->next = net->calls;
  __atomic_store_n(&net->calls, call, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&net->lock);
  return call;
}

// Goes on with socket `i`. 0, or -errno.
static int step(tt_snet_call *call, int i)
{
  tt_addr at;
  int e = call->dials[i] != NULL ? tt_dial_step(call->dials[i], &call->ends.fds[i], &at) : 0;
  if (e <= 0) {
    return e;
  }
  tt_dial_cancel(call->dials[i]);
  call->dials[i] = NULL;
  call->open--;
  if (i > 0) {
    return 0;
  }
  tt_addrs same = {.n = 1, .a = {at}};
  call->ends.at = at;
  for (int s = 1; s <= call->ends.nsocks; s++) {
    int failed = start(call, s, &same);
    if (failed != 0) {
      return failed;
    }
  }
  return 0;
}

static int go_on(tt_snet_call *call)
{
  for (int i = 0; i <= call->ends.nsocks; i++) {
    int e = step(call, i);
    if (e != 0) {
      return e;
    }
  }
  return 0;
}

// The peer is connecting to this rank too: one of the two waits, so that one socket can do for both. The higher rank waits until the other
// connection stands; the lower one for what is on its way already. Not for ever: what is lost otherwise is a microsecond per message.
static bool better_wait(tt_snet_call *call)
{
  const tt_net_env *env = &call->net->env;
  uint64_t now = tt_now_ns();
  if (call->ready_ns == 0) {
    call->ready_ns = now;
  }
  return now - call->ready_ns < (env->rank > call->ends.peer ? HIGHER_WAITS_NS : LOWER_WAITS_NS) &&
         tt_snet_peer_comes(call->net, call->ends.peer);
}

// Says that everything stands, and over which socket the frames will come. The socket is new: it takes a few bytes.
static int say_go(tt_snet_call *call)
{
  int shared = -1;
  tt_snet_go go = {.magic = TT_SNET_GO, .attempt = call->attempt};
  go.twin = tt_snet_conn_share(call->net, call->ends.peer, false, 0, &shared);
  ssize_t n = tt_sock_send(call->ends.fds[0], &go, sizeof(go));
  call->ends.wire = go.twin != 0 ? go.twin : call->attempt;
  call->ends.paired = go.twin != 0;
  if (go.twin != 0) {
    tt_sock_finish(call->ends.fds[0]);
    tt_sock_close(&call->ends.fds[0]);
    call->ends.fds[0] = shared;
  }
  return n == sizeof(go) ? 0 : n < 0 ? (int)n : -ENOBUFS;
}

static const char *describe(int e)
{
  switch (e) {
  case -EACCES: return "who listens there does not know this communicator's secret";
  case -EPROTO: return "who listens there is no rank";
  case -EPROTONOSUPPORT: return "another version of this library listens there";
  case -ETIMEDOUT: return "no answer (NCCL_NET_TIMEOUT; is a firewall between the machines?)";
  case -ECONNREFUSED: return "nobody listens there (has the rank died?)";
  default: return tt_sock_error_text(e);
  }
}

static ncclResult_t fail_call(tt_snet_call *call, int e)
{
  char text[TT_ADDRS_TEXT];
  ncclResult_t res =
      tt_fail(tt_sock_is_shortage(e) ? ncclSystemError : ncclRemoteError, "rank %d: cannot connect to rank %d at %s over %s: %s",
              call->net->env.rank, call->ends.peer, tt_addrs_text(&call->to, text), call->net->devs[call->ends.dev].name, describe(e));
  tt_snet_call_destroy(call);
  return res;
}

// A handle that is wrong, or a device.
static ncclResult_t check(const tt_snet *net, int dev, const tt_snet_handle *h)
{
  const char *why = tt_snet_handle_check(h, net->env.nranks);
  if (why != NULL) {
    return tt_fail(ncclRemoteError, "rank %d: a handle to connect to is no good: %s", net->env.rank, why);
  }
  if (dev < 0 || dev >= net->ndevs) {
    return tt_fail(ncclInvalidUsage, "rank %d: the socket network has no device %d, only 0 … %d", net->env.rank, dev, net->ndevs - 1);
  }
  return ncclSuccess;
}

ncclResult_t tt_snet_connect(void *ctx, int dev, void *handle, void **send_comm)
{
  tt_snet *net = ctx;
  tt_snet_handle h;
  *send_comm = NULL;
  memcpy(&h, handle, sizeof(h));
  TT_TRY(check(net, dev, &h));
  tt_snet_call *call = find_call(net, &h, dev);
  call = call != NULL ? call : begin(net, &h, dev);
  if (call == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory to connect to rank %d", net->env.rank, h.rank);
  }
  int e = go_on(call);
  if (e == 0 && (call->open > 0 || better_wait(call))) {
    return ncclSuccess;
  }
  e = e == 0 ? say_go(call) : e;
  if (e != 0) {
    return fail_call(call, e);
  }
  tt_snet_conn *c = NULL;
  ncclResult_t res = tt_snet_conn_create(net, &call->ends, &c);
  if (res == ncclSuccess) {
    memset(call->ends.fds, -1, sizeof(call->ends.fds));
    *send_comm = c;
  }
  tt_snet_call_destroy(call);
  return res;
}

void tt_snet_cancel(void *ctx, int dev, const void *handle)
{
  tt_snet_handle h;
  memcpy(&h, handle, sizeof(h));
  tt_snet_call *call = find_call(ctx, &h, dev);
  if (call != NULL) {
    tt_snet_call_destroy(call);
  }
}

// Dials may be in the hands of a thread that the child does not have; what they have is not a connection yet.
void tt_snet_calls_forget(tt_snet *net)
{
  for (tt_snet_call *call = net->calls; call != NULL; call = call->next) {
    for (int i = 0; i < 1 + TT_SNET_SOCKS; i++) {
      tt_sock_close(&call->ends.fds[i]);
    }
  }
}
