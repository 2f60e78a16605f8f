// greet.c: see greet.h.
#include "bootstrap/greet.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

enum { ADMIT_AT_ONCE = 64, FIRST_ROOM = 8 };

void tt_greeter_none(tt_greeter *g)
{
  memset(g, 0, sizeof(*g));
}

int tt_greeter_open(tt_greeter *g, const tt_addrs *at, const tt_key *key, unsigned kinds, int to)
{
  int first = -EADDRNOTAVAIL;
  tt_greeter_none(g);
  g->welcome = (tt_welcome){.key = *key, .kinds = kinds, .to = to};
  g->addrs.more = at->more;
  for (uint32_t i = 0; i < TT_MIN(at->n, TT_ADDRS_MAX); i++) {
    uint32_t n = g->addrs.n;
    int e = tt_tcp_listen(&at->a[i], &g->fds[n], &g->addrs.a[n]);
    first = i == 0 || e == -EADDRINUSE ? e : first;
    g->addrs.n += e == 0;
  }
  return g->addrs.n > 0 ? 0 : first;
}

// When the house is full, newcomers wait in the kernel's queue until the oldest guest has had its time. 0: now.
static uint64_t admits_from(const tt_greeter *g)
{
  return g->nguests < TT_GREET_MAX ? 0 : g->guests[0].came_ns + TT_GREET_STAY_NS;
}

void tt_wake_by(uint64_t *wake_ns, uint64_t at_ns)
{
  if (at_ns != 0) {
    *wake_ns = *wake_ns == 0 ? at_ns : TT_MIN(*wake_ns, at_ns);
  }
}

size_t tt_greeter_poll(const tt_greeter *g, struct pollfd *fds, uint64_t *wake_ns)
{
  size_t n = 0;
  uint64_t from = admits_from(g);
  bool admits = from == 0 || tt_now_ns() >= from;
  for (uint32_t i = 0; admits && i < g->addrs.n; i++) {
    fds[n++] = (struct pollfd){.fd = g->fds[i], .events = POLLIN};
  }
  for (int i = 0; i < g->nguests; i++) {
    fds[n++] = (struct pollfd){.fd = g->guests[i].shake.fd, .events = POLLIN};
  }
  if (!admits) {
    tt_wake_by(wake_ns, from);
  } else if (g->nguests > 0) {
    tt_wake_by(wake_ns, g->guests[0].came_ns + TT_GREET_NS);
  }
  return n;
}

static void forget(tt_greeter *g, int i)
{
  g->nguests--;
  memmove(&g->guests[i], &g->guests[i + 1], (size_t)(g->nguests - i) * sizeof(g->guests[0]));
}

// A connection that closed without a word may be a port scan, or one of ours that has got through by another address: no warning.
static void drop(tt_greeter *g, int i, const char *why, bool quiet)
{
  char at[TT_ADDR_TEXT], from[TT_ADDR_TEXT];
  tt_guest *p = &g->guests[i];
  bool *logged = quiet ? &g->quiet_logged : &g->logged;
  tt_addr to = g->addrs.a[0];
  (void)tt_sock_local(p->shake.fd, &to);
  g->strangers++;
  if (!*logged) {
    *logged = true;
    tt_log_line(quiet ? TT_LOG_INFO : TT_LOG_WARN, quiet ? TT_BOOTSTRAP : TT_ALL, __FILE__, __LINE__,
                "bootstrap: dropped a connection from %s to %s: %s. Further ones are dropped without a line; none of them does harm",
                tt_addr_text(&p->from, from), tt_addr_text(&to, at), why);
  }
  tt_sock_close(&p->shake.fd);
  forget(g, i);
}

// Without descriptors the connection stays in the queue, and poll(2) would come back at once: a guest makes room, or hence the short sleep.
static void accept_failed(tt_greeter *g, int e)
{
  if (g->shortage == 0) {
    g->shortage = e;
    tt_warn("bootstrap: cannot accept a connection: %s", tt_sock_error_text(e));
  }
  if (g->nguests > 0) {
    drop(g, 0, "no descriptors are left, and it was silent", false);
  } else {
    tt_sleep_ns(10 * TT_NS_PER_MS);
  }
}

// Makes room for one more guest. False: not now.
static bool make_room(tt_greeter *g, uint64_t now)
{
  if (g->nguests == TT_GREET_MAX) {
    if (now < admits_from(g)) {
      return false;
    }
    drop(g, 0, "too many connections without a hello", false);
  }
  if (g->nguests == g->room) {
    int room = TT_CLAMP(2 * g->room, FIRST_ROOM, TT_GREET_MAX);
    tt_guest *more = tt_calloc((size_t)room, sizeof(more[0]));
    if (more == NULL) {
      tt_sleep_ns(10 * TT_NS_PER_MS); // the newcomer stays in the queue, and poll(2) would come back at once
      return false;
    }
    if (g->nguests > 0) {
      memcpy(more, g->guests, (size_t)g->nguests * sizeof(more[0]));
    }
    tt_free(g->guests);
    g->guests = more;
    g->room = room;
  }
  return true;
}

// Takes one connection from the queue of socket i and greets it; false when none waits, or there is no room.
static bool admit(tt_greeter *g, uint32_t i, uint64_t now)
{
  int fd = -1;
  tt_addr from;
  if (!make_room(g, now)) {
    return false;
  }
  int e = tt_tcp_accept(g->fds[i], &fd, &from);
  if (e != 0) {
    if (e != -EAGAIN) {
      accept_failed(g, e);
    }
    return false;
  }
  tt_guest *p = &g->guests[g->nguests];
  p->from = from;
  p->came_ns = now;
  if (tt_shake_in_start(&p->shake, fd) != 0) {
    g->strangers++;
    tt_sock_close(&fd);
    return true;
  }
  g->nguests++;
  return true;
}

// Whoever has just come cannot have answered yet, so nothing is read here; and a flood must not keep the caller from its other work.
static void admit_some(tt_greeter *g, uint64_t now)
{
  int left = ADMIT_AT_ONCE;
  for (bool more = true; more && left > 0;) {
    more = false;
    for (uint32_t i = 0; i < g->addrs.n && left > 0; i++) {
      bool one = admit(g, i, now);
      more |= one;
      left -= one;
    }
  }
}

// Reads what guests have sent, the newest first, and drops those whose time is over. True: guest *at is ready.
static bool hear_guests(tt_greeter *g, uint64_t now, int *at)
{
  struct pollfd fds[TT_GREET_MAX];
  tt_until at_once = {.deadline_ns = 1};
  for (int i = 0; i < g->nguests; i++) {
    fds[i] = (struct pollfd){.fd = g->guests[i].shake.fd, .events = POLLIN};
  }
  (void)tt_sock_poll(fds, (size_t)g->nguests, &at_once);
  for (int i = g->nguests - 1; i >= 0; i--) {
    const char *why = "it stayed silent";
    int e = fds[i].revents != 0 ? tt_shake_in_step(&g->guests[i].shake, &g->welcome, &why) : 0;
    if (e == 1) {
      *at = i;
      return true;
    }
    if (e < 0 || now >= g->guests[i].came_ns + TT_GREET_NS) {
      drop(g, i, why, e < 0 && g->guests[i].shake.got == 0);
    }
  }
  return false;
}

bool tt_greeter_next(tt_greeter *g, tt_hello *hello, int *fd)
{
  uint64_t now = tt_now_ns();
  int at = -1;
  if (g->nguests > 0 && hear_guests(g, now, &at)) {
    *hello = g->guests[at].shake.hello;
    *fd = g->guests[at].shake.fd;
    forget(g, at);
    return true;
  }
  admit_some(g, now);
  return false;
}

void tt_greeter_close(tt_greeter *g, bool kill)
{
  if (g->strangers > 1) {
    tt_info(TT_BOOTSTRAP, "bootstrap: dropped %u connections of strangers", g->strangers);
  }
  for (int i = 0; i < g->nguests; i++) {
    tt_sock_close(&g->guests[i].shake.fd);
  }
  for (uint32_t i = 0; i < g->addrs.n; i++) {
    if (kill) {
      tt_sock_kill(g->fds[i]);
    }
    tt_sock_close(&g->fds[i]);
  }
  tt_free(g->guests);
  tt_greeter_none(g);
}
