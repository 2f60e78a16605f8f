// graph.c: graphs, their launches, and what they keep alive.
#include <stdlib.h>
#include <string.h>

#include "sim.h"

// ---- Graphs and nodes ----

struct sim_graph *sim_graph_new(void)
{
  struct sim_graph *graph = calloc(1, sizeof *graph);
  if (graph != NULL) {
    graph->handle = sim_handle_new(SIM_GRAPH, graph);
  }
  return graph;
}

static void free_node(struct sim_node *node)
{
  sim_work_free(&node->work);
  sim_handle_end(node->handle);
  free(node->after);
  free(node);
}

struct sim_node *sim_node_add(struct sim_graph *graph, struct sim_work *work, struct sim_node *const *after,
                              size_t nafter)
{
  struct sim_node *node = calloc(1, sizeof *node);
  struct sim_node **more = realloc(graph->node, (graph->nodes + 1) * sizeof(struct sim_node *));
  if (more != NULL) {
    graph->node = more;
  }
  if (node == NULL || more == NULL) {
    free(node);
    sim_work_free(work);
    return NULL;
  }
  *node = (struct sim_node){.graph = graph,
                            .work = *work,
                            .nafter = nafter,
                            .index = graph->nodes,
                            .after = calloc(nafter + 1, sizeof(struct sim_node *))};
  if (nafter > 0) {
    memcpy(node->after, after, nafter * sizeof(struct sim_node *));
  }
  node->handle = sim_handle_new(SIM_NODE, node);
  graph->node[graph->nodes++] = node;
  return node;
}

// The destructors of user objects run in the thread of host functions.
static void release_object(struct sim_user_object *object, unsigned count)
{
  object->references -= count;
  if (object->references == 0) {
    sim_handle_end(object->handle);
    sim_host_call(object->destroy, object->ptr);
  }
}

void sim_graph_free(struct sim_graph *graph)
{
  for (size_t i = 0; i < graph->users; i++) {
    release_object(graph->user[i].object, graph->user[i].count);
  }
  for (size_t i = 0; i < graph->nodes; i++) {
    free_node(graph->node[i]);
  }
  sim_handle_end(graph->handle);
  free(graph->user);
  free(graph->node);
  free(graph);
}

static struct sim_graph *copy_graph(const struct sim_graph *from)
{
  struct sim_graph *to = sim_graph_new();
  for (size_t i = 0; to != NULL && i < from->nodes; i++) {
    const struct sim_node *node = from->node[i];
    struct sim_work work;
    if (!sim_work_copy(&work, &node->work)) {
      return NULL;
    }
    struct sim_node *made = sim_node_add(to, &work, node->after, node->nafter);
    for (size_t j = 0; made != NULL && j < made->nafter; j++) {
      made->after[j] = to->node[node->after[j]->index];
    }
  }
  for (size_t i = 0; to != NULL && i < from->users; i++) {
    from->user[i].object->references += from->user[i].count;
  }
  if (to != NULL && from->users > 0) {
    to->user = malloc(from->users * sizeof *to->user);
    memcpy(to->user, from->user, from->users * sizeof *to->user);
    to->users = from->users;
  }
  return to;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags)
{
  SIM_CALL("cuGraphCreate", flags != 0 ? CUDA_ERROR_INVALID_VALUE : (*graph = sim_graph_new()->handle, CUDA_SUCCESS));
}

static CUresult destroy_graph(CUgraph handle)
{
  struct sim_graph *graph = sim_object(SIM_GRAPH, handle);
  if (graph == NULL || graph->capturing) {
    return graph == NULL ? CUDA_ERROR_INVALID_VALUE : sim_misuse(CUDA_ERROR_ILLEGAL_STATE, "it is being captured");
  }
  sim_graph_free(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
  SIM_CALL("cuGraphDestroy", destroy_graph(graph));
}

static CUresult get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
  const struct sim_graph *graph = sim_object(SIM_GRAPH, handle);
  if (graph == NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; nodes != NULL && i < *count; i++) {
    nodes[i] = i < graph->nodes ? graph->node[i]->handle : NULL;
  }
  *count = nodes == NULL || *count > graph->nodes ? graph->nodes : *count;
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
  SIM_CALL("cuGraphGetNodes", get_nodes(graph, nodes, count));
}

static CUresult node_type(CUgraphNode handle, CUgraphNodeType *type)
{
  static const CUgraphNodeType types[] = {
      [SIM_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,   [SIM_WORDS] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
      [SIM_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,     [SIM_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
      [SIM_HOST] = CU_GRAPH_NODE_TYPE_HOST,       [SIM_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
      [SIM_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT, [SIM_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY};
  const struct sim_node *node = sim_object(SIM_NODE, handle);
  if (node == NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *type = types[node->work.kind];
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
  SIM_CALL("cuGraphNodeGetType", node_type(node, type));
}

// ---- Nodes that the program adds ----

// Takes what the work owns.
static CUresult add(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies, size_t count,
                    struct sim_work *work)
{
  struct sim_graph *graph = sim_object(SIM_GRAPH, handle);
  struct sim_node **after = calloc(count + 1, sizeof(struct sim_node *));
  CUresult error = graph == NULL || after == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  for (size_t i = 0; i < count && error == CUDA_SUCCESS; i++) {
    after[i] = sim_object(SIM_NODE, dependencies[i]);
    if (after[i] == NULL || after[i]->graph != graph) {
      error = sim_misuse(CUDA_ERROR_INVALID_VALUE, "dependency %zu is not of this graph", i);
    }
  }
  if (error != CUDA_SUCCESS) {
    free(after);
    sim_work_free(work);
    return error;
  }
  const struct sim_node *node = sim_node_add(graph, work, after, count);
  free(after);
  if (node == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = node->handle;
  return CUDA_SUCCESS;
}

static CUresult add_plain(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                          struct sim_work work)
{
  CUresult error;
  work.context = sim_current(&error);
  return work.context == NULL ? error : add(out, graph, dependencies, count, &work);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
  SIM_CALL("cuGraphAddEmptyNode", add_plain(node, graph, dependencies, count, (struct sim_work){.kind = SIM_EMPTY}));
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS *params)
{
  struct sim_work work = {.kind = SIM_HOST, .host = {params->fn, params->userData}};
  SIM_CALL("cuGraphAddHostNode", add_plain(node, graph, dependencies, count, work));
}

static CUresult add_kernel(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                           const CUDA_KERNEL_NODE_PARAMS *p)
{
  const unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ},
                 block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
  struct sim_work work;
  CUresult error = sim_kernel_work(&work, p->func, grid, block, p->sharedMemBytes, p->kernelParams, p->extra);
  return error != CUDA_SUCCESS ? error : add(out, graph, dependencies, count, &work);
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS *params)
{
  SIM_CALL("cuGraphAddKernelNode", add_kernel(node, graph, dependencies, count, params));
}

static CUresult add_words(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                          const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
  struct sim_context *context = sim_object(SIM_CONTEXT, params->ctx);
  if (context == NULL || params->flags != 0 || params->count == 0 || params->count > 256) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%u operations (1 to 256), flags 0x%x, or no context", params->count,
                      params->flags);
  }
  struct sim_work given = {.kind = SIM_WORDS, .context = context, .words = {params->count, params->paramArray}}, work;
  CUresult error = sim_work_check(&given);
  if (error == CUDA_SUCCESS && !sim_work_copy(&work, &given)) {
    error = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return error != CUDA_SUCCESS ? error : add(out, graph, dependencies, count, &work);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
  SIM_CALL("cuGraphAddBatchMemOpNode", add_words(node, graph, dependencies, count, params));
}

static CUresult add_event(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                          enum sim_work_kind kind, CUevent handle)
{
  struct sim_event *event = sim_object(SIM_EVENT, handle);
  struct sim_work work = {.kind = kind, .event = {.event = event}};
  if (event == NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  work.context = event->context;
  return add(out, graph, dependencies, count, &work);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   CUevent event)
{
  SIM_CALL("cuGraphAddEventRecordNode", add_event(node, graph, dependencies, count, SIM_RECORD, event));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                 CUevent event)
{
  SIM_CALL("cuGraphAddEventWaitNode", add_event(node, graph, dependencies, count, SIM_WAIT, event));
}

// ---- Launches ----

static CUresult instantiate(CUgraphExec *out, CUgraph handle)
{
  CUresult error;
  struct sim_context *context = sim_current(&error);
  const struct sim_graph *graph = context != NULL ? sim_object(SIM_GRAPH, handle) : NULL;
  if (graph == NULL || graph->capturing) {
    return context == NULL ? error
                           : sim_misuse(CUDA_ERROR_INVALID_VALUE, "no graph, or one that is still being captured");
  }
  struct sim_exec *exec = calloc(1, sizeof *exec);
  if (exec == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  exec->context = context;
  exec->graph = copy_graph(graph);
  exec->handle = sim_handle_new(SIM_EXEC, exec);
  *out = exec->handle;
  return exec->graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
  (void)flags;
  SIM_CALL("cuGraphInstantiateWithFlags", instantiate(exec, graph));
}

bool sim_graph_items(struct sim_op *op)
{
  const struct sim_graph *graph = op->work.exec->graph;
  op->items = calloc(graph->nodes + 1, sizeof *op->items);
  op->nitems = op->left = graph->nodes;
  for (size_t i = 0; op->items != NULL && i < graph->nodes; i++) {
    const struct sim_node *node = graph->node[i];
    struct sim_item *item = &op->items[i];
    *item = (struct sim_item){.work = &node->work, .op = op, .left = (unsigned)node->nafter};
    if (node->work.kind == SIM_RECORD) {
      item->number = atomic_fetch_add(&node->work.event.event->words->recorded, 1) + 1;
    } else if (node->work.kind == SIM_WAIT) {
      item->number = atomic_load(&node->work.event.event->words->recorded);
    }
  }
  return op->items != NULL;
}

void sim_graph_done(struct sim_op *op, const struct sim_item *item)
{
  const struct sim_graph *graph = op->work.exec->graph;
  const struct sim_node *node = graph->node[item - op->items];
  for (size_t i = node->index + 1; i < graph->nodes; i++) { // a node comes after those that it depends on
    for (size_t j = 0; j < graph->node[i]->nafter; j++) {
      op->items[i].left -= graph->node[i]->after[j] == node;
    }
  }
}

static void end_exec(struct sim_exec *exec)
{
  if (exec->ended && exec->launches == 0 && exec->graph != NULL) {
    sim_graph_free(exec->graph);
    exec->graph = NULL;
  }
}

void sim_exec_done(struct sim_op *op)
{
  struct sim_exec *exec = op->work.exec;
  exec->done++;
  exec->launches--;
  end_exec(exec);
}

static CUresult launch_graph(CUgraphExec handle, CUstream stream_handle)
{
  CUresult error;
  struct sim_exec *exec = sim_object(SIM_EXEC, handle);
  struct sim_stream *stream = exec != NULL ? sim_stream_of(stream_handle, &error) : NULL;
  if (stream == NULL) {
    return exec == NULL ? CUDA_ERROR_INVALID_VALUE : error;
  }
  struct sim_work work = {.kind = SIM_LAUNCH, .context = stream->context, .exec = exec};
  exec->launches++;
  error = sim_submit(stream, &work);
  if (error != CUDA_SUCCESS && work.kind == SIM_EMPTY) { // it was not handed over
    exec->launches--;
  }
  return error;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
  SIM_CALL("cuGraphLaunch", launch_graph(exec, stream));
}

static CUresult destroy_exec(CUgraphExec handle)
{
  struct sim_exec *exec = sim_object(SIM_EXEC, handle);
  if (exec == NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  exec->ended = true; // launches that are under way go on
  sim_handle_end(handle);
  end_exec(exec);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
  SIM_CALL("cuGraphExecDestroy", destroy_exec(exec));
}

// ---- What graphs keep ----

static CUresult create_object(CUuserObject *out, void *ptr, CUhostFn destroy, unsigned references, unsigned flags)
{
  if (destroy == NULL || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%u references, flags 0x%x", references, flags);
  }
  struct sim_user_object *object = calloc(1, sizeof *object);
  if (object == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *object = (struct sim_user_object){sim_handle_new(SIM_USER_OBJECT, object), ptr, destroy, references};
  *out = object->handle;
  return CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject *object, void *ptr, CUhostFn destroy, unsigned references, unsigned flags)
{
  SIM_CALL("cuUserObjectCreate", create_object(object, ptr, destroy, references, flags));
}

static CUresult change_object(CUuserObject handle, unsigned count, bool retain)
{
  struct sim_user_object *object = sim_object(SIM_USER_OBJECT, handle);
  if (object == NULL || count == 0 || (!retain && count > object->references)) {
    return object == NULL ? CUDA_ERROR_INVALID_VALUE
                          : sim_misuse(CUDA_ERROR_INVALID_VALUE, "%u references of %u", count, object->references);
  }
  if (retain) {
    object->references += count;
  } else {
    release_object(object, count);
  }
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count)
{
  SIM_CALL("cuUserObjectRetain", change_object(object, count, true));
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
  SIM_CALL("cuUserObjectRelease", change_object(object, count, false));
}

static CUresult graph_retain(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags)
{
  struct sim_graph *graph = sim_object(SIM_GRAPH, graph_handle);
  struct sim_user_object *object = graph != NULL ? sim_object(SIM_USER_OBJECT, handle) : NULL;
  if (object == NULL || count == 0 || flags > CU_GRAPH_USER_OBJECT_MOVE ||
      (flags == CU_GRAPH_USER_OBJECT_MOVE && count > object->references)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%u references, flags 0x%x, or no object", count, flags);
  }
  struct sim_user_reference *more = realloc(graph->user, (graph->users + 1) * sizeof *more);
  if (more == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  graph->user = more;
  graph->user[graph->users++] = (struct sim_user_reference){object, count};
  object->references += flags == CU_GRAPH_USER_OBJECT_MOVE ? 0 : count;
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
  SIM_CALL("cuGraphRetainUserObject", graph_retain(graph, object, count, flags));
}

static CUresult graph_release(CUgraph graph_handle, CUuserObject handle, unsigned count)
{
  struct sim_graph *graph = sim_object(SIM_GRAPH, graph_handle);
  struct sim_user_object *object = graph != NULL ? sim_object(SIM_USER_OBJECT, handle) : NULL;
  for (size_t i = 0; object != NULL && i < graph->users; i++) {
    if (graph->user[i].object == object && graph->user[i].count >= count) {
      graph->user[i].count -= count;
      if (graph->user[i].count == 0) {
        graph->user[i] = graph->user[--graph->users];
      }
      release_object(object, count);
      return CUDA_SUCCESS;
    }
  }
  return sim_misuse(CUDA_ERROR_INVALID_VALUE, "the graph has no %u references of the object", count);
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count)
{
  SIM_CALL("cuGraphReleaseUserObject", graph_release(graph, object, count));
}
