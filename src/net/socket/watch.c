// watch.c: which sockets are in the context's set of events. See socket_priv.h.
//
// Only sockets that a thread sleeps on: a sender to a socket pays for each set that the socket is in, watched or not.
// All under the context's lock: a connection that is made while the sockets are watched joins by itself, one that is
// made meanwhile comes with the others. So once tt_snet_watch_events has put them in, every linked connection is there.
#include <string.h>

#include "base/log.h"
#include "net/socket/socket_priv.h"
#include "os/events.h"

// The sockets of a connection that no helper thread looks after.
static int count_sockets(const tt_snet_conn *c)
{
  return 1 + (c->data.nthreads == 0 ? c->data.nsocks : 0);
}

static int socket_of(const tt_snet_conn *c, int i)
{
  return i == 0 ? c->fd : c->data.socks[i - 1].fd;
}

// The first `n` of them leave. One by one, although closing would do: a twin's descriptor, or a forked child's, keeps a
// closed one in the set.
static void leave_set(const tt_snet_conn *c, int n)
{
  for (int i = 0; i < n; i++) {
    tt_events_remove(c->net->base.events, socket_of(c, i));
  }
}

// All or none. 0 or -errno.
static int join_set(const tt_snet_conn *c)
{
  for (int i = 0; i < count_sockets(c); i++) {
    int e = tt_events_add(c->net->base.events, socket_of(c, i), !c->send);
    if (e != 0) {
      leave_set(c, i);
      return e;
    }
  }
  return 0;
}

int tt_snet_conn_join(const tt_snet_conn *c)
{
  int e = join_set(c);
  if (e == 0 && !c->net->watched) {
    leave_set(c, count_sockets(c));
  }
  return e;
}

void tt_snet_conn_leave(const tt_snet_conn *c)
{
  if (c->net->watched) {
    leave_set(c, count_sockets(c));
  }
}

void tt_snet_conn_unhelped(tt_snet_conn *c)
{
  pthread_mutex_lock(&c->net->base.lock);
  c->data.nthreads = 0;
  for (int i = 1; i < count_sockets(c) && c->net->watched; i++) {
    int e = tt_events_add(c->net->base.events, socket_of(c, i), !c->send);
    if (e != 0) {
      tt_warn("rank %d: a data socket to rank %d cannot be watched, so messages may wait for a second: %s",
              c->net->base.env.rank, c->peer, strerror(-e));
    }
  }
  pthread_mutex_unlock(&c->net->base.lock);
}

// Of the connections before `end`.
static void leave_set_all(tt_snet *net, const tt_snet_conn *end)
{
  for (const tt_snet_conn *c = net->conns; c != end; c = c->next) {
    leave_set(c, count_sockets(c));
  }
}

static int join_set_all(tt_snet *net)
{
  int n = 0;
  for (const tt_snet_conn *c = net->conns; c != NULL; c = c->next) {
    int e = join_set(c);
    if (e != 0) {
      leave_set_all(net, c);
      return e;
    }
    n += count_sockets(c);
  }
  return n;
}

int tt_snet_watch_events(void *ctx, bool on)
{
  tt_snet *net = ctx;
  int n = 0;
  pthread_mutex_lock(&net->base.lock);
  if (on != net->watched) {
    if (on) {
      n = join_set_all(net);
    } else {
      leave_set_all(net, NULL);
    }
    net->watched = on && n >= 0;
  }
  pthread_mutex_unlock(&net->base.lock);
  return n;
}
