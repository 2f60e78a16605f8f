// net_events.h: a network plugin that tells events of its requests through the profiler's callback, over net_tcp.h. A
// file that includes it says which version (10 to 12: those before have no callback), and gets the table. How it tells
// them, TEST_NET_EVENTS says:
//
//   calls   an event begins with isend or irecv, and ends when test says done
//   thread  the same, but a thread of the connection's own tells it, some time later; closing waits for it
//   late    an event begins when its request is done; half of them end when the connection is closed, when one more
//           begins, the others never
//   never   an event begins with isend or irecv, and never ends
//
// `data` is that of NCCL's socket network. The length is that of the buffer when an event begins, and of the message
// when it ends.
#pragma once
#include <pthread.h>

#include "net_tcp.h"
#include "nccl/profiler_net.h"

#if NET_VERSION < 10
#error "no callback"
#endif

enum { NAP_US = 100 };

// What is known of a request's event.
typedef struct watch {
  struct watch *next;
  void *phandle, *event;
  ncclProfilerNetSockDescr_v1_t data;
} watch;

// Something that a thread is going to tell.
typedef struct word {
  struct word *next;
  watch *of;
  bool begin;
  size_t length;
} word;

// Of a connection.
typedef struct notes {
  pthread_mutex_t lock;
  pthread_cond_t more;
  pthread_t thread;
  bool running, closing;
  word *first, **last;
  watch *watches; // all of them; freed with the connection
  int nwatches;
} notes;

static ncclProfilerCallback_t tell;

static bool how(const char *mode)
{
  const char *chosen = getenv("TEST_NET_EVENTS");
  return strcmp(chosen != NULL ? chosen : "calls", mode) == 0;
}

static void begin_event(watch *w)
{
  tell(&w->event, ncclProfilerNetEventStart, w->phandle, NCCL_PROFILER_NET_TYPE_SOCK | NCCL_PROFILER_NET_SOCKET_VER,
       &w->data);
}

// In one call or in two.
static void end_event(watch *w, size_t length)
{
  w->data.sock.length = length;
  if (length % 8 == 0) {
    tell(&w->event, ncclProfilerNetEventUpdateAndStop, NULL, 0, &w->data);
  } else {
    tell(&w->event, ncclProfilerNetEventUpdate, NULL, 0, &w->data);
    tell(&w->event, ncclProfilerNetEventStop, NULL, 0, NULL);
  }
}

// ---- threads

static void *thread_main(void *arg)
{
  notes *n = arg;
  pthread_mutex_lock(&n->lock);
  while (n->first != NULL || !n->closing) {
    word *w = n->first;
    if (w == NULL) {
      pthread_cond_wait(&n->more, &n->lock);
      continue;
    }
    n->first = w->next;
    n->last = n->first == NULL ? &n->first : n->last;
    pthread_mutex_unlock(&n->lock);
    usleep(NAP_US);
    if (w->begin) {
      begin_event(w->of);
    } else {
      end_event(w->of, w->length);
    }
    free(w);
    pthread_mutex_lock(&n->lock);
  }
  pthread_mutex_unlock(&n->lock);
  return NULL;
}

static void let_tell(notes *n, watch *of, bool begin, size_t length)
{
  word *w = malloc(sizeof *w);
  *w = (word){.of = of, .begin = begin, .length = length};
  pthread_mutex_lock(&n->lock);
  if (!n->running) {
    n->running = pthread_create(&n->thread, NULL, thread_main, n) == 0;
  }
  *n->last = w;
  n->last = &w->next;
  pthread_cond_signal(&n->more);
  pthread_mutex_unlock(&n->lock);
}

static void end_thread(notes *n)
{
  pthread_mutex_lock(&n->lock);
  n->closing = true;
  pthread_cond_signal(&n->more);
  pthread_mutex_unlock(&n->lock);
  if (n->running) {
    pthread_join(n->thread, NULL);
  }
}

// ---- the plugin

static notes *notes_of(connection *c)
{
  notes *n = c->notes;
  if (n == NULL) {
    c->notes = n = calloc(1, sizeof *n);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->more, NULL);
    n->last = &n->first;
  }
  return n;
}

// A request has begun.
static void watch_request(tcp_request *r, size_t length, void *phandle)
{
  notes *n = notes_of(r->of);
  watch *w = calloc(1, sizeof *w);
  w->phandle = phandle;
  w->data.type = ncclProfileSocket;
  w->data.sock.fd = r->of->fd;
  w->data.sock.op = r->of->send ? 0 : 1;
  w->data.sock.length = length;
  w->next = n->watches;
  n->watches = w;
  n->nwatches++;
  r->notes = w;
  if (how("thread")) {
    let_tell(n, w, true, 0);
  } else if (!how("late")) {
    begin_event(w);
  }
}

static ncclResult_t event_init(
#if NET_VERSION >= 11
    void **ctx, uint64_t comm, TYPED(ncclNetCommConfig) * config,
#endif
    ncclDebugLogger_t log, ncclProfilerCallback_t profile)
{
  tell = profile;
#if NET_VERSION >= 11
  return tcp_init(ctx, comm, config, log, profile);
#else
  return tcp_init(log, profile);
#endif
}

static ncclResult_t event_isend(void *any, void *data, size_t size, int tag, void *mhandle, void *phandle,
                                void **request)
{
  ncclResult_t res = tcp_isend(any, data, size, tag, mhandle, phandle, request);
  if (res == ncclSuccess && *request != NULL) {
    watch_request(*request, size, phandle);
  }
  return res;
}

static ncclResult_t event_irecv(void *any, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                                void **phandles, void **request)
{
  ncclResult_t res = tcp_irecv(any, n, data, sizes, tags, mhandles, phandles, request);
  if (res == ncclSuccess && *request != NULL) {
    watch_request(*request, sizes[0], phandles[0]);
  }
  return res;
}

static ncclResult_t event_test(void *any, int *done, int *sizes)
{
  tcp_request *r = any;
  connection *c = r->of;
  watch *w = r->notes;
  size_t length = c->send ? r->parts[0].room : 0;
  int buffers = r->n;
  int seen[GROUP] = {0};
  ncclResult_t res = tcp_test(any, done, sizes != NULL ? sizes : seen);
  if (w == NULL || !*done) {
    return res;
  }
  for (int i = 0; i < buffers && !c->send; i++) { // one event for all buffers of a receive
    length += (size_t)(sizes != NULL ? sizes : seen)[i];
  }
  if (how("thread")) {
    let_tell(c->notes, w, false, length);
  } else if (how("late")) {
    w->data.sock.length = length;
    begin_event(w);
  } else if (how("calls")) {
    end_event(w, length);
  }
  return res;
}

static ncclResult_t event_close(void *any)
{
  connection *c = any;
  notes *n = c->notes;
  if (n != NULL) {
    end_thread(n);
  }
  int i = 0;
  for (watch *w = n != NULL ? n->watches : NULL, *next; w != NULL; w = next, i++) {
    next = w->next;
    if (how("late") && w->event != NULL && i % 2 == 0) {
      end_event(w, 0);
    }
    if (how("late") && i == 0) {
      begin_event(w);
    }
    free(w);
  }
  if (n != NULL) {
    pthread_mutex_destroy(&n->lock);
    pthread_cond_destroy(&n->more);
    free(n);
  }
  return tcp_close(any);
}

const TYPED(ncclNet) PASTE(ncclNetPlugin_v, NET_VERSION) = {.name = "TestEvents",
                                                            .init = event_init,
                                                            .devices = tcp_devices,
                                                            .getProperties = tcp_properties,
                                                            .listen = tcp_listen,
                                                            .connect = tcp_connect,
                                                            .accept = tcp_accept,
                                                            .regMr = tcp_reg,
                                                            .deregMr = tcp_dereg,
                                                            .isend = event_isend,
                                                            .irecv = event_irecv,
                                                            .iflush = tcp_flush,
                                                            .test = event_test,
                                                            .closeSend = event_close,
                                                            .closeRecv = event_close,
                                                            .closeListen = tcp_close_listen,
                                                            NET_TABLE_9 NET_TABLE_11};
