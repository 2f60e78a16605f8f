// ops.c: small work on the host device: host functions, copies, fills.
#include "device/host/ops.h"

#include "base/util.h"

typedef struct job {
  tt_work work;
  void (*fn)(void *arg);
  void *arg;
  void *dst;
  const void *src;
  size_t size;
  int value;
} job;

static void done(tt_work *w)
{
  tt_free(w);
}

static tt_run run_function(tt_work *w, size_t *budget, ncclResult_t *result)
{
  const job *j = (const job *)w;
  (void)budget, (void)result;
  j->fn(j->arg);
  return TT_RUN_DONE;
}

static tt_run run_copy(tt_work *w, size_t *budget, ncclResult_t *result)
{
  const job *j = (const job *)w;
  (void)budget, (void)result;
  memmove(j->dst, j->src, j->size);
  return TT_RUN_DONE;
}

static tt_run run_fill(tt_work *w, size_t *budget, ncclResult_t *result)
{
  const job *j = (const job *)w;
  (void)budget, (void)result;
  memset(j->dst, j->value, j->size);
  return TT_RUN_DONE;
}

static const tt_work_ops function_ops = {.name = "host function", .run = run_function, .done = done};
static const tt_work_ops copy_ops = {.name = "copy", .run = run_copy, .done = done};
static const tt_work_ops fill_ops = {.name = "fill", .run = run_fill, .done = done};

static tt_work *make(const job *j)
{
  job *n = tt_calloc(1, sizeof *n);
  if (n == NULL) {
    return NULL;
  }
  *n = *j;
  return &n->work;
}

tt_work *tt_host_function(void (*fn)(void *arg), void *arg)
{
  return make(&(job){.work.ops = &function_ops, .fn = fn, .arg = arg});
}

tt_work *tt_host_copy(void *dst, const void *src, size_t size)
{
  return make(&(job){.work.ops = &copy_ops, .dst = dst, .src = src, .size = size});
}

tt_work *tt_host_fill(void *dst, int value, size_t size)
{
  return make(&(job){.work.ops = &fill_ops, .dst = dst, .value = value, .size = size});
}
