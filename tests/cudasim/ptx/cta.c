// cta.c: CTAs of a run from their start to their end, and how their threads wait and end.
#include "ptx_priv.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { UNWRITTEN = 0xa5 }; // what shared and local memory begin with

// ThreadSanitizer's memset looks at each word, which takes longer than the kernel; no other thread has this memory yet.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define UNSEEN_BEGIN() AnnotateIgnoreWritesBegin(__FILE__, __LINE__)
#define UNSEEN_END() AnnotateIgnoreWritesEnd(__FILE__, __LINE__)
#endif
#endif
#ifndef UNSEEN_BEGIN
#define UNSEEN_BEGIN() (void)0
#define UNSEEN_END() (void)0
#endif

static void *some(size_t n, size_t bytes)
{
  size_t room = (n * bytes + 127) / 128 * 128 + 128;
  void *memory = aligned_alloc(128, room);
  if (!memory) {
    abort();
  }
  memset(memory, 0, room);
  return memory;
}

// CTAs of runs that have ended, for later ones: most launches are of a few kernels, and memory that comes from the
// system and goes back to it with each would take longer than they do. Threads that meet here do without.
enum { KEPT = 16 };
static struct ptx_cta *idle_ctas[KEPT];
static atomic_flag idle_busy = ATOMIC_FLAG_INIT;

static bool same_shape(const struct ptx_shape *a, const struct ptx_shape *b)
{
  return a->threads == b->threads && a->slots == b->slots && a->shared_bytes == b->shared_bytes &&
         a->local_bytes == b->local_bytes && a->viewed == b->viewed;
}

static struct ptx_cta *kept_cta(const struct ptx_shape *shape)
{
  struct ptx_cta *cta = NULL;
  if (atomic_flag_test_and_set_explicit(&idle_busy, memory_order_acquire)) {
    return NULL;
  }
  for (int i = 0; i < KEPT && !cta; i++) {
    if (idle_ctas[i] && same_shape(&idle_ctas[i]->shape, shape)) {
      cta = idle_ctas[i];
      idle_ctas[i] = NULL;
    }
  }
  atomic_flag_clear_explicit(&idle_busy, memory_order_release);
  return cta;
}

// Takes the place of the one that is there for longest. Returns what is to be freed, or NULL.
static struct ptx_cta *keep_cta(struct ptx_cta *cta)
{
  static unsigned at;
  if (atomic_flag_test_and_set_explicit(&idle_busy, memory_order_acquire)) {
    return cta;
  }
  struct ptx_cta *old = idle_ctas[at % KEPT];
  idle_ctas[at++ % KEPT] = cta;
  atomic_flag_clear_explicit(&idle_busy, memory_order_release);
  return old;
}

static struct ptx_cta *new_cta(struct ptx_run *run)
{
  size_t threads = (size_t)run->threads;
  struct ptx_shape shape = {.threads = run->threads,
                            .slots = run->slots,
                            .shared_bytes = run->shared_bytes,
                            .local_bytes = run->local_bytes,
                            .viewed = (run->launch.modes & (PTX_STORE_BUFFERS | PTX_STALE_READS)) != 0};
  struct ptx_cta *cta = kept_cta(&shape);
  if (cta) {
    cta->run = run;
    return cta;
  }
  cta = some(1, sizeof *cta);
  cta->run = run;
  cta->shape = shape;
  cta->threads = some(threads, sizeof *cta->threads);
  cta->warps = some((size_t)run->warps, sizeof *cta->warps);
  cta->shared = some(1, run->shared_bytes);
  cta->slots = some(threads * (size_t)run->slots, sizeof *cta->slots);
  cta->locals = some(threads, run->local_bytes);
  if (shape.viewed) {
    cta->views = some(threads, sizeof *cta->views);
    cta->pending = some(PTX_CTA_BUFFER, sizeof *cta->pending);
  }
  return cta;
}

static void free_cta(struct ptx_cta *cta)
{
  if (cta) {
    free(cta->threads);
    free(cta->warps);
    free(cta->shared);
    free(cta->slots);
    free(cta->locals);
    free(cta->views);
    free(cta->pending);
    free(cta);
  }
}

static void free_list(struct ptx_cta *cta)
{
  while (cta) {
    struct ptx_cta *next = cta->next;
    free_cta(keep_cta(cta));
    cta = next;
  }
}

void ptx_cta_free_all(struct ptx_run *run)
{
  free_list(run->spare);
  for (int i = 0; i < run->nlive; i++) {
    run->live[i]->next = NULL;
    free_list(run->live[i]);
  }
}

static void start_thread(struct ptx_cta *cta, int index)
{
  struct ptx_run *run = cta->run;
  const struct ptx_kernel *k = run->kernel;
  struct ptx_thread *t = &cta->threads[index];
  const unsigned *block = run->launch.block;
  memset(t, 0, offsetof(struct ptx_thread, stack));
  t->pc = k->code;
  t->fn = k;
  t->regs = cta->slots + (size_t)index * (size_t)run->slots;
  t->local = cta->locals + (size_t)index * run->local_bytes;
  t->cta = cta;
  t->index = (uint16_t)index;
  t->tid[0] = (unsigned)index % block[0];
  t->tid[1] = (unsigned)index / block[0] % block[1];
  t->tid[2] = (unsigned)index / block[0] / block[1];
  memset(t->regs, 0, (size_t)k->regs * sizeof *t->regs);
  memcpy(t->regs + k->regs, k->values, (size_t)k->consts * sizeof *t->regs);
  memset(t->local, UNWRITTEN, run->local_bytes);
  if (cta->views) {
    t->view = &cta->views[index];
    memset(t->view, 0, offsetof(struct ptx_view, pending));
  }
}

static void start_cta(struct ptx_run *run, struct ptx_cta *cta, uint64_t number)
{
  const unsigned *grid = run->launch.grid;
  cta->number = number;
  cta->id[0] = (uint32_t)(number % grid[0]);
  cta->id[1] = (uint32_t)(number / grid[0] % grid[1]);
  cta->id[2] = (uint32_t)(number / grid[0] / grid[1]);
  cta->left = cta->nready = run->threads;
  cta->npending = 0;
  cta->known_all = 0;
  run->ready += (uint64_t)run->threads;
  memset(cta->barriers, 0, sizeof cta->barriers);
  memset(cta->shared, UNWRITTEN, run->shared_bytes);
  for (int i = 0; i < run->warps; i++) {
    int lanes = run->threads - i * PTX_WARP;
    uint32_t there = lanes >= PTX_WARP ? UINT32_MAX : (UINT32_C(1) << lanes) - 1;
    cta->warps[i] = (struct ptx_warp){.ready = there, .ended = ~there, .barrier = -1};
  }
  UNSEEN_BEGIN();
  for (int i = 0; i < run->threads; i++) {
    start_thread(cta, i);
  }
  UNSEEN_END();
}

static uint64_t next_number(struct ptx_run *run)
{
  uint64_t i = run->started++;
  if (!run->shuffled) {
    return i;
  }
  uint64_t j = i + ptx_draw(run, run->ctas - i);
  uint32_t number = run->shuffled[j];
  run->shuffled[j] = run->shuffled[i];
  run->shuffled[i] = number;
  return number;
}

bool ptx_cta_start_next(struct ptx_run *run)
{
  if (run->started == run->ctas || (uint64_t)run->nlive >= run->resident) {
    return false;
  }
  struct ptx_cta *cta = run->spare;
  if (cta) {
    run->spare = cta->next;
  } else {
    cta = new_cta(run);
  }
  run->live = ptx_grow(run->live, &run->live_room, run->nlive, sizeof(struct ptx_cta *));
  run->live[run->nlive++] = cta;
  start_cta(run, cta, next_number(run));
  return true;
}

void ptx_cta_reap(struct ptx_run *run)
{
  int kept = 0;
  for (int i = 0; i < run->nlive; i++) {
    struct ptx_cta *cta = run->live[i];
    if (cta->left > 0 || cta->npending > 0) {
      run->live[kept++] = cta;
      continue;
    }
    run->at_cta -= i < run->at_cta;
    cta->next = run->spare;
    run->spare = cta;
  }
  run->nlive = kept;
}

void ptx_thread_block(struct ptx_thread *t, const struct ptx_ins *i, enum ptx_wait wait)
{
  t->pc = i;
  t->wait = (uint8_t)wait;
  t->cta->warps[t->index / PTX_WARP].ready &= ~(UINT32_C(1) << (t->index % PTX_WARP));
  t->cta->nready--;
  t->cta->run->ready--;
  t->cta->run->polled -= t->polled == t->cta->run->epoch;
  ptx_warp_line_perhaps(t->cta, t->index / PTX_WARP);
}

void ptx_thread_wake(struct ptx_thread *t)
{
  t->pc++;
  t->wait = PTX_READY;
  t->cta->warps[t->index / PTX_WARP].ready |= UINT32_C(1) << (t->index % PTX_WARP);
  t->cta->nready++;
  t->cta->run->ready++;
  t->cta->run->polled += t->polled == t->cta->run->epoch;
}

bool ptx_thread_end(struct ptx_thread *t)
{
  struct ptx_cta *cta = t->cta;
  ptx_thread_block(t, t->pc, PTX_ENDED);
  ptx_progress(t);
  cta->warps[t->index / PTX_WARP].ended |= UINT32_C(1) << (t->index % PTX_WARP);
  cta->left--;
  if (t->view) {
    ptx_view_end(t);
  }
  if (ptx_barrier_thread_ended(t)) {
    ptx_warp_thread_ended(t);
  }
  return false;
}
