// capture.c: see capture.h.
#include "device/host/capture.h"

#include "base/result.h"
#include "base/spans.h"

typedef struct capture capture;

// A stream of a capture. Allocated with its tail's room.
struct tt_member {
  struct tt_member *next; // of the capture
  capture *of;
  tt_stream *stream; // NULL: was destroyed
  uint32_t home;
  tt_nodes tail;
  // Of members that have a stream; the latter of those that are ordered with a legacy stream.
  tt_span by_device, by_legacy;
};
typedef struct tt_member member;

struct capture {
  capture *before, *next;
  tt_span by_id, by_thread; // the latter of those in a mode that is not relaxed
  tt_graph *graph;
  bool own; // the graph was made for it
  bool broken;
  tuttiCaptureMode_t mode;
  const void *thread; // that began it
  member *origin, *members;
};

// What an event was recorded behind. Its own lock guards it.
struct tt_mark {
  uint64_t capture; // its id
  tt_nodes nodes;   // of a capture that is under way, else not to be looked at
};

_Atomic int tt_captures;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of all captures, and of what streams know of them
static capture *captures;
static tt_span *captures_by_id, *captures_by_thread, *members_by_device, *members_by_legacy; // of all
static int globals;                                                                          // captures in global mode
static uint64_t last_id;

static _Thread_local tuttiCaptureMode_t thread_mode;
static _Thread_local tuttiCaptureFault_t thread_fault;

#define FAULT(what, ...) (thread_fault = (what), tt_fail(ncclInvalidUsage, __VA_ARGS__))

static const void *this_thread(void)
{
  return &thread_mode;
}

bool tt_stream_captures(const tt_stream *s)
{
  return atomic_load_explicit(&s->state, memory_order_relaxed) == TT_STREAM_CAPTURING;
}

// Caller holds `lock`, here and in all that follows up to the functions of the header.
static void index_at(tt_span **root, tt_span *s, uintptr_t number)
{
  s->start = number;
  s->size = 1;
  tt_spans_add(root, s);
}

static capture *capture_find(uint64_t id)
{
  tt_span *s = tt_spans_same(captures_by_id, id, 1);
  return s == NULL ? NULL : TT_SPAN_OWNER(s, capture, by_id);
}

static void list_capture(capture *c)
{
  c->next = captures;
  if (captures != NULL) {
    captures->before = c;
  }
  captures = c;
  index_at(&captures_by_id, &c->by_id, ++last_id);
  if (c->mode != tuttiCaptureRelaxed) {
    index_at(&captures_by_thread, &c->by_thread, (uintptr_t)c->thread);
  }
  globals += c->mode == tuttiCaptureGlobal;
  atomic_fetch_add_explicit(&tt_captures, 1, memory_order_relaxed);
}

// A capture that is not listed has no number.
static void unlist_capture(capture *c)
{
  if (c->by_id.size == 0) {
    return;
  }
  *(c->before != NULL ? &c->before->next : &captures) = c->next;
  if (c->next != NULL) {
    c->next->before = c->before;
  }
  tt_spans_remove(&captures_by_id, &c->by_id);
  if (c->mode != tuttiCaptureRelaxed) {
    tt_spans_remove(&captures_by_thread, &c->by_thread);
  }
  globals -= c->mode == tuttiCaptureGlobal;
  atomic_fetch_sub_explicit(&tt_captures, 1, memory_order_relaxed);
}

static ncclResult_t capture_no_memory(void)
{
  return tt_fail(ncclSystemError, "no memory to capture a stream");
}

static ncclResult_t capture_broken(const char *what)
{
  return FAULT(tuttiCaptureFaultInvalidated,
               "%s: the capture was invalidated by an earlier call that is not allowed during a capture", what);
}

// The stream belongs to the capture, with room for `n` nodes in its tail.
static ncclResult_t capture_join(capture *c, tt_stream *s, uint32_t n, uint32_t home, member **out)
{
  member *m = tt_calloc(1, sizeof *m);
  if (m == NULL || !tt_nodes_reserve(&m->tail, TT_MAX(n, 1))) {
    tt_free(m);
    return capture_no_memory();
  }
  m->of = c;
  m->stream = s;
  m->home = home;
  m->next = c->members;
  c->members = m;
  s->member = m;
  index_at(&members_by_device, &m->by_device, (uintptr_t)s->device);
  if (s->legacy != NULL) {
    index_at(&members_by_legacy, &m->by_legacy, (uintptr_t)s->legacy);
  }
  atomic_store_explicit(&s->state, TT_STREAM_CAPTURING, memory_order_release);
  *out = m;
  return ncclSuccess;
}

// The member's stream leaves it.
static void capture_leave(member *m)
{
  tt_stream *s = m->stream;
  if (s == NULL) {
    return;
  }
  tt_spans_remove(&members_by_device, &m->by_device);
  if (s->legacy != NULL) {
    tt_spans_remove(&members_by_legacy, &m->by_legacy);
  }
  m->stream = NULL;
  s->member = NULL;
}

// Ends a capture: its streams are ordinary ones again.
static void dissolve(capture *c)
{
  unlist_capture(c);
  for (member *m = c->members, *next; m != NULL; m = next) {
    next = m->next;
    tt_stream *s = m->stream;
    capture_leave(m);
    if (s != NULL) {
      atomic_store_explicit(&s->state, TT_STREAM_LIVE, memory_order_release);
    }
    tt_nodes_free(&m->tail);
    tt_free(m);
  }
  if (c->own) {
    tt_graph_destroy(c->graph);
  }
  tt_free(c);
}

static ncclResult_t add_nodes(tt_nodes *to, const tt_nodes *nodes)
{
  if (!tt_nodes_reserve(to, nodes->n)) {
    return capture_no_memory();
  }
  for (uint32_t i = 0; i < nodes->n; i++) {
    tt_nodes_add(to, nodes->at[i]);
  }
  return ncclSuccess;
}

// The home of a stream that begins behind these nodes, in a graph that was there before: one that goes on where the
// last of them is.
static uint32_t home_behind(tt_graph *g, const tt_nodes *deps)
{
  return deps != NULL && deps->n > 0 ? deps->at[deps->n - 1]->home : g->homes++;
}

static ncclResult_t capture_begin(tt_stream *s, tt_graph *into, const tt_nodes *deps, tuttiCaptureMode_t mode)
{
  if (s->is_legacy) {
    return FAULT(tuttiCaptureFaultUnsupported, "the legacy default stream cannot be captured");
  }
  if (s->member != NULL) {
    return FAULT(tuttiCaptureFaultState, "the stream is captured already");
  }
  capture *c = tt_calloc(1, sizeof *c);
  if (c == NULL) {
    return capture_no_memory();
  }
  *c = (capture){.graph = into, .own = into == NULL, .mode = mode, .thread = this_thread()};
  ncclResult_t res;
  TT_TRY_GOTO(into == NULL ? tt_graph_create(&c->graph) : ncclSuccess, res);
  TT_TRY_GOTO(capture_join(c, s, deps == NULL ? 1 : deps->n, home_behind(c->graph, deps), &c->origin), res);
  if (deps != NULL) {
    add_nodes(&c->origin->tail, deps);
  }
  list_capture(c);
  return ncclSuccess;
fail:
  dissolve(c);
  return res;
}

ncclResult_t tt_capture_begin(tt_stream *s, tt_graph *into, const tt_nodes *deps, tuttiCaptureMode_t mode)
{
  pthread_mutex_lock(&lock);
  ncclResult_t res = capture_begin(s, into, deps, mode);
  pthread_mutex_unlock(&lock);
  return res;
}

// May the calling thread end the capture at this stream?
static ncclResult_t check_end(const tt_stream *s)
{
  const char *what = "the end of a capture";
  if (s->member == NULL) {
    return FAULT(tuttiCaptureFaultState, "%s: the stream is not captured", what);
  }
  capture *c = s->member->of;
  if (c->origin != s->member) {
    c->broken = true;
    return FAULT(tuttiCaptureFaultUnmatched, "%s: it began on another stream", what);
  }
  if (c->mode != tuttiCaptureRelaxed && c->thread != this_thread()) {
    c->broken = true;
    return FAULT(tuttiCaptureFaultThread, "%s: another thread began it, and not in relaxed mode", what);
  }
  return ncclSuccess;
}

static ncclResult_t check_joined(const capture *c)
{
  tt_nodes tails = {0};
  ncclResult_t res = c->broken ? capture_broken("the end of a capture") : ncclSuccess;
  for (const member *m = c->members; m != NULL && res == ncclSuccess; m = m->next) {
    res = add_nodes(&tails, &m->tail);
  }
  if (res == ncclSuccess && !tt_graph_covers(c->graph, &c->origin->tail, &tails)) {
    res = FAULT(tuttiCaptureFaultUnjoined, "the end of a capture: work of another stream that takes part is not "
                                           "joined: record an event behind it, and let the "
                                           "stream where the capture began wait for it");
  }
  tt_nodes_free(&tails);
  return res;
}

ncclResult_t tt_capture_end(tt_stream *s, tt_graph **out)
{
  pthread_mutex_lock(&lock);
  ncclResult_t res = check_end(s);
  if (res == ncclSuccess) {
    capture *c = s->member->of;
    res = check_joined(c);
    if (res == ncclSuccess) {
      *out = c->graph;
      c->own = false;
    }
    dissolve(c);
  }
  pthread_mutex_unlock(&lock);
  return res;
}

void tt_capture_info(const tt_stream *s, tuttiCaptureInfo_t *out)
{
  *out = (tuttiCaptureInfo_t){.status = tuttiCaptureNone};
  pthread_mutex_lock(&lock);
  member *m = s->member;
  if (m != NULL) {
    tt_nodes_settle(&m->tail);
    *out = (tuttiCaptureInfo_t){.status = m->of->broken ? tuttiCaptureInvalidated : tuttiCaptureActive,
                                .id = m->of->by_id.start,
                                .graph = (tuttiGraph_t)m->of->graph,
                                .dependencies = (const tuttiNode_t *)m->tail.at,
                                .dependencyCount = m->tail.n};
  }
  pthread_mutex_unlock(&lock);
}

static ncclResult_t capture_update(const tt_stream *s, const tt_nodes *deps, bool set)
{
  member *m = s->member;
  if (m == NULL) {
    return FAULT(tuttiCaptureFaultState, "dependencies of a capture: the stream is not captured");
  }
  if (m->of->broken) {
    return capture_broken("dependencies of a capture");
  }
  m->tail.n = set ? 0 : m->tail.n;
  return add_nodes(&m->tail, deps);
}

ncclResult_t tt_capture_update(tt_stream *s, const tt_nodes *deps, bool set)
{
  pthread_mutex_lock(&lock);
  ncclResult_t res = capture_update(s, deps, set);
  pthread_mutex_unlock(&lock);
  return res;
}

// ---- recording

// The capture of all these streams.
static ncclResult_t capture_common(tt_stream *const *streams, size_t n, capture **out)
{
  const char *what = "work of one call or group";
  capture *c = streams[0]->member == NULL ? NULL : streams[0]->member->of;
  for (size_t i = 0; i < n; i++) {
    if (streams[i]->member == NULL || streams[i]->member->of != c) {
      return FAULT(tuttiCaptureFaultMerge,
                   "%s: its streams must be captured in the same graph, or none of them be captured", what);
    }
  }
  *out = c;
  return c->broken ? capture_broken(what) : ncclSuccess;
}

static ncclResult_t capture_add(tt_stream *const *streams, size_t n, tt_node *node)
{
  capture *c = NULL;
  tt_nodes deps = {0};
  TT_TRY(capture_common(streams, n, &c));
  ncclResult_t res = node == NULL ? capture_no_memory() : ncclSuccess;
  for (size_t i = 0; i < n && res == ncclSuccess; i++) {
    res = add_nodes(&deps, &streams[i]->member->tail);
  }
  tt_nodes_settle(&deps);
  res = res != ncclSuccess ? res : tt_graph_add(c->graph, node, &deps, streams[0]->member->home);
  tt_nodes_free(&deps);
  for (size_t i = 0; i < n && res == ncclSuccess; i++) {
    streams[i]->member->tail.n = 0;
    tt_nodes_add(&streams[i]->member->tail, node);
  }
  return res;
}

ncclResult_t tt_capture_add(tt_stream *const *streams, size_t n, tt_node *node)
{
  pthread_mutex_lock(&lock);
  ncclResult_t res = capture_add(streams, n, node);
  pthread_mutex_unlock(&lock);
  if (res != ncclSuccess) {
    tt_node_drop(node);
  }
  return res;
}

// The streams of the uses, and how many of them are captured.
static ncclResult_t capture_look(const tt_stream_use *uses, size_t n, int device, tt_stream **streams, size_t *captured)
{
  *captured = 0;
  for (size_t i = 0; i < n; i++) {
    TT_TRY(tt_stream_look(uses[i].stream, device, &streams[i]));
    *captured += tt_stream_captures(streams[i]);
  }
  for (size_t i = 0; i < n && *captured == 0; i++) {
    TT_TRY(tt_capture_refuse_legacy(streams[i], uses[i].what));
  }
  return ncclSuccess;
}

ncclResult_t tt_capture_calls(const tt_stream_use *uses, size_t n, int device, tt_recorded *r, bool *captured)
{
  size_t count = 0;
  tt_stream *one[1], **streams = n == 1 ? one : tt_calloc(n, sizeof *streams);
  ncclResult_t res = streams == NULL ? capture_no_memory() : capture_look(uses, n, device, streams, &count);
  *captured = count > 0;
  if (res == ncclSuccess && count > 0) {
    res = tt_capture_add(streams, n, r == NULL ? NULL : tt_node_new(tuttiNodeNccl, r));
  } else if (r != NULL) {
    r->drop(r);
  }
  if (streams != one) {
    tt_free(streams);
  }
  return res;
}

static ncclResult_t capture_record(const tt_stream *s, tt_mark **out)
{
  if (s->member == NULL || s->member->of->broken) {
    return capture_broken("an event is recorded");
  }
  tt_mark *mark = tt_calloc(1, sizeof *mark);
  tt_nodes_settle(&s->member->tail);
  if (mark == NULL || add_nodes(&mark->nodes, &s->member->tail) != ncclSuccess) {
    tt_mark_free(mark);
    return capture_no_memory();
  }
  mark->capture = s->member->of->by_id.start;
  *out = mark;
  return ncclSuccess;
}

ncclResult_t tt_capture_record(tt_stream *s, tt_event *e)
{
  tt_mark *mark = NULL;
  pthread_mutex_lock(&lock);
  ncclResult_t res = capture_record(s, &mark);
  pthread_mutex_unlock(&lock);
  if (res == ncclSuccess) {
    tt_event_mark(e, mark);
  }
  return res;
}

void tt_mark_free(tt_mark *mark)
{
  if (mark != NULL) {
    tt_nodes_free(&mark->nodes);
    tt_free(mark);
  }
}

// A stream that is captured waits for an event that is not: only what is recorded in the same graph can go before its
// nodes.
static ncclResult_t capture_isolated(const tt_stream *s)
{
  s->member->of->broken = true;
  return FAULT(tuttiCaptureFaultIsolation,
               "a captured stream cannot wait for an event that was not recorded in the same capture");
}

static ncclResult_t capture_wait(tt_stream *s, const tt_mark *mark)
{
  member *m = s->member;
  if (m != NULL && m->of->broken) {
    return capture_broken("a wait for an event");
  }
  if (mark == NULL) {
    return capture_isolated(s);
  }
  capture *c = capture_find(mark->capture);
  if (c == NULL) {
    return tt_capture_refuse_event("a wait for an event");
  }
  if (c->broken) {
    return capture_broken("a wait for an event");
  }
  if (m != NULL && m->of != c) {
    m->of->broken = c->broken = true;
    return FAULT(tuttiCaptureFaultMerge, "a wait for an event would merge two captures");
  }
  if (s->is_legacy) {
    c->broken = true;
    return FAULT(tuttiCaptureFaultImplicit, "the legacy default stream cannot take part in a capture");
  }
  if (m == NULL) {
    TT_TRY(capture_join(c, s, mark->nodes.n, c->graph->homes++, &m));
  }
  return add_nodes(&m->tail, &mark->nodes);
}

ncclResult_t tt_capture_wait(tt_stream *s, tt_event *e)
{
  pthread_mutex_lock(&lock);
  pthread_mutex_lock(&e->lock);
  ncclResult_t res = capture_wait(s, e->mark);
  pthread_mutex_unlock(&e->lock);
  pthread_mutex_unlock(&lock);
  return res;
}

// ---- what is not allowed

ncclResult_t tt_capture_refuse(tt_stream *s, const char *what)
{
  pthread_mutex_lock(&lock);
  bool before = s->member != NULL && s->member->of->broken;
  if (s->member != NULL) {
    s->member->of->broken = true;
  }
  pthread_mutex_unlock(&lock);
  return before ? capture_broken(what)
                : FAULT(tuttiCaptureFaultUnsupported,
                        "%s: not allowed on a stream that is captured; the capture is invalid now", what);
}

// Breaks the captures that have a stream with `hits`. Returns whether there are any: only then a member stands in the
// tree at the number.
static bool break_where(tt_span **root, uintptr_t number, bool (*hits)(const tt_stream *s, uintptr_t number))
{
  pthread_mutex_lock(&lock);
  bool any = tt_spans_same(*root, number, 1) != NULL;
  for (capture *c = any ? captures : NULL; c != NULL; c = c->next) {
    for (const member *m = c->members; m != NULL; m = m->next) {
      c->broken = c->broken || (m->stream != NULL && hits(m->stream, number));
    }
  }
  pthread_mutex_unlock(&lock);
  return any;
}

static bool is_of_device(const tt_stream *s, uintptr_t device)
{
  return (uintptr_t)s->device == device;
}

ncclResult_t tt_capture_refuse_device(int device, const char *what)
{
  return tt_capturing() && break_where(&members_by_device, (uintptr_t)device, is_of_device)
             ? FAULT(tuttiCaptureFaultUnsupported, "%s: a stream of device %d is captured; the capture is invalid now",
                     what, device)
             : ncclSuccess;
}

static bool is_ordered_with(const tt_stream *s, uintptr_t legacy)
{
  return (uintptr_t)s->legacy == legacy;
}

ncclResult_t tt_capture_refuse_legacy(const tt_stream *s, const char *what)
{
  return s->is_legacy && break_where(&members_by_legacy, (uintptr_t)s, is_ordered_with)
             ? FAULT(tuttiCaptureFaultImplicit,
                     "%s: on the legacy default stream it would wait for a blocking stream that is captured; the "
                     "capture is invalid now",
                     what)
             : ncclSuccess;
}

ncclResult_t tt_capture_refuse_event(const char *what)
{
  return FAULT(tuttiCaptureFaultEvent, "%s: the event was last recorded in a captured stream", what);
}

ncclResult_t tt_capture_allows(const char *what)
{
  if (!tt_capturing() || thread_mode == tuttiCaptureRelaxed) {
    return ncclSuccess;
  }
  pthread_mutex_lock(&lock);
  bool all = thread_mode == tuttiCaptureGlobal && globals > 0;
  bool conflict = all || tt_spans_same(captures_by_thread, (uintptr_t)this_thread(), 1) != NULL;
  for (capture *c = conflict ? captures : NULL; c != NULL; c = c->next) {
    bool mine = c->thread == this_thread() && c->mode != tuttiCaptureRelaxed;
    c->broken = c->broken || mine || (all && c->mode == tuttiCaptureGlobal);
  }
  pthread_mutex_unlock(&lock);
  return conflict ? FAULT(tuttiCaptureFaultUnsupported,
                          "%s: not allowed in this thread's mode while a stream is captured", what)
                  : ncclSuccess;
}

void tt_capture_abandon(tt_stream *s)
{
  pthread_mutex_lock(&lock);
  if (s->member != NULL) {
    capture *c = s->member->of;
    bool origin = c->origin == s->member;
    c->broken = true;
    capture_leave(s->member);
    if (origin) { // nobody can end it any more
      dissolve(c);
    }
  }
  pthread_mutex_unlock(&lock);
}

tuttiCaptureMode_t tt_capture_exchange(tuttiCaptureMode_t mode)
{
  tuttiCaptureMode_t before = thread_mode;
  thread_mode = mode;
  return before;
}

tuttiCaptureFault_t tt_capture_take_fault(void)
{
  tuttiCaptureFault_t fault = thread_fault;
  thread_fault = tuttiCaptureFaultNone;
  return fault;
}

void tt_capture_forget(void)
{
  pthread_mutex_init(&lock, NULL);
  captures = NULL;
  captures_by_id = captures_by_thread = members_by_device = members_by_legacy = NULL;
  globals = 0;
  atomic_store(&tt_captures, 0);
}
