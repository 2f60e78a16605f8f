// p2p.c: two ranks in one process, whose devices reach each other's memory. FIFOs in the shared segment; a pointer of
// one is a pointer of the other.
#include "transport/transport.h"

static bool p2p_can_connect(const tt_wiring *w, const tt_endpoint *me, const tt_endpoint *peer)
{
  return w->segment != NULL && !tt_transport_p2p_off() && me->host == peer->host && me->proc.pid == peer->proc.pid &&
         me->proc.cookie == peer->proc.cookie && w->port->row->joins(me->device, peer->device);
}

static ncclResult_t p2p_connect(const tt_wiring *w, tt_link *link)
{
  tt_link_env env;
  tt_segment_connect(w->segment, link, &env);
  link->access = TT_ACCESS_LOCAL;
  return w->port->row->connect(w->port, link, &env);
}

const tt_transport tt_transport_p2p = {.name = "p2p", .can_connect = p2p_can_connect, .connect = p2p_connect};
