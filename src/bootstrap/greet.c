// greet.c: see greet.h.
#include "bootstrap/greet.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

void tt_greeter_none(tt_greeter *g)
{
  memset(g, 0, sizeof(*g));
  g->fd = -1;
}

int tt_greeter_open(tt_greeter *g, const tt_addr *at, const tt_key *key, unsigned kinds, int to)
{
  tt_greeter_none(g);
  g->key = *key;
  g->kinds = kinds;
  g->to = to;
  return tt_tcp_listen(at, &g->fd, &g->addr);
}

size_t tt_greeter_poll(const tt_greeter *g, struct pollfd *fds, uint64_t *wake_ns)
{
  size_t n = 0;
  if (g->fd >= 0) {
    fds[n++] = (struct pollfd){.fd = g->fd, .events = POLLIN};
  }
  for (int i = 0; i < g->nguests; i++) {
    fds[n++] = (struct pollfd){.fd = g->guests[i].fd, .events = POLLIN};
    if (*wake_ns == 0 || g->guests[i].deadline_ns < *wake_ns) {
      *wake_ns = g->guests[i].deadline_ns;
    }
  }
  return n;
}

static void forget(tt_greeter *g, int i)
{
  g->nguests--;
  memmove(&g->guests[i], &g->guests[i + 1], (size_t)(g->nguests - i) * sizeof(g->guests[0]));
}

static void drop(tt_greeter *g, int i, const char *why)
{
  char at[TT_ADDR_TEXT], from[TT_ADDR_TEXT];
  if (g->strangers++ == 0) {
    tt_warn("bootstrap: dropped a connection from %s to %s: %s. Further ones are dropped without a line; none of them does harm",
            tt_addr_text(&g->guests[i].from, from), tt_addr_text(&g->addr, at), why);
  }
  tt_sock_close(&g->guests[i].fd);
  forget(g, i);
}

// Always false. Without descriptors the connection stays in the queue, and poll(2) would come back at once: hence the short sleep.
static bool accept_failed(tt_greeter *g, int e)
{
  if (e != -EAGAIN) {
    if (!g->full_logged) {
      g->full_logged = true;
      tt_warn("bootstrap: cannot accept a connection: %s (see ulimit -n)", strerror(-e));
    }
    tt_sleep_ns(10 * TT_NS_PER_MS);
  }
  return false;
}

// Takes one connection from the queue; false when none waits (or no descriptor is left: then it stays there until one is).
static bool admit(tt_greeter *g, uint64_t now)
{
  int fd = -1;
  tt_addr from;
  if (g->fd < 0) {
    return false;
  }
  if (g->guests == NULL) {
    g->guests = tt_calloc(TT_GREET_MAX, sizeof(g->guests[0]));
  }
  if (g->guests == NULL) {
    return false;
  }
  int e = tt_tcp_accept(g->fd, &fd, &from);
  if (e != 0) {
    return accept_failed(g, e);
  }
  if (g->nguests == TT_GREET_MAX) {
    drop(g, 0, "too many connections without a hello");
  }
  g->guests[g->nguests++] = (tt_guest){.fd = fd, .from = from, .deadline_ns = now + TT_GREET_NS};
  return true;
}

typedef enum { GUEST_WAITS, GUEST_GONE, GUEST_READY } guest_state;

// Reads what guest i has sent.
static guest_state read_guest(tt_greeter *g, int i, uint64_t now)
{
  tt_guest *p = &g->guests[i];
  ssize_t n = tt_sock_recv(p->fd, (char *)&p->hello + p->got, sizeof(p->hello) - p->got);
  if (n == -EAGAIN && now < p->deadline_ns) {
    return GUEST_WAITS;
  }
  if (n < 0) {
    drop(g, i, n == -EAGAIN ? "it stayed silent" : "it closed before its hello was complete");
    return GUEST_GONE;
  }
  p->got += (size_t)n;
  const char *why = tt_hello_check(&p->hello, p->got, &g->key, g->kinds, g->to);
  if (why != NULL) {
    drop(g, i, why);
    return GUEST_GONE;
  }
  return p->got == sizeof(p->hello) ? GUEST_READY : GUEST_WAITS;
}

bool tt_greeter_next(tt_greeter *g, tt_hello *hello, int *fd)
{
  uint64_t now = tt_now_ns();
  // Reading before the next accept: whoever sends its hello at once, as ranks do, is never the one that is pushed out.
  do {
    for (int i = 0; i < g->nguests;) {
      guest_state s = read_guest(g, i, now);
      if (s == GUEST_READY) {
        *hello = g->guests[i].hello;
        *fd = g->guests[i].fd;
        forget(g, i);
        return true;
      }
      i += s == GUEST_WAITS;
    }
  } while (admit(g, now));
  return false;
}

void tt_greeter_close(tt_greeter *g, bool kill)
{
  if (g->strangers > 1) {
    tt_info(TT_BOOTSTRAP, "bootstrap: dropped %u connections of strangers", g->strangers);
  }
  for (int i = 0; i < g->nguests; i++) {
    tt_sock_close(&g->guests[i].fd);
  }
  if (kill) {
    tt_sock_kill(g->fd);
  }
  tt_sock_close(&g->fd);
  tt_free(g->guests);
  tt_greeter_none(g);
}
