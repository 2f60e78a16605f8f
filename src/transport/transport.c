// transport.c: the table of transports, and making links.
#include "transport/transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "device/device.h"

// In order of preference.
static const tt_transport *const transports[] = {&tt_transport_self, &tt_transport_p2p, &tt_transport_shm,
                                                 &tt_transport_net};

const tt_transport *tt_transport_find(const tt_wiring *w, int peer)
{
  for (size_t i = 0; i < TT_COUNT(transports); i++) {
    if (transports[i]->can_connect(w, &w->ranks[w->rank], &w->ranks[peer])) {
      return transports[i];
    }
  }
  return NULL;
}

static ncclResult_t no_transport(const tt_wiring *w, int peer)
{
  const tt_params *p = tt_params_get();
  const char *where = w->ranks[w->rank].host == w->ranks[peer].host ? "on one machine" : "on different machines";
  return tt_fail(ncclInternalError,
                 "rank %d and rank %d (%s) cannot be connected: NCCL_P2P_DISABLE=%d, NCCL_SHM_DISABLE=%d, no network",
                 w->rank, peer, where, (int)p->p2p_disable, (int)p->shm_disable);
}

// One line for a connection, in NCCL's form. It is the connection of all channels, and channel 00 stands for them. Over
// the network the proxy says it.
static void transport_log(const tt_wiring *w, const tt_link *link)
{
  const tt_transport *t = link->transport;
  const int from = w->ranks[w->rank].device, to = w->ranks[link->peer].device;
  if (t == &tt_transport_p2p) {
    tt_info(TT_INIT | TT_P2P, "Channel 00/0 : %d[%d] -> %d[%d] via P2P/direct pointer", w->rank, from, link->peer, to);
  } else if (t == &tt_transport_shm && link->access == TT_ACCESS_COPY && w->port->row->pairs) {
    tt_info(TT_INIT | TT_P2P, "Channel 00/0 : %d[%d] -> %d[%d] via P2P/IPC", w->rank, from, link->peer, to);
  } else if (t == &tt_transport_shm) {
    tt_info(TT_INIT | TT_SHM, "Channel 00 : %d[%d] -> %d[%d] via SHM/%s", w->rank, from, link->peer, to,
            link->access == TT_ACCESS_COPY ? "CMA" : "direct");
  }
}

static bool same_process(const tt_endpoint *a, const tt_endpoint *b)
{
  return a->proc.pid == b->proc.pid && a->proc.cookie == b->proc.cookie;
}

ncclResult_t tt_transport_connect(const tt_wiring *w, int peer)
{
  tt_port *port = w->port;
  if (port->links[peer] != NULL) {
    return ncclSuccess;
  }
  const tt_transport *t = tt_transport_find(w, peer);
  if (t == NULL) {
    return no_transport(w, peer);
  }
  tt_link *link = tt_calloc_line(sizeof *link);
  if (link == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the connection to rank %d", w->rank, peer);
  }
  link->peer = peer;
  link->rank = w->rank;
  link->proc = w->ranks[peer].proc;
  link->transport = t;
  ncclResult_t res = t->connect(w, link);
  if (res != ncclSuccess) {
    tt_free(link);
    return res;
  }
  const tt_endpoint *me = &w->ranks[w->rank], *them = &w->ranks[peer];
  // Over the network the peer's proxy tells how it ended, and that only after its last messages.
  link->life = w->segment != NULL ? tt_segment_life(w->segment) : -1;
  link->watched = link->life >= 0 && !link->networked && !same_process(me, them);
  transport_log(w, link);
  __atomic_store_n(&port->links[peer], link, __ATOMIC_RELEASE);
  return ncclSuccess;
}

bool tt_transport_level_allows(const char *text)
{
  static const char *const nearer[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB"};
  for (size_t i = 0; i < TT_COUNT(nearer); i++) {
    if (tt_casecmp(text, nearer[i]) == 0) {
      return false;
    }
  }
  bool number = text[0] != 0 && strspn(text, "0123456789") == strlen(text);
  return !number || strtoul(text, NULL, 10) >= 4; // LOC, PIX, PXB, PHB; from 4 on SYS
}

static pthread_once_t off_once = PTHREAD_ONCE_INIT;
static bool off; // of the parameters, which do not change

static void p2p_read_off(void)
{
  const tt_params *p = tt_params_get();
  off = p->p2p_disable || (p->p2p_level != NULL && !tt_transport_level_allows(p->p2p_level));
}

bool tt_transport_p2p_off(void)
{
  pthread_once(&off_once, p2p_read_off);
  return off;
}

static int compare_ids(uint64_t a, uint64_t b)
{
  return (a > b) - (a < b);
}

int tt_transport_order(const tt_endpoint *a, const tt_endpoint *b)
{
  int host = compare_ids(a->host, b->host), pid = compare_ids((uint64_t)a->proc.pid, (uint64_t)b->proc.pid),
      cookie = compare_ids(a->proc.cookie, b->proc.cookie);
  int process = pid != 0 ? pid : cookie;
  return host != 0         ? host
         : !a->shm_disable ? 0
         : a->p2p_disable  ? compare_ids((uint64_t)a->rank, (uint64_t)b->rank)
                           : process;
}

bool tt_transport_needs_net(const tt_endpoint *a, const tt_endpoint *b)
{
  return a->rank != b->rank && tt_transport_order(a, b) != 0;
}

void tt_transport_disconnect(const tt_wiring *w)
{
  for (int i = 0; w->port->links != NULL && i < w->nranks; i++) {
    tt_link *link = w->port->links[i];
    if (link != NULL) {
      const tt_transport *t = link->transport;
      w->port->row->disconnect(link);
      if (t->disconnect != NULL) {
        t->disconnect(link);
      }
      tt_free(link);
      w->port->links[i] = NULL;
    }
  }
}
