// event.c: events. What counts is the number of a record: it is done when the words say so, in any process.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

// ---- Making ----

static struct sim_event *new_event(struct sim_context *context, unsigned flags)
{
  struct sim_event *event = calloc(1, sizeof *event);
  if (event != NULL) {
    event->context = context;
    event->flags = flags;
    event->fd = -1;
    event->words = &event->own;
    event->handle = sim_handle_new(SIM_EVENT, event);
  }
  return event;
}

static bool share_words(struct sim_event *event, int fd)
{
  void *words = fd < 0 ? MAP_FAILED : mmap(NULL, SIM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (words == MAP_FAILED) {
    return false;
  }
  event->words = words;
  return true;
}

static CUresult create_event(CUevent *out, unsigned flags)
{
  CUresult error;
  struct sim_context *context = sim_current(&error);
  if (context == NULL) {
    return error;
  }
  bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (flags > 7 || (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "flags 0x%x: events between processes must not have the time", flags);
  }
  struct sim_event *event = new_event(context, flags);
  if (event == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (shared) {
    event->fd = memfd_create("cudasim-event", MFD_CLOEXEC);
    if (event->fd < 0 || ftruncate(event->fd, SIM_PAGE) != 0 || !share_words(event, event->fd)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  *out = event->handle;
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
  SIM_CALL("cuEventCreate", create_event(event, flags));
}

// Records and waits that are under way keep using it: it is freed by nobody.
static CUresult destroy_event(CUevent handle)
{
  struct sim_event *event = sim_object(SIM_EVENT, handle);
  if (event == NULL) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  event->ended = true;
  if (event->fd >= 0) {
    close(event->fd); // others that have mapped the words keep them
  }
  free(event->after);
  event->after = NULL;
  event->capture = NULL;
  sim_handle_end(handle);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
  SIM_CALL("cuEventDestroy", destroy_event(event));
}

// ---- Records ----

static uint64_t ahead_bit(uint64_t number)
{
  return (uint64_t)1 << number % 64;
}

bool sim_event_is_done(const struct sim_event_words *words, uint64_t number)
{
  const uint64_t done = atomic_load(&words->done);
  if (number <= done) {
    return true;
  }
  const bool ahead = (atomic_load(&words->ahead[number % SIM_AHEAD / 64]) & ahead_bit(number)) != 0;
  return (ahead && number - done < SIM_AHEAD) || number <= atomic_load(&words->done); // its bit may have been taken
}

bool sim_event_done(struct sim_event_words *words, uint64_t number)
{
  uint64_t done = atomic_load(&words->done);
  if (number - done >= SIM_AHEAD) {
    return false;
  }
  atomic_fetch_or(&words->ahead[number % SIM_AHEAD / 64], ahead_bit(number));
  while ((atomic_load(&words->ahead[(done + 1) % SIM_AHEAD / 64]) & ahead_bit(done + 1)) != 0) {
    if (atomic_compare_exchange_strong(&words->done, &done, done + 1)) {
      done++;
      atomic_fetch_and(&words->ahead[done % SIM_AHEAD / 64], ~ahead_bit(done));
    }
  }
  return true;
}

// ---- Using ----

static CUresult record(CUevent handle, CUstream stream_handle)
{
  CUresult error;
  struct sim_event *event = sim_object(SIM_EVENT, handle);
  struct sim_stream *stream = event != NULL ? sim_stream_of(stream_handle, &error) : NULL;
  if (stream == NULL) {
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : error;
  }
  if (event->context->device != stream->context->device) {
    return sim_misuse(CUDA_ERROR_INVALID_HANDLE, "the event is of device %d, the stream of device %d",
                      event->context->device->ordinal, stream->context->device->ordinal);
  }
  if (stream->capture != NULL) {
    return sim_capture_record(stream, event);
  }
  free(event->after);
  event->after = NULL;
  event->capture = NULL;
  struct sim_work work = {.kind = SIM_RECORD, .context = stream->context, .event = {.event = event}};
  return sim_submit(stream, &work);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
  SIM_CALL("cuEventRecord", record(event, stream));
}

static CUresult wait_event(CUstream stream_handle, CUevent handle, unsigned flags)
{
  CUresult error;
  struct sim_event *event = sim_object(SIM_EVENT, handle);
  struct sim_stream *stream = event != NULL ? sim_stream_of(stream_handle, &error) : NULL;
  if (stream == NULL) {
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : error;
  }
  if (flags > 1) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "flags 0x%x", flags);
  }
  if (event->capture != NULL || stream->capture != NULL) {
    return sim_capture_join(stream, event);
  }
  struct sim_work work = {.kind = SIM_WAIT, .context = stream->context, .event = {.event = event}};
  work.event.number = atomic_load(&event->words->recorded);
  return sim_submit(stream, &work);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
  SIM_CALL("cuStreamWaitEvent", wait_event(stream, event, flags));
}

static bool event_done(void *arg)
{
  const struct sim_event *event = arg;
  return sim_event_is_done(event->words, atomic_load(&event->words->recorded)) ||
         event->context->failed != CUDA_SUCCESS;
}

// An event that the host may look at; else NULL with *error.
static struct sim_event *plain_event(CUevent handle, CUresult *error)
{
  struct sim_event *event = sim_object(SIM_EVENT, handle);
  *error = event == NULL ? CUDA_ERROR_INVALID_HANDLE : event->context->failed;
  if (event != NULL && event->capture != NULL) {
    event->capture->invalid = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *error = sim_misuse(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture");
  }
  return *error == CUDA_SUCCESS ? event : NULL;
}

static CUresult query_event(CUevent handle)
{
  CUresult error;
  struct sim_event *event = plain_event(handle, &error);
  if (event == NULL) {
    return error;
  }
  return event_done(event) ? event->context->failed : CUDA_ERROR_NOT_READY;
}

CUresult cuEventQuery(CUevent event)
{
  SIM_CALL("cuEventQuery", query_event(event));
}

// Records of other processes wake nobody here: the scheduler does, when it looks (sched.c).
static CUresult synchronize_event(CUevent handle)
{
  CUresult error;
  struct sim_event *event = plain_event(handle, &error);
  if (event == NULL) {
    return error;
  }
  sim_await(event_done, event, "an event");
  return event->context->failed;
}

CUresult cuEventSynchronize(CUevent event)
{
  SIM_CALL("cuEventSynchronize", synchronize_event(event));
}

static CUresult elapsed(float *ms, CUevent start_handle, CUevent end_handle)
{
  CUresult error;
  const struct sim_event *start = plain_event(start_handle, &error);
  const struct sim_event *end = start != NULL ? plain_event(end_handle, &error) : NULL;
  if (end == NULL) {
    return error;
  }
  bool recorded = atomic_load(&start->words->recorded) > 0 && atomic_load(&end->words->recorded) > 0;
  if (!recorded || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
    return sim_misuse(CUDA_ERROR_INVALID_HANDLE, "an event without a time");
  }
  if (!sim_event_is_done(start->words, atomic_load(&start->words->recorded)) ||
      !sim_event_is_done(end->words, atomic_load(&end->words->recorded))) {
    return CUDA_ERROR_NOT_READY;
  }
  *ms = (float)(end->at_ms - start->at_ms);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
  SIM_CALL("cuEventElapsedTime", elapsed(ms, start, end));
}

// ---- Between processes ----

struct event_handle {
  uint64_t magic;
  int32_t pid, fd, device;
  uint64_t file; // inode of its words
};
static const uint64_t EVENT_MAGIC = 0x63756576656e7401;

static CUresult export_event(CUipcEventHandle *out, CUevent handle)
{
  const struct sim_event *event = sim_object(SIM_EVENT, handle);
  if (event == NULL || event->fd < 0) {
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE
                         : sim_misuse(CUDA_ERROR_INVALID_HANDLE, "an event without CU_EVENT_INTERPROCESS");
  }
  struct event_handle made = {
      .magic = EVENT_MAGIC, .pid = sim.pid, .fd = event->fd, .device = event->context->device->physical};
  struct stat st;
  if (fstat(event->fd, &st) != 0) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  made.file = st.st_ino;
  memset(out, 0, sizeof *out);
  memcpy(out, &made, sizeof made);
  return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
  SIM_CALL("cuIpcGetEventHandle", export_event(handle, event));
}

static CUresult open_event(CUevent *out, const CUipcEventHandle *given)
{
  CUresult error;
  struct event_handle handle;
  struct sim_context *context = sim_current(&error);
  memcpy(&handle, given, sizeof handle);
  if (context == NULL) {
    return error;
  }
  if (handle.magic != EVENT_MAGIC || handle.device != context->device->physical) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "no handle of an event of device %d", context->device->ordinal);
  }
  int fd = sim_file_of(handle.pid, handle.fd, handle.file);
  struct sim_event *event = new_event(context, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  bool shared = event != NULL && share_words(event, fd);
  if (fd >= 0) {
    close(fd);
  }
  if (!shared) {
    return sim_misuse(CUDA_ERROR_INVALID_HANDLE, "the event's process %d, or the event, has ended", handle.pid);
  }
  *out = event->handle;
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
  SIM_CALL("cuIpcOpenEventHandle", open_event(event, &handle));
}
