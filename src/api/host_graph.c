// host_graph.c: the tutti… functions for captures and graphs.
#include "api/host_priv.h"
#include "base/result.h"
#include "device/host/capture.h"
#include "device/host/device.h"

TUTTI_API tuttiStreamBeginCapture(cudaStream_t stream, tuttiCaptureMode_t mode)
{
  tt_stream *s;
  if ((unsigned)mode > tuttiCaptureRelaxed) {
    return tt_fail(ncclInvalidArgument, "tuttiStreamBeginCapture: mode is %d; known are 0 to %d", (int)mode,
                   tuttiCaptureRelaxed);
  }
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  return tt_capture_begin(s, NULL, NULL, mode);
}

// The nodes of an array as a set; freed by the caller.
static ncclResult_t read_nodes(const char *what, const tuttiNode_t *nodes, size_t count, tt_nodes *out)
{
  *out = (tt_nodes){0};
  TT_TRY(tt_api_needs(what, count == 0 || nodes != NULL));
  if (count > UINT32_MAX || !tt_nodes_reserve(out, (uint32_t)count)) {
    return tt_fail(ncclSystemError, "%s: no memory for %zu nodes", what, count);
  }
  for (size_t i = 0; i < count; i++) {
    TT_TRY(tt_api_needs(what, nodes[i] != NULL));
    tt_nodes_add(out, (tt_node *)nodes[i]);
  }
  tt_nodes_settle(out);
  return ncclSuccess;
}

// Those of one graph.
static ncclResult_t read_nodes_of(const char *what, const tt_graph *g, const tuttiNode_t *nodes, size_t count,
                                  tt_nodes *out)
{
  ncclResult_t res = read_nodes(what, nodes, count, out);
  for (uint32_t i = 0; res == ncclSuccess && i < out->n; i++) {
    if (out->at[i]->graph != g) {
      res = tt_fail(ncclInvalidArgument, "%s: node %p belongs to another graph", what, (void *)out->at[i]);
    }
  }
  return res;
}

TUTTI_API tuttiStreamBeginCaptureToGraph(cudaStream_t stream, tuttiGraph_t graph, const tuttiNode_t *dependencies,
                                         size_t count, tuttiCaptureMode_t mode)
{
  const char *what = "tuttiStreamBeginCaptureToGraph";
  tt_stream *s;
  tt_nodes deps;
  TT_TRY(tt_api_needs(what, graph != NULL));
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  ncclResult_t res = read_nodes_of(what, (tt_graph *)graph, dependencies, count, &deps);
  res = res == ncclSuccess ? tt_capture_begin(s, (tt_graph *)graph, &deps, mode) : res;
  tt_nodes_free(&deps);
  return res;
}

TUTTI_API tuttiStreamEndCapture(cudaStream_t stream, tuttiGraph_t *graph)
{
  tt_stream *s;
  TT_TRY(tt_api_needs("tuttiStreamEndCapture", graph != NULL));
  *graph = NULL;
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  return tt_capture_end(s, (tt_graph **)graph);
}

TUTTI_API tuttiStreamGetCaptureInfo(cudaStream_t stream, tuttiCaptureInfo_t *info)
{
  tt_stream *s;
  TT_TRY(tt_api_needs("tuttiStreamGetCaptureInfo", info != NULL));
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  tt_capture_info(s, info);
  return ncclSuccess;
}

TUTTI_API tuttiStreamUpdateCaptureDependencies(cudaStream_t stream, const tuttiNode_t *dependencies, size_t count,
                                               int set)
{
  tt_stream *s;
  tt_nodes deps;
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  ncclResult_t res = read_nodes("tuttiStreamUpdateCaptureDependencies", dependencies, count, &deps);
  res = res == ncclSuccess ? tt_capture_update(s, &deps, set != 0) : res;
  tt_nodes_free(&deps);
  return res;
}

TUTTI_API tuttiThreadExchangeCaptureMode(tuttiCaptureMode_t *mode)
{
  if (mode == NULL || (unsigned)*mode > tuttiCaptureRelaxed) {
    return tt_fail(ncclInvalidArgument, "tuttiThreadExchangeCaptureMode: mode is %d; known are 0 to %d",
                   mode == NULL ? -1 : (int)*mode, tuttiCaptureRelaxed);
  }
  *mode = tt_capture_exchange(*mode);
  return ncclSuccess;
}

TUTTI_API tuttiCaptureAllows(const char *what)
{
  return tt_capture_allows(what);
}

__attribute__((visibility("default"))) tuttiCaptureFault_t tuttiTakeCaptureFault(void)
{
  return tt_capture_take_fault();
}

TUTTI_API tuttiGraphCreate(tuttiGraph_t *graph)
{
  TT_TRY(tt_api_needs("tuttiGraphCreate", graph != NULL));
  return tt_graph_create((tt_graph **)graph);
}

TUTTI_API tuttiGraphDestroy(tuttiGraph_t graph)
{
  tt_graph_destroy((tt_graph *)graph);
  return ncclSuccess;
}

TUTTI_API tuttiGraphAddEmptyNode(tuttiGraph_t graph, const tuttiNode_t *dependencies, size_t count, tuttiNode_t *node)
{
  const char *what = "tuttiGraphAddEmptyNode";
  tt_graph *g = (tt_graph *)graph;
  tt_nodes deps;
  TT_TRY(tt_api_needs(what, g != NULL && node != NULL));
  ncclResult_t res = read_nodes_of(what, g, dependencies, count, &deps);
  tt_node *n = res == ncclSuccess ? tt_node_new(tuttiNodeEmpty, NULL) : NULL;
  if (res == ncclSuccess) {
    res = n == NULL ? tt_fail(ncclSystemError, "%s: no memory", what)
                    : tt_graph_add(g, n, &deps, deps.n > 0 ? deps.at[deps.n - 1]->home : g->homes++);
  }
  tt_nodes_free(&deps);
  if (res != ncclSuccess) {
    tt_node_drop(n);
    return res;
  }
  *node = (tuttiNode_t)n;
  return ncclSuccess;
}

TUTTI_API tuttiGraphGetNodes(tuttiGraph_t graph, const tuttiNode_t **nodes, size_t *count)
{
  const tt_graph *g = (const tt_graph *)graph;
  TT_TRY(tt_api_needs("tuttiGraphGetNodes", g != NULL && nodes != NULL && count != NULL));
  *nodes = (const tuttiNode_t *)g->nodes.at;
  *count = g->nodes.n;
  return ncclSuccess;
}

TUTTI_API tuttiNodeGetKind(tuttiNode_t node, tuttiNodeKind_t *kind)
{
  TT_TRY(tt_api_needs("tuttiNodeGetKind", node != NULL && kind != NULL));
  *kind = ((const tt_node *)node)->kind;
  return ncclSuccess;
}

TUTTI_API tuttiNodeGetDependencies(tuttiNode_t node, tuttiNode_t *dependencies, size_t max, size_t *count)
{
  const tt_node *n = (const tt_node *)node;
  TT_TRY(tt_api_needs("tuttiNodeGetDependencies", n != NULL && count != NULL && (max == 0 || dependencies != NULL)));
  for (size_t i = 0; i < TT_MIN(max, n->ndeps); i++) {
    dependencies[i] = (tuttiNode_t)n->graph->nodes.at[n->deps[i]];
  }
  *count = n->ndeps;
  return ncclSuccess;
}

TUTTI_API tuttiGraphInstantiate(tuttiGraphExec_t *exec, tuttiGraph_t graph)
{
  TT_TRY(tt_api_needs("tuttiGraphInstantiate", exec != NULL && graph != NULL));
  return tt_exec_create((const tt_graph *)graph, tt_host_device(), (tt_exec **)exec);
}

TUTTI_API tuttiGraphLaunch(tuttiGraphExec_t exec, cudaStream_t stream)
{
  tt_stream *s;
  TT_TRY(tt_api_needs("tuttiGraphLaunch", exec != NULL));
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  if (tt_stream_captures(s)) {
    return tt_capture_add(&s, 1, tt_node_of_exec((tt_exec *)exec));
  }
  TT_TRY(tt_capturing() ? tt_capture_refuse_legacy(s, "tuttiGraphLaunch") : ncclSuccess);
  return tt_exec_launch((tt_exec *)exec, s);
}

TUTTI_API tuttiGraphExecUpdate(tuttiGraphExec_t exec, tuttiGraph_t graph, tuttiNode_t *changed)
{
  const tt_graph *g = (const tt_graph *)graph;
  uint32_t at;
  TT_TRY(tt_api_needs("tuttiGraphExecUpdate", exec != NULL && g != NULL && changed != NULL));
  tt_exec_update((tt_exec *)exec, g, &at);
  *changed = at == 0 || at > g->nodes.n ? NULL : (tuttiNode_t)g->nodes.at[at - 1];
  return at == 0 ? ncclSuccess
                 : tt_fail(ncclInvalidArgument,
                           "tuttiGraphExecUpdate: node %u differs in kind, stream or what it comes after", at - 1);
}

TUTTI_API tuttiGraphExecDestroy(tuttiGraphExec_t exec)
{
  tt_exec_destroy((tt_exec *)exec);
  return ncclSuccess;
}
