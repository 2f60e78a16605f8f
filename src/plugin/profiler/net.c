// net.c: events that network plugins tell, as children of the message's ProxyStep.
//
// A plugin may call from threads of its own, at any time until it has closed the connection, and as late as it likes.
// It may tell of a message whose request is done and whose record a later one has by now, or while the connection is
// being given up. So everything of a connection is under its lock: the records, the events that run, and whether
// anybody listens (`profilers`). It is held while profilers are called, so that none is told of an event after it was
// stopped for a plugin that did not. Nobody who holds it takes another lock of the library's, and no profiler calls
// back: it comes last but for theirs.
#include <pthread.h>

#include "base/util.h"
#include "plugin/profiler/profiler_priv.h"

// A message, as the plugin knows it (`phandle`).
typedef struct record {
  tt_prof_net *of;
  tt_prof_event step;
  int rank;
} record;

// An event, as the plugin knows it. It keeps one handle, the profilers give several.
typedef struct net_event {
  struct net_event *next, **back;
  tt_prof_net *of;
  tt_prof_event event; // zeroed when it was stopped for the plugin
} net_event;

struct tt_prof_net {
  pthread_mutex_t lock;
  tt_profilers *profilers; // held; NULL: nobody listens any more
  net_event *events;
  record records[TT_PROF_NET_MESSAGES]; // `of` is written once; the rest under the lock
};

// ---- the connection's side

tt_prof_net *tt_prof_net_open(tt_profilers *p)
{
  tt_prof_net *n = tt_calloc(1, sizeof *n);
  if (n == NULL) {
    return NULL;
  }
  pthread_mutex_init(&n->lock, NULL);
  n->profilers = tt_profilers_hold(p);
  for (int i = 0; i < TT_PROF_NET_MESSAGES; i++) {
    n->records[i].of = n;
  }
  return n;
}

void *tt_prof_net_message(tt_prof_net *n, uint32_t number, const tt_prof_event *step, int rank)
{
  record *r = &n->records[number % TT_PROF_NET_MESSAGES];
  pthread_mutex_lock(&n->lock);
  r->step = *step;
  r->rank = rank;
  pthread_mutex_unlock(&n->lock);
  return r;
}

void tt_prof_net_leave(tt_prof_net *n)
{
  pthread_mutex_lock(&n->lock);
  tt_profilers *p = n->profilers;
  for (net_event *e = n->events; e != NULL && p != NULL; e = e->next) {
    tt_profilers_stop(p, &e->event);
  }
  n->profilers = NULL;
  pthread_mutex_unlock(&n->lock);
  tt_profilers_release(p);
}

void tt_prof_net_close(tt_prof_net *n)
{
  if (n == NULL) {
    return;
  }
  tt_prof_net_leave(n);
  for (net_event *e = n->events, *next; e != NULL; e = next) {
    next = e->next;
    tt_free(e);
  }
  pthread_mutex_destroy(&n->lock);
  tt_free(n);
}

// ---- the plugin's side. Lock held.

// NULL: nobody is interested, or there is no memory.
static net_event *prof_net_start(const record *r, int64_t id, void *data)
{
  tt_prof_net *n = r->of;
  tt_prof_descr d = {.type = ncclProfileNetPlugin, .rank = r->rank, .netPlugin = {.id = id, .data = data}};
  net_event *e = tt_profilers_want(n->profilers, ncclProfileNetPlugin) ? tt_calloc(1, sizeof *e) : NULL;
  if (e == NULL) {
    return NULL;
  }
  tt_profilers_start(n->profilers, &d, &r->step, NULL, &e->event);
  if (!tt_prof_is_on(&e->event)) {
    tt_free(e);
    return NULL;
  }
  e->of = n;
  e->next = n->events;
  e->back = &n->events;
  if (e->next != NULL) {
    e->next->back = &e->next;
  }
  n->events = e;
  return e;
}

static void prof_net_update(net_event *e, void *data)
{
  const tt_prof_args args = {.netPlugin = {.data = data}};
  tt_profilers_state(e->of->profilers, &e->event, ncclProfilerNetPluginUpdate, &args);
}

static void stop(net_event *e)
{
  *e->back = e->next;
  if (e->next != NULL) {
    e->next->back = e->back;
  }
  if (e->of->profilers != NULL) {
    tt_profilers_stop(e->of->profilers, &e->event);
  }
  tt_free(e);
}

static void prof_net_continue(net_event *e, int type, void *data)
{
  if ((type == ncclProfilerNetEventUpdate || type == ncclProfilerNetEventUpdateAndStop) && e->of->profilers != NULL) {
    prof_net_update(e, data);
  }
  if (type == ncclProfilerNetEventStop || type == ncclProfilerNetEventUpdateAndStop) {
    stop(e);
  }
}

ncclResult_t tt_profilers_net_callback(void **event, int type, void *phandle, int64_t plugin_id, void *data)
{
  const record *r = phandle;
  if (event == NULL) {
    return ncclSuccess;
  }
  if (type == ncclProfilerNetEventStart) {
    *event = NULL;
  }
  net_event *e = *event;
  tt_prof_net *n = type != ncclProfilerNetEventStart ? (e != NULL ? e->of : NULL) : r != NULL ? r->of : NULL;
  if (n == NULL) {
    return ncclSuccess;
  }
  pthread_mutex_lock(&n->lock);
  if (type == ncclProfilerNetEventStart) {
    *event = prof_net_start(r, plugin_id, data);
  } else {
    prof_net_continue(e, type, data);
  }
  pthread_mutex_unlock(&n->lock);
  if (type == ncclProfilerNetEventStop || type == ncclProfilerNetEventUpdateAndStop) {
    *event = NULL;
  }
  return ncclSuccess;
}
