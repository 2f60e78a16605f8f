// ops.c: small work on the host device: host functions, copies, fills.
#include "device/host/ops.h"

#include <stddef.h>

#include "base/util.h"
#include "device/host/heap.h"
#include "device/host/hostcall.h"

static void op_free(tt_work *w)
{
  tt_free(w);
}

typedef struct function {
  tt_work work;
  bool started;
  tt_hostcall call;
  size_t staged; // bytes of the argument that are here
  _Alignas(max_align_t) char argument[];
} function;

static tt_run run_function(tt_work *w, size_t *budget, ncclResult_t *result)
{
  function *f = (function *)w;
  (void)budget;
  if (!f->started) {
    f->started = true;
    *result = tt_hostcall_start(&f->call);
    return *result == ncclSuccess ? TT_RUN_BLOCKED : TT_RUN_FAILED;
  }
  return tt_hostcall_over(&f->call) ? TT_RUN_DONE : TT_RUN_BLOCKED;
}

static tt_work *function_again(const tt_work *w, int device)
{
  (void)device;
  const function *f = (const function *)w;
  return tt_host_function_staged(f->call.fn, f->call.arg, f->staged);
}

static const tt_work_ops function_ops = {
    .name = "host function", .run = run_function, .done = op_free, .kind = tuttiNodeHost, .again = function_again};

tt_work *tt_host_function_staged(void (*fn)(void *arg), void *arg, size_t staged)
{
  function *f = tt_calloc(1, sizeof *f + staged);
  if (f == NULL) {
    return NULL;
  }
  f->work.ops = &function_ops;
  f->call.fn = fn;
  f->call.arg = arg;
  f->staged = staged;
  if (staged > 0) {
    memcpy(f->argument, arg, staged);
    f->call.arg = f->argument;
  }
  return &f->work;
}

tt_work *tt_host_function(void (*fn)(void *arg), void *arg)
{
  return tt_host_function_staged(fn, arg, 0);
}

// Rows to copy or to fill. How far it has come: `row` rows, and `at` bytes of the next.
typedef struct job {
  tt_work work;
  tuttiRows_t r;
  size_t row, at;
  uint32_t value; // of a fill: every byte's, pair's or four's, repeated to four bytes
  bool backward;  // one row whose destination overlaps the end of its source
  char staged[];
} job;

// The next piece of the job's rows: bytes [*offset, *offset + result) of row j->row. Moves the job on.
static size_t job_next_piece(job *j, size_t budget, size_t *offset)
{
  size_t n = TT_MIN(j->r.width - j->at, budget);
  *offset = j->backward ? j->r.width - j->at - n : j->at;
  j->at += n;
  return n;
}

static void job_end_piece(job *j)
{
  if (j->at == j->r.width) {
    j->at = 0;
    j->row++;
  }
}

// Writes `n` bytes of rows filled with `value`, from byte `offset` of a row on.
static void job_fill_bytes(char *to, size_t offset, size_t n, uint32_t value)
{
  unsigned char bytes[sizeof value];
  memcpy(bytes, &value, sizeof value);
  if (value == bytes[0] * 0x1010101u) {
    memset(to, bytes[0], n);
    return;
  }
  size_t done = TT_MIN(n, sizeof value);
  for (size_t i = 0; i < done; i++) {
    to[i] = (char)bytes[(offset + i) % sizeof value];
  }
  for (; done < n; done += TT_MIN(done, n - done)) { // what is there repeats
    memcpy(to + done, to, TT_MIN(done, n - done));
  }
}

static tt_run run_rows(tt_work *w, size_t *budget, bool fills)
{
  job *j = (job *)w;
  while (*budget > 0 && j->row < j->r.height) {
    size_t offset, n = job_next_piece(j, *budget, &offset);
    char *to = (char *)j->r.dst + j->row * j->r.dstPitch + offset;
    if (fills) {
      job_fill_bytes(to, offset, n, j->value);
    } else {
      memmove(to, (const char *)j->r.src + j->row * j->r.srcPitch + offset, n);
    }
    *budget -= n;
    job_end_piece(j);
  }
  return j->row == j->r.height ? TT_RUN_DONE : TT_RUN_MORE;
}

static tt_run run_copy(tt_work *w, size_t *budget, ncclResult_t *result)
{
  (void)result;
  return run_rows(w, budget, false);
}

static tt_run run_fill(tt_work *w, size_t *budget, ncclResult_t *result)
{
  (void)result;
  return run_rows(w, budget, true);
}

static tt_work *job_again(const tt_work *w, int device)
{
  (void)device;
  const job *j = (const job *)w;
  size_t staged = j->r.src == j->staged ? j->r.width : 0;
  job *again = tt_calloc(1, sizeof *j + staged);
  if (again != NULL) {
    memcpy(again, j, sizeof *j + staged);
    again->r.src = staged > 0 ? again->staged : j->r.src;
  }
  return again == NULL ? NULL : &again->work;
}

static const tt_work_ops copy_ops = {
    .name = "copy", .run = run_copy, .done = op_free, .kind = tuttiNodeCopy, .again = job_again};
static const tt_work_ops fill_ops = {
    .name = "fill", .run = run_fill, .done = op_free, .kind = tuttiNodeFill, .again = job_again};

static job *job_create(const tt_work_ops *ops, const tuttiRows_t *r, size_t staged)
{
  job *j = tt_calloc(1, sizeof *j + staged);
  if (j == NULL) {
    return NULL;
  }
  j->work.ops = ops;
  j->r = *r;
  if (r->width == 0) {
    j->r.height = 0;
  }
  return j;
}

tt_work *tt_host_copy(void *dst, const void *src, size_t size)
{
  job *j = job_create(&copy_ops, &(tuttiRows_t){.dst = dst, .src = src, .width = size, .height = 1}, 0);
  if (j == NULL) {
    return NULL;
  }
  j->backward = (uintptr_t)dst > (uintptr_t)src && (uintptr_t)dst - (uintptr_t)src < size;
  return &j->work;
}

tt_work *tt_host_copy_staged(void *dst, const void *src, size_t size)
{
  job *j = job_create(&copy_ops, &(tuttiRows_t){.dst = dst, .width = size, .height = 1}, size);
  if (j == NULL) {
    return NULL;
  }
  if (size > 0) {
    memcpy(j->staged, src, size);
  }
  j->r.src = j->staged;
  return &j->work;
}

tt_work *tt_host_copy_rows(const tuttiRows_t *r)
{
  job *j = job_create(&copy_ops, r, 0);
  return j == NULL ? NULL : &j->work;
}

tt_work *tt_host_fill(void *dst, int value, size_t size)
{
  return tt_host_fill_rows(&(tuttiRows_t){.dst = dst, .width = size, .height = 1}, (unsigned char)value, 1);
}

tt_work *tt_host_fill_rows(const tuttiRows_t *r, uint32_t value, size_t size)
{
  job *j = job_create(&fill_ops, r, 0);
  if (j == NULL) {
    return NULL;
  }
  j->value = size == 1 ? (value & 0xff) * 0x1010101u : size == 2 ? (value & 0xffff) * 0x10001u : value;
  return &j->work;
}

typedef struct release {
  tt_work work;
  void *ptr;
} release;

static tt_run run_release(tt_work *w, size_t *budget, ncclResult_t *result)
{
  (void)budget;
  *result = tt_heap_free(((release *)w)->ptr);
  return *result == ncclSuccess ? TT_RUN_DONE : TT_RUN_FAILED;
}

static const tt_work_ops release_ops = {.name = "release", .run = run_release, .done = op_free};

tt_work *tt_host_release(void *ptr)
{
  release *r = tt_calloc(1, sizeof *r);
  if (r == NULL) {
    return NULL;
  }
  *r = (release){.work = {.ops = &release_ops}, .ptr = ptr};
  return &r->work;
}
