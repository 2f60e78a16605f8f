// capture.c: streams whose work becomes nodes of a graph.
#include <stdlib.h>
#include <string.h>

#include "sim.h"

// All captures that ever were: events may still name one that has ended.
static struct sim_capture *captures;

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// ---- What streams and events depend on ----

static bool set_after(struct sim_node ***after, size_t *count, struct sim_node *const *nodes, size_t n)
{
  struct sim_node **copy = calloc(n + 1, sizeof *copy);
  if (copy == NULL) {
    return false;
  }
  if (n > 0) {
    memcpy(copy, nodes, n * sizeof(struct sim_node *));
  }
  free(*after);
  *after = copy;
  *count = n;
  return true;
}

static bool contains(struct sim_node *const *nodes, size_t n, const struct sim_node *node)
{
  for (size_t i = 0; i < n; i++) {
    if (nodes[i] == node) {
      return true;
    }
  }
  return false;
}

static bool add_after(struct sim_stream *stream, struct sim_node *const *nodes, size_t n)
{
  struct sim_node **more = realloc(stream->after, (stream->nafter + n + 1) * sizeof(struct sim_node *));
  if (more == NULL) {
    return false;
  }
  stream->after = more;
  for (size_t i = 0; i < n; i++) {
    if (!contains(stream->after, stream->nafter, nodes[i])) {
      stream->after[stream->nafter++] = nodes[i];
    }
  }
  return true;
}

static CUresult invalidate(struct sim_capture *capture, CUresult code)
{
  if (capture->invalid == CUDA_SUCCESS) {
    capture->invalid = code;
  }
  return code;
}

static bool is_active(const struct sim_capture *capture)
{
  return capture->origin != NULL;
}

// ---- Work of a stream that is captured ----

CUresult sim_capture_add(struct sim_stream *stream, struct sim_work *work)
{
  struct sim_capture *capture = stream->capture;
  if (capture->invalid != CUDA_SUCCESS) {
    sim_work_free(work);
    return sim_misuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture was invalidated before (%s)",
                      sim_error_name(capture->invalid));
  }
  if (work->kind == SIM_LAUNCH) {
    sim_work_free(work);
    return invalidate(capture, sim_misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "graphs in graphs are not here"));
  }
  struct sim_node *node = sim_node_add(capture->graph, work, stream->after, stream->nafter);
  if (node == NULL || !set_after(&stream->after, &stream->nafter, &node, 1)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event)
{
  if (stream->capture->invalid != CUDA_SUCCESS) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  event->capture = stream->capture;
  return set_after(&event->after, &event->nafter, stream->after, stream->nafter) ? CUDA_SUCCESS
                                                                                 : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_capture_join(struct sim_stream *stream, struct sim_event *event)
{
  struct sim_capture *capture = event->capture;
  if (capture == NULL) {
    bool recorded = atomic_load(&event->words->recorded) > 0;
    return !recorded ? CUDA_SUCCESS
                     : invalidate(stream->capture, sim_misuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                                                              "a captured stream waits for work that is not"));
  }
  if (!is_active(capture)) {
    return sim_misuse(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a capture that has ended");
  }
  if (stream->legacy) {
    return invalidate(capture, sim_misuse(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy stream cannot join"));
  }
  if (stream->capture != NULL && stream->capture != capture) {
    invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return invalidate(capture, sim_misuse(CUDA_ERROR_STREAM_CAPTURE_MERGE, "two captures would become one"));
  }
  if (stream->capture == NULL) { // it joins
    stream->capture = capture;
    stream->nafter = 0;
  }
  return add_after(stream, event->after, event->nafter) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// ---- Calls that captures forbid ----

static bool forbids(const struct sim_capture *capture)
{
  bool own = pthread_equal(capture->thread, pthread_self()) != 0;
  if (!is_active(capture) || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return false;
  }
  return own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
             : thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_unsafe(void)
{
  CUresult error = CUDA_SUCCESS;
  for (struct sim_capture *capture = captures; capture != NULL; capture = capture->next) {
    if (forbids(capture)) {
      error = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  return error == CUDA_SUCCESS ? error : sim_misuse(error, "not allowed while a stream is captured in this mode");
}

CUresult sim_capture_forbid(struct sim_stream *stream)
{
  if (stream->capture == NULL) {
    return CUDA_SUCCESS;
  }
  return invalidate(stream->capture,
                    sim_misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "stream %llu is being captured", stream->id));
}

static struct sim_capture *implicit_capture(const struct sim_context *context)
{
  for (const struct sim_stream *stream = context->streams; stream != NULL; stream = stream->next) {
    if (stream->capture != NULL && (stream->flags & CU_STREAM_NON_BLOCKING) == 0) {
      return stream->capture;
    }
  }
  return NULL;
}

CUresult sim_capture_implicit(struct sim_context *context)
{
  struct sim_capture *capture = implicit_capture(context);
  return capture == NULL
             ? CUDA_SUCCESS
             : invalidate(capture, sim_misuse(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                                              "the legacy stream would wait for a stream that is captured"));
}

static CUresult exchange(CUstreamCaptureMode *mode)
{
  CUstreamCaptureMode before = thread_mode;
  if (*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "mode %d", (int)*mode);
  }
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
  SIM_CALL("cuThreadExchangeStreamCaptureMode", exchange(mode));
}

// ---- Begin and end ----

static CUresult begin(CUstream handle, CUstreamCaptureMode mode)
{
  CUresult error;
  struct sim_stream *stream = sim_stream_of(handle, &error);
  if (stream == NULL) {
    return error;
  }
  if (stream->legacy || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return sim_misuse(stream->legacy ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_INVALID_VALUE,
                      "the legacy stream cannot be captured, or mode %d", (int)mode);
  }
  if (stream->capture != NULL) {
    return sim_misuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is being captured already");
  }
  struct sim_capture *capture = calloc(1, sizeof *capture);
  struct sim_graph *graph = capture != NULL ? sim_graph_new() : NULL;
  if (graph == NULL) {
    free(capture);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  graph->capturing = true;
  *capture = (struct sim_capture){
      .next = captures, .origin = stream, .graph = graph, .mode = mode, .thread = pthread_self(), .id = ++sim.ids};
  captures = capture;
  stream->capture = capture;
  stream->nafter = 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
  SIM_CALL("cuStreamBeginCapture", begin(stream, mode));
}

// Marks the node and all before it.
static void mark_before(const struct sim_node *node, bool *marked)
{
  if (!marked[node->index]) {
    marked[node->index] = true;
    for (size_t i = 0; i < node->nafter; i++) {
      mark_before(node->after[i], marked);
    }
  }
}

// Does the origin stand behind everything that the stream has done?
static bool is_joined(const struct sim_stream *stream, const bool *marked)
{
  for (size_t i = 0; i < stream->nafter; i++) {
    if (!marked[stream->after[i]->index]) {
      return false;
    }
  }
  return true;
}

static struct sim_stream *next_captured(const struct sim_capture *capture, struct sim_stream *after, int *device)
{
  struct sim_stream *stream = after != NULL ? after->next : NULL;
  for (;;) {
    for (; stream != NULL; stream = stream->next) {
      if (stream->capture == capture) {
        return stream;
      }
    }
    const struct sim_context *context = NULL;
    while (context == NULL && ++*device < sim.modes.devices) {
      context = sim.device[*device].primary;
    }
    if (context == NULL) {
      return NULL;
    }
    stream = context->streams;
  }
}

// All streams of the capture are free again. False: one was not joined.
static bool release_streams(struct sim_capture *capture)
{
  struct sim_stream *origin = capture->origin;
  bool *marked = calloc(capture->graph->nodes + 1, sizeof *marked), joined = true;
  int device = -1;
  for (size_t i = 0; marked != NULL && i < origin->nafter; i++) {
    mark_before(origin->after[i], marked);
  }
  for (struct sim_stream *s = next_captured(capture, NULL, &device); s != NULL;
       s = next_captured(capture, s, &device)) {
    joined = joined && marked != NULL && is_joined(s, marked);
    s->capture = NULL;
    s->nafter = 0;
  }
  free(marked);
  return joined;
}

// The capture is over; its graph goes, or is the program's.
static void close_capture(struct sim_capture *capture, bool keep)
{
  capture->origin = NULL;
  capture->graph->capturing = false;
  if (!keep) {
    sim_graph_free(capture->graph);
  }
  capture->graph = NULL;
}

void sim_capture_leave(struct sim_stream *stream)
{
  struct sim_capture *capture = stream->capture;
  if (capture->origin == stream) {
    release_streams(capture);
    close_capture(capture, false);
  } else {
    invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    stream->capture = NULL;
  }
}

static CUresult end(CUstream handle, CUgraph *out)
{
  CUresult error;
  struct sim_stream *stream = sim_stream_of(handle, &error);
  struct sim_capture *capture = stream != NULL ? stream->capture : NULL;
  if (capture == NULL) {
    return stream == NULL ? error : sim_misuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
  }
  if (capture->origin != stream) {
    return invalidate(capture, sim_misuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began in another stream"));
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && pthread_equal(capture->thread, pthread_self()) == 0) {
    return sim_misuse(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture was begun by another thread");
  }
  *out = NULL;
  error = capture->invalid != CUDA_SUCCESS ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  if (!release_streams(capture) && error == CUDA_SUCCESS) {
    error = sim_misuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a stream that joined the capture did not come back to it");
  }
  if (error == CUDA_SUCCESS) {
    *out = capture->graph->handle;
  }
  close_capture(capture, error == CUDA_SUCCESS);
  return error;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
  SIM_CALL("cuStreamEndCapture", end(stream, graph));
}

// ---- Asking ----

static CUstreamCaptureStatus status_of(const struct sim_stream *stream)
{
  return stream->capture == NULL                    ? CU_STREAM_CAPTURE_STATUS_NONE
         : stream->capture->invalid == CUDA_SUCCESS ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                    : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

// The stream, for a question. The legacy stream must not be asked while one that it waits for is captured.
static struct sim_stream *asked_stream(CUstream handle, CUresult *error)
{
  struct sim_stream *stream = sim_stream_of(handle, error);
  if (stream != NULL && stream->legacy && implicit_capture(stream->context) != NULL) {
    *error = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return NULL;
  }
  return stream;
}

static CUresult is_capturing(CUstream handle, CUstreamCaptureStatus *status)
{
  CUresult error;
  const struct sim_stream *stream = asked_stream(handle, &error);
  if (stream != NULL) {
    *status = status_of(stream);
  }
  return error;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
  SIM_CALL("cuStreamIsCapturing", is_capturing(stream, status));
}

// What the stream's next node depends on. Valid until the thread's next question.
struct answer {
  CUgraphNode *nodes;
  CUgraphEdgeData *edges;
  bool plain; // all edges
};

static bool answer_for(const struct sim_stream *stream, struct answer *out)
{
  static __thread struct answer last;
  CUgraphNode *nodes = realloc(last.nodes, (stream->nafter + 1) * sizeof *nodes);
  CUgraphEdgeData *edges = realloc(last.edges, (stream->nafter + 1) * sizeof *edges);
  static const CUgraphEdgeData plain;
  if (nodes == NULL || edges == NULL) {
    return false;
  }
  last = (struct answer){.nodes = nodes, .edges = edges, .plain = true};
  for (size_t i = 0; i < stream->nafter; i++) {
    nodes[i] = stream->after[i]->handle;
    edges[i] = stream->after[i]->edge;
    last.plain = last.plain && memcmp(&edges[i], &plain, sizeof plain) == 0;
  }
  *out = last;
  return true;
}

static CUresult capture_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                             const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
  CUresult error;
  struct answer answer;
  const struct sim_stream *stream = asked_stream(handle, &error);
  if (stream == NULL) {
    return error;
  }
  *status = status_of(stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    return CUDA_SUCCESS;
  }
  if (!answer_for(stream, &answer)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!answer.plain && dependencies != NULL && edges == NULL) {
    return sim_misuse(CUDA_ERROR_LOSSY_QUERY, "nodes may begin before others are complete, and that is not asked for");
  }
  if (id != NULL) {
    *id = stream->capture->id;
  }
  if (graph != NULL) {
    *graph = stream->capture->graph->handle;
  }
  if (dependencies != NULL) {
    *dependencies = answer.nodes;
  }
  if (edges != NULL) {
    *edges = answer.edges;
  }
  if (count != NULL) {
    *count = stream->nafter;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
  SIM_CALL("cuStreamGetCaptureInfo", capture_info(stream, status, id, graph, dependencies, edges, count));
}

static CUresult update(CUstream handle, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count,
                       unsigned flags)
{
  CUresult error;
  struct sim_stream *stream = sim_stream_of(handle, &error);
  if (stream == NULL || stream->capture == NULL) {
    return stream == NULL ? error : sim_misuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
  }
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "flags 0x%x", flags);
  }
  for (size_t i = 0; i < count; i++) {
    const struct sim_node *node = sim_object(SIM_NODE, dependencies[i]);
    if (node == NULL || node->graph != stream->capture->graph) {
      return sim_misuse(CUDA_ERROR_INVALID_VALUE, "node %zu is not of the stream's graph", i);
    }
  }
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
    stream->nafter = 0;
  }
  for (size_t i = 0; i < count; i++) {
    struct sim_node *node = sim_object(SIM_NODE, dependencies[i]);
    if (!add_after(stream, &node, 1)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->edge = edges != NULL ? edges[i] : (CUgraphEdgeData){.type = 0};
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                           size_t count, unsigned flags)
{
  SIM_CALL("cuStreamUpdateCaptureDependencies", update(stream, dependencies, edges, count, flags));
}
