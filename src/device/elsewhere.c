// elsewhere.c: see elsewhere.h.
#include "device/elsewhere.h"

#include <pthread.h>

// The ports that show each other's waits. Guards the list and the writing of `elsewhere` on their pages. Never held
// while anything is waited for.
static pthread_mutex_t elsewhere_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_port *elsewhere_ports;

static bool elsewhere_is_lone(const tt_port *port)
{
  int n = 0;
  for (int i = 0; port->neighbors != NULL && i < port->nranks; i++) {
    n += port->neighbors[i].page != NULL && port->neighbors[i].cookie == port->neighbors[port->rank].cookie;
  }
  return n == 1;
}

void tt_elsewhere_open(tt_port *port)
{
  if (!elsewhere_is_lone(port)) {
    return;
  }
  pthread_mutex_lock(&elsewhere_lock);
  port->elsewhere_next = elsewhere_ports;
  elsewhere_ports = port;
  pthread_mutex_unlock(&elsewhere_lock);
}

// Takes what the port shows from the pages of the others. The lock is held.
static void elsewhere_clear(const tt_port *port)
{
  tt_wait w;
  for (tt_port *other = elsewhere_ports; other != NULL; other = other->elsewhere_next) {
    if (tt_wait_read_at(other->page->elsewhere, &w) && w.hash == port->hash) {
      tt_wait_show(other->page->elsewhere, &(tt_wait){.since_ns = 0});
    }
  }
}

void tt_elsewhere_close(tt_port *port)
{
  pthread_mutex_lock(&elsewhere_lock);
  for (tt_port **at = &elsewhere_ports; *at != NULL; at = &(*at)->elsewhere_next) {
    if (*at == port) {
      *at = port->elsewhere_next;
      elsewhere_clear(port);
      break;
    }
  }
  pthread_mutex_unlock(&elsewhere_lock);
}

// Another thread of the parent may have had the lock.
void tt_elsewhere_forget(void)
{
  pthread_mutex_init(&elsewhere_lock, NULL);
  elsewhere_ports = NULL;
}

void tt_elsewhere_show(const tt_port *port, const tt_wait *w)
{
  if (pthread_mutex_trylock(&elsewhere_lock) != 0) {
    return;
  }
  tt_wait shown = *w;
  shown.hash = port->hash;
  shown.number = (uint32_t)port->rank;
  bool lone = false;
  for (const tt_port *own = elsewhere_ports; own != NULL; own = own->elsewhere_next) {
    lone |= own == port;
  }
  if (w->since_ns == 0) {
    elsewhere_clear(port);
  }
  for (tt_port *other = elsewhere_ports; lone && w->since_ns != 0 && other != NULL; other = other->elsewhere_next) {
    if (other->hash != port->hash) {
      tt_wait_show(other->page->elsewhere, &shown);
    }
  }
  pthread_mutex_unlock(&elsewhere_lock);
}
