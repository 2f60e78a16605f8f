// greet.c: see greet.h.
#include "bootstrap/greet.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "os/events.h"

enum { ADMIT_ROUNDS = 32 };

int tt_greeter_open(tt_greeter *g, const tt_addrs *at, const tt_key *key, unsigned kinds, int to)
{
  int first = -EADDRNOTAVAIL;
  *g = (tt_greeter){.welcome = {.key = *key, .kinds = kinds, .to = to}, .addrs.more = at->more};
  for (uint32_t i = 0; i < TT_MIN(at->n, TT_ADDRS_MAX); i++) {
    uint32_t n = g->addrs.n;
    int e = tt_tcp_listen(&at->a[i], &g->fds[n], &g->addrs.a[n]);
    first = i == 0 || e == -EADDRINUSE ? e : first;
    g->addrs.n += e == 0;
  }
  return g->addrs.n > 0 ? 0 : first;
}

void tt_greeter_add(tt_greeter *g, const tt_addr *at, int fd)
{
  if (g->addrs.n == TT_ADDRS_MAX) {
    tt_sock_kill(g->fds[0]);
    tt_sock_close(&g->fds[0]);
    g->addrs.n--;
    memmove(g->fds, g->fds + 1, g->addrs.n * sizeof g->fds[0]);
    memmove(g->addrs.a, g->addrs.a + 1, g->addrs.n * sizeof g->addrs.a[0]);
  }
  g->addrs.a[g->addrs.n] = *at;
  g->fds[g->addrs.n++] = fd;
}

// When there is no room, newcomers wait in the kernel's queue until the oldest pending connection has had its time. 0:
// now.
static uint64_t greet_admits_from(const tt_greeter *g)
{
  return g->npending < TT_GREET_MAX ? 0 : g->pending[0].came_ns + TT_GREET_STAY_NS;
}

size_t tt_greeter_poll(const tt_greeter *g, struct pollfd *fds, uint64_t *wake_ns)
{
  size_t n = 0;
  uint64_t from = greet_admits_from(g);
  bool admits = from == 0 || tt_now_ns() >= from;
  for (uint32_t i = 0; admits && i < g->addrs.n; i++) {
    fds[n++] = (struct pollfd){.fd = g->fds[i], .events = POLLIN};
  }
  for (int i = 0; i < g->npending; i++) {
    fds[n++] = (struct pollfd){.fd = g->pending[i].conn.fd, .events = POLLIN};
    tt_wake_by(wake_ns, g->pending[i].heard_ns + TT_GREET_NS);
  }
  if (!admits) {
    tt_wake_by(wake_ns, from);
  }
  return n;
}

static void greet_forget(tt_greeter *g, int i)
{
  g->npending--;
  memmove(&g->pending[i], &g->pending[i + 1], (size_t)(g->npending - i) * sizeof(g->pending[0]));
}

// A connection that closed without a word may be a port scan, or one of ours that has got through by another address:
// no warning.
static void greet_drop(tt_greeter *g, int i, const char *why, bool quiet)
{
  char at[TT_ADDR_TEXT], from[TT_ADDR_TEXT];
  tt_pending *p = &g->pending[i];
  quiet |= g->quiet;
  bool *logged = quiet ? &g->quiet_logged : &g->logged;
  tt_addr to = g->addrs.a[0];
  (void)tt_sock_local(p->conn.fd, &to);
  g->strangers++;
  if (!*logged) {
    *logged = true;
    tt_log_line(quiet ? TT_LOG_INFO : TT_LOG_WARN, quiet ? TT_BOOTSTRAP : TT_ALL, __FILE__, __LINE__,
                "bootstrap: dropped a connection from %s to %s: %s. Further ones are dropped without a line; none of "
                "them does harm",
                tt_addr_text(&p->from, from), tt_addr_text(&to, at), why);
  }
  tt_sock_close(&p->conn.fd);
  greet_forget(g, i);
}

// Without descriptors the connection stays in the queue, and poll(2) would come back at once: drops the oldest
// pending connection, or sleeps for a moment.
static void greet_accept_failed(tt_greeter *g, int e)
{
  if (g->shortage == 0) {
    g->shortage = e;
    tt_warn("bootstrap: cannot accept a connection: %s", tt_sock_error_text(e));
  }
  if (g->npending > 0) {
    greet_drop(g, 0, "no descriptors are left, and it was silent", false);
  } else {
    tt_sleep_ns(10 * TT_NS_PER_MS);
  }
}

// Takes one connection from the queue of a socket and greets it; false when none waits, or it has to wait there.
static bool greet_admit(tt_greeter *g, int listener, uint64_t now)
{
  int fd = -1;
  tt_addr from;
  if (g->npending == TT_GREET_MAX && now < greet_admits_from(g)) {
    return false;
  }
  if (g->npending == TT_GREET_MAX) {
    greet_drop(g, 0, "too many connections without a hello", false);
  }
  int e = tt_tcp_accept(listener, &fd, &from);
  if (e != 0) {
    if (e != -EAGAIN) {
      greet_accept_failed(g, e);
    }
    return false;
  }
  tt_pending *p = &g->pending[g->npending++];
  *p = (tt_pending){.from = from, .came_ns = now, .heard_ns = now};
  if (tt_conn_greet(&p->conn, fd) != 0) {
    g->strangers++;
    g->npending--;
    tt_sock_close(&fd);
  }
  return true;
}

// A connection that has just come cannot have answered yet, so nothing is read here. A flood must not keep the caller
// from its other work.
static void greet_admit_some(tt_greeter *g, uint64_t now)
{
  for (int round = 0; g->addrs.n > 0 && round < ADMIT_ROUNDS; round++) {
    bool more = false;
    if (!tt_grow(&g->pending, g->npending, TT_ADDRS_MAX, &g->room, sizeof(g->pending[0]))) {
      tt_sleep_ns(10 * TT_NS_PER_MS); // newcomers stay in the queue, and poll(2) would come back at once
      return;
    }
    for (uint32_t i = 0; i < g->addrs.n; i++) {
      more |= greet_admit(g, g->fds[i], now);
    }
    if (!more) {
      return;
    }
  }
}

// Reads what pending connections have sent, the newest first, and drops those whose time is over. True: that at *at has
// proved itself.
static bool greet_hear(tt_greeter *g, uint64_t now, int *at, tt_hello *lost)
{
  struct pollfd fds[TT_GREET_MAX];
  tt_until at_once = {.deadline_ns = 1};
  for (int i = 0; i < g->npending; i++) {
    fds[i] = (struct pollfd){.fd = g->pending[i].conn.fd, .events = POLLIN};
  }
  (void)tt_sock_poll(fds, (size_t)g->npending, &at_once);
  for (int i = g->npending - 1; i >= 0; i--) {
    const char *why = "it stayed silent";
    int e = fds[i].revents != 0 ? tt_conn_accept(&g->pending[i].conn, &g->welcome, &why) : 0;
    if (e == 1) {
      *at = i;
      return true;
    }
    bool tells = g->tells && (e == -ENOKEY || (e < 0 && g->pending[i].conn.proven));
    g->pending[i].heard_ns = fds[i].revents != 0 ? now : g->pending[i].heard_ns;
    if (e < 0 || now >= g->pending[i].heard_ns + TT_GREET_NS) {
      *lost = g->pending[i].conn.hello;
      greet_drop(g, i, why, e < 0 && g->pending[i].conn.at == 0);
    }
    if (tells) {
      return true;
    }
  }
  return false;
}

bool tt_greeter_next(tt_greeter *g, tt_hello *hello, int *fd)
{
  uint64_t now = tt_now_ns();
  int at = -1;
  tt_hello lost;
  if (g->npending > 0 && greet_hear(g, now, &at, &lost)) {
    if (at < 0) {
      *hello = lost;
      *fd = -1;
      return true;
    }
    *hello = g->pending[at].conn.hello;
    *fd = g->pending[at].conn.fd;
    greet_forget(g, at);
    return true;
  }
  greet_admit_some(g, now);
  return false;
}

void tt_greeter_rest(tt_greeter *g)
{
  for (int i = 0; i < g->npending; i++) {
    tt_sock_close(&g->pending[i].conn.fd);
  }
  tt_free(g->pending);
  g->pending = NULL;
  g->npending = g->room = 0;
}

void tt_greeter_close(tt_greeter *g, bool kill)
{
  if (g->strangers > 1) {
    tt_attn(TT_BOOTSTRAP, "bootstrap: dropped %u connections of strangers", g->strangers);
  }
  tt_greeter_rest(g);
  for (uint32_t i = 0; i < g->addrs.n; i++) {
    if (kill) {
      tt_sock_kill(g->fds[i]);
    }
    tt_sock_close(&g->fds[i]);
  }
  *g = (tt_greeter){.npending = 0};
}
