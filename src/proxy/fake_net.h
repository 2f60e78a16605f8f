// fake_net.h: a network in memory for tests, with the vices of real ones: delays, "not now", errors at the k-th call,
// messages that are too long, devices that cannot be reached, flushes, with or without a descriptor for events.
//
// Set the vices in `fake` (after fake_start), and use &fake_net. It checks its user: memory must be registered,
// requests tested in order, everything closed (fake_stop).
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/result.h"
#include "base/util.h"
#include "net/net.h"
#include "os/clock.h"
#include "os/shm.h"
#include "os/thread.h"
#include "os/events.h"

#define FAKE __attribute__((unused)) static

enum { FAKE_LISTENERS = 256, FAKE_PIPES = 512 };

// Ends the program: a test's thread cannot fail for the test.
#define FAKE_DEMAND(cond)                                                                 \
  do {                                                                                    \
    if (!(cond)) {                                                                        \
      fprintf(stderr, "%s:%d: the user of the network: %s\n", __FILE__, __LINE__, #cond); \
      abort();                                                                            \
    }                                                                                     \
  } while (0)

typedef struct fake_message {
  struct fake_message *next;
  uint64_t due_ns;
  bool announced;
  int tag;
  size_t size;
  char data[];
} fake_message;

typedef struct fake_ctx {
  int rank;
  int events;   // -1: none
  bool watched; // under the lock; what comes while it is not is never told
} fake_ctx;

struct fake_comm;

// One connection: messages under way from `from` to `to`; either end may be gone.
typedef struct fake_pipe {
  bool used, accepted;
  struct fake_comm *from, *to;
  fake_message *first, **last;
  uint64_t last_due;
} fake_pipe;

enum { FAKE_GROUP = 8 };

// A buffer of a receive, or what is sent.
typedef struct fake_part {
  char *data;
  size_t size, got;
  const void *mhandle;
  int tag;
  bool full;
} fake_part;

typedef struct fake_request {
  struct fake_comm *comm;
  int n;
  fake_part parts[FAKE_GROUP];
  uint64_t due_ns; // of a send
  bool flush;
  int tests; // how often it was asked
} fake_request;

typedef struct fake_comm {
  fake_ctx *ctx;
  fake_pipe *pipe;
  bool send, broken;
  uint32_t posted, done; // requests, and their flushes
  fake_request requests[2 * TT_NET_REQUESTS], flushes[2 * TT_NET_REQUESTS];
  uint32_t flushed;
  int regs;
} fake_comm;

typedef struct fake_listener {
  bool used;
  int dev;
  fake_ctx *ctx;
  fake_pipe *pipe; // somebody has connected
} fake_listener;

typedef struct fake_handle {
  int32_t listener, dev, calls;
} fake_handle;

static struct fake_state {
  // The vices.
  int ndevs;
  unsigned bad_devs;        // listening devices that refuse (bits)
  unsigned dead_devs;       // listening devices that never answer
  int connect_calls;        // how often connect must be called
  _Atomic bool hold_accept; // accept gives nothing
  uint64_t delay_ns;        // longest delay of a message
  uint64_t send_ns;         // longest time until a send is done
  int not_now;              // refusals of isend and irecv in 1000
  bool events;              // have a descriptor
  _Atomic bool unwatchable; // watch_events refuses
  bool flush;               // wants flushes
  bool groups;              // one irecv takes FAKE_GROUP buffers
  _Atomic long fail_in;     // the k-th isend, irecv or test from now fails; 0: none
  _Atomic long stretch_in;  // the k-th isend from now sends more than it was given
  size_t stretch_by;
  long shrink_in; // … or less
  size_t shrink_to;
  _Atomic long refuse_regs; // so many registrations fail from now on
  // Memory that the test watches: what is registered of it, and messages in it.
  char *watched;
  size_t watched_size;
  bool strict; // nothing that a request under way was given may be deregistered
  _Atomic long regs, sends_there, recvs_there, closed;
  // What was done.
  _Atomic long sends, recvs, grouped, flushes, refusals, objects,
      cancels;                              // recvs: messages; grouped: receives of several
  _Atomic int watching;                     // contexts whose events are watched
  _Atomic long tests_here, tests_elsewhere; // calls of test by the thread that called fake_start, and by others
  // Its own.
  pthread_t home;
  pthread_mutex_t lock;
  uint64_t random;
  fake_listener listeners[FAKE_LISTENERS];
  fake_pipe pipes[FAKE_PIPES];
  _Atomic bool stop;
  tt_thread courier;
} fake;

// xorshift64. Lock held.
FAKE uint64_t fake_random(uint64_t below)
{
  fake.random ^= fake.random << 13;
  fake.random ^= fake.random >> 7;
  fake.random ^= fake.random << 17;
  return below == 0 ? 0 : fake.random % below;
}

FAKE bool fake_strikes(_Atomic long *in)
{
  return atomic_load(in) > 0 && atomic_fetch_sub(in, 1) == 1;
}

// An event for a context. Lock held.
FAKE void fake_tell(const fake_ctx *c)
{
  if (c->events >= 0 && c->watched) {
    tt_ring(c->events);
  }
}

// Tells the receiver of messages that have become visible, and the sender of what is done. Lock held.
FAKE void fake_deliver(fake_pipe *p, uint64_t now)
{
  for (fake_message *m = p->first; m != NULL && m->due_ns <= now; m = m->next) {
    if (!m->announced && p->to != NULL) {
      fake_tell(p->to->ctx);
      m->announced = true;
    }
  }
  fake_comm *c = p->from;
  fake_request *r = c == NULL || c->done == c->posted ? NULL : &c->requests[c->done % TT_COUNT(c->requests)];
  if (r != NULL && c->ctx->events >= 0 && r->tests > 0 && r->due_ns <= now) {
    r->tests = 0;
    fake_tell(c->ctx);
  }
}

FAKE void *fake_courier(void *unused)
{
  while (!atomic_load(&fake.stop)) {
    pthread_mutex_lock(&fake.lock);
    uint64_t now = tt_now_ns();
    for (int i = 0; i < FAKE_PIPES; i++) {
      if (fake.pipes[i].used) {
        fake_deliver(&fake.pipes[i], now);
      }
    }
    pthread_mutex_unlock(&fake.lock);
    tt_sleep_ns(20000);
  }
  return unused;
}

FAKE ncclResult_t fake_init(const tt_net_env *env, void **ctx)
{
  fake_ctx *c = tt_calloc(1, sizeof *c);
  if (c == NULL) {
    return tt_fail(ncclSystemError, "fake network: no memory");
  }
  c->rank = env->rank;
  c->events = -1;
  if (fake.events && tt_ring_open(&c->events) != 0) {
    tt_free(c);
    return tt_fail(ncclSystemError, "fake network: no descriptor");
  }
  c->watched = true;
  atomic_fetch_add(&fake.watching, 1);
  atomic_fetch_add(&fake.objects, 1);
  *ctx = c;
  return ncclSuccess;
}

FAKE ncclResult_t fake_devices(void *ctx, int *count)
{
  (void)ctx;
  *count = fake.ndevs;
  return ncclSuccess;
}

FAKE ncclResult_t fake_properties(void *ctx, int dev, tt_net_props *props)
{
  (void)ctx;
  FAKE_DEMAND(dev >= 0 && dev < fake.ndevs);
  *props = (tt_net_props){.name = "fake",
                          .ptr_support = TT_NET_PTR_HOST,
                          .force_flush = fake.flush,
                          .max_comms = 1 << 16,
                          .max_recvs = fake.groups ? FAKE_GROUP : 1};
  return ncclSuccess;
}

FAKE ncclResult_t fake_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
  FAKE_DEMAND(dev >= 0 && dev < fake.ndevs);
  pthread_mutex_lock(&fake.lock);
  int i = 0;
  while (i < FAKE_LISTENERS && fake.listeners[i].used) {
    i++;
  }
  FAKE_DEMAND(i < FAKE_LISTENERS);
  fake.listeners[i] = (fake_listener){.used = true, .dev = dev, .ctx = ctx};
  pthread_mutex_unlock(&fake.lock);
  fake_handle h = {.listener = i, .dev = dev};
  memset(handle, 0, TT_NET_HANDLE);
  memcpy(handle, &h, sizeof h);
  *listen_comm = &fake.listeners[i];
  atomic_fetch_add(&fake.objects, 1);
  return ncclSuccess;
}

// Lock held.
FAKE fake_comm *fake_comm_new(fake_ctx *ctx, fake_pipe *pipe, bool send)
{
  fake_comm *c = calloc(1, sizeof *c);
  FAKE_DEMAND(c != NULL);
  c->ctx = ctx;
  c->pipe = pipe;
  c->send = send;
  *(send ? &pipe->from : &pipe->to) = c;
  atomic_fetch_add(&fake.objects, 1);
  return c;
}

FAKE ncclResult_t fake_connect(void *ctx, int dev, void *handle, void **send_comm)
{
  fake_handle h;
  (void)dev;
  memcpy(&h, handle, sizeof h);
  FAKE_DEMAND(h.listener >= 0 && h.listener < FAKE_LISTENERS);
  *send_comm = NULL;
  if (fake.bad_devs >> h.dev & 1) {
    return tt_fail(ncclSystemError, "fake network: device %d refuses", h.dev);
  }
  h.calls++;
  memcpy(handle, &h, sizeof h);
  if (h.calls <= fake.connect_calls || fake.dead_devs >> h.dev & 1) {
    return ncclSuccess;
  }
  pthread_mutex_lock(&fake.lock);
  fake_listener *l = &fake.listeners[h.listener];
  int i = 0;
  while (i < FAKE_PIPES && fake.pipes[i].used) {
    i++;
  }
  FAKE_DEMAND(i < FAKE_PIPES);
  bool there = l->used && l->pipe == NULL;
  if (there) {
    fake.pipes[i] = (fake_pipe){.used = true};
    fake.pipes[i].last = &fake.pipes[i].first;
    l->pipe = &fake.pipes[i];
    *send_comm = fake_comm_new(ctx, l->pipe, true);
  }
  pthread_mutex_unlock(&fake.lock);
  return there ? ncclSuccess : tt_fail(ncclRemoteError, "fake network: nobody listens");
}

FAKE void fake_cancel(void *ctx, int dev, const void *handle)
{
  (void)ctx;
  (void)dev;
  (void)handle;
  atomic_fetch_add(&fake.cancels, 1);
}

FAKE ncclResult_t fake_accept(void *listen_comm, void **recv_comm)
{
  fake_listener *l = listen_comm;
  *recv_comm = NULL;
  pthread_mutex_lock(&fake.lock);
  if (l->pipe != NULL && l->pipe->to == NULL && !atomic_load(&fake.hold_accept)) {
    l->pipe->accepted = true;
    l->pipe->used = true; // also when the other end has gone already
    *recv_comm = fake_comm_new(l->ctx, l->pipe, false);
  }
  pthread_mutex_unlock(&fake.lock);
  return ncclSuccess;
}

// A registration is the memory's end and start, to be checked.
typedef struct fake_reg {
  char *from, *to;
} fake_reg;

FAKE bool fake_is_watched(const char *data)
{
  return fake.watched != NULL && data >= fake.watched && data < fake.watched + fake.watched_size;
}

FAKE ncclResult_t fake_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
  fake_comm *c = comm;
  FAKE_DEMAND(type == TT_NET_PTR_HOST && size > 0);
  if (atomic_load(&fake.refuse_regs) > 0) {
    atomic_fetch_sub(&fake.refuse_regs, 1);
    return tt_fail(ncclSystemError, "fake network: no more memory is registered");
  }
  fake_reg *r = calloc(1, sizeof *r);
  FAKE_DEMAND(r != NULL);
  *r = (fake_reg){data, (char *)data + size};
  c->regs++;
  atomic_fetch_add(&fake.regs, fake_is_watched(data));
  *mhandle = r;
  return ncclSuccess;
}

FAKE ncclResult_t fake_dereg_mr(void *comm, void *mhandle)
{
  fake_comm *c = comm;
  const fake_reg *r = mhandle;
  for (uint32_t i = c->done; fake.strict && i != c->posted; i++) {
    const fake_request *q = &c->requests[i % TT_COUNT(c->requests)];
    for (int k = 0; k < q->n; k++) {
      FAKE_DEMAND(q->parts[k].mhandle != mhandle); // the same memory may be registered twice
    }
  }
  atomic_fetch_sub(&fake.regs, fake_is_watched(r->from));
  c->regs--;
  free(mhandle);
  return ncclSuccess;
}

FAKE void fake_check_memory(const void *data, size_t size, const void *mhandle)
{
  const fake_reg *r = mhandle;
  FAKE_DEMAND(r != NULL && (const char *)data >= r->from && (const char *)data + size <= r->to);
}

// A new request, NULL: not now. Lock held.
FAKE fake_request *fake_request_new(fake_comm *c, int n)
{
  if (c->posted - c->done >= TT_NET_REQUESTS || fake_random(1000) < (uint64_t)fake.not_now) {
    atomic_fetch_add(&fake.refusals, 1);
    return NULL;
  }
  fake_request *r = &c->requests[c->posted++ % TT_COUNT(c->requests)];
  *r = (fake_request){.comm = c, .n = n};
  return r;
}

FAKE ncclResult_t fake_broken(fake_comm *c, const char *why)
{
  c->broken = true;
  return tt_fail(ncclRemoteError, "rank %d: fake network: %s", c->ctx->rank, why);
}

// The message of a send. Lock held.
FAKE void fake_put(fake_comm *c, const void *data, size_t size, int tag)
{
  size_t sent = size;
  if (fake_strikes(&fake.stretch_in)) {
    sent += fake.stretch_by;
  } else if (fake.shrink_in > 0 && --fake.shrink_in == 0) {
    sent = fake.shrink_to;
  }
  fake_message *m = calloc(1, sizeof *m + TT_MAX(size, sent));
  FAKE_DEMAND(m != NULL);
  memcpy(m->data, data, size);
  m->size = sent;
  m->tag = tag;
  m->due_ns = tt_now_ns() + fake_random(fake.delay_ns);
  m->due_ns = TT_MAX(m->due_ns, c->pipe->last_due);
  c->pipe->last_due = m->due_ns;
  *c->pipe->last = m;
  c->pipe->last = &m->next;
  if (fake.delay_ns == 0 && c->pipe->to != NULL) {
    m->announced = true;
    fake_tell(c->pipe->to->ctx);
  }
}

FAKE ncclResult_t fake_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                             void **request)
{
  fake_comm *c = send_comm;
  FAKE_DEMAND(c->send && (tag == 0 || tag == 1));
  (void)phandle;
  fake_check_memory(data, size, mhandle);
  if (c->broken || fake_strikes(&fake.fail_in)) {
    return fake_broken(c, "isend failed");
  }
  pthread_mutex_lock(&fake.lock);
  fake_request *r = fake_request_new(c, 1);
  if (r != NULL) {
    r->parts[0] = (fake_part){.data = data, .size = size, .mhandle = mhandle};
    r->due_ns = fake.send_ns == 0 ? 0 : tt_now_ns() + fake_random(fake.send_ns);
    fake_put(c, data, size, tag);
    atomic_fetch_add(&fake.sends, 1);
    atomic_fetch_add(&fake.sends_there, fake_is_watched(data));
  }
  pthread_mutex_unlock(&fake.lock);
  *request = r;
  return ncclSuccess;
}

FAKE ncclResult_t fake_irecv(void *recv_comm, int n, void **data, const size_t *sizes, const int *tags, void **mhandles,
                             void **phandles, void **request)
{
  fake_comm *c = recv_comm;
  FAKE_DEMAND(!c->send && n >= 1 && n <= (fake.groups ? FAKE_GROUP : 1));
  (void)phandles;
  for (int i = 0; i < n; i++) {
    fake_check_memory(data[i], sizes[i], mhandles[i]);
  }
  if (c->broken || fake_strikes(&fake.fail_in)) {
    return fake_broken(c, "irecv failed");
  }
  pthread_mutex_lock(&fake.lock);
  fake_request *r = fake_request_new(c, n);
  for (int i = 0; r != NULL && i < n; i++) {
    r->parts[i] = (fake_part){.data = data[i], .size = sizes[i], .mhandle = mhandles[i], .tag = tags[i]};
    atomic_fetch_add(&fake.recvs_there, fake_is_watched(data[i]));
  }
  atomic_fetch_add(&fake.grouped, r != NULL && n > 1);
  *request = r;
  pthread_mutex_unlock(&fake.lock);
  return ncclSuccess;
}

// A flush is a request beside the row of receives.
FAKE ncclResult_t fake_iflush(void *recv_comm, int n, void **data, const int *sizes, void **mhandles, void **request)
{
  fake_comm *c = recv_comm;
  FAKE_DEMAND(n >= 1 && n <= (fake.groups ? FAKE_GROUP : 1));
  for (int i = 0; i < n; i++) {
    fake_check_memory(data[i], (size_t)sizes[i], mhandles[i]);
  }
  *request = NULL;
  pthread_mutex_lock(&fake.lock);
  if (fake_random(4) != 0) {
    fake_request *r = &c->flushes[c->flushed++ % TT_COUNT(c->flushes)];
    *r = (fake_request){.comm = c, .flush = true};
    *request = r;
  }
  atomic_fetch_add(&fake.flushes, 1);
  pthread_mutex_unlock(&fake.lock);
  return ncclSuccess;
}

// The buffer that a message belongs into: of several that of its tag; NULL: none, and it waits.
FAKE fake_part *fake_part_of(fake_request *r, int tag)
{
  for (int i = 0; i < r->n; i++) {
    if (!r->parts[i].full && (r->n == 1 || r->parts[i].tag == tag)) {
      return &r->parts[i];
    }
  }
  return NULL;
}

// One message for the request. Lock held. -1: the connection has ended.
FAKE int fake_take_one(fake_comm *c, fake_request *r)
{
  fake_message *m = c->pipe->first;
  if (m == NULL) {
    return c->pipe->from == NULL ? -1 : 0;
  }
  if (m->due_ns > tt_now_ns()) {
    return 0;
  }
  fake_part *p = fake_part_of(r, m->tag);
  if (p == NULL) {
    return 0;
  }
  memcpy(p->data, m->data, TT_MIN(m->size, p->size));
  p->got = m->size;
  p->full = true;
  c->pipe->first = m->next;
  if (c->pipe->first == NULL) {
    c->pipe->last = &c->pipe->first;
  }
  free(m);
  atomic_fetch_add(&fake.recvs, 1);
  return 1;
}

// All of its messages. Lock held. -1: as above.
FAKE int fake_take(fake_comm *c, fake_request *r, size_t *got)
{
  int filled = 0;
  for (int i = 0; i < r->n; i++) {
    filled += r->parts[i].full;
  }
  for (; filled < r->n; filled++) {
    int res = fake_take_one(c, r);
    if (res <= 0) {
      return res;
    }
  }
  for (int i = 0; got != NULL && i < r->n; i++) {
    got[i] = r->parts[i].got;
  }
  return 1;
}

FAKE ncclResult_t fake_test(void *request, int *done, size_t *sizes)
{
  fake_request *r = request;
  fake_comm *c = r->comm;
  *done = 0;
  atomic_fetch_add(pthread_equal(pthread_self(), fake.home) ? &fake.tests_here : &fake.tests_elsewhere, 1);
  if (c->broken || fake_strikes(&fake.fail_in)) {
    return fake_broken(c, "test failed");
  }
  if (r->flush) {
    *done = r->tests++ > 0;
    pthread_mutex_lock(&fake.lock);
    if (!*done) {
      fake_tell(c->ctx);
    }
    pthread_mutex_unlock(&fake.lock);
    return ncclSuccess;
  }
  FAKE_DEMAND(r == &c->requests[c->done % TT_COUNT(c->requests)]);
  pthread_mutex_lock(&fake.lock);
  r->tests++;
  int res = c->send ? r->due_ns <= tt_now_ns() : fake_take(c, r, sizes);
  c->done += res > 0;
  pthread_mutex_unlock(&fake.lock);
  *done = res > 0;
  return res >= 0 ? ncclSuccess : fake_broken(c, "the peer has closed");
}

// Lock held.
FAKE void fake_drop(fake_pipe *p)
{
  for (fake_message *m = p->first, *next; m != NULL; m = next) {
    next = m->next;
    free(m);
  }
  p->first = NULL;
  p->last = &p->first;
}

FAKE ncclResult_t fake_close(void *comm)
{
  fake_comm *c = comm;
  if (c == NULL) {
    return ncclSuccess;
  }
  FAKE_DEMAND(c->regs == 0);
  pthread_mutex_lock(&fake.lock);
  fake_pipe *p = c->pipe;
  fake_comm *other = c->send ? p->to : p->from;
  *(c->send ? &p->from : &p->to) = NULL;
  if (other != NULL) {
    fake_tell(other->ctx);
  }
  if (p->to == NULL && (!c->send || p->accepted)) {
    fake_drop(p);
  }
  p->used = p->from != NULL || p->to != NULL || p->first != NULL;
  pthread_mutex_unlock(&fake.lock);
  free(c);
  atomic_fetch_sub(&fake.objects, 1);
  atomic_fetch_add(&fake.closed, 1);
  return ncclSuccess;
}

FAKE ncclResult_t fake_close_listen(void *listen_comm)
{
  fake_listener *l = listen_comm;
  if (l != NULL) {
    pthread_mutex_lock(&fake.lock);
    if (l->pipe != NULL && !l->pipe->accepted && l->pipe->from == NULL) {
      fake_drop(l->pipe); // nobody will ever take it
      l->pipe->used = false;
    }
    l->used = false;
    pthread_mutex_unlock(&fake.lock);
    atomic_fetch_sub(&fake.objects, 1);
  }
  return ncclSuccess;
}

FAKE ncclResult_t fake_finalize(void *ctx)
{
  fake_ctx *c = ctx;
  tt_fd_close(c->events);
  atomic_fetch_sub(&fake.watching, c->watched);
  tt_free(c);
  atomic_fetch_sub(&fake.objects, 1);
  return ncclSuccess;
}

FAKE int fake_events_fd(void *ctx)
{
  return ((fake_ctx *)ctx)->events;
}

FAKE int fake_watch_events(void *ctx, bool on)
{
  fake_ctx *c = ctx;
  pthread_mutex_lock(&fake.lock);
  bool refused = on && atomic_load(&fake.unwatchable);
  int was = c->watched;
  c->watched = on && !refused;
  atomic_fetch_add(&fake.watching, c->watched - was);
  pthread_mutex_unlock(&fake.lock);
  return refused ? -ENOSPC : c->watched > was;
}

FAKE void fake_forget(void *ctx)
{
  tt_fd_close(((fake_ctx *)ctx)->events);
}

static const tt_net_ops fake_net = {
    .name = "Fake",
    .init = fake_init,
    .devices = fake_devices,
    .get_properties = fake_properties,
    .listen = fake_listen,
    .connect = fake_connect,
    .cancel = fake_cancel,
    .accept = fake_accept,
    .reg_mr = fake_reg_mr,
    .dereg_mr = fake_dereg_mr,
    .isend = fake_isend,
    .irecv = fake_irecv,
    .iflush = fake_iflush,
    .test = fake_test,
    .close_send = fake_close,
    .close_recv = fake_close,
    .close_listen = fake_close_listen,
    .finalize = fake_finalize,
    .events_fd = fake_events_fd,
    .watch_events = fake_watch_events,
    .forget = fake_forget,
};

static bool fake_groups_wanted; // fake.groups of networks that are started from now on

// A network without vices, with one device.
FAKE void fake_start(uint64_t seed)
{
  setenv("NCCL_SOCKET_IFNAME", "lo", 0); // for the service threads
  memset(&fake, 0, sizeof fake);
  pthread_mutex_init(&fake.lock, NULL);
  fake.random = seed * 0x9e3779b97f4a7c15ull + 1;
  fake.ndevs = 1;
  fake.groups = fake_groups_wanted;
  fake.home = pthread_self();
  if (tt_thread_start(&fake.courier, "courier", fake_courier, NULL) != ncclSuccess) {
    abort();
  }
}

// Everything was closed.
FAKE void fake_stop(void)
{
  atomic_store(&fake.stop, true);
  tt_thread_join(&fake.courier);
  FAKE_DEMAND(atomic_load(&fake.objects) == 0);
}
