// transport.c: the table of transports, and making links.
#include "transport/transport.h"

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"

// In order of preference.
static const tt_transport *const transports[] = {&tt_transport_self, &tt_transport_p2p, &tt_transport_shm};

const tt_transport *tt_transport_find(const tt_wiring *w, int peer)
{
  for (size_t i = 0; i < TT_COUNT(transports); i++) {
    if (transports[i]->can_connect(w, &w->peers[w->rank], &w->peers[peer])) {
      return transports[i];
    }
  }
  return NULL;
}

static ncclResult_t no_transport(const tt_wiring *w, int peer)
{
  const tt_params *p = tt_params_get();
  const char *where = w->peers[w->rank].host == w->peers[peer].host ? "on one machine" : "on different machines";
  return tt_fail(
      ncclInvalidUsage,
      "rank %d and rank %d (%s) cannot be connected: NCCL_P2P_DISABLE=%d, NCCL_SHM_DISABLE=%d, and the network transport is not part "
      "of this version",
      w->rank, peer, where, (int)p->p2p_disable, (int)p->shm_disable);
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
  link->proc = w->peers[peer].proc;
  link->mailbox = w->peers[peer].mailbox;
  link->transport = t;
  ncclResult_t res = t->connect(w, link);
  if (res != ncclSuccess) {
    tt_free(link);
    return res;
  }
  link->watched =
      link->access != TT_ACCESS_LOCAL && w->peers[peer].pid_space != 0 && w->peers[peer].pid_space == w->peers[w->rank].pid_space;
  tt_info(TT_P2P, "rank %d[%d] -> rank %d[%d] via %s%s", w->rank, w->peers[w->rank].device, peer, w->peers[peer].device, t->name,
          link->access == TT_ACCESS_COPY    ? "/CMA"
          : link->access == TT_ACCESS_LOCAL ? "/direct"
                                            : "");
  __atomic_store_n(&port->links[peer], link, __ATOMIC_RELEASE);
  return ncclSuccess;
}

void tt_transport_disconnect(const tt_wiring *w)
{
  for (int i = 0; w->port->links != NULL && i < w->nranks; i++) {
    tt_link *link = w->port->links[i];
    if (link != NULL) {
      const tt_transport *t = link->transport;
      if (t->disconnect != NULL) {
        t->disconnect(link);
      }
      tt_free(link);
      w->port->links[i] = NULL;
    }
  }
}
