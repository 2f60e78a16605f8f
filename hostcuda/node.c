// node.c: the nodes of a graph: what they are, and those that a program adds itself, each recorded by a capture of its
// own.
#include <stdlib.h>
#include <string.h>

#include "graph.h"

static cudaError_t invalid(ncclResult_t r)
{
  return hc_result(r, cudaErrorInvalidValue);
}

bool hc_plain_edges(const cudaGraphEdgeData *edges, size_t count)
{
  static const cudaGraphEdgeData plain;
  for (size_t i = 0; edges != NULL && i < count; i++) {
    if (memcmp(&edges[i], &plain, sizeof plain) != 0) {
      return false;
    }
  }
  return true;
}

// ---- Questions ----

// CUDA's way to give a list: NULL asks for the number; else *count elements at most are written, and what is left over
// is cleared.
typedef struct list {
  cudaGraphNode_t *at, *at2;
  size_t room, count;
} list;

static void give(list *l, tuttiNode_t node, tuttiNode_t node2)
{
  if (l->at != NULL && l->count < l->room) {
    l->at[l->count] = (cudaGraphNode_t)node;
  }
  if (l->at2 != NULL && l->count < l->room) {
    l->at2[l->count] = (cudaGraphNode_t)node2;
  }
  l->count++;
}

static void end(list *l, size_t *count)
{
  for (size_t i = l->count; l->at != NULL && i < l->room; i++) {
    l->at[i] = NULL;
  }
  for (size_t i = l->count; l->at2 != NULL && i < l->room; i++) {
    l->at2[i] = NULL;
  }
  *count = l->at != NULL && l->room < l->count ? l->room : l->count;
}

static cudaError_t list_nodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count, bool roots)
{
  const tuttiNode_t *all;
  size_t n, before;
  HC_ENTER();
  HC_REFUSE(graph == NULL || count == NULL, cudaErrorInvalidValue);
  list l = {.at = nodes, .room = nodes == NULL ? 0 : *count};
  cudaError_t e = invalid(tuttiGraphGetNodes((tuttiGraph_t)graph, &all, &n));
  for (size_t i = 0; e == cudaSuccess && i < n; i++) {
    tuttiNodeGetDependencies(all[i], NULL, 0, &before);
    if (!roots || before == 0) {
      give(&l, all[i], NULL);
    }
  }
  end(&l, count);
  return e;
}

HC_API cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
  return list_nodes(graph, nodes, count, false);
}

HC_API cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
  return list_nodes(graph, nodes, count, true);
}

// The edges that end at a node.
static ncclResult_t list_before(tuttiNode_t node, list *l)
{
  size_t n;
  ncclResult_t r = tuttiNodeGetDependencies(node, NULL, 0, &n);
  tuttiNode_t *before = r == ncclSuccess ? calloc(n + 1, sizeof *before) : NULL;
  if (before == NULL) {
    return r != ncclSuccess ? r : ncclSystemError;
  }
  tuttiNodeGetDependencies(node, before, n, &n);
  for (size_t i = 0; i < n; i++) {
    give(l, before[i], node);
  }
  free(before);
  return ncclSuccess;
}

static void clear_edges(cudaGraphEdgeData *edges, size_t room)
{
  if (edges != NULL) {
    memset(edges, 0, room * sizeof *edges);
  }
}

HC_API cudaGraphGetEdges_v2(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *edges,
                            size_t *count)
{
  const tuttiNode_t *all;
  size_t n;
  HC_ENTER();
  HC_REFUSE(graph == NULL || count == NULL || (from == NULL) != (to == NULL), cudaErrorInvalidValue);
  list l = {.at = from, .at2 = to, .room = from == NULL ? 0 : *count};
  clear_edges(edges, l.room);
  ncclResult_t r = tuttiGraphGetNodes((tuttiGraph_t)graph, &all, &n);
  for (size_t i = 0; r == ncclSuccess && i < n; i++) {
    r = list_before(all[i], &l);
  }
  end(&l, count);
  return invalid(r);
}

HC_API cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t *dependencies, cudaGraphEdgeData *edges,
                                       size_t *count)
{
  HC_ENTER();
  HC_REFUSE(node == NULL || count == NULL, cudaErrorInvalidValue);
  list l = {.at = dependencies, .room = dependencies == NULL ? 0 : *count};
  clear_edges(edges, l.room);
  ncclResult_t r = list_before((tuttiNode_t)node, &l);
  end(&l, count);
  return invalid(r);
}

HC_API cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
  static const enum cudaGraphNodeType types[] = {
      [tuttiNodeCopy] = cudaGraphNodeTypeMemcpy,     [tuttiNodeFill] = cudaGraphNodeTypeMemset,
      [tuttiNodeHost] = cudaGraphNodeTypeHost,       [tuttiNodeGraph] = cudaGraphNodeTypeGraph,
      [tuttiNodeEmpty] = cudaGraphNodeTypeEmpty,     [tuttiNodeRecord] = cudaGraphNodeTypeEventRecord,
      [tuttiNodeWait] = cudaGraphNodeTypeWaitEvent,  [tuttiNodeNccl] = cudaGraphNodeTypeKernel, // what NCCL's would be
      [tuttiNodeValue] = (enum cudaGraphNodeType)12, // the driver's batch of memory operations, which the runtime has
                                                     // no name for
  };
  tuttiNodeKind_t kind;
  HC_ENTER();
  HC_REFUSE(node == NULL || type == NULL, cudaErrorInvalidValue);
  cudaError_t e = invalid(tuttiNodeGetKind((tuttiNode_t)node, &kind));
  if (e == cudaSuccess) {
    *type = types[kind];
  }
  return e;
}

// ---- Nodes that a program adds ----

// Where a node goes.
typedef struct place {
  cudaGraphNode_t *node;
  cudaGraph_t graph;
  const cudaGraphNode_t *dependencies;
  size_t count;
} place;

#define PLACE (&(place){node, graph, dependencies, count})
#define PLACE_PARAMETERS cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count

// A stream that is captured, for one call; the call's node is what it leaves behind.
static ncclResult_t begin(const place *p, cudaStream_t *stream)
{
  ncclResult_t r = tuttiStreamCreate(stream, TUTTI_STREAM_NON_BLOCKING);
  if (r != ncclSuccess) {
    return r;
  }
  r = tuttiStreamBeginCaptureToGraph(*stream, (tuttiGraph_t)p->graph, (const tuttiNode_t *)p->dependencies, p->count,
                                     tuttiCaptureRelaxed);
  if (r != ncclSuccess) {
    tuttiStreamDestroy(*stream);
  }
  return r;
}

static cudaError_t finish(const place *p, cudaStream_t stream, ncclResult_t r)
{
  tuttiCaptureInfo_t info;
  tuttiGraph_t same;
  if (r == ncclSuccess) {
    r = tuttiStreamGetCaptureInfo(stream, &info);
  }
  if (r == ncclSuccess) {
    *p->node = (cudaGraphNode_t)info.dependencies[0];
  }
  ncclResult_t ended = tuttiStreamEndCapture(stream, &same);
  tuttiStreamDestroy(stream);
  return invalid(r == ncclSuccess ? ended : r);
}

// Adds what `call`, which uses the variable `stream`, would queue.
#define ADD(call)                                                         \
  do {                                                                    \
    cudaStream_t stream;                                                  \
    HC_REFUSE(node == NULL || graph == NULL, cudaErrorInvalidValue);      \
    ncclResult_t r = begin(PLACE, &stream);                               \
    return r == ncclSuccess ? finish(PLACE, stream, (call)) : invalid(r); \
  } while (0)

HC_API cudaGraphAddMemcpyNode1D(PLACE_PARAMETERS, void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
  HC_ENTER();
  HC_REFUSE((unsigned)kind > cudaMemcpyDefault, cudaErrorInvalidMemcpyDirection);
  ADD(tuttiMemcpyAsync(dst, src, bytes, stream));
}

HC_API cudaGraphAddMemsetNode(PLACE_PARAMETERS, const struct cudaMemsetParams *params)
{
  HC_ENTER();
  HC_REFUSE(params == NULL, cudaErrorInvalidValue);
  size_t size = params->elementSize, width;
  HC_REFUSE((size != 1 && size != 2 && size != 4) || __builtin_mul_overflow(params->width, size, &width),
            cudaErrorInvalidValue);
  tuttiRows_t rows = {.dst = params->dst, .dstPitch = params->pitch, .width = width, .height = params->height};
  rows.dstPitch = rows.height <= 1 ? rows.width : rows.dstPitch;
  ADD(tuttiFillRowsAsync(&rows, params->value, size, stream));
}

HC_API cudaGraphAddHostNode(PLACE_PARAMETERS, const struct cudaHostNodeParams *params)
{
  HC_ENTER();
  HC_REFUSE(params == NULL || params->fn == NULL, cudaErrorInvalidValue);
  ADD(hc_queue_function(stream, params->fn, params->userData));
}

HC_API cudaGraphAddEventRecordNode(PLACE_PARAMETERS, cudaEvent_t event)
{
  HC_ENTER();
  HC_REFUSE(event == NULL, cudaErrorInvalidValue);
  ADD(tuttiEventRecordWithFlags((tuttiEvent_t)event, stream, TUTTI_EVENT_EXTERNAL));
}

HC_API cudaGraphAddEventWaitNode(PLACE_PARAMETERS, cudaEvent_t event)
{
  HC_ENTER();
  HC_REFUSE(event == NULL, cudaErrorInvalidValue);
  ADD(tuttiStreamWaitEventWithFlags(stream, (tuttiEvent_t)event, TUTTI_EVENT_EXTERNAL));
}

HC_API cudaGraphAddEmptyNode(PLACE_PARAMETERS)
{
  HC_ENTER();
  HC_REFUSE(node == NULL || graph == NULL, cudaErrorInvalidValue);
  return invalid(
      tuttiGraphAddEmptyNode((tuttiGraph_t)graph, (const tuttiNode_t *)dependencies, count, (tuttiNode_t *)node));
}

static ncclResult_t launch_child(cudaGraph_t child, cudaStream_t stream)
{
  tuttiGraphExec_t exec;
  ncclResult_t r = tuttiGraphInstantiate(&exec, (tuttiGraph_t)child);
  if (r == ncclSuccess) {
    r = tuttiGraphLaunch(exec, stream);
    tuttiGraphExecDestroy(exec);
  }
  return r;
}

HC_API cudaGraphAddChildGraphNode(PLACE_PARAMETERS, cudaGraph_t child)
{
  HC_ENTER();
  HC_REFUSE(child == NULL || child == graph, cudaErrorInvalidValue);
  ADD(launch_child(child, stream));
}
