// listen.c: the accepting side: a listener gathers the sockets of one connection. See rendezvous.h.
//
// Every socket proves the communicator's key (greet.h) and names its attempt and its place there. The control socket of
// a new attempt starts the gathering anew: the peer has given up the attempt before. Nothing waits; a listener can be
// closed at any time.
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "net/rendezvous/rendezvous.h"
#include "os/random.h"

struct tt_rdv_listener {
  tt_rdv *net;
  tt_rdv_listener *next;
  int dev;
  uint64_t cookie;
  tt_greeter greeter;
  bool begun; // the control socket is here
  uint32_t attempt;
  int missing; // sockets
  tt_rdv_ends ends;
  tt_rdv_go go; // its first `heard` bytes
  size_t heard;
};

tt_rdv *tt_rdv_listener_net(const tt_rdv_listener *l)
{
  return l->net;
}

void tt_rdv_taken(tt_rdv_listener *l, bool kept)
{
  for (int i = 0; i < 1 + TT_RDV_SOCKS && !kept; i++) {
    tt_sock_close(&l->ends.fds[i]);
  }
  memset(l->ends.fds, -1, sizeof(l->ends.fds));
  l->begun = false;
}

ncclResult_t tt_rdv_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
  tt_rdv *net = ctx;
  TT_TRY(tt_rdv_check_device(net, dev));
  tt_rdv_listener *l = tt_calloc(1, sizeof(*l));
  if (l == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory to listen on %s", net->env.rank, net->devs[dev].name);
  }
  l->net = net;
  l->dev = dev;
  memset(l->ends.fds, -1, sizeof(l->ends.fds));
  tt_random(&l->cookie, sizeof(l->cookie));
  int e = tt_greeter_open(&l->greeter, &net->devs[dev].addrs, &net->env.key, TT_HELLO_NET, net->env.rank);
  if (e != 0) {
    tt_free(l);
    return tt_fail(ncclSystemError, "rank %d: cannot listen on %s: %s", net->env.rank, net->devs[dev].name,
                   tt_sock_error_text(e));
  }
  tt_rdv_handle_write(handle, net, &l->greeter.addrs, l->cookie, &net->devs[dev]);
  pthread_mutex_lock(&net->lock);
  l->next = net->listeners;
  __atomic_store_n(&net->listeners, l, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&net->lock);
  *listen_comm = l;
  return ncclSuccess;
}

// Takes a socket that has proved itself. One that belongs to another listener, or to an attempt that was given up, is
// dropped.
static void gather_socket(tt_rdv_listener *l, const tt_hello *hello, int fd)
{
  const tt_net_env *env = &l->net->env;
  tt_rdv_tag tag;
  memcpy(&tag, &hello->tag, sizeof(tag));
  bool ours =
      hello->cookie == l->cookie && hello->rank >= 0 && hello->rank < env->nranks && hello->nranks == env->nranks;
  if (!ours || tag.index > tag.nsocks || tag.nsocks > TT_RDV_SOCKS ||
      (tag.index != 0 && (!l->begun || tag.attempt != l->attempt))) {
    tt_info(
        TT_NET,
        "%s: rank %d dropped a connection from rank %d to %s: another listener's, or of an attempt that was given up",
        l->net->network, env->rank, hello->rank, l->net->devs[l->dev].name);
    tt_sock_close(&fd);
    return;
  }
  if (tag.index == 0) {
    tt_rdv_taken(l, false);
    l->begun = true;
    l->heard = 0;
    l->attempt = tag.attempt;
    l->missing = 1 + tag.nsocks;
    l->ends = (tt_rdv_ends){.peer = hello->rank, .dev = l->dev, .nsocks = tag.nsocks};
    memset(l->ends.fds, -1, sizeof(l->ends.fds));
    tt_sock_peer(fd, &l->ends.at);
  }
  l->missing -= l->ends.fds[tag.index] < 0;
  tt_sock_close(&l->ends.fds[tag.index]);
  l->ends.fds[tag.index] = fd;
}

// All sockets are here: has the connecting side said "go"? If it has given up instead, the gathering begins anew.
static bool has_heard_go(tt_rdv_listener *l)
{
  int e = tt_sock_pass(l->ends.fds[0], &l->go, sizeof(l->go), &l->heard, false);
  bool good = e == 1 && l->go.magic == TT_RDV_GO && l->go.attempt == l->attempt;
  if (e != 0 && !good) {
    tt_rdv_taken(l, false);
  }
  return good;
}

tt_rdv_ends *tt_rdv_accept(tt_rdv_listener *l)
{
  tt_hello hello;
  int fd = -1;
  while (tt_greeter_next(&l->greeter, &hello, &fd)) {
    gather_socket(l, &hello, fd);
  }
  if (!l->begun || l->missing > 0 || !has_heard_go(l)) {
    return NULL;
  }
  l->ends.twin = l->go.twin;
  l->ends.wire = l->go.twin != 0 ? l->go.twin : l->attempt;
  return &l->ends;
}

bool tt_rdv_peer_comes(const tt_rdv *net, int peer)
{
  for (const tt_rdv_listener *l = net->listeners; l != NULL; l = l->next) {
    if (l->begun && l->ends.peer == peer) {
      return true;
    }
  }
  return false;
}

ncclResult_t tt_rdv_close_listen(void *listen_comm)
{
  tt_rdv_listener *l = listen_comm;
  if (l != NULL) {
    pthread_mutex_lock(&l->net->lock);
    TT_RDV_UNLINK(&l->net->listeners, l);
    pthread_mutex_unlock(&l->net->lock);
    tt_rdv_taken(l, false);
    tt_greeter_close(&l->greeter, true);
    tt_free(l);
  }
  return ncclSuccess;
}

// Greeters and dials may be in the hands of a thread that the child does not have: only sockets are touched. What dials
// hold is no connection yet.
void tt_rdv_forget(tt_rdv *net)
{
  for (tt_rdv_listener *l = net->listeners; l != NULL; l = l->next) {
    for (uint32_t i = 0; i < l->greeter.addrs.n; i++) {
      tt_sock_close(&l->greeter.fds[i]);
    }
    tt_rdv_taken(l, false);
  }
  for (tt_rdv_call *call = net->calls; call != NULL; call = call->next) {
    for (int i = 0; i < 1 + TT_RDV_SOCKS; i++) {
      tt_sock_close(&call->ends.fds[i]);
    }
  }
  tt_sock_close(&net->ring);
  tt_sock_close(&net->events);
}
