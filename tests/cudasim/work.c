// work.c: pieces of work: what is checked when they are handed over, and doing them bit by bit.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum { COPY_STEP = 1 << 20 }; // bytes of a copy at a time

typedef struct CUstreamMemOpValueParams_st word_op;

static bool is_word_wait(const CUstreamBatchMemOpParams *op)
{
  return op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool is_word_write(const CUstreamBatchMemOpParams *op)
{
  return op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static size_t word_bytes(const CUstreamBatchMemOpParams *op)
{
  return op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8 : 4;
}

// ---- Checks ----

static CUresult check_word(const struct sim_context *context, const CUstreamBatchMemOpParams *op)
{
  char why[SIM_TEXT];
  const word_op *value = &op->waitValue;
  size_t bytes = word_bytes(op);
  if (op->operation == CU_STREAM_MEM_OP_BARRIER || op->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES) {
    return CUDA_SUCCESS;
  }
  if (!is_word_wait(op) && !is_word_write(op)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "operation %d", (int)op->operation);
  }
  if (is_word_wait(op) ? (value->flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH) > CU_STREAM_WAIT_VALUE_NOR
                       : value->flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "flags 0x%x", value->flags);
  }
  if (value->address % bytes != 0) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "the word at 0x%llx is not aligned to %zu bytes", value->address,
                      bytes);
  }
  if (!sim_range_allows(sim.ranges, context, value->address, bytes, is_word_write(op), why)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%s", why);
  }
  return CUDA_SUCCESS;
}

// Memory that a copy may have: what a device may use, or pageable host memory, of which nothing is known.
static CUresult check_place(const struct sim_context *context, uint64_t address, size_t bytes, bool write)
{
  char why[SIM_TEXT];
  const struct sim_range *range = sim_range_find(sim.ranges, address);
  struct sim_context any = *context;
  any.peers = ~(uint64_t)0; // copies need no access of peers to be enabled
  if (range == NULL && address >= SIM_PAGE) {
    return CUDA_SUCCESS;
  }
  if (!sim_range_allows(sim.ranges, &any, address, bytes, write, why)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%s", why);
  }
  return CUDA_SUCCESS;
}

static CUresult check_set(const struct sim_work *work)
{
  char why[SIM_TEXT];
  if (work->set.dst % work->set.width != 0) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "0x%" PRIx64 " is not aligned to %u bytes", work->set.dst,
                      work->set.width);
  }
  if (!sim_range_allows(sim.ranges, work->context, work->set.dst, work->set.count * work->set.width, true, why)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%s", why);
  }
  return CUDA_SUCCESS;
}

CUresult sim_work_check(const struct sim_work *work)
{
  CUresult error = CUDA_SUCCESS;
  switch (work->kind) {
  case SIM_WORDS:
    for (unsigned i = 0; i < work->words.count && error == CUDA_SUCCESS; i++) {
      error = check_word(work->context, &work->words.list[i]);
    }
    return error;
  case SIM_COPY:
    error = check_place(work->context, work->copy.dst, work->copy.bytes, true);
    return error != CUDA_SUCCESS ? error : check_place(work->context, work->copy.src, work->copy.bytes, false);
  case SIM_SET: return check_set(work);
  default: return CUDA_SUCCESS;
  }
}

// ---- What it owns ----

void sim_work_free(struct sim_work *work)
{
  if (work->kind == SIM_KERNEL) {
    free(work->kernel.params);
  } else if (work->kind == SIM_WORDS) {
    free(work->words.list);
  } else if (work->kind == SIM_COPY) {
    free(work->copy.staged);
  }
  work->kind = SIM_EMPTY;
}

static void *copy_bytes(const void *from, size_t bytes)
{
  void *to = malloc(bytes + 1);
  if (to != NULL) {
    memcpy(to, from, bytes);
  }
  return to;
}

bool sim_work_copy(struct sim_work *to, const struct sim_work *from)
{
  *to = *from;
  if (from->kind == SIM_KERNEL) {
    to->kernel.params = copy_bytes(from->kernel.params, from->kernel.function->info.param_bytes);
    return to->kernel.params != NULL;
  }
  if (from->kind == SIM_WORDS) {
    to->words.list = copy_bytes(from->words.list, from->words.count * sizeof *from->words.list);
    return to->words.list != NULL;
  }
  return true; // captured copies stage nothing
}

// ---- Words ----

static uint64_t read_word(const word_op *op, size_t bytes)
{
  const void *at = (const void *)(uintptr_t)op->address; // NOLINT(performance-no-int-to-ptr)
  return bytes == 8 ? __atomic_load_n((const uint64_t *)at, __ATOMIC_SEQ_CST)
                    : __atomic_load_n((const uint32_t *)at, __ATOMIC_SEQ_CST);
}

static bool is_met(const word_op *op, size_t bytes)
{
  uint64_t now = read_word(op, bytes), value = bytes == 8 ? op->value64 : op->value;
  switch (op->flags & 3) {
  case CU_STREAM_WAIT_VALUE_EQ: return now == value;
  case CU_STREAM_WAIT_VALUE_AND: return (now & value) != 0;
  case CU_STREAM_WAIT_VALUE_NOR: return bytes == 8 ? ~(now | value) != 0 : (uint32_t) ~(now | value) != 0;
  default: return bytes == 8 ? (int64_t)(now - value) >= 0 : (int32_t)(uint32_t)(now - value) >= 0;
  }
}

// Where a word lies, for all processes.
static void place_of(uint64_t address, uint64_t *file, uint64_t *offset)
{
  const struct sim_range *range = sim_range_find(sim.ranges, address);
  *file = range != NULL ? range->file : 0;
  *offset = range != NULL ? range->offset + (address - range->base) : 0;
}

static void write_word(const struct sim_item *item, const word_op *op, size_t bytes)
{
  char who[64];
  uint64_t file, offset;
  void *at = (void *)(uintptr_t)op->address; // NOLINT(performance-no-int-to-ptr)
  place_of(op->address, &file, &offset);
  snprintf(who, sizeof who, "stream %llu of process %d", item->op->stream->id, (int)sim.pid);
  box_wrote(file, offset, (uint32_t)op->value, who);
  if (bytes == 8) {
    __atomic_store_n((uint64_t *)at, op->value64, __ATOMIC_SEQ_CST);
  } else {
    __atomic_store_n((uint32_t *)at, op->value, __ATOMIC_SEQ_CST);
  }
}

static enum sim_step step_words(struct sim_item *item)
{
  char why[SIM_TEXT];
  const CUstreamBatchMemOpParams *op = &item->work->words.list[item->at];
  size_t bytes = word_bytes(op);
  bool wait = is_word_wait(op), write = is_word_write(op);
  if ((wait || write) && !sim_range_allows(sim.ranges, item->work->context, op->waitValue.address, bytes, write, why)) {
    sim_context_fail(item->work->context, CUDA_ERROR_ILLEGAL_ADDRESS, "operation on a word: %s", why);
    return SIM_STEP_FAILED;
  }
  if (wait && !is_met(&op->waitValue, bytes)) {
    return SIM_STEP_NONE;
  }
  if (write) {
    write_word(item, &op->writeValue, bytes);
  }
  return ++item->at == item->work->words.count ? SIM_STEP_DONE : SIM_STEP_SOME;
}

// ---- Copies, fills ----

static enum sim_step step_copy(struct sim_item *item)
{
  const struct sim_work *work = item->work;
  size_t left = work->copy.bytes - item->bytes, now = left < COPY_STEP ? left : COPY_STEP;
  if (check_place(work->context, work->copy.dst, work->copy.bytes, true) != CUDA_SUCCESS ||
      (work->copy.staged == NULL &&
       check_place(work->context, work->copy.src, work->copy.bytes, false) != CUDA_SUCCESS)) {
    sim_context_fail(work->context, CUDA_ERROR_ILLEGAL_ADDRESS, "a copy's memory has gone");
    return SIM_STEP_FAILED;
  }
  // NOLINTBEGIN(performance-no-int-to-ptr)
  const char *from = work->copy.staged != NULL ? work->copy.staged : (const void *)(uintptr_t)work->copy.src;
  memmove((char *)(uintptr_t)work->copy.dst + item->bytes, from + item->bytes, now);
  // NOLINTEND(performance-no-int-to-ptr)
  item->bytes += now;
  return item->bytes == work->copy.bytes ? SIM_STEP_DONE : SIM_STEP_SOME;
}

static enum sim_step step_set(struct sim_item *item)
{
  const struct sim_work *work = item->work;
  if (check_set(work) != CUDA_SUCCESS) {
    sim_context_fail(work->context, CUDA_ERROR_ILLEGAL_ADDRESS, "a fill's memory has gone");
    return SIM_STEP_FAILED;
  }
  char *at = (char *)(uintptr_t)work->set.dst; // NOLINT(performance-no-int-to-ptr)
  if (work->set.width == 1) {
    memset(at, (int)work->set.value, work->set.count);
    return SIM_STEP_DONE;
  }
  for (size_t i = 0; i < work->set.count; i++) {
    memcpy(at + 4 * i, &work->set.value, 4);
  }
  return SIM_STEP_DONE;
}

// ---- Kernels ----

enum { KNOWN = 16 };

// What the kernel that is stepped may use; of the scheduler's thread.
static struct {
  struct sim_ranges *ranges;
  const struct sim_context *context;
  const struct sim_range *known[KNOWN]; // by address: those that it has been allowed to use
} stepped;

static bool is_within(const struct sim_range *range, uint64_t address, size_t bytes, bool write)
{
  return range != NULL && address - range->base < range->bytes && bytes <= range->bytes - (address - range->base) &&
         !(write && range->read_only) &&
         (range->kind != SIM_IMPORTED ||
          atomic_load_explicit(&range->entry->serial, memory_order_relaxed) == range->serial);
}

static bool is_valid(void *arg, uint64_t address, size_t bytes, enum ptx_access kind, char why[PTX_TEXT])
{
  (void)arg;
  _Static_assert((int)SIM_TEXT == (int)PTX_TEXT, "one size of texts");
  const struct sim_range **known = &stepped.known[address / SIM_GRANULE % KNOWN];
  if (is_within(*known, address, bytes, kind != PTX_READ)) {
    return true;
  }
  bool valid = sim_range_allows(stepped.ranges, stepped.context, address, bytes, kind != PTX_READ, why);
  *known = valid ? sim_range_find(stepped.ranges, address) : NULL;
  return valid;
}

static bool start_kernel(struct sim_item *item)
{
  char why[PTX_TEXT] = "";
  const struct sim_work *work = item->work;
  struct ptx_launch launch = {
      .dynamic_shared = work->kernel.shared,
      .params = work->kernel.params,
      .modes = (sim.modes.random ? PTX_RANDOM_ORDER : 0u) | (sim.modes.stores ? PTX_STORE_BUFFERS : 0u) |
               (sim.modes.stale ? PTX_STALE_READS : 0u) | (sim.modes.lines ? PTX_WHOLE_LINES : 0u),
      .seed = sim_random(),
      .sms = sim.modes.sms,
      .valid = is_valid};
  memcpy(launch.grid, work->kernel.grid, sizeof launch.grid);
  memcpy(launch.block, work->kernel.block, sizeof launch.block);
  if (work->kernel.function->module->ended) {
    sim_context_fail(work->context, CUDA_ERROR_INVALID_HANDLE, "kernel %s: its module has been unloaded",
                     work->kernel.function->name);
    return false;
  }
  item->run = ptx_run_create(work->kernel.function->kernel, &launch, why);
  if (item->run == NULL) {
    sim_context_fail(work->context, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "kernel %s: %s", work->kernel.function->name,
                     why);
  }
  return item->run != NULL;
}

// The device that a kernel runs on: in a graph not always the one that it is launched on.
static struct sim_device *device_of(const struct sim_item *item)
{
  return item->work->context->device;
}

void sim_item_end(struct sim_item *item)
{
  if (item->run == NULL) {
    return;
  }
  ptx_run_destroy(item->run);
  item->run = NULL;
  if (device_of(item)->kernel == item) {
    device_of(item)->kernel = NULL;
    device_of(item)->kernels++;
    sim_changed();
  }
}

struct its_end {
  const struct sim_device *device;
  uint64_t kernels;
};

static bool kernel_is_over(void *arg)
{
  const struct its_end *end = arg;
  return end->device->kernel == NULL || end->device->kernels != end->kernels;
}

void sim_kernel_await(struct sim_device *device)
{
  sim_await(kernel_is_over, &(struct its_end){device, device->kernels}, "the kernel that runs on device %d",
            device->ordinal);
}

// One kernel runs on a device at a time, to its end: no other kernel of this process comes between.
static enum sim_step step_kernel(struct sim_item *item)
{
  struct sim_device *device = device_of(item);
  if (device->kernel != NULL && device->kernel != item) {
    return SIM_STEP_NONE;
  }
  if (item->run == NULL && !start_kernel(item)) {
    return SIM_STEP_FAILED;
  }
  device->kernel = item;
  struct sim_ranges *ranges = sim_ranges_take();
  uint64_t before = ptx_run_instructions(item->run);
  memset(&stepped, 0, sizeof stepped);
  stepped.ranges = ranges;
  stepped.context = item->work->context;
  sim_sched_tell();
  sim.stepping = true;
  pthread_mutex_unlock(&sim.lock);
  enum ptx_state state = ptx_run_step(item->run, sim.modes.step);
  pthread_mutex_lock(&sim.lock);
  sim.stepping = false;
  if (sim.quiescing > 0) {
    pthread_cond_broadcast(&sim.changed);
  }
  sim_ranges_drop(ranges);
  device->used_slice += ptx_run_instructions(item->run) - before;
  if (state == PTX_RUNNING || state == PTX_POLLING) {
    return state == PTX_RUNNING ? SIM_STEP_SOME : SIM_STEP_NONE;
  }
  if (state == PTX_FAULT) {
    sim_context_fail(item->work->context, CUDA_ERROR_ILLEGAL_ADDRESS, "%s", ptx_run_report(item->run));
  }
  sim_item_end(item);
  return state == PTX_DONE ? SIM_STEP_DONE : SIM_STEP_FAILED;
}

// ---- All ----

static enum sim_step step_event(struct sim_item *item)
{
  struct sim_event *event = item->work->event.event;
  if (item->work->kind == SIM_WAIT) {
    return sim_event_is_done(event->words, item->number) ? SIM_STEP_DONE : SIM_STEP_NONE;
  }
  if (!sim_event_done(event->words, item->number)) {
    sim_context_fail(item->work->context, CUDA_ERROR_UNKNOWN,
                     "an event's record %" PRIu64 " is done, and %d before it are not: that is too many here",
                     item->number, (int)SIM_AHEAD);
    return SIM_STEP_FAILED;
  }
  event->at_ms = sim_now_ms();
  return SIM_STEP_DONE;
}

static enum sim_step step_host(struct sim_item *item)
{
  if (item->host == SIM_HOST_NONE) {
    sim_host_add(item);
    return SIM_STEP_SOME;
  }
  return item->host == SIM_HOST_DONE ? SIM_STEP_DONE : SIM_STEP_NONE;
}

enum sim_step sim_item_step(struct sim_item *item)
{
  switch (item->work->kind) {
  case SIM_KERNEL: return step_kernel(item);
  case SIM_WORDS: return step_words(item);
  case SIM_COPY: return step_copy(item);
  case SIM_SET: return step_set(item);
  case SIM_HOST: return step_host(item);
  case SIM_RECORD:
  case SIM_WAIT: return step_event(item);
  default: return SIM_STEP_DONE;
  }
}

// A word whose memory has gone is ready too: the step says so.
static bool is_word_ready(const struct sim_item *item)
{
  char why[SIM_TEXT];
  const CUstreamBatchMemOpParams *op = &item->work->words.list[item->at];
  return !is_word_wait(op) ||
         !sim_range_allows(sim.ranges, item->work->context, op->waitValue.address, word_bytes(op), false, why) ||
         is_met(&op->waitValue, word_bytes(op));
}

bool sim_item_ready(const struct sim_item *item)
{
  switch (item->work->kind) {
  case SIM_KERNEL: return device_of(item)->kernel == NULL || device_of(item)->kernel == item;
  case SIM_WORDS: return is_word_ready(item);
  case SIM_WAIT: return sim_event_is_done(item->work->event.event->words, item->number);
  case SIM_HOST: return item->host != SIM_HOST_QUEUED;
  default: return true;
  }
}

static void word_text(const struct sim_item *item, char *text, size_t size)
{
  static const char *const signs[] = {">=", "==", "&", "nor"};
  const CUstreamBatchMemOpParams *op = &item->work->words.list[item->at];
  const word_op *value = &op->waitValue;
  char why[SIM_TEXT];
  if (!is_word_wait(op) ||
      !sim_range_allows(sim.ranges, item->work->context, value->address, word_bytes(op), false, why)) {
    snprintf(text, size, "operation %u of %u on words", item->at + 1, item->work->words.count);
    return;
  }
  snprintf(text, size, "the word at 0x%llx %s %" PRIu64 ", now %" PRIu64, value->address, signs[value->flags & 3],
           word_bytes(op) == 8 ? value->value64 : value->value, read_word(value, word_bytes(op)));
}

void sim_work_text(const struct sim_item *item, char *text, size_t size)
{
  const struct sim_work *work = item->work;
  switch (work->kind) {
  case SIM_KERNEL:
    snprintf(text, size, "kernel %s, which %s", work->kernel.function->name,
             item->run == NULL ? "waits for another kernel of the device" : "polls words that nobody changes");
    break;
  case SIM_WORDS: word_text(item, text, size); break;
  case SIM_HOST: snprintf(text, size, "a host function that does not return"); break;
  case SIM_WAIT:
    snprintf(text, size, "an event's record %" PRIu64 ", done are all up to %" PRIu64, item->number,
             atomic_load(&work->event.event->words->done));
    break;
  default: snprintf(text, size, "its turn"); break;
  }
}

uint64_t sim_work_word(const struct sim_item *item, uint64_t *offset)
{
  uint64_t file = 0;
  *offset = 0;
  if (item->work->kind == SIM_WORDS && is_word_wait(&item->work->words.list[item->at])) {
    place_of(item->work->words.list[item->at].waitValue.address, &file, offset);
  }
  return file;
}
