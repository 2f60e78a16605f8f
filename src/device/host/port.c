// port.c: stopping a rank, and telling its peers.
#include <stdio.h>

#include "base/result.h"
#include "device/link.h"

void tt_port_ring_all(tt_port *port)
{
  tt_bell_fence();
  for (int i = 0; port->links != NULL && i < port->nranks; i++) {
    tt_link *link = __atomic_load_n(&port->links[i], __ATOMIC_ACQUIRE);
    if (link != NULL && link->page != NULL) {
      tt_bell_ring(&link->page->bell);
    }
  }
  tt_bell_ring(&port->page->bell);
}

void tt_port_stop(tt_port *port, ncclResult_t code)
{
  const char *why = tt_last_error();
  // The text is written before the code is published; who comes second changes nothing.
  while (atomic_exchange_explicit(&port->stopping, 1, memory_order_acquire) != 0) {
  }
  if (tt_port_status(port) == ncclSuccess) {
    snprintf(port->error, sizeof port->error, "%s", why == NULL ? "" : why);
    atomic_store_explicit(&port->stop, (uint32_t)code, memory_order_release);
    uint32_t state = __atomic_load_n(&port->abort_flag, __ATOMIC_ACQUIRE) ? TT_RANK_ABORTED : TT_RANK_FAILED;
    atomic_store_explicit(&port->page->state, state, memory_order_release);
  }
  atomic_store_explicit(&port->stopping, 0, memory_order_release);
  if (port->mover != NULL) {
    port->mover->state_changed(port->mover_self);
  }
  tt_port_ring_all(port);
}
