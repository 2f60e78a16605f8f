// server.c: the RAS thread: start, end, fork, and what it waits for.
#include "ras/server.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "base/util.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/netif.h"
#include "os/random.h"
#include "os/shm.h"
#include "ras/query.h"
#include "ras/ring.h"

// The thread of this process, and how many communicators need it.
static struct {
  pthread_mutex_t lock;
  ras_server *server; // NULL: none
  int users;
} ras = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((constructor)) static void ras_at_start(void)
{
  tt_proc_hold_at_fork(&ras.lock);
}

uint64_t ras_seconds(const ras_server *s, double seconds)
{
  return (uint64_t)(seconds * s->factor * 1e9);
}

void ras_poll_add(ras_polls *p, int fd, short events)
{
  if (fd < 0) {
    return;
  }
  if (p->n == p->room) {
    int room = (int)p->room;
    if (!tt_grow(&p->fds, (int)p->n, 1, &room, sizeof *p->fds)) {
      tt_wake_by(&p->wake_ns, tt_now_ns() + TT_NS_PER_S);
      return;
    }
    p->room = (size_t)room;
  }
  p->fds[p->n++] = (struct pollfd){.fd = fd, .events = events};
}

static void poll_door(ras_server *s)
{
  struct pollfd fds[TT_GREET_POLL];
  size_t n = tt_greeter_poll(&s->door, fds, &s->polls.wake_ns);
  for (size_t i = 0; i < n; i++) {
    ras_poll_add(&s->polls, fds[i].fd, fds[i].events);
  }
}

static void server_wait(ras_server *s)
{
  s->polls.n = 0;
  s->polls.wake_ns = 0;
  ras_poll_add(&s->polls, s->wake, POLLIN);
  if (s->short_of_fds) {
    tt_wake_by(&s->polls.wake_ns, tt_now_ns() + TT_NS_PER_S);
  } else {
    ras_poll_add(&s->polls, s->listener, POLLIN);
  }
  poll_door(s);
  ras_clients_poll(s);
  ras_query_poll(s);
  ras_ring_poll(s);
  int e = tt_sock_poll(s->polls.fds, s->polls.n, &(tt_until){.deadline_ns = s->polls.wake_ns});
  if (e < 0 && e != -ETIMEDOUT) { // the limit of open files is lower by now, or there is no memory
    tt_sleep_ns(10 * TT_NS_PER_MS);
  }
  s->polls.n = 0; // from here on a number may be closed, and be another file's (ras_in_child)
  tt_ring_clear(s->wake);
}

tt_addr ras_server_address(const ras_server *s)
{
  pthread_mutex_lock(&ras.lock);
  tt_addr at = s->addrs.a[s->best];
  pthread_mutex_unlock(&ras.lock);
  return at;
}

static void widen_door(ras_server *s)
{
  pthread_mutex_lock(&ras.lock);
  for (int i = 0; i < s->nfresh; i++) {
    tt_greeter_add(&s->door, &s->addrs.a[s->addrs.n - (uint32_t)(s->nfresh - i)], s->fresh[i]);
  }
  s->nfresh = 0;
  pthread_mutex_unlock(&ras.lock);
}

static void *server_main(void *arg)
{
  ras_server *s = arg;
  while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
    tt_hello hello;
    int fd;
    widen_door(s);
    ras_ring_refresh(s);
    server_wait(s);
    while (tt_greeter_next(&s->door, &hello, &fd)) {
      ras_ring_accept(s, &hello, fd);
    }
    ras_clients_accept(s);
    ras_ring_step(s);
    ras_query_step(s);
    ras_clients_step(s);
  }
  return NULL;
}

// ---- start and end

static void find_key(void *arg, const tt_hello *h, tt_key *key)
{
  (void)arg;
  (void)ras_registry_key(h->tag, key);
}

static bool server_open_door(ras_server *s, const tt_addr *at)
{
  char ip[TT_ADDR_TEXT];
  tt_addrs own = {.n = 1, .a = {*at}};
  tt_key none = {.is_public = false};
  tt_random(none.b, sizeof none.b); // that no process knows
  int e = tt_greeter_open(&s->door, &own, &none, TT_HELLO_RAS, 0);
  s->door.welcome.find = find_key;
  s->door.quiet = true; // a process may ask before this one knows their communicator, and asks again
  s->addrs = s->door.addrs;
  if (e != 0) {
    tt_info(TT_RAS, "RAS: this process takes no part: cannot listen on %s: %s", tt_addr_ip_text(at, ip),
            tt_sock_error_text(e));
  }
  return e == 0;
}

// Under the lock.
static void server_add_address(ras_server *s, const tt_addr *at)
{
  tt_addrs *all = &s->addrs;
  int fd;
  tt_addr bound;
  char ip[TT_ADDR_TEXT], before[TT_ADDR_TEXT];
  int e = tt_tcp_listen(at, &fd, &bound);
  if (e != 0) {
    tt_info(TT_RAS, "RAS: cannot listen on %s, now this machine's best address: %s. Others are told %s, as before",
            tt_addr_ip_text(at, ip), tt_sock_error_text(e), tt_addr_text(&all->a[s->best], before));
    return;
  }
  if (all->n == TT_ADDRS_MAX) { // as tt_greeter_add
    all->n--;
    memmove(all->a, all->a + 1, all->n * sizeof all->a[0]);
  }
  s->fresh[s->nfresh++] = fd;
  s->best = all->n;
  all->a[all->n++] = bound;
  tt_ring(s->wake);
}

// The thread listens at this address, too, and the next communicators are told of it. The machine's best address
// changes when an interface comes or goes. Under the lock.
static void server_tell(ras_server *s, const tt_addr *at)
{
  const tt_addrs *all = &s->addrs;
  uint32_t i = 0;
  while (i < all->n && !tt_addr_same_ip(&all->a[i], at)) {
    i++;
  }
  if (i < all->n) {
    s->best = i;
  } else if (s->nfresh < (int)TT_ADDRS_MAX) { // else the thread has not come to the last ones yet
    server_add_address(s, at);
  }
}

// For clients. Without it the process still answers others.
static void open_listener(ras_server *s)
{
  const char *text = tt_params_get()->ras_addr;
  tt_addrs at = {.n = 0};
  tt_addr bound;
  char plain[64];
  if (tt_ncasecmp(text, "localhost:", 10) == 0) { // without the resolver
    tt_format(plain, sizeof plain, "127.0.0.1:%s", text + 10);
    text = plain;
  }
  int e = tt_addrs_parse(text, AF_UNSPEC, &at);
  for (uint32_t i = 0; e == 0 && i < at.n && s->listener < 0; i++) {
    int failed = tt_tcp_listen_shared(&at.a[i], &s->listener, &bound);
    e = i + 1 == at.n && s->listener < 0 ? failed : 0;
  }
  if (s->listener < 0) {
    tt_info(TT_RAS, "RAS: cannot listen for clients on NCCL_RAS_ADDR=%s: %s", text, tt_sock_error_text(e));
  } else {
    tt_info(TT_RAS, "RAS: listens for clients on %s", text);
  }
}

static double timeout_factor(void)
{
  const char *text = tt_params_get()->ras_timeout_factor;
  char *end = NULL;
  double f = text != NULL ? (double)tt_strtof(text, &end) : 1;
  if (text == NULL || (end != text && *end == '\0' && isfinite(f) && f > 0)) {
    return f;
  }
  tt_warn("NCCL_RAS_TIMEOUT_FACTOR=%s: expected a number above 0. The value 1 is used", text);
  return 1;
}

static void server_free(ras_server *s)
{
  if (s == NULL) {
    return;
  }
  ras_query_cancel(s);
  ras_clients_close(s);
  ras_ring_close(s);
  for (int i = 0; i < s->nfresh; i++) {
    tt_sock_close(&s->fresh[i]);
  }
  tt_greeter_close(&s->door, true);
  tt_sock_close(&s->listener);
  tt_fd_close(s->wake);
  tt_free(s->polls.fds);
  tt_free(s);
}

static ras_server *server_start(const tt_addr *at)
{
  ras_server *s = tt_calloc(1, sizeof *s);
  if (s == NULL) {
    return NULL;
  }
  s->listener = s->wake = -1;
  s->factor = timeout_factor();
  int e = tt_ring_open(&s->wake);
  if (e != 0) {
    tt_info(TT_RAS, "RAS: this process takes no part: no descriptor to wake its thread by: %s", tt_sock_error_text(e));
  }
  if (e != 0 || !server_open_door(s, at)) {
    server_free(s);
    return NULL;
  }
  open_listener(s);
  if (tt_thread_start(&s->thread, "tutti-ras", server_main, s) != ncclSuccess) {
    server_free(s);
    return NULL;
  }
  return s;
}

// The parent's thread does not exist here. What was in the middle of a change stays open, no more.
static void ras_in_child(void)
{
  ras_server *s = ras.server;
  ras_registry_forget();
  ras.server = NULL;
  ras.users = 0;
  for (size_t i = 0; s != NULL && i < s->polls.n; i++) {
    tt_fd_close(s->polls.fds[i].fd);
  }
  for (int i = 0; s != NULL && i < s->nfresh; i++) {
    tt_fd_close(s->fresh[i]);
  }
}

// Under the lock.
static void server_need(const tt_addr *best)
{
  if (ras.server != NULL) {
    server_tell(ras.server, best);
    return;
  }
  static tt_fork_hook hook = {.fn = ras_in_child};
  tt_proc_on_fork(&hook);
  ras.server = server_start(best);
}

void tt_ras_hold(tt_addr *at)
{
  tt_addr best;
  bool enabled = tt_params_get()->ras_enable, any = enabled && tt_netif_best(&best) == ncclSuccess && best.family != 0;
  *at = (tt_addr){.family = 0};
  pthread_mutex_lock(&ras.lock);
  ras.users++;
  if (any) {
    server_need(&best);
  } else if (enabled && ras.server == NULL) {
    tt_info(TT_RAS, "RAS: this process takes no part: no network interface");
  }
  if (ras.server != NULL) {
    *at = ras.server->addrs.a[ras.server->best];
  }
  pthread_mutex_unlock(&ras.lock);
}

void tt_ras_release(void)
{
  ras_server *last = NULL;
  pthread_mutex_lock(&ras.lock);
  if (--ras.users == 0) {
    last = ras.server;
    ras.server = NULL;
  }
  pthread_mutex_unlock(&ras.lock);
  if (last != NULL) {
    __atomic_store_n(&last->stop, 1, __ATOMIC_RELEASE);
    tt_ring(last->wake);
    tt_thread_join(&last->thread);
    server_free(last);
  }
}

void ras_server_look(void)
{
  pthread_mutex_lock(&ras.lock);
  if (ras.server != NULL) {
    tt_ring(ras.server->wake);
  }
  pthread_mutex_unlock(&ras.lock);
}
