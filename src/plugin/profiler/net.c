// net.c: events that network plugins tell, as children of the message's ProxyStep.
#include "base/util.h"
#include "plugin/profiler/profiler_priv.h"

// The plugin keeps one handle, the profilers give several. NULL: nobody is interested, or there is no memory.
static tt_prof_net_event *start(const tt_prof_net *n, int64_t id, void *data)
{
  tt_profilers *p = n->profilers;
  tt_prof_descr d = {.type = ncclProfileNetPlugin, .rank = n->rank, .netPlugin = {.id = id, .data = data}};
  if (!tt_profilers_want(p, ncclProfileNetPlugin)) {
    return NULL;
  }
  tt_prof_net_event *e = tt_calloc(1, sizeof *e);
  if (e == NULL) {
    return NULL;
  }
  tt_profilers_start(p, &d, &n->step, NULL, &e->event);
  if (!tt_prof_is_on(&e->event)) {
    tt_free(e);
    return NULL;
  }
  tt_prof_net_list *list = tt_profilers_net_list(p);
  e->profilers = p;
  pthread_mutex_lock(&list->lock);
  e->next = list->first;
  e->back = &list->first;
  if (e->next != NULL) {
    e->next->back = &e->next;
  }
  list->first = e;
  pthread_mutex_unlock(&list->lock);
  return e;
}

static void stop(tt_prof_net_event *e)
{
  tt_prof_net_list *list = tt_profilers_net_list(e->profilers);
  pthread_mutex_lock(&list->lock);
  *e->back = e->next;
  if (e->next != NULL) {
    e->next->back = e->back;
  }
  pthread_mutex_unlock(&list->lock);
  tt_profilers_stop(e->profilers, &e->event);
  tt_free(e);
}

void tt_prof_net_end(tt_prof_net_list *list)
{
  while (list->first != NULL) {
    stop(list->first);
  }
}

ncclResult_t tt_profilers_net_callback(void **event, int type, void *phandle, int64_t plugin_id, void *data)
{
  const tt_prof_net *n = phandle;
  if (event == NULL) {
    return ncclSuccess;
  }
  if (type == ncclProfilerNetEventStart) {
    *event = n != NULL && n->profilers != NULL ? start(n, plugin_id, data) : NULL;
    return ncclSuccess;
  }
  tt_prof_net_event *e = *event;
  if (e == NULL) {
    return ncclSuccess;
  }
  if (type == ncclProfilerNetEventUpdate || type == ncclProfilerNetEventUpdateAndStop) {
    const tt_prof_args args = {.netPlugin = {.data = data}};
    tt_profilers_state(e->profilers, &e->event, ncclProfilerNetPluginUpdate, &args);
  }
  if (type == ncclProfilerNetEventStop || type == ncclProfilerNetEventUpdateAndStop) {
    *event = NULL;
    stop(e);
  }
  return ncclSuccess;
}
