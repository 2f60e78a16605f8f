// stream.c: streams, and what is handed to them.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

struct sim_stream *sim_stream_new(struct sim_context *context, unsigned flags, int priority)
{
  struct sim_stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) {
    return NULL;
  }
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  stream->id = ++sim.ids;
  stream->queue = context->device->next_queue++ % sim.modes.queues;
  if (sim.modes.random) {
    stream->queue = (int)(sim_random() % (uint64_t)sim.modes.queues);
  }
  stream->handle = sim_handle_new(SIM_STREAM, stream);
  stream->next = context->streams;
  context->streams = stream;
  return stream;
}

void sim_stream_unlink(struct sim_stream *stream)
{
  struct sim_stream **at = &stream->context->streams;
  if (!stream->ended || stream->first != NULL) {
    return;
  }
  while (*at != NULL && *at != stream) {
    at = &(*at)->next;
  }
  if (*at == stream) {
    *at = stream->next; // freed by nobody: calls of other threads may wait for it
  }
}

// The thread's default streams, one per context. They stay when the thread ends.
static struct sim_stream *per_thread_stream(struct sim_context *context)
{
  static __thread struct {
    struct sim_context *context;
    struct sim_stream *stream;
  } own[SIM_DEVICES];
  int device = context->device->ordinal;
  if (own[device].context != context) {
    own[device].context = context;
    own[device].stream = sim_stream_new(context, CU_STREAM_DEFAULT, 0);
  }
  return own[device].stream;
}

struct sim_stream *sim_stream_of(CUstream handle, CUresult *error)
{
  struct sim_stream *stream = NULL;
  *error = CUDA_SUCCESS;
  if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    struct sim_context *context = sim_current(error);
    if (context == NULL) {
      return NULL;
    }
    stream = handle == CU_STREAM_PER_THREAD ? per_thread_stream(context) : context->legacy;
  } else {
    stream = sim_object(SIM_STREAM, handle);
  }
  if (stream == NULL) {
    *error = CUDA_ERROR_INVALID_HANDLE;
  } else if (stream->context->failed != CUDA_SUCCESS) {
    *error = stream->context->failed;
  }
  return *error == CUDA_SUCCESS ? stream : NULL;
}

// ---- Submission ----

static bool has_room(void *arg)
{
  const struct sim_stream *stream = arg;
  return stream->context->failed != CUDA_SUCCESS || sim_sched_room(stream);
}

static bool may_submit(void *arg)
{
  (void)arg;
  return !sim.submitting;
}

static void await_room(struct sim_stream *stream)
{
  if (sim.modes.launches == 0) {
    return;
  }
  if (sim.modes.launches_all) {
    sim_await(may_submit, NULL, "another thread, which waits for room in a queue");
    sim.submitting = true;
  }
  sim_await(has_room, stream, "room in the queue of stream %llu, which has %d operations", stream->id,
            sim.modes.launches);
  if (sim.modes.launches_all) {
    sim.submitting = false;
    sim_changed();
  }
}

static bool op_is_done(void *arg)
{
  const struct sim_op *op = arg;
  const struct sim_stream *stream = op->stream;
  for (const struct sim_op *at = stream->first; at != NULL; at = at->next_in_stream) {
    if (at->number >= op->number) {
      return at->number > op->number;
    }
  }
  return true;
}

// The launch of the kernel has ended with it; the caller hears of it later.
static void lag(void)
{
  struct timespec time = {sim.modes.lag_ms / 1000, sim.modes.lag_ms % 1000 * 1000000};
  if (sim.modes.lag_ms > 0) {
    pthread_mutex_unlock(&sim.lock);
    nanosleep(&time, NULL);
    pthread_mutex_lock(&sim.lock);
  }
}

static CUresult submit_op(struct sim_stream *stream, struct sim_op *op)
{
  struct sim_op stays = {.stream = stream, .number = op->number};
  bool kernel = op->work.kind == SIM_KERNEL;
  sim_sched_add(op);
  if (sim.modes.blocking && kernel) {
    sim_await(op_is_done, &stays, "the kernel that it has launched (mode blocking)");
    lag();
  }
  return stream->context->failed;
}

CUresult sim_submit(struct sim_stream *stream, struct sim_work *work)
{
  CUresult error = stream->capture != NULL ? sim_capture_add(stream, work) : CUDA_SUCCESS;
  if (stream->capture != NULL) {
    return error;
  }
  error = stream->legacy ? sim_capture_implicit(stream->context) : CUDA_SUCCESS;
  if (error == CUDA_SUCCESS) {
    await_room(stream);
    error = stream->context->failed;
  }
  struct sim_op *op = error == CUDA_SUCCESS ? calloc(1, sizeof *op) : NULL;
  if (op == NULL) {
    sim_work_free(work);
    return error != CUDA_SUCCESS ? error : CUDA_ERROR_OUT_OF_MEMORY;
  }
  op->work = *work;
  op->stream = stream;
  op->number = ++sim.numbers;
  op->item = (struct sim_item){.work = &op->work, .op = op};
  if (work->kind == SIM_RECORD) { // its number is that of the record
    op->item.number = atomic_fetch_add(&work->event.event->words->recorded, 1) + 1;
  } else if (work->kind == SIM_WAIT) {
    op->item.number = work->event.number;
  } else if (work->kind == SIM_LAUNCH && !sim_graph_items(op)) {
    sim_work_free(work);
    free(op);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  op->launch = work->kind == SIM_LAUNCH ? work->exec->launched++ : 0;
  return submit_op(stream, op);
}

// ---- Waiting ----

struct until {
  struct sim_context *context;
  struct sim_stream *stream; // NULL: all of the context
  bool blocking_too;         // the legacy stream waits for the blocking ones
  uint64_t number;
};

static bool stream_past(const struct sim_stream *stream, uint64_t number)
{
  return stream->first == NULL || stream->first->number > number;
}

static bool is_past(void *arg)
{
  const struct until *until = arg;
  bool past = until->stream == NULL || stream_past(until->stream, until->number);
  for (const struct sim_stream *s = until->context->streams; s != NULL && past; s = s->next) {
    if (until->stream == NULL || (until->blocking_too && (s->flags & CU_STREAM_NON_BLOCKING) == 0)) {
      past = stream_past(s, until->number);
    }
  }
  return past || until->context->failed != CUDA_SUCCESS;
}

static CUresult await_past(struct until *until, const char *what)
{
  until->number = sim.numbers;
  sim_await(is_past, until, "%s", what);
  return until->context->failed;
}

CUresult sim_stream_drain(struct sim_stream *stream)
{
  struct until until = {.context = stream->context, .stream = stream, .blocking_too = stream->legacy};
  return await_past(&until, stream->legacy ? "the legacy default stream" : "a stream");
}

CUresult sim_context_drain(struct sim_context *context)
{
  struct until until = {.context = context};
  return await_past(&until, "all streams of the context");
}

bool sim_context_busy(const struct sim_context *context)
{
  for (const struct sim_stream *stream = context->streams; stream != NULL; stream = stream->next) {
    if (stream->first != NULL) {
      return true;
    }
  }
  return false;
}

// ---- The functions ----

static CUresult create(CUstream *out, unsigned flags, int priority)
{
  CUresult error;
  struct sim_context *context = sim_current(&error);
  if (context == NULL) {
    return error;
  }
  if (flags > CU_STREAM_NON_BLOCKING) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "flags 0x%x", flags);
  }
  error = sim_capture_unsafe();
  if (error != CUDA_SUCCESS) {
    return error;
  }
  struct sim_stream *stream = sim_stream_new(context, flags, priority);
  if (stream == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = stream->handle;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
  SIM_CALL("cuStreamCreateWithPriority", create(stream, flags, priority));
}

static CUresult destroy(CUstream handle)
{
  struct sim_stream *stream = sim_object(SIM_STREAM, handle);
  if (stream == NULL) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->capture != NULL) {
    sim_misuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the stream is being captured");
    sim_capture_leave(stream);
  }
  stream->ended = true; // what was handed to it goes on
  sim_handle_end(handle);
  sim_stream_unlink(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
  SIM_CALL("cuStreamDestroy", destroy(stream));
}

static CUresult query(CUstream handle)
{
  CUresult error;
  struct sim_stream *stream = sim_stream_of(handle, &error);
  if (stream != NULL) {
    error = sim_capture_forbid(stream);
  }
  if (error != CUDA_SUCCESS) {
    return error;
  }
  struct until all = {
      .context = stream->context, .stream = stream, .blocking_too = stream->legacy, .number = sim.numbers};
  return is_past(&all) ? stream->context->failed : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamQuery(CUstream stream)
{
  SIM_CALL("cuStreamQuery", query(stream));
}

static CUresult synchronize_stream(CUstream handle)
{
  CUresult error;
  struct sim_stream *stream = sim_stream_of(handle, &error);
  if (stream != NULL) {
    error = sim_capture_forbid(stream);
  }
  if (error == CUDA_SUCCESS && stream->legacy) {
    error = sim_capture_implicit(stream->context);
  }
  return error == CUDA_SUCCESS ? sim_stream_drain(stream) : error;
}

CUresult cuStreamSynchronize(CUstream stream)
{
  SIM_CALL("cuStreamSynchronize", synchronize_stream(stream));
}

// Something of a stream, which may be one that is captured.
#define STREAM_HAS(name, handle, statement)                        \
  CUresult sim_error_ = sim_begin(name);                           \
  if (sim_error_ != CUDA_SUCCESS) {                                \
    return sim_error_;                                             \
  }                                                                \
  const struct sim_stream *s = sim_stream_of(handle, &sim_error_); \
  if (s != NULL) {                                                 \
    statement;                                                     \
  }                                                                \
  return sim_end(sim_error_)

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
  STREAM_HAS("cuStreamGetCtx", stream, *context = s->context->handle);
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags)
{
  STREAM_HAS("cuStreamGetFlags", stream, *flags = s->flags);
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
  STREAM_HAS("cuStreamGetId", stream, *id = s->id);
}

static CUresult host_function(CUstream handle, CUhostFn fn, void *data)
{
  CUresult error;
  struct sim_stream *stream = sim_stream_of(handle, &error);
  struct sim_work work = {.kind = SIM_HOST, .host = {fn, data}};
  if (stream == NULL || fn == NULL) {
    return stream == NULL ? error : CUDA_ERROR_INVALID_VALUE;
  }
  work.context = stream->context;
  return sim_submit(stream, &work);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data)
{
  SIM_CALL("cuLaunchHostFunc", host_function(stream, fn, data));
}

// ---- Words ----

static CUresult words(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *list, unsigned flags)
{
  CUresult error;
  struct sim_stream *stream = sim_stream_of(handle, &error);
  if (stream == NULL) {
    return error;
  }
  struct sim_context *current = sim_current(&error);
  if (current != stream->context) {
    return current == NULL ? error : sim_misuse(CUDA_ERROR_INVALID_CONTEXT, "the stream is of another context");
  }
  if (flags != 0 || count == 0 || count > 256 || list == NULL) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%u operations (1 to 256), flags 0x%x", count, flags);
  }
  struct sim_work work = {.kind = SIM_WORDS, .context = current, .words = {count, calloc(count, sizeof *list)}};
  if (work.words.list == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(work.words.list, list, count * sizeof *list);
  error = sim_work_check(&work);
  if (error != CUDA_SUCCESS) {
    sim_work_free(&work);
    return error;
  }
  return sim_submit(stream, &work);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations, unsigned flags)
{
  SIM_CALL("cuStreamBatchMemOp", words(stream, count, operations, flags));
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags)
{
  CUstreamBatchMemOpParams one = {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = at}};
  one.waitValue.value = value;
  one.waitValue.flags = flags;
  SIM_CALL("cuStreamWaitValue32", words(stream, 1, &one, 0));
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags)
{
  CUstreamBatchMemOpParams one = {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = at}};
  one.writeValue.value = value;
  one.writeValue.flags = flags;
  SIM_CALL("cuStreamWriteValue32", words(stream, 1, &one, 0));
}
