// connect.c: the connecting side: first the control socket, to whichever address answers, then the data sockets to the
// same. See rendezvous.h.
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "net/rendezvous/rendezvous.h"
#include "os/clock.h"
#include "os/random.h"

static tt_rdv_call *find_call(const tt_rdv *net, const tt_rdv_handle *h, int dev)
{
  tt_rdv_call *call = net->calls;
  while (call != NULL && (call->cookie != h->cookie || call->ends.peer != h->rank || call->ends.dev != dev)) {
    call = call->next;
  }
  return call;
}

void tt_rdv_call_destroy(tt_rdv_call *call)
{
  pthread_mutex_lock(&call->net->lock);
  TT_RDV_UNLINK(&call->net->calls, call);
  pthread_mutex_unlock(&call->net->lock);
  for (int i = 0; i < 1 + TT_RDV_SOCKS; i++) {
    tt_dial_cancel(call->dials[i]);
    tt_sock_close(&call->ends.fds[i]);
  }
  tt_free(call);
}

void tt_rdv_end_all(tt_rdv *net)
{
  while (net->calls != NULL) {
    tt_rdv_call_destroy(net->calls);
  }
  while (net->listeners != NULL) {
    tt_rdv_close_listen(net->listeners);
  }
}

// Starts to dial for socket `i`.
static int start_dial(tt_rdv_call *call, int i, const tt_addrs *to)
{
  const tt_net_env *env = &call->net->env;
  tt_rdv_tag tag = {.index = (uint8_t)i, .nsocks = (uint8_t)call->ends.nsocks, .attempt = call->ends.wire};
  tt_hello hello = {
      .kind = TT_HELLO_NET, .rank = env->rank, .to = call->ends.peer, .nranks = env->nranks, .cookie = call->cookie};
  memcpy(&hello.tag, &tag, sizeof(tag));
  int e = tt_dial_start(to, &env->key, &hello, call->deadline_ns, &call->dials[i]);
  call->open += e == 0;
  return e;
}

// The listener would like a number of data sockets, and so does this rank: the smaller one is good for both.
static tt_rdv_call *begin_call(tt_rdv *net, const tt_rdv_handle *h, int dev)
{
  tt_rdv_call *call = tt_calloc(1, sizeof(*call));
  if (call == NULL) {
    return NULL;
  }
  call->net = net;
  call->cookie = h->cookie;
  call->deadline_ns = tt_now_ns() + net->timeout_s * TT_NS_PER_S;
  call->ends =
      (tt_rdv_ends){.send = true, .peer = h->rank, .dev = dev, .nsocks = TT_MIN(h->nsocks, net->devs[dev].nsocks)};
  memset(call->ends.fds, -1, sizeof(call->ends.fds));
  tt_random(&call->ends.wire, sizeof(call->ends.wire));
  call->ends.wire |= 1; // not 0
  tt_rdv_handle_addrs(h, &net->devs[dev], &call->to);
  if (start_dial(call, 0, &call->to) != 0) {
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
static int step_dial(tt_rdv_call *call, int i)
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
  e = 0;
  for (int s = 1; s <= call->ends.nsocks && e == 0; s++) {
    e = start_dial(call, s, &same);
  }
  return e;
}

static const char *describe_dial(int e)
{
  switch (e) {
  case -EACCES: return "the process that listens there does not know this communicator's secret";
  case -EPROTO: return "the process that listens there is no rank";
  case -EPROTONOSUPPORT: return "another version of this library listens there";
  case -ETIMEDOUT: return "no answer (NCCL_NET_TIMEOUT; is a firewall between the machines?)";
  case -ECONNREFUSED: return "nobody listens there (has the rank died?)";
  default: return tt_sock_error_text(e);
  }
}

ncclResult_t tt_rdv_call_fail(tt_rdv_call *call, int e)
{
  char text[TT_ADDRS_TEXT];
  ncclResult_t res =
      tt_fail(tt_sock_is_shortage(e) ? ncclSystemError : ncclRemoteError,
              "rank %d: cannot connect to rank %d at %s over %s: %s", call->net->env.rank, call->ends.peer,
              tt_addrs_text(&call->to, text), call->net->devs[call->ends.dev].name, describe_dial(e));
  tt_rdv_call_destroy(call);
  return res;
}

ncclResult_t tt_rdv_connect(tt_rdv *net, int dev, const void *handle, tt_rdv_call **out)
{
  tt_rdv_handle h;
  int e = 0;
  *out = NULL;
  memcpy(&h, handle, sizeof(h));
  const char *why = tt_rdv_handle_check(&h, net->magic, net->env.nranks);
  if (why != NULL) {
    return tt_fail(ncclRemoteError, "rank %d: network %s cannot use a handle to connect to: %s", net->env.rank,
                   net->network, why);
  }
  TT_TRY(tt_rdv_check_device(net, dev));
  tt_rdv_call *call = find_call(net, &h, dev);
  call = call != NULL ? call : begin_call(net, &h, dev);
  if (call == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory to connect to rank %d", net->env.rank, h.rank);
  }
  for (int i = 0; i <= call->ends.nsocks && e == 0; i++) {
    e = step_dial(call, i);
  }
  if (e != 0) {
    return tt_rdv_call_fail(call, e);
  }
  if (call->open == 0 && call->ready_ns == 0) {
    call->ready_ns = tt_now_ns();
  }
  *out = call->open == 0 ? call : NULL;
  return ncclSuccess;
}

// The socket is new: it takes a few bytes.
int tt_rdv_say_go(tt_rdv_call *call, uint32_t twin)
{
  const tt_rdv_go go = {.magic = TT_RDV_GO, .attempt = call->ends.wire, .twin = twin};
  call->said = true;
  return tt_sock_send_whole(call->ends.fds[0], &go, sizeof(go));
}

int tt_rdv_answer(tt_rdv_call *call, size_t size)
{
  int e = tt_sock_pass(call->ends.fds[0], call->answer, size, &call->heard, false);
  return e == 0 && tt_now_ns() >= call->deadline_ns ? -ETIMEDOUT : e;
}

void tt_rdv_cancel(void *ctx, int dev, const void *handle)
{
  tt_rdv_handle h;
  memcpy(&h, handle, sizeof(h));
  tt_rdv_call *call = find_call(ctx, &h, dev);
  if (call != NULL) {
    tt_rdv_call_destroy(call);
  }
}
