// shm.c: two ranks on one machine. FIFOs in the shared segment; buffers are read by process_vm_readv where that is
// permitted, and mapped where they come from ncclMemAlloc.
#include "base/param.h"
#include "transport/transport.h"

static bool shm_can_connect(const tt_wiring *w, const tt_endpoint *me, const tt_endpoint *peer)
{
  return w->segment != NULL && !tt_params_get()->shm_disable && me->host == peer->host;
}

static ncclResult_t shm_connect(const tt_wiring *w, tt_link *link)
{
  tt_link_env env;
  tt_segment_connect(w->segment, link, &env);
  link->access = w->can_copy ? TT_ACCESS_COPY : TT_ACCESS_NONE;
  return w->port->row->connect(w->port, link, &env);
}

const tt_transport tt_transport_shm = {.name = "shm", .can_connect = shm_can_connect, .connect = shm_connect};
