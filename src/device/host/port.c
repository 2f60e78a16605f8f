// port.c: stopping a rank, telling its peers, and waiting for those that write into its memory.
#include <stdio.h>

#include "base/log.h"
#include "base/result.h"
#include "device/owner.h"

#define LOOK_NS 100000000ull // between two looks whether a writer lives
#define SAY_AFTER 20         // looks after which it is said who is waited for

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
  // The text is written before the code is published; the second caller changes nothing.
  while (atomic_exchange_explicit(&port->stopping, 1, memory_order_acquire) != 0) {
  }
  if (tt_port_status(port) == ncclSuccess) {
    snprintf(port->error, sizeof port->error, "%s", why == NULL ? "" : why);
    uint32_t state = __atomic_load_n(&port->abort_flag, __ATOMIC_ACQUIRE) ? TT_RANK_ABORTED : TT_RANK_FAILED;
    // First: a rank that sees the code looks which peers still write (owner.h).
    atomic_store_explicit(&port->page->state, state, memory_order_release);
    atomic_store_explicit(&port->stop, (uint32_t)code, memory_order_release);
  }
  atomic_store_explicit(&port->stopping, 0, memory_order_release);
  if (port->mover != NULL) {
    port->mover->state_changed(port->mover_self);
  }
  tt_port_ring_all(port);
}

// Does the peer's page name this rank?
static bool is_named(const tt_port *port, const tt_link *link)
{
  uint32_t whose = atomic_load_explicit(&link->page->writes, memory_order_acquire);
  return whose == (uint32_t)port->rank + 1 || whose == TT_WRITES_ALL;
}

const tt_link *tt_port_writer(tt_port *port, bool look)
{
  if (atomic_load_explicit(&port->unwritten, memory_order_acquire)) {
    return NULL;
  }
  tt_bell_fence(); // the state was stored before
  for (int i = 0; port->links != NULL && i < port->nranks; i++) {
    const tt_link *link = __atomic_load_n(&port->links[i], __ATOMIC_ACQUIRE);
    if (link == NULL || link->page == NULL || i == port->rank || !is_named(port, link) ||
        (look && tt_link_ended(link))) {
      continue;
    }
    if (look && atomic_fetch_add(&port->writer_looks, 1) == SAY_AFTER) {
      tt_warn("rank %d has stopped, but rank %d (process %d) is in the middle of writing into its output: waiting for "
              "that; is the process suspended?",
              port->rank, link->peer, link->proc.pid);
    }
    return link;
  }
  atomic_store_explicit(&port->unwritten, true, memory_order_release);
  return NULL;
}

void tt_port_await_writers(tt_port *port)
{
  tt_bell *bell = &port->page->bell;
  bool rung = true;
  while (tt_port_writer(port, !rung) != NULL) {
    uint32_t ticket = tt_bell_announce(bell);
    rung = tt_port_writer(port, false) == NULL || tt_bell_sleep(&bell, &ticket, 1, LOOK_NS);
    tt_bell_leave(bell);
  }
}
