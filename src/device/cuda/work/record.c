// record.c: the steps of a plan as nodes of a graph (capture_priv.h).
#include "device/cuda/work/capture_priv.h"
#include "device/cuda/work/walk.h"

// ---- FIFOs ----

void tt_gpu_record_refs(const tt_gpu_port *p, const tt_lane *l, const tt_program_step *s)
{
  for (int i = 0; i < s->nsrc + s->ndst; i++) {
    tt_program_ref *r = &p->refs[i];
    if (r->fifo != NULL) {
      r->fifo = &tt_gpu_traffic_find(p->recording, l->call, r->fifo)->end.fifo;
    }
  }
}

CUdeviceptr tt_gpu_record_place(const gpu_recording *rec, const volatile void *ptr)
{
  const uintptr_t offset = (uintptr_t)ptr - rec->scratch;
  return offset < rec->scratch_bytes ? gpu_address(rec->capture->scratch) + offset : gpu_address(ptr);
}

ncclResult_t tt_gpu_record_wait(gpu_recording *rec, const gpu_wait *w, const tt_fifo *f)
{
  const gpu_traffic *t = (const gpu_traffic *)(const void *)f;
  if (!tt_grow(&rec->waits, rec->nwaits, 1, &rec->waits_room, sizeof *rec->waits)) {
    return tt_fail(ncclSystemError, "no memory for a captured plan");
  }
  rec->waits[rec->nwaits++] = (gpu_replay_wait){
      .word = w->word, .value = w->value, .how = w->how, .traffic = (int32_t)(t - rec->capture->traffic)};
  return ncclSuccess;
}

void tt_gpu_record_waits_end(gpu_recording *rec)
{
  rec->waits[rec->nwaits - 1].last = true;
}

// ---- Where the next node stands ----

// What the stream's next node comes after. Valid until the thread's next question. Some of that may be kernels which
// let the next one begin before they are complete: nodes that are added by hand come after their ends.
static ncclResult_t record_look(CUstream stream, CUgraph *graph, const CUgraphNode **after, size_t *n)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUstreamCaptureStatus status;
  const CUgraphEdgeData *edges; // with NULL in its place the driver refuses such captures
  TT_CUDA(cu, cu->StreamGetCaptureInfo(stream, &status, NULL, graph, after, &edges, n),
          "cannot ask where the capture of stream %p stands", (void *)stream);
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    return tt_fail(ncclInvalidUsage, "the capture of stream %p has become invalid", (void *)stream);
  }
  return ncclSuccess;
}

static ncclResult_t record_move(CUstream stream, CUgraphNode *after, size_t n)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  TT_CUDA(cu, cu->StreamUpdateCaptureDependencies(stream, after, NULL, n, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
          "cannot set what comes next in the capture of stream %p", (void *)stream);
  return ncclSuccess;
}

// ---- Begin and end ----

static void capture_released(void *arg)
{
  gpu_capture *c = arg;
  atomic_store_explicit(&c->released, true, memory_order_release);
}

// From now on the graph says how long the capture's memory is needed.
static ncclResult_t capture_give(tt_gpu_port *p, CUgraph graph)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  gpu_capture *c = p->recording->capture;
  CUuserObject object = NULL;
  TT_CUDA(cu, cu->UserObjectCreate(&object, c, capture_released, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
          "GPU %d: cannot create an object that ends with a graph", p->device);
  tt_gpu_captures_add(p, c);
  CUresult error = cu->GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (error != CUDA_SUCCESS) {
    cu->UserObjectRelease(object, 1);
  }
  TT_CUDA(cu, error, "GPU %d: the graph cannot keep the memory of a captured plan", p->device);
  return ncclSuccess;
}

// Adds a wait for the capture's event, or its record. By that the plan's replays follow one another, even where two
// executable graphs have it. Nothing comes after the record.
static ncclResult_t record_event(const gpu_recording *rec, bool waits)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const CUgraphNode *after = NULL;
  CUgraph graph = NULL;
  CUgraphNode node = NULL;
  size_t n = 0;
  TT_TRY(record_look(rec->stream, &graph, &after, &n));
  TT_CUDA(cu,
          (waits ? cu->GraphAddEventWaitNode : cu->GraphAddEventRecordNode)(&node, graph, after, n, rec->capture->over),
          "cannot add an event to the graph of stream %p", (void *)rec->stream);
  return waits ? record_move(rec->stream, &node, 1) : ncclSuccess;
}

ncclResult_t tt_gpu_record_begin(const tt_gpu_work *w)
{
  gpu_recording *rec = w->port->recording;
  const CUgraphNode *after = NULL;
  CUgraph graph = NULL;
  size_t n = 0;
  w->port->room = &rec->steps;
  TT_TRY(record_look(rec->stream, &graph, &after, &n));
  TT_TRY(capture_give(w->port, graph));
  TT_TRY(record_event(rec, true));
  TT_TRY(tt_gpu_plan_stage(w));
  return tt_gpu_work_copy(w, false);
}

ncclResult_t tt_gpu_record_end(const tt_gpu_work *w)
{
  gpu_recording *rec = w->port->recording;
  TT_TRY(tt_gpu_walk_launch(w->port));
  TT_TRY(tt_gpu_work_copy(w, true));
  TT_TRY(record_event(rec, false));
  tt_gpu_capture_show(rec->capture, rec->waits, (uint32_t)rec->nwaits);
  rec->waits = NULL;
  return ncclSuccess;
}
