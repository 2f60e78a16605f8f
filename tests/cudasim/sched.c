// sched.c: the scheduler: one thread of the process that does all work of all devices, a step at a time.
//
// A queue is what a hardware queue is: only its first operation can begin, whatever the stream of those behind it.
// Which queue has the next step is drawn by lot, or goes round.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

// ---- Queues ----

bool sim_sched_room(const struct sim_stream *stream)
{
  return stream->context->device->queue[stream->queue].length < sim.modes.launches;
}

void sim_sched_add(struct sim_op *op)
{
  struct sim_stream *stream = op->stream;
  struct sim_queue *queue = &stream->context->device->queue[stream->queue];
  *(stream->last != NULL ? &stream->last->next_in_stream : &stream->first) = op;
  stream->last = op;
  *(queue->last != NULL ? &queue->last->next_in_queue : &queue->first) = op;
  queue->last = op;
  queue->length++;
  sim_sched_wake();
}

void sim_sched_wake(void)
{
  box_ring();
}

void sim_sched_tell(void)
{
  if (sim.news > 0) {
    sim.news = 0;
    box_ring_others();
  }
}

static void free_op(struct sim_op *op)
{
  if (op->work.kind == SIM_LAUNCH) {
    sim_exec_done(op);
  }
  sim_work_free(&op->work);
  free(op->items);
  free(op);
}

// The first of a queue, which is the first of its stream too.
static void remove_first(struct sim_queue *queue)
{
  struct sim_op *op = queue->first;
  struct sim_stream *stream = op->stream;
  queue->first = op->next_in_queue;
  queue->last = queue->first == NULL ? NULL : queue->last;
  queue->length--;
  stream->first = op->next_in_stream;
  stream->last = stream->first == NULL ? NULL : stream->last;
  free_op(op);
  sim_stream_unlink(stream);
  sim_changed();
}

// ---- Faults ----

static bool in_host_function(const struct sim_op *op)
{
  bool in = op->item.host == SIM_HOST_QUEUED;
  for (size_t i = 0; i < op->nitems; i++) {
    in |= op->items[i].host == SIM_HOST_QUEUED;
  }
  return in;
}

// All that the context has in its queues is dropped; kernels that run are ended. Only the scheduler's thread calls
// this.
static void drop_work(struct sim_context *context)
{
  struct sim_device *device = context->device;
  for (int i = 0; i < sim.modes.queues; i++) {
    struct sim_queue *queue = &device->queue[i];
    while (queue->first != NULL && queue->first->stream->context == context) {
      struct sim_op *op = queue->first;
      if (in_host_function(op)) {
        break; // it stays until the program's function has returned
      }
      sim_item_end(&op->item);
      for (size_t j = 0; j < op->nitems; j++) {
        sim_item_end(&op->items[j]);
      }
      remove_first(queue);
    }
  }
  device->kernel = NULL;
}

void sim_context_fail(struct sim_context *context, CUresult code, const char *fmt, ...)
{
  char text[1536];
  va_list args;
  if (context->failed != CUDA_SUCCESS) {
    return;
  }
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  text[strcspn(text, "\n")] = '\0'; // of a kernel's report the first line
  sim_say("device %d: %s (%s)", context->device->ordinal, text, sim_error_name(code));
  context->failed = code;
  sim_changed();
}

// ---- Steps ----

// Blocking streams and the legacy stream of a context wait for each other, in the order of submission.
static bool is_turn(const struct sim_op *op)
{
  const struct sim_stream *stream = op->stream, *legacy = stream->context->legacy;
  if (!stream->legacy) {
    return (stream->flags & CU_STREAM_NON_BLOCKING) != 0 || legacy->first == NULL || legacy->first->number > op->number;
  }
  for (const struct sim_stream *other = stream->context->streams; other != NULL; other = other->next) {
    if (other != stream && (other->flags & CU_STREAM_NON_BLOCKING) == 0 && other->first != NULL &&
        other->first->number < op->number) {
      return false;
    }
  }
  return true;
}

// Of a graph that is launched, a node that can have a step: all before it are done.
static enum sim_step step_graph(struct sim_op *op)
{
  if (op->launch != op->work.exec->done) {
    return SIM_STEP_NONE; // its launch before this one
  }
  const uint64_t turn = sim.modes.random ? sim_random() : sim.progress;
  const size_t first = op->nitems > 0 ? turn % op->nitems : 0;
  for (size_t i = 0; i < op->nitems; i++) {
    struct sim_item *item = &op->items[(first + i) % op->nitems];
    if (item->done || item->left > 0) {
      continue;
    }
    enum sim_step step = sim_item_step(item);
    if (step == SIM_STEP_NONE) {
      continue;
    }
    if (step == SIM_STEP_DONE) {
      item->done = true;
      op->left--;
      sim_graph_done(op, item);
    }
    return step == SIM_STEP_FAILED ? step : op->left == 0 ? SIM_STEP_DONE : SIM_STEP_SOME;
  }
  return op->left == 0 ? SIM_STEP_DONE : SIM_STEP_NONE;
}

static bool step_queue(struct sim_device *device, struct sim_queue *queue)
{
  struct sim_op *op = queue->first;
  if (op == NULL || op->stream->context->failed != CUDA_SUCCESS || !is_turn(op)) {
    return false;
  }
  enum sim_step step = op->work.kind == SIM_LAUNCH ? step_graph(op) : sim_item_step(&op->item);
  if (step == SIM_STEP_DONE) {
    remove_first(queue);
  }
  if (step != SIM_STEP_NONE) {
    device->used_slice += 1000;
  }
  return step != SIM_STEP_NONE;
}

static bool has_work(const struct sim_device *device)
{
  for (int i = 0; i < sim.modes.queues; i++) {
    if (device->queue[i].first != NULL) {
      return true;
    }
  }
  return false;
}

// Gives the device to the next process that wants it.
static void give_device(struct sim_device *device)
{
  if (device->ours || device->asked) {
    device->ours = device->asked = false;
    device->used_slice = 0;
    box_give(device->ordinal);
  }
}

static bool is_op_ready(const struct sim_op *op)
{
  if (op == NULL || op->stream->context->failed != CUDA_SUCCESS || !is_turn(op)) {
    return false;
  }
  if (op->work.kind == SIM_LAUNCH && op->launch != op->work.exec->done) {
    return false;
  }
  for (size_t i = 0; i < op->nitems; i++) {
    const struct sim_item *item = &op->items[i];
    if (!item->done && item->left == 0 && sim_item_ready(item)) {
      return true;
    }
  }
  return op->nitems == 0 && sim_item_ready(&op->item);
}

// Has this process the device? It asks for it where it could do something: a stream that waits for a word needs none.
static bool have_device(struct sim_device *device)
{
  bool ready = false;
  for (int i = 0; i < sim.modes.queues && sim.modes.slice > 0 && !ready; i++) {
    ready = is_op_ready(device->queue[i].first);
  }
  if (!ready) {
    give_device(device);
    return sim.modes.slice == 0;
  }
  device->ours = device->ours || box_take(device->ordinal);
  device->asked = !device->ours;
  return device->ours;
}

static bool step_queues(struct sim_device *device)
{
  int queues = sim.modes.queues;
  int first = sim.modes.random ? (int)(sim_random() % (uint64_t)queues) : device->turn;
  for (int i = 0; i < queues; i++) {
    int at = (first + i) % queues;
    if (step_queue(device, &device->queue[at])) {
      device->turn = (at + 1) % queues;
      return true;
    }
  }
  return false;
}

// One step of one of the device's queues.
static bool step_device(struct sim_device *device)
{
  if (device->primary != NULL && device->primary->failed != CUDA_SUCCESS) {
    drop_work(device->primary);
  }
  bool stepped = have_device(device) && step_queues(device);
  if (device->ours && (!stepped || (device->used_slice >= sim.modes.slice && box_wanted(device->ordinal)))) {
    give_device(device);
  }
  return stepped;
}

static bool step_any(bool *work)
{
  int devices = sim.modes.devices;
  int first = sim.modes.random ? (int)(sim_random() % (uint64_t)devices) : (int)(sim.progress % (uint64_t)devices);
  *work = false;
  for (int i = 0; i < devices; i++) {
    struct sim_device *device = &sim.device[(first + i) % devices];
    if (step_device(device)) {
      return true;
    }
    *work |= has_work(device);
  }
  return false;
}

// ---- The thread ----

enum { SHORT_US = 10, LONG_US = 1000, NEWS = 16 };

// Sleeps, without the lock.
static void sleep_until(uint32_t bell, long us)
{
  pthread_mutex_unlock(&sim.lock);
  box_sleep(bell, us);
  pthread_mutex_lock(&sim.lock);
}

// Nothing can go on. Words may change without a word to us, so it looks again, ever more rarely; so must those that
// wait for events of other processes.
static void rest(bool work, uint32_t bell, long *us)
{
  sim_sched_tell();
  if (*us > 5 * SHORT_US) { // has looked for a while
    sim_deadlock_look(work || sim.waiters != NULL);
  }
  if (!work && sim.waiters == NULL) {
    box_state(false, true, sim.progress);
    sleep_until(bell, 0);
    *us = SHORT_US;
    return;
  }
  sleep_until(bell, *us);
  *us = *us < LONG_US ? *us + *us / 2 : LONG_US;
  sim_changed();
}

static void *schedule(void *arg)
{
  long us = SHORT_US;
  bool work = false, rested = true;
  (void)arg;
  pthread_mutex_lock(&sim.lock);
  for (;;) {
    while (sim.run == 0) {
      pthread_cond_wait(&sim.changed, &sim.lock);
    }
    uint32_t bell = box_bell();
    if (!step_any(&work)) {
      rest(work, bell, &us);
      rested = true;
      continue;
    }
    sim.progress++;
    sim.run -= sim.run > 0;
    if (rested) {
      box_state(true, false, sim.progress);
    }
    if (++sim.news >= NEWS) {
      sim_sched_tell();
    }
    us = SHORT_US;
    rested = false;
  }
  return NULL;
}

void cudasim_run(long steps)
{
  pthread_mutex_lock(&sim.lock);
  sim.run = steps;
  pthread_cond_broadcast(&sim.changed);
  pthread_mutex_unlock(&sim.lock);
}

bool cudasim_stands(void)
{
  pthread_mutex_lock(&sim.lock);
  const bool stands = sim.run == 0;
  pthread_mutex_unlock(&sim.lock);
  return stands;
}

uint64_t cudasim_steps(void)
{
  pthread_mutex_lock(&sim.lock);
  const uint64_t steps = sim.progress;
  pthread_mutex_unlock(&sim.lock);
  return steps;
}

static bool start_thread(void *(*run)(void *))
{
  pthread_t thread;
  bool started = pthread_create(&thread, NULL, run, NULL) == 0;
  if (started) {
    pthread_detach(thread);
  }
  return started;
}

bool sim_sched_start(void)
{
  return start_thread(schedule);
}

// ---- Host functions ----

static pthread_cond_t host_work = PTHREAD_COND_INITIALIZER;
static struct sim_item *host_first, *host_last;

void sim_host_add(struct sim_item *item)
{
  item->host = SIM_HOST_QUEUED;
  item->next_host = NULL;
  *(host_last != NULL ? &host_last->next_host : &host_first) = item;
  host_last = item;
  pthread_cond_signal(&host_work);
}

void sim_host_call(CUhostFn fn, void *data)
{
  struct {
    struct sim_item item;
    struct sim_work work;
  } *call = calloc(1, sizeof *call);
  if (call == NULL) {
    abort();
  }
  call->work = (struct sim_work){.kind = SIM_HOST, .host = {fn, data}};
  call->item.work = &call->work;
  sim_host_add(&call->item);
}

// They run one after the other, in a thread that has nothing else to do, as in the driver.
static void *run_host_functions(void *arg)
{
  (void)arg;
  sim_in_host_function(true);
  pthread_mutex_lock(&sim.lock);
  for (;;) {
    while (host_first == NULL) {
      pthread_cond_wait(&host_work, &sim.lock);
    }
    struct sim_item *item = host_first;
    CUhostFn fn = item->work->host.fn;
    void *data = item->work->host.data;
    host_first = item->next_host;
    host_last = host_first == NULL ? NULL : host_last;
    pthread_mutex_unlock(&sim.lock);
    fn(data);
    pthread_mutex_lock(&sim.lock);
    item->host = SIM_HOST_DONE;
    if (item->op == NULL) { // of sim_host_call
      free(item);
    }
    sim_sched_wake();
  }
  return NULL;
}

bool sim_host_start(void)
{
  return start_thread(run_host_functions);
}
