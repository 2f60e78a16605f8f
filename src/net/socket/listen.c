// listen.c: the accepting side: a listener gathers the sockets of one connection. See socket_priv.h.
//
// Every socket proves the communicator's key (greet.h) and says which one of which attempt it is. The control socket of a new attempt
// starts the gathering anew: whoever connected before has given up. Nothing is waited for; a listener can be closed at any time.
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "net/socket/socket_priv.h"
#include "os/random.h"

struct tt_snet_listener {
  tt_snet *net;
  tt_snet_listener *next;
  int dev;
  uint64_t cookie;
  tt_greeter greeter;
  bool begun; // the control socket is here
  uint32_t attempt;
  int missing; // sockets
  tt_snet_ends ends;
  tt_snet_go go; // its first `heard` bytes
  size_t heard;
};

static void link_listener(tt_snet_listener *l)
{
  pthread_mutex_lock(&l->net->lock);
  l->next = l->net->listeners;
  __atomic_store_n(&l->net->listeners, l, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&l->net->lock);
}

static void unlink_listener(tt_snet_listener *l)
{
  pthread_mutex_lock(&l->net->lock);
  for (tt_snet_listener **at = &l->net->listeners; *at != NULL; at = &(*at)->next) {
    if (*at == l) {
      __atomic_store_n(at, l->next, __ATOMIC_RELEASE);
      break;
    }
  }
  pthread_mutex_unlock(&l->net->lock);
}

static void drop_ends(tt_snet_listener *l)
{
  for (int i = 0; i < 1 + TT_SNET_SOCKS; i++) {
    tt_sock_close(&l->ends.fds[i]);
  }
  l->begun = false;
}

ncclResult_t tt_snet_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
  tt_snet *net = ctx;
  if (dev < 0 || dev >= net->ndevs) {
    return tt_fail(ncclInvalidUsage, "rank %d: the socket network has no device %d, only 0 … %d", net->env.rank, dev, net->ndevs - 1);
  }
  tt_snet_listener *l = tt_calloc(1, sizeof(*l));
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
    return tt_fail(ncclSystemError, "rank %d: cannot listen on %s: %s", net->env.rank, net->devs[dev].name, tt_sock_error_text(e));
  }
  tt_snet_handle_write(handle, &l->greeter.addrs, net->env.rank, l->cookie, &net->devs[dev]);
  link_listener(l);
  *listen_comm = l;
  return ncclSuccess;
}

// Takes a socket that has proved itself; a connection of another listener, or of an attempt that was given up, is dropped.
static void gather(tt_snet_listener *l, const tt_hello *hello, int fd)
{
  tt_snet_tag tag;
  memcpy(&tag, &hello->tag, sizeof(tag));
  bool ours = hello->cookie == l->cookie && hello->rank >= 0 && hello->rank < l->net->env.nranks && hello->nranks == l->net->env.nranks;
  if (!ours || tag.index > tag.nsocks || tag.nsocks > TT_SNET_SOCKS || (tag.index != 0 && (!l->begun || tag.attempt != l->attempt))) {
    tt_info(TT_NET, "socket: rank %d dropped a connection from rank %d to %s: another listener's, or of an attempt that was given up",
            l->net->env.rank, hello->rank, l->net->devs[l->dev].name);
    tt_sock_close(&fd);
    return;
  }
  if (tag.index == 0) {
    drop_ends(l);
    l->begun = true;
    l->heard = 0;
    l->attempt = tag.attempt;
    l->missing = 1 + tag.nsocks;
    l->ends.peer = hello->rank;
    l->ends.dev = l->dev;
    l->ends.nsocks = tag.nsocks;
    tt_sock_peer(fd, &l->ends.at);
  }
  l->missing -= l->ends.fds[tag.index] < 0;
  tt_sock_close(&l->ends.fds[tag.index]);
  l->ends.fds[tag.index] = fd;
}

// All sockets are here: has the connecting side said so too? When it has given up instead, the gathering begins anew.
static bool heard_go(tt_snet_listener *l)
{
  ssize_t n = tt_sock_recv(l->ends.fds[0], (char *)&l->go + l->heard, sizeof(l->go) - l->heard);
  if (n == -EAGAIN) {
    return false;
  }
  l->heard += n > 0 ? (size_t)n : 0;
  if (n < 0 || (l->heard == sizeof(l->go) && (l->go.magic != TT_SNET_GO || l->go.attempt != l->attempt))) {
    drop_ends(l);
    return false;
  }
  return l->heard == sizeof(l->go);
}

// The connecting side's frames will come over the socket of a connection from here to there.
static bool take_twin(tt_snet_listener *l)
{
  int shared = -1;
  if (tt_snet_conn_share(l->net, l->ends.peer, true, l->go.twin, &shared) == 0) {
    tt_info(TT_NET, "socket: rank %d dropped a connection of rank %d that meant to use one which is gone", l->net->env.rank, l->ends.peer);
    return false;
  }
  tt_sock_close(&l->ends.fds[0]);
  l->ends.fds[0] = shared;
  return true;
}

ncclResult_t tt_snet_accept(void *listen_comm, void **recv_comm)
{
  tt_snet_listener *l = listen_comm;
  tt_hello hello;
  int fd = -1;
  *recv_comm = NULL;
  while (tt_greeter_next(&l->greeter, &hello, &fd)) {
    gather(l, &hello, fd);
  }
  if (!l->begun || l->missing > 0 || !heard_go(l)) {
    return ncclSuccess;
  }
  tt_snet_conn *c = NULL;
  l->ends.paired = l->go.twin != 0;
  l->ends.wire = l->ends.paired ? l->go.twin : l->attempt;
  if (l->ends.paired && !take_twin(l)) {
    drop_ends(l);
    return ncclSuccess;
  }
  ncclResult_t res = tt_snet_conn_create(l->net, &l->ends, &c);
  if (res != ncclSuccess) {
    drop_ends(l);
    return res;
  }
  memset(l->ends.fds, -1, sizeof(l->ends.fds));
  l->begun = false;
  *recv_comm = c;
  return ncclSuccess;
}

bool tt_snet_peer_comes(const tt_snet *net, int peer)
{
  for (const tt_snet_listener *l = net->listeners; l != NULL; l = l->next) {
    if (l->begun && l->ends.peer == peer) {
      return true;
    }
  }
  return false;
}

ncclResult_t tt_snet_close_listen(void *listen_comm)
{
  tt_snet_listener *l = listen_comm;
  if (l != NULL) {
    unlink_listener(l);
    drop_ends(l);
    tt_greeter_close(&l->greeter, true);
    tt_free(l);
  }
  return ncclSuccess;
}

// The greeter may be in the hands of a thread that the child does not have: only its sockets are touched.
static void forget(tt_snet_listener *l)
{
  for (uint32_t i = 0; i < l->greeter.addrs.n; i++) {
    tt_sock_close(&l->greeter.fds[i]);
  }
  drop_ends(l);
}

void tt_snet_listeners_forget(tt_snet *net)
{
  for (tt_snet_listener *l = net->listeners; l != NULL; l = l->next) {
    forget(l);
  }
}
