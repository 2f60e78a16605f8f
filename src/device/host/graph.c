// graph.c: see graph.h.
#include "device/host/graph.h"

#include <stdlib.h>

#include "base/result.h"

// ---- sets of nodes

static int by_number(const void *a, const void *b)
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
  qsort(set->at, set->n, sizeof(tt_node *), by_number);
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

// ---- nodes

tt_node *tt_node_new(size_t size, const tt_node_ops *ops)
{
  tt_node *n = tt_calloc(1, size);
  if (n != NULL) {
    n->ops = ops;
    atomic_store_explicit(&n->refs, 1, memory_order_relaxed);
  }
  return n;
}

static tt_node *hold(tt_node *n)
{
  atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
  return n;
}

void tt_node_drop(tt_node *n)
{
  if (n != NULL && atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) == 1) {
    tt_free(n->deps);
    n->ops->drop(n);
  }
}

static void drop_plain(tt_node *n)
{
  tt_free(n);
}

typedef struct work_node {
  tt_node node;
  tt_work *work; // never run itself
} work_node;

static ncclResult_t push_or_fail(tt_stream *s, tt_work *w)
{
  if (w == NULL) {
    return tt_fail(ncclSystemError, "no memory to queue a node of a graph");
  }
  tt_stream_push(s, w);
  return ncclSuccess;
}

static ncclResult_t issue_work(tt_node *n, tt_stream *s)
{
  const tt_work *w = ((work_node *)n)->work;
  return push_or_fail(s, w->ops->again(w, s->device));
}

static void drop_work(tt_node *n)
{
  tt_work *w = ((work_node *)n)->work;
  w->ops->done(w);
  tt_free(n);
}

tt_node *tt_node_of_work(tt_work *w)
{
  static const tt_node_ops ops[] = {
      [tuttiNodeCopy] = {.kind = tuttiNodeCopy, .issue = issue_work, .drop = drop_work},
      [tuttiNodeFill] = {.kind = tuttiNodeFill, .issue = issue_work, .drop = drop_work},
      [tuttiNodeHost] = {.kind = tuttiNodeHost, .issue = issue_work, .drop = drop_work},
      [tuttiNodeValue] = {.kind = tuttiNodeValue, .issue = issue_work, .drop = drop_work},
  };
  work_node *n = (work_node *)tt_node_new(sizeof *n, &ops[w->ops->kind]);
  if (n == NULL) {
    w->ops->done(w);
    return NULL;
  }
  n->work = w;
  return &n->node;
}

typedef struct recorded_node {
  tt_node node;
  tt_recorded *recorded;
} recorded_node;

static ncclResult_t check_recorded(const tt_node *n)
{
  const tt_recorded *r = ((const recorded_node *)n)->recorded;
  return r->check(r);
}

static ncclResult_t issue_recorded(tt_node *n, tt_stream *s)
{
  tt_recorded *r = ((recorded_node *)n)->recorded;
  return r->issue(r, (cudaStream_t)s);
}

static void drop_recorded(tt_node *n)
{
  tt_recorded *r = ((recorded_node *)n)->recorded;
  r->drop(r);
  tt_free(n);
}

tt_node *tt_node_of_recorded(tt_recorded *r)
{
  static const tt_node_ops ops = {.kind = tuttiNodeNccl, .check = check_recorded, .issue = issue_recorded, .drop = drop_recorded};
  recorded_node *n = (recorded_node *)tt_node_new(sizeof *n, &ops);
  if (n == NULL) {
    r->drop(r);
    return NULL;
  }
  n->recorded = r;
  return &n->node;
}

typedef struct event_node {
  tt_node node;
  tt_event *event;
} event_node;

static ncclResult_t issue_record(tt_node *n, tt_stream *s)
{
  tt_event *e = ((event_node *)n)->event;
  atomic_store_explicit(&e->stream, s, memory_order_relaxed);
  return push_or_fail(s, tt_event_record_work(e));
}

static ncclResult_t issue_wait(tt_node *n, tt_stream *s)
{
  return push_or_fail(s, tt_event_wait_work(((event_node *)n)->event));
}

static void drop_event(tt_node *n)
{
  tt_event_destroy(((event_node *)n)->event);
  tt_free(n);
}

tt_node *tt_node_of_event(tt_event *e, bool record)
{
  static const tt_node_ops record_ops = {.kind = tuttiNodeRecord, .issue = issue_record, .drop = drop_event};
  static const tt_node_ops wait_ops = {.kind = tuttiNodeWait, .issue = issue_wait, .drop = drop_event};
  event_node *n = (event_node *)tt_node_new(sizeof *n, record ? &record_ops : &wait_ops);
  if (n == NULL) {
    return NULL;
  }
  n->event = e;
  atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
  return &n->node;
}

static ncclResult_t issue_nothing(tt_node *n, tt_stream *s)
{
  (void)n, (void)s;
  return ncclSuccess;
}

tt_node *tt_node_empty(void)
{
  static const tt_node_ops ops = {.kind = tuttiNodeEmpty, .issue = issue_nothing, .drop = drop_plain};
  return tt_node_new(sizeof(tt_node), &ops);
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

static void drop_all(tt_nodes *nodes)
{
  for (uint32_t i = 0; i < nodes->n; i++) {
    tt_node_drop(nodes->at[i]);
  }
  tt_nodes_free(nodes);
}

void tt_graph_destroy(tt_graph *g)
{
  if (g != NULL) {
    drop_all(&g->nodes);
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

static ncclResult_t make_events(tt_exec *x)
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

static ncclResult_t make_streams(tt_exec *x, int device)
{
  for (uint32_t i = 1; i < x->nodes.n; i++) {
    uint32_t home = x->nodes.at[i]->home;
    if (home != x->nodes.at[0]->home && x->streams[home] == NULL) {
      TT_TRY(tt_stream_create(device, false, &x->streams[home]));
    }
  }
  return ncclSuccess;
}

static ncclResult_t create(const tt_nodes *nodes, uint32_t homes, int device, tt_exec **out)
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
    x->nodes.at[x->nodes.n++] = hold(nodes->at[i]);
  }
  TT_TRY_GOTO(make_streams(x, device), res);
  TT_TRY_GOTO(make_events(x), res);
  *out = x;
  return ncclSuccess;
fail:
  tt_exec_destroy(x);
  return res;
}

ncclResult_t tt_exec_create(const tt_graph *g, int device, tt_exec **out)
{
  return create(&g->nodes, g->homes, device, out);
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
  drop_all(&x->nodes);
  tt_free(x->streams);
  tt_free(x->events);
  pthread_mutex_destroy(&x->lock);
  tt_free(x);
}

// Queues what the node comes after, as far as other streams have it, then the node.
static ncclResult_t issue(tt_exec *x, tt_node *n, tt_stream *s)
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
  TT_TRY(n->ops->issue(n, s));
  return x->events[n->number] == NULL ? ncclSuccess : push_or_fail(s, tt_event_record_work(x->events[n->number]));
}

// The launch is over when all of its streams are.
static ncclResult_t join(tt_exec *x, tt_stream *s)
{
  ncclResult_t res = ncclSuccess;
  for (uint32_t i = 0; i < x->homes; i++) {
    ncclResult_t r = x->streams[i] == NULL ? ncclSuccess : tt_stream_order(x->streams[i], s);
    res = res == ncclSuccess ? r : res;
  }
  ncclResult_t r = push_or_fail(s, tt_event_record_work(x->over));
  return res == ncclSuccess ? r : res;
}

static ncclResult_t issue_all(tt_exec *x, tt_stream *s)
{
  if (x->last != s) { // a stream that was destroyed meanwhile and is used again has been idle
    TT_TRY(push_or_fail(s, tt_event_wait_work(x->over)));
  }
  if (x->start != NULL) {
    TT_TRY(push_or_fail(s, tt_event_record_work(x->start)));
  }
  for (uint32_t i = 0; i < x->nodes.n; i++) {
    tt_node *n = x->nodes.at[i];
    TT_TRY(issue(x, n, x->streams[n->home] != NULL ? x->streams[n->home] : s));
  }
  return ncclSuccess;
}

// Caller holds the lock.
static ncclResult_t check_all(const tt_exec *x)
{
  for (uint32_t i = 0; i < x->nodes.n; i++) {
    const tt_node *n = x->nodes.at[i];
    TT_TRY(n->ops->check != NULL ? n->ops->check(n) : ncclSuccess);
  }
  return ncclSuccess;
}

ncclResult_t tt_exec_launch(tt_exec *x, tt_stream *s)
{
  pthread_mutex_lock(&x->lock);
  ncclResult_t res = check_all(x);
  if (res == ncclSuccess && x->nodes.n > 0) {
    res = issue_all(x, s);
    ncclResult_t r = join(x, s);
    res = res == ncclSuccess ? r : res;
    x->last = s;
  }
  pthread_mutex_unlock(&x->lock);
  return res;
}

static bool alike(const tt_node *a, const tt_node *b)
{
  return a->ops->kind == b->ops->kind && a->home == b->home && a->ndeps == b->ndeps &&
         memcmp(a->deps, b->deps, a->ndeps * sizeof *a->deps) == 0;
}

void tt_exec_update(tt_exec *x, const tt_graph *g, uint32_t *changed)
{
  uint32_t i = 0, n = TT_MIN(x->nodes.n, g->nodes.n);
  pthread_mutex_lock(&x->lock);
  while (i < n && alike(x->nodes.at[i], g->nodes.at[i])) {
    i++;
  }
  *changed = i < n || x->nodes.n != g->nodes.n ? i + 1 : 0;
  for (i = 0; *changed == 0 && i < n; i++) {
    tt_node *before = x->nodes.at[i];
    x->nodes.at[i] = hold(g->nodes.at[i]);
    tt_node_drop(before);
  }
  pthread_mutex_unlock(&x->lock);
}

// ---- graphs in graphs

typedef struct exec_node {
  tt_node node;
  tt_exec *exec;
} exec_node;

static ncclResult_t check_exec(const tt_node *n)
{
  tt_exec *x = ((const exec_node *)n)->exec;
  pthread_mutex_lock(&x->lock);
  ncclResult_t res = check_all(x);
  pthread_mutex_unlock(&x->lock);
  return res;
}

static ncclResult_t issue_exec(tt_node *n, tt_stream *s)
{
  return tt_exec_launch(((exec_node *)n)->exec, s);
}

static void drop_exec(tt_node *n)
{
  tt_exec_destroy(((exec_node *)n)->exec);
  tt_free(n);
}

tt_node *tt_node_of_exec(tt_exec *x)
{
  static const tt_node_ops ops = {.kind = tuttiNodeGraph, .check = check_exec, .issue = issue_exec, .drop = drop_exec};
  exec_node *n = (exec_node *)tt_node_new(sizeof *n, &ops);
  if (n != NULL) {
    pthread_mutex_lock(&x->lock);
    ncclResult_t res = create(&x->nodes, x->homes, x->device, &n->exec);
    pthread_mutex_unlock(&x->lock);
    if (res != ncclSuccess) {
      tt_node_drop(&n->node);
      return NULL;
    }
  }
  return (tt_node *)n;
}
