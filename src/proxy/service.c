// service.c: a proxy's service thread: what it waits for, requests of its own rank, start, stop, fork.
#define _GNU_SOURCE // POLLRDHUP
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "os/clock.h"
#include "os/netif.h"
#include "os/proc.h"
#include "os/shm.h"
#include "os/events.h"
#include "proxy/puts.h"
#include "proxy/relay.h"

#define RING_NAP_NS (50 * TT_NS_PER_MS)    // between two looks at a ring that a call uses
#define CLOSE_WAIT_NS (100 * TT_NS_PER_MS) // destroy waits no longer for a peer to take them
// A leaving rank waits no longer for what its peers have sent. Where threads wait for cores, its naps take longer, and
// so do the peers' answers: of each nap only so much counts, up to the last bound.
#define CENSUS_WAIT_NS (200 * TT_NS_PER_MS)
#define CENSUS_NAP_NS (10 * LEAVE_NAP_NS)
#define CENSUS_MOST_NS (400 * TT_NS_PER_MS)
// Between two looks of a leaving rank at its answer, and of the service at the rank's parting.
#define LEAVE_NAP_NS 20000ull

// With NCCL_NET_TIMEOUT.
static tt_proxy_limits limits_of(unsigned patience_s)
{
  uint64_t patience = patience_s * TT_NS_PER_S;
  return (tt_proxy_limits){.connect_ns = patience,
                           .attempt_ns = TT_MIN(5 * TT_NS_PER_S, patience / 4),
                           .refused_ns = 500 * TT_NS_PER_MS,
                           .grace_ns = 200 * TT_NS_PER_MS,
                           .drain_ns = 60 * TT_NS_PER_S,
                           .silent_ns = patience_s >= TT_NET_FOR_EVER ? 0 : patience};
}

// ---- requests of the own rank: what seed 001 sends over a socket; here bits that are set, and the thread is woken

static void set_want(tt_proxy_service *s, tt_msg_type type)
{
  if ((atomic_fetch_or(&s->wants, TT_WANT(type)) & TT_WANT(type)) == 0) {
    tt_ring(s->wake);
  }
}

void tt_proxy_want(const tt_proxy_peer *peer, tt_msg_type type)
{
  tt_proxy_ties *t = peer->ties;
  tt_proxy_service *s = peer->send.proxy->service;
  if (atomic_fetch_or(&t->wants, TT_WANT(type)) != 0) {
    return; // it is in the list, or just being taken out: the service looks at the bits after that
  }
  t->news = atomic_load_explicit(&s->news, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&s->news, &t->news, t, memory_order_release, memory_order_relaxed)) {
  }
  tt_ring(s->wake);
}

// A client's receiver is a peer of this rank's, too, and so is that of one-sided operations.
void tt_proxy_alert(const tt_proxy_conn *c)
{
  const tt_proxy *p = c->proxy;
  const tt_proxy_peer *peer = c->counts ? c->peer : tt_proxy_peer_find(p, c->peer->rank);
  if (p->service != NULL && peer != NULL) {
    tt_proxy_want(peer, TT_MSG_START);
  }
}

void tt_proxy_state_changed(tt_proxy *p)
{
  if (p->service != NULL) {
    set_want(p->service, TT_MSG_STATE);
  }
}

// ---- peers

tt_proxy_ties *tt_proxy_ties_new(tt_proxy_peer *peer)
{
  tt_proxy_ties *t = tt_calloc(1, sizeof *t);
  if (t != NULL) {
    t->peer = peer;
    t->watched = TT_WATCHED_DIAL;
  }
  return t;
}

void tt_proxy_ties_wake(tt_proxy_service *s, tt_proxy_ties *t, uint64_t at_ns)
{
  if (at_ns != 0 && (t->timer.size == 0 || at_ns < t->timer.start)) {
    tt_timer_set(&s->timers, &t->timer, at_ns);
  }
}

// Not in the step that is under way: two peers that make each other due shall not keep it from its end.
void tt_proxy_ties_due(tt_proxy_service *s, tt_proxy_ties *t)
{
  tt_proxy_ties_wake(s, t, s->step_ns + 1);
}

void tt_proxy_guests_due(tt_proxy_service *s, int rank)
{
  tt_client_due(s, rank);
  tt_puts_due(s, rank);
}

// The port's state concerns all.
static void all_due(tt_proxy_service *s)
{
  for (tt_proxy_ties *t = s->ties; t != NULL; t = t->next) {
    tt_proxy_ties_due(s, t);
    tt_proxy_guests_due(s, t->peer->rank);
  }
}

static void list_ties(tt_proxy_service *s, tt_proxy_ties *t)
{
  if (!t->listed) {
    t->listed = true;
    t->next = s->ties;
    s->ties = t;
  }
}

tt_proxy_ties *tt_proxy_ties_get(tt_proxy_service *s, int rank)
{
  tt_proxy_peer *peer = tt_proxy_peer_get(s->proxy, rank);
  if (peer == NULL) {
    return NULL;
  }
  list_ties(s, peer->ties);
  tt_proxy_ties_due(s, peer->ties);
  return peer->ties;
}

static void port_has_stopped(tt_proxy_service *s)
{
  tt_proxy_look(s->proxy); // drops the operations
  tt_proxy_tell_all(s);
  all_due(s);
}

void tt_proxy_stop_for(tt_proxy_service *s, tt_culprit culprit)
{
  if (!s->left && tt_culprit_is_valid(s->proxy->port, culprit) && tt_port_blame(s->proxy->port, culprit)) {
    port_has_stopped(s);
  }
}

void tt_proxy_stop_port(tt_proxy_service *s, ncclResult_t code)
{
  tt_port_stop(s->proxy->port, code);
  port_has_stopped(s);
}
// ---- the thread

static void take_news(tt_proxy_service *s)
{
  tt_proxy_ties *t = atomic_exchange_explicit(&s->news, NULL, memory_order_acquire), *next;
  for (; t != NULL; t = next) {
    next = t->news; // from the exchange on it may be in the list again
    uint32_t wants = atomic_exchange(&t->wants, 0);
    list_ties(s, t);
    tt_proxy_ties_due(s, t);
    if (wants & TT_WANT(TT_MSG_START)) {
      tt_proxy_guests_due(s, t->peer->rank);
    }
    if (wants & TT_WANT(TT_MSG_INIT)) {
      tt_proxy_link(s, t);
    }
    if (wants & TT_WANT(TT_MSG_PROBE)) {
      tt_proxy_question(s, t);
    }
  }
}

// The rank goes, its clients stay: from now on the proxy is there for them alone.
static void let_go(tt_proxy_service *s)
{
  _Atomic int *leaver = s->leaver;
  tt_proxy *p = s->proxy;
  if (!tt_client_any(s)) {
    atomic_store(leaver, -1);
    return;
  }
  tt_info(TT_PROXY, "rank %d: the proxy stays until the ranks that it sends for have left", p->rank);
  s->left = true;
  s->ring = NULL;
  tt_proxy_run_hold(p);
  tt_proxy_disown(p);
  tt_proxy_run_release(p);
  for (tt_proxy_ties *t = s->ties; t != NULL; t = t->next) {
    tt_proxy_setup_close(s, t);
    t->own = false;
    tt_proxy_setup_cancel(s, t);
    t->failures[0].judged = t->failures[1].judged = t->failures[2].judged = true;
  }
  tt_puts_cancel(s);
  tt_relay_leave(s);
  tt_client_outlive(p);
  tt_thread_detach(&s->thread);
  atomic_store(leaver, 1);
}

// False: the end.
static bool take_wants(tt_proxy_service *s)
{
  uint32_t wants = atomic_exchange(&s->wants, 0);
  take_news(s);
  if (wants & (TT_WANT(TT_MSG_STATE) | TT_WANT(TT_MSG_STOP))) {
    tt_proxy_look(s->proxy); // what was sent before the port stopped goes out, and is counted
  }
  if (wants & TT_WANT(TT_MSG_STATE)) {
    tt_proxy_tell_all(s);
    all_due(s);
  }
  if (wants & TT_WANT(TT_MSG_PROBE)) {
    tt_proxy_census_start(s);
  }
  if (wants & TT_WANT(TT_MSG_CLOSE)) {
    let_go(s);
  }
  return (wants & TT_WANT(TT_MSG_STOP)) == 0 && !(s->left && s->proxy->pxn.clients == NULL);
}

static void step_ties(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now)
{
  uint64_t wake_ns = 0;
  tt_proxy_dial_step(s, t, now);
  tt_proxy_setup_step(s, t, now, &wake_ns);
  tt_proxy_state_step(s, t, now, &wake_ns);
  tt_proxy_question_step(s, t, now, &wake_ns);
  if (t->dial.stage == TT_DIAL_RESTING) {
    tt_wake_by(&wake_ns, t->dial.rest_ns);
  } else if (t->dial.under_way != NULL) {
    (void)tt_dial_poll(t->dial.under_way, NULL, &wake_ns);
  }
  tt_proxy_ties_wake(s, t, wake_ns == 0 ? 0 : TT_MAX(wake_ns, now + 1));
}

uint64_t tt_proxy_service_step(tt_proxy_service *s)
{
  uint64_t now = tt_now_ns(), wake_ns = 0;
  s->step_ns = now;
  for (tt_span *first; (first = tt_timer_first(s->timers)) != NULL && first->start <= now;) {
    tt_proxy_ties *t = TT_SPAN_OWNER(first, tt_proxy_ties, timer);
    tt_timer_set(&s->timers, first, 0);
    if (t->whose != NULL) {
      tt_puts_step(s, TT_SPAN_OWNER(t, tt_proxy_puts, ties), now);
    } else if (t->setup.behalf != 0) {
      tt_client_step(s, TT_SPAN_OWNER(t, tt_relay_client, ties), now);
    } else {
      step_ties(s, t, now);
    }
  }
  if (s->timers != NULL) {
    tt_wake_by(&wake_ns, tt_timer_first(s->timers)->start);
  }
  if (s->left && s->proxy->pxn.clients == NULL) {
    tt_wake_by(&wake_ns, now); // the last one has just left
  }
  return wake_ns;
}

// ---- the ring of ranks, which nobody else looks at between its calls

// Some end of a connection of the ring has been seen: whose is it?
static void ring_step(tt_proxy_service *s)
{
  int rank = -1;
  tt_ring_end end = tt_bootstrap_look(s->ring, &rank);
  if (end == TT_RING_STANDS || end == TT_RING_BUSY) { // a call sees to it; as long as the end is there, poll tells it
    s->ring_rests_ns = tt_now_ns() + (end == TT_RING_BUSY ? RING_NAP_NS : TT_NS_PER_S);
    return;
  }
  s->ring = NULL;
  if (end == TT_RING_DIED) {
    s->died = tt_culprit_of(rank, TT_RANK_KILLED);
    s->died_ns = tt_now_ns();
  } else if (end == TT_RING_EXITED) {
    __atomic_store_n(&s->proxy->port->exited, tt_culprit_of(rank, TT_RANK_EXITED), __ATOMIC_RELEASE);
  }
}

// A rank has died: the port stops when what that rank had sent has had time to come.
static void mourn(tt_proxy_service *s, uint64_t *wake_ns)
{
  if (s->died == 0) {
    return;
  }
  uint64_t end_ns = s->died_ns + s->limits.grace_ns / 2;
  if (tt_now_ns() >= end_ns) {
    tt_proxy_stop_for(s, s->died);
    s->died = 0;
    end_ns = tt_now_ns(); // all peers are due
  }
  tt_wake_by(wake_ns, end_ns);
}

// Fills the entries of its connections.
static void ring_poll(tt_proxy_service *s, struct pollfd *fds, uint64_t *wake_ns)
{
  int fd[2] = {-1, -1};
  if (s->ring_rests_ns != 0 && tt_now_ns() >= s->ring_rests_ns) {
    s->ring_rests_ns = 0;
  }
  if (s->ring != NULL && s->ring_rests_ns == 0) {
    tt_bootstrap_connections(s->ring, fd);
  }
  tt_wake_by(wake_ns, s->ring != NULL ? s->ring_rests_ns : 0);
  for (int i = 0; i < 2; i++) {
    fds[i] = (struct pollfd){.fd = fd[i], .events = POLLRDHUP};
  }
}

static void service_wait(tt_proxy_service *s, uint64_t wake_ns)
{
  mourn(s, &wake_ns);
  ring_poll(s, &s->fds[2], &wake_ns);
  tt_until until = {.deadline_ns = wake_ns};
  s->fds[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
  s->fds[1] = (struct pollfd){.fd = s->events, .events = POLLIN};
  size_t n = 4 + tt_greeter_poll(&s->door, s->fds + 4, &until.deadline_ns);
  int e = tt_sock_poll(s->fds, n, &until);
  if (e < 0 && e != -ETIMEDOUT) {
    // The limit of open files is below `n` by now, or the kernel has no memory: not a busy loop.
    tt_sleep_ns(10 * TT_NS_PER_MS);
  }
  if (e < 0 || s->fds[0].revents != 0) {
    tt_ring_clear(s->wake);
  }
  if (e >= 0 && (s->fds[2].revents | s->fds[3].revents) != 0) {
    ring_step(s);
  }
}

static void *service_main(void *arg)
{
  tt_proxy_service *s = arg;
  while (take_wants(s)) {
    tt_proxy_admit(s);
    tt_proxy_talk_step(s);
    service_wait(s, tt_proxy_service_step(s));
  }
  tt_proxy_talks_close(s, tt_now_ns() + CLOSE_WAIT_NS);
  if (s->left) {
    while (!atomic_load(
        &s->parted)) { // the last client may have left while the rank was still about to ring for its answer
      tt_sleep_ns(LEAVE_NAP_NS);
    }
    tt_proxy_bury(s->proxy);
  }
  return NULL;
}

// ---- life

static ncclResult_t service_listen(tt_proxy_service *s)
{
  char text[TT_ADDRS_TEXT];
  tt_addrs own;
  TT_TRY(tt_netif_addrs(NULL, &own));
  int e = tt_greeter_open(&s->door, &own, &s->key, TT_HELLO_PROXY, s->proxy->rank);
  if (e != 0) {
    return tt_fail(ncclSystemError, "rank %d: the proxy cannot listen on %s: %s", s->proxy->rank,
                   tt_addrs_text(&own, text), tt_sock_error_text(e));
  }
  e = tt_ring_open(&s->wake);
  e = e == 0 ? tt_events_open(&s->events) : e;
  return e == 0
             ? ncclSuccess
             : tt_fail(ncclSystemError, "rank %d: the proxy has no descriptor left: %s", s->proxy->rank, strerror(-e));
}

// What its devices carry together.
static ncclResult_t service_speed(const tt_proxy *p, int ndevices, int64_t *mbits)
{
  *mbits = 0;
  for (int i = 0; i < ndevices; i++) {
    tt_net_props props = {.speed = 0};
    TT_TRY(p->net->get_properties(p->ctx, i, &props));
    *mbits += TT_MAX(props.speed, 0);
  }
  return ncclSuccess;
}

ncclResult_t tt_proxy_service_start(tt_proxy *p, const tt_proxy_env *env, tt_proxy_where *where)
{
  tt_proxy_service *s = tt_calloc(1, sizeof *s);
  if (s == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the proxy's service", p->rank);
  }
  s->proxy = p;
  s->wake = s->events = -1;
  s->limits = limits_of(tt_net_patience());
  s->ring = env->ring;
  s->device = TT_MAX(env->device, 0);
  s->key = tt_key_derive(&env->key, "proxy: service", &env->hash, sizeof env->hash);
  p->service = s; // from here on tt_proxy_service_free has it
  s->where = tt_calloc((size_t)p->nranks, sizeof *s->where);
  s->gpus = tt_calloc((size_t)p->nranks, sizeof *s->gpus);
  s->relays = tt_calloc((size_t)p->nranks, sizeof *s->relays);
  if (s->where == NULL || s->gpus == NULL || s->relays == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the addresses of %d proxies", p->rank, p->nranks);
  }
  if (env->gpus != NULL) {
    memcpy(s->gpus, env->gpus, (size_t)p->nranks * sizeof *s->gpus);
  }
  tt_sock_raise_file_limit(); // a rank of this process needs up to four for each peer
  TT_TRY(p->net->devices(p->ctx, &s->ndevices));
  s->ndevices = TT_MIN(s->ndevices, (int)TT_MSG_DEVICES);
  int64_t mbits;
  TT_TRY(service_speed(p, s->ndevices, &mbits));
  TT_TRY(service_listen(s));
  *where = (tt_proxy_where){.addrs = s->door.addrs,
                            .node = env->node,
                            .place = env->place,
                            .ndevices = s->ndevices,
                            .mbits = mbits,
                            .pid = tt_proc_self().pid};
  if (env->mailbox != NULL) {
    memcpy(where->mailbox, env->mailbox, strnlen(env->mailbox, sizeof where->mailbox - 1));
  }
  return tt_thread_start(&s->thread, "tutti service", service_main, s);
}

// Could a rank have said that?
static bool is_where(const tt_proxy_where *w)
{
  return w->addrs.n != 0 && tt_addrs_good(&w->addrs) && w->place >= 0 && w->ndevices >= 0 &&
         memchr(w->mailbox, 0, sizeof w->mailbox) != NULL;
}

// Where all have the same number of devices, neighbours use different ones.
static void spread_devices(tt_proxy_service *s)
{
  const tt_proxy *p = s->proxy;
  s->rails = s->ndevices;
  for (int i = 0; i < p->nranks; i++) {
    s->rails = s->where[i].ndevices == s->rails ? s->rails : 0;
  }
  if (s->rails > 1) {
    s->device = (s->device + s->where[p->rank].place) % s->rails;
  }
}

ncclResult_t tt_proxy_meet(tt_proxy *p, const tt_proxy_where *all)
{
  for (int i = 0; i < p->nranks; i++) {
    if (i != p->rank && !is_where(&all[i])) {
      return tt_fail(ncclInternalError, "rank %d: rank %d does not say where its proxy listens", p->rank, i);
    }
    p->service->where[i] = all[i];
  }
  spread_devices(p->service);
  tt_relay_find(p->service);
  return ncclSuccess;
}

bool tt_proxy_service_leave(tt_proxy *p)
{
  tt_proxy_service *s = p->service;
  // The service touches it once; with 1 it goes on alone, and frees itself once this thread has parted from it.
  _Atomic int answer = 0;
  if (s == NULL || !s->thread.running || atomic_load(&p->pxn.nclients) == 0 || tt_port_status(p->port) != ncclSuccess) {
    return false;
  }
  s->leaver = &answer;
  set_want(s, TT_MSG_CLOSE);
  while (atomic_load(&answer) == 0) {
    tt_sleep_ns(LEAVE_NAP_NS);
  }
  bool alone = atomic_load(&answer) > 0;
  if (alone) {
    atomic_store(&s->parted, true); // the last this thread does with it
  }
  return alone;
}

void tt_proxy_census(tt_proxy *p)
{
  tt_proxy_service *s = p->service;
  uint64_t begun_ns = tt_now_ns(), now = begun_ns, waited = 0;
  atomic_store(&s->unanswered, 1);
  set_want(s, TT_MSG_PROBE);
  while (atomic_load(&s->unanswered) > 0 && waited < CENSUS_WAIT_NS && now - begun_ns < CENSUS_MOST_NS &&
         tt_port_status(p->port) == ncclSuccess && !__atomic_load_n(&p->port->abort_flag, __ATOMIC_RELAXED)) {
    uint64_t before = now;
    tt_sleep_ns(LEAVE_NAP_NS);
    now = tt_now_ns();
    waited += TT_MIN(now - before, CENSUS_NAP_NS);
  }
}

void tt_proxy_service_stop(tt_proxy *p)
{
  if (p->service != NULL && p->service->thread.running) {
    set_want(p->service, TT_MSG_STOP);
    tt_thread_join(&p->service->thread);
  }
}

void tt_proxy_service_free(tt_proxy *p)
{
  tt_proxy_service *s = p->service;
  if (s == NULL) {
    return;
  }
  tt_puts_cancel(s);
  p->service = NULL;
  for (tt_proxy_ties *t = s->ties; t != NULL; t = t->next) {
    tt_proxy_setup_close(s, t);
    tt_proxy_setup_cancel(s, t); // a plugin's finalize may know nothing of it
    tt_dial_cancel(t->dial.under_way);
  }
  tt_greeter_close(&s->door, true);
  tt_fd_close(s->wake);
  tt_fd_close(s->events);
  tt_free(s->where);
  tt_free(s->gpus);
  tt_free(s->relays);
  tt_free(s);
}

// The lists may be in the middle of a change: then a descriptor stays open, no more.
void tt_proxy_service_forget(tt_proxy *p)
{
  tt_proxy_service *s = p->service;
  struct pollfd fds[TT_GREET_POLL];
  uint64_t unused = 0;
  if (s == NULL) {
    return;
  }
  size_t n = tt_greeter_poll(&s->door, fds, &unused);
  for (size_t i = 0; i < n; i++) {
    tt_fd_close(fds[i].fd);
  }
  for (tt_proxy_talk *k = s->talks; k != NULL; k = k->next) {
    tt_fd_close(k->fd);
  }
  for (tt_proxy_ties *t = s->ties; t != NULL; t = t->next) {
    n = t->dial.under_way != NULL ? tt_dial_poll(t->dial.under_way, fds, &unused) : 0;
    for (size_t i = 0; i < n; i++) {
      tt_fd_close(fds[i].fd);
    }
  }
  tt_fd_close(s->wake);
  tt_fd_close(s->events);
}
