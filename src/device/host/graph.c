// graph.c: see graph.h.
#include "device/host/graph.h"

#include <stdlib.h>

#include "base/result.h"

// ---- sets of nodes

static int nodes_by_number(const void *a, const void *b)
{
  uint32_t x = (*(tt_node *const *)a)->number, y = (*(tt_node *const *)b)->number;
  return (x > y) - (x < y);
}

void tt_nodes_settle(tt_nodes *set)
{
  uint32_t n = 0;
  if (!set->mixed) {
    return;
  }
  qsort(set->at, set->n, sizeof(tt_node *), nodes_by_number);
  for (uint32_t i = 0; i < set->n; i++) {
    if (n == 0 || set->at[n - 1] != set->at[i]) {
      set->at[n++] = set->at[i];
    }
  }
  set->n = n;
  set->mixed = false;
}

bool tt_nodes_reserve(tt_nodes *set, uint32_t n)
{
  if (n <= set->room - set->n) {
    return true;
  }
  tt_nodes_settle(set); // nodes that are there twice give back their room
  uint64_t room = TT_MAX((uint64_t)set->n + n, 2 * (uint64_t)set->room);
  if (n <= set->room - set->n && set->n <= set->room / 2) {
    return true;
  }
  tt_node **at = room <= UINT32_MAX ? realloc(set->at, room * sizeof *at) : NULL;
  if (at != NULL) {
    set->at = at;
    set->room = (uint32_t)room;
  }
  return at != NULL;
}

void tt_nodes_add(tt_nodes *set, tt_node *n)
{
  if (set->n > 0 && set->at[set->n - 1] == n) {
    return;
  }
  set->mixed = set->mixed || (set->n > 0 && set->at[set->n - 1]->number > n->number);
  set->at[set->n++] = n;
}

void tt_nodes_free(tt_nodes *set)
{
  free(set->at);
  *set = (tt_nodes){0};
}

// ---- kinds of nodes

// What nodes of a kind do with their `what`.
typedef struct node_ops {
  // Could it be issued? Asked of all nodes of a graph before the first is issued. NULL: always.
  ncclResult_t (*check)(void *what);
  // Queues it on `s`. Never waits. One thread at a time.
  ncclResult_t (*issue)(void *what, tt_stream *s);
  // Frees it, when no graph has the node any more.
  void (*drop)(void *what);
} node_ops;

static ncclResult_t push_or_fail(tt_stream *s, tt_work *w)
{
  if (w == NULL) {
    return tt_fail(ncclSystemError, "no memory to queue a node of a graph");
  }
  tt_stream_push(s, w);
  return ncclSuccess;
}

// A tt_work, which is never run itself.
static ncclResult_t node_issue_work(void *what, tt_stream *s)
{
  const tt_work *w = what;
  return push_or_fail(s, w->ops->again(w, s->device));
}

static void node_drop_work(void *what)
{
  tt_work *w = what;
  w->ops->done(w);
}

// A tt_recorded.
static ncclResult_t node_check_recorded(void *what)
{
  const tt_recorded *r = what;
  return r->check(r);
}

static ncclResult_t node_issue_recorded(void *what, tt_stream *s)
{
  tt_recorded *r = what;
  return r->issue(r, (cudaStream_t)s);
}

static void node_drop_recorded(void *what)
{
  tt_recorded *r = what;
  r->drop(r);
}

// A tt_event.
static ncclResult_t node_issue_record(void *what, tt_stream *s)
{
  tt_event *e = what;
  atomic_store_explicit(&e->stream, s, memory_order_relaxed);
  return push_or_fail(s, tt_event_record_work(e));
}

static ncclResult_t node_issue_wait(void *what, tt_stream *s)
{
  return push_or_fail(s, tt_event_wait_work(what));
}

static void node_drop_event(void *what)
{
  tt_event_destroy(what);
}

// A tt_exec.
static ncclResult_t exec_check_node(void *what);

static ncclResult_t node_issue_exec(void *what, tt_stream *s)
{
  return tt_exec_launch(what, s);
}

static void node_drop_exec(void *what)
{
  tt_exec_destroy(what);
}

static ncclResult_t node_issue_nothing(void *what, tt_stream *s)
{
  (void)what, (void)s;
  return ncclSuccess;
}

static void node_drop_nothing(void *what)
{
  (void)what;
}

static const node_ops kinds[] = {
    [tuttiNodeCopy] = {.issue = node_issue_work, .drop = node_drop_work},
    [tuttiNodeFill] = {.issue = node_issue_work, .drop = node_drop_work},
    [tuttiNodeHost] = {.issue = node_issue_work, .drop = node_drop_work},
    [tuttiNodeValue] = {.issue = node_issue_work, .drop = node_drop_work},
    [tuttiNodeNccl] = {.check = node_check_recorded, .issue = node_issue_recorded, .drop = node_drop_recorded},
    [tuttiNodeRecord] = {.issue = node_issue_record, .drop = node_drop_event},
    [tuttiNodeWait] = {.issue = node_issue_wait, .drop = node_drop_event},
    [tuttiNodeGraph] = {.check = exec_check_node, .issue = node_issue_exec, .drop = node_drop_exec},
    [tuttiNodeEmpty] = {.issue = node_issue_nothing, .drop = node_drop_nothing},
};

void tt_node_drop(tt_node *n)
{
  if (n != NULL && atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) == 1) {
    tt_free(n->deps);
    kinds[n->kind].drop(n->what);
    tt_free(n);
  }
}

tt_node *tt_node_new(tuttiNodeKind_t kind, void *what)
{
  tt_node *n = tt_calloc(1, sizeof *n);
  if (n == NULL) {
    kinds[kind].drop(what);
    return NULL;
  }
  n->kind = kind;
  n->what = what;
  atomic_store_explicit(&n->refs, 1, memory_order_relaxed);
  return n;
}

tt_node *tt_node_of_event(tt_event *e, bool record)
{
  atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
  return tt_node_new(record ? tuttiNodeRecord : tuttiNodeWait, e);
}

static tt_node *node_hold(tt_node *n)
{
  atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
  return n;
}

// ---- graphs

ncclResult_t tt_graph_create(tt_graph **out)
{
  tt_graph *g = tt_calloc(1, sizeof *g);
  if (g == NULL) {
    return tt_fail(ncclSystemError, "no memory for a graph");
  }
  *out = g;
  return ncclSuccess;
}

static void nodes_drop(tt_nodes *nodes)
{
  for (uint32_t i = 0; i < nodes->n; i++) {
    tt_node_drop(nodes->at[i]);
  }
  tt_nodes_free(nodes);
}

void tt_graph_destroy(tt_graph *g)
{
  if (g != NULL) {
    nodes_drop(&g->nodes);
    tt_free(g);
  }
}

ncclResult_t tt_graph_add(tt_graph *g, tt_node *n, const tt_nodes *deps, uint32_t home)
{
  uint32_t *numbers = tt_calloc(TT_MAX(deps->n, 1), sizeof *numbers);
  if (numbers == NULL || !tt_nodes_reserve(&g->nodes, 1)) {
    tt_free(numbers);
    return tt_fail(ncclSystemError, "no memory for a graph of %u nodes", g->nodes.n + 1);
  }
  for (uint32_t i = 0; i < deps->n; i++) {
    numbers[i] = deps->at[i]->number;
  }
  n->graph = g;
  n->number = g->nodes.n;
  n->home = home;
  n->deps = numbers;
  n->ndeps = deps->n;
  g->nodes.at[g->nodes.n++] = n;
  return ncclSuccess;
}

bool tt_graph_covers(const tt_graph *g, const tt_nodes *set, const tt_nodes *some)
{
  bool *covered = tt_calloc(g->nodes.n + 1, sizeof *covered), all = covered != NULL;
  for (uint32_t i = 0; all && i < set->n; i++) {
    covered[set->at[i]->number] = true;
  }
  for (uint32_t i = g->nodes.n; all && i-- > 0;) { // what a node comes after has a smaller number
    const tt_node *n = g->nodes.at[i];
    for (uint32_t k = 0; covered[i] && k < n->ndeps; k++) {
      covered[n->deps[k]] = true;
    }
  }
  for (uint32_t i = 0; all && i < some->n; i++) {
    all = covered[some->at[i]->number];
  }
  tt_free(covered);
  return all;
}

// ---- launching

// Each home has a stream: the first node's home is where the graph is launched, the others have one of the exec's.
struct tt_exec {
  pthread_mutex_t lock; // of all members: one launch is issued at a time
  tt_nodes nodes;
  uint32_t homes;
  int device;
  tt_stream **streams; // by home; NULL: where the graph is launched, or no node
  tt_event **events;   // by node: recorded behind it; NULL: nodes of no other home come after it
  tt_event *start;     // recorded before the first node; NULL: no node of another home needs it
  tt_event *over;      // recorded behind the last one
  tt_stream *last;     // where it was launched last
};

static ncclResult_t exec_make_events(tt_exec *x)
{
  TT_TRY(tt_event_create(&x->over));
  for (uint32_t i = 0; i < x->nodes.n; i++) {
    const tt_node *n = x->nodes.at[i];
    if (n->ndeps == 0 && x->streams[n->home] != NULL && x->start == NULL) {
      TT_TRY(tt_event_create(&x->start));
    }
    for (uint32_t k = 0; k < n->ndeps; k++) {
      uint32_t d = n->deps[k];
      if (x->nodes.at[d]->home != n->home && x->events[d] == NULL) {
        TT_TRY(tt_event_create(&x->events[d]));
      }
    }
  }
  return ncclSuccess;
}

static ncclResult_t exec_make_streams(tt_exec *x, int device)
{
  for (uint32_t i = 1; i < x->nodes.n; i++) {
    uint32_t home = x->nodes.at[i]->home;
    if (home != x->nodes.at[0]->home && x->streams[home] == NULL) {
      TT_TRY(tt_stream_create(device, false, &x->streams[home]));
    }
  }
  return ncclSuccess;
}

static ncclResult_t exec_create(const tt_nodes *nodes, uint32_t homes, int device, tt_exec **out)
{
  ncclResult_t res = ncclSuccess;
  tt_exec *x = tt_calloc(1, sizeof *x);
  if (x == NULL) {
    return tt_fail(ncclSystemError, "no memory to instantiate a graph");
  }
  pthread_mutex_init(&x->lock, NULL);
  x->device = device;
  x->homes = homes;
  x->streams = tt_calloc(homes + 1, sizeof(tt_stream *));
  x->events = tt_calloc(nodes->n + 1, sizeof(tt_event *));
  if (x->streams == NULL || x->events == NULL || !tt_nodes_reserve(&x->nodes, nodes->n)) {
    res = tt_fail(ncclSystemError, "no memory to instantiate a graph of %u nodes", nodes->n);
    goto fail;
  }
  for (uint32_t i = 0; i < nodes->n; i++) {
    x->nodes.at[x->nodes.n++] = node_hold(nodes->at[i]);
  }
  TT_TRY_GOTO(exec_make_streams(x, device), res);
  TT_TRY_GOTO(exec_make_events(x), res);
  *out = x;
  return ncclSuccess;
fail:
  tt_exec_destroy(x);
  return res;
}

ncclResult_t tt_exec_create(const tt_graph *g, int device, tt_exec **out)
{
  return exec_create(&g->nodes, g->homes, device, out);
}

void tt_exec_destroy(tt_exec *x)
{
  if (x == NULL) {
    return;
  }
  for (uint32_t i = 0; x->streams != NULL && i < x->homes; i++) {
    if (x->streams[i] != NULL) {
      tt_stream_destroy(x->streams[i]);
    }
  }
  for (uint32_t i = 0; x->events != NULL && i < x->nodes.n; i++) {
    tt_event_destroy(x->events[i]);
  }
  tt_event_destroy(x->start);
  tt_event_destroy(x->over);
  nodes_drop(&x->nodes);
  tt_free(x->streams);
  tt_free(x->events);
  pthread_mutex_destroy(&x->lock);
  tt_free(x);
}

// Queues what the node comes after, as far as other streams have it, then the node.
static ncclResult_t exec_issue(tt_exec *x, tt_node *n, tt_stream *s)
{
  if (n->ndeps == 0 && x->streams[n->home] != NULL) {
    TT_TRY(push_or_fail(s, tt_event_wait_work(x->start)));
  }
  for (uint32_t k = 0; k < n->ndeps; k++) {
    uint32_t d = n->deps[k];
    if (x->nodes.at[d]->home != n->home) {
      TT_TRY(push_or_fail(s, tt_event_wait_work(x->events[d])));
    }
  }
  TT_TRY(kinds[n->kind].issue(n->what, s));
  return x->events[n->number] == NULL ? ncclSuccess : push_or_fail(s, tt_event_record_work(x->events[n->number]));
}

// The launch is over when all of its streams are.
static ncclResult_t exec_join(tt_exec *x, tt_stream *s)
{
  ncclResult_t res = ncclSuccess;
  for (uint32_t i = 0; i < x->homes; i++) {
    ncclResult_t r = x->streams[i] == NULL ? ncclSuccess : tt_stream_order(x->streams[i], s);
    res = res == ncclSuccess ? r : res;
  }
  ncclResult_t r = push_or_fail(s, tt_event_record_work(x->over));
  return res == ncclSuccess ? r : res;
}

static ncclResult_t exec_issue_all(tt_exec *x, tt_stream *s)
{
  if (x->last != s) { // a stream that was destroyed meanwhile and is used again has been idle
    TT_TRY(push_or_fail(s, tt_event_wait_work(x->over)));
  }
  if (x->start != NULL) {
    TT_TRY(push_or_fail(s, tt_event_record_work(x->start)));
  }
  for (uint32_t i = 0; i < x->nodes.n; i++) {
    tt_node *n = x->nodes.at[i];
    TT_TRY(exec_issue(x, n, x->streams[n->home] != NULL ? x->streams[n->home] : s));
  }
  return ncclSuccess;
}

// Caller holds the lock.
static ncclResult_t exec_check_nodes(const tt_exec *x)
{
  for (uint32_t i = 0; i < x->nodes.n; i++) {
    const tt_node *n = x->nodes.at[i];
    TT_TRY(kinds[n->kind].check != NULL ? kinds[n->kind].check(n->what) : ncclSuccess);
  }
  return ncclSuccess;
}

static ncclResult_t exec_check_node(void *what)
{
  tt_exec *x = what;
  pthread_mutex_lock(&x->lock);
  ncclResult_t res = exec_check_nodes(x);
  pthread_mutex_unlock(&x->lock);
  return res;
}

ncclResult_t tt_exec_launch(tt_exec *x, tt_stream *s)
{
  pthread_mutex_lock(&x->lock);
  ncclResult_t res = exec_check_nodes(x);
  if (res == ncclSuccess && x->nodes.n > 0) {
    res = exec_issue_all(x, s);
    ncclResult_t r = exec_join(x, s);
    res = res == ncclSuccess ? r : res;
    x->last = s;
  }
  pthread_mutex_unlock(&x->lock);
  return res;
}

static bool nodes_alike(const tt_node *a, const tt_node *b)
{
  return a->kind == b->kind && a->home == b->home && a->ndeps == b->ndeps &&
         memcmp(a->deps, b->deps, a->ndeps * sizeof *a->deps) == 0;
}

void tt_exec_update(tt_exec *x, const tt_graph *g, uint32_t *changed)
{
  uint32_t i = 0, n = TT_MIN(x->nodes.n, g->nodes.n);
  pthread_mutex_lock(&x->lock);
  while (i < n && nodes_alike(x->nodes.at[i], g->nodes.at[i])) {
    i++;
  }
  *changed = i < n || x->nodes.n != g->nodes.n ? i + 1 : 0;
  for (i = 0; *changed == 0 && i < n; i++) {
    tt_node *before = x->nodes.at[i];
    x->nodes.at[i] = node_hold(g->nodes.at[i]);
    tt_node_drop(before);
  }
  pthread_mutex_unlock(&x->lock);
}

tt_node *tt_node_of_exec(tt_exec *x)
{
  tt_exec *copy = NULL;
  pthread_mutex_lock(&x->lock);
  ncclResult_t res = exec_create(&x->nodes, x->homes, x->device, &copy);
  pthread_mutex_unlock(&x->lock);
  return res == ncclSuccess ? tt_node_new(tuttiNodeGraph, copy) : NULL;
}
