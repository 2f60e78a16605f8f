// run.c: launches, and whose turn it is.
#include "ptx_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 1024, MAX_SHARED = 227 * 1024, PORTION = 4096, MANY_CTAS = 32 };

uint64_t ptx_draw(struct ptx_run *run, uint64_t n)
{
  uint64_t z = (run->random += UINT64_C(0x9e3779b97f4a7c15)); // splitmix64
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  z ^= z >> 31;
  return (uint64_t)(((z >> 32) * n) >> 32);
}

static bool check_launch(const struct ptx_kernel *k, const struct ptx_launch *l, char why[PTX_TEXT])
{
  uint64_t threads = 1, ctas = 1;
  for (int i = 0; i < 3; i++) {
    threads = threads > MAX_THREADS ? threads : threads * l->block[i];
    ctas *= l->grid[i];
    if (l->grid[i] > (i == 0 ? INT32_MAX : 65535)) {
      snprintf(why, PTX_TEXT, "%s: %u CTAs along axis %d", k->name, l->grid[i], i);
      return false;
    }
  }
  if (threads == 0 || ctas == 0 || threads > MAX_THREADS || threads > (uint64_t)k->info.max_threads ||
      ctas > UINT32_MAX) {
    snprintf(why, PTX_TEXT, "%s: a grid of %u x %u x %u CTAs of %u x %u x %u threads, and at most %d threads may be",
             k->name, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], k->info.max_threads);
    return false;
  }
  if (l->dynamic_shared > MAX_SHARED || k->info.shared_bytes + l->dynamic_shared > MAX_SHARED) {
    snprintf(why, PTX_TEXT, "%s: %zu bytes of static and %zu of dynamic shared memory, of %d", k->name,
             k->info.shared_bytes, l->dynamic_shared, MAX_SHARED);
    return false;
  }
  if (k->info.param_bytes > 0 && !l->params) {
    snprintf(why, PTX_TEXT, "%s: no parameters", k->name);
    return false;
  }
  return true;
}

static bool fill_run(struct ptx_run *run)
{
  const struct ptx_launch *l = &run->launch;
  const struct ptx_kernel_info *info = &run->kernel->info;
  run->threads = (int)(l->block[0] * l->block[1] * l->block[2]);
  run->warps = (run->threads + PTX_WARP - 1) / PTX_WARP;
  run->ctas = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
  run->resident = l->sms > 0 ? (uint64_t)l->sms : run->ctas;
  run->dynamic_at = (info->shared_bytes + 127) / 128 * 128;
  run->shared_bytes = l->dynamic_shared ? run->dynamic_at + l->dynamic_shared : info->shared_bytes;
  run->local_bytes = run->kernel->total_frame;
  run->slots = run->kernel->total_slots + 1;
  run->random = l->seed;
  run->lateness = UINT64_C(2) << (2 * ptx_draw(run, 4)); // 2, 8, 32, 128
  run->epoch = 1;
  run->params = aligned_alloc(128, (info->param_bytes + 127) / 128 * 128 + 128);
  if (!run->params) {
    return false;
  }
  if (info->param_bytes > 0) {
    memcpy(run->params, l->params, info->param_bytes);
  }
  run->launch.params = run->params;
  if (l->modes & PTX_RANDOM_ORDER) {
    run->shuffled = malloc(run->ctas * sizeof *run->shuffled);
    for (uint64_t i = 0; run->shuffled && i < run->ctas; i++) {
      run->shuffled[i] = (uint32_t)i;
    }
  }
  if (l->modes & PTX_STALE_READS) {
    run->history = calloc(PTX_HISTORY, sizeof *run->history);
  }
  if ((l->modes & PTX_DEVICE_BUFFER) && (l->modes & PTX_STORE_BUFFERS)) {
    run->device = calloc(PTX_DEVICE_STORES, sizeof *run->device);
    if (!run->device) {
      return false;
    }
  }
  return (run->shuffled || !(l->modes & PTX_RANDOM_ORDER)) && (run->history || !(l->modes & PTX_STALE_READS));
}

struct ptx_run *ptx_run_create(const struct ptx_kernel *kernel, const struct ptx_launch *launch, char why[PTX_TEXT])
{
  if (!check_launch(kernel, launch, why)) {
    return NULL;
  }
  struct ptx_run *run = calloc(1, sizeof *run);
  if (run) {
    run->kernel = kernel;
    run->launch = *launch;
  }
  if (!run || !fill_run(run)) {
    snprintf(why, PTX_TEXT, "%s: no memory", kernel->name);
    ptx_run_destroy(run);
    return NULL;
  }
  return run;
}

void ptx_run_destroy(struct ptx_run *run)
{
  if (!run) {
    return;
  }
  ptx_cta_free_all(run);
  free(run->live);
  free(run->shuffled);
  free(run->history);
  free(run->device);
  free(run->params);
  free(run->report);
  free(run);
}

uint64_t ptx_run_instructions(const struct ptx_run *run)
{
  return run->instructions;
}

// The first thread at or behind `from` in the CTA that can go on, or NULL.
static struct ptx_thread *ready_from(struct ptx_cta *cta, int from)
{
  int warp = from / PTX_WARP;
  uint32_t mask = UINT32_MAX << (from % PTX_WARP);
  for (; warp < cta->run->warps && cta->nready > 0; warp++, mask = UINT32_MAX) {
    uint32_t lanes = cta->warps[warp].ready & mask;
    if (lanes) {
      return &cta->threads[warp * PTX_WARP + __builtin_ctz(lanes)];
    }
  }
  return NULL;
}

// In order: the next thread behind the last.
static struct ptx_thread *next_in_order(struct ptx_run *run)
{
  for (int i = 0; i <= run->nlive; i++) {
    if (run->at_cta >= run->nlive) {
      run->at_cta = 0;
      run->at_thread = 0;
    }
    struct ptx_thread *t = ready_from(run->live[run->at_cta], run->at_thread);
    if (t) {
      run->at_thread = t->index + 1;
      return t;
    }
    run->at_cta++;
    run->at_thread = 0;
  }
  return NULL;
}

static struct ptx_thread *any_at_random(struct ptx_run *run)
{
  int c = (int)ptx_draw(run, (uint64_t)run->nlive);
  while (run->live[c]->nready == 0) {
    c = (c + 1) % run->nlive;
  }
  struct ptx_cta *cta = run->live[c];
  int w = (int)ptx_draw(run, (uint64_t)run->warps);
  while (cta->warps[w].ready == 0) {
    w = (w + 1) % run->warps;
  }
  uint32_t lanes = cta->warps[w].ready;
  for (int skip = (int)ptx_draw(run, (uint64_t)__builtin_popcount(lanes)); skip > 0; skip--) {
    lanes &= lanes - 1;
  }
  return &cta->threads[w * PTX_WARP + __builtin_ctz(lanes)];
}

static int64_t random_portion(struct ptx_run *run)
{
  uint64_t most = ptx_draw(run, 4);
  return 1 + (int64_t)ptx_draw(run, most < 2 ? 16 : most == 2 ? 128 : 1024);
}

// More CTAs begin when those there are cannot go on; in random order also at other times.
static void start_more(struct ptx_run *run)
{
  if (run->ready == run->polled) {
    ptx_cta_start_next(run);
  } else if (run->shuffled && run->nlive < MANY_CTAS && ptx_draw(run, 8) == 0) {
    ptx_cta_start_next(run);
  }
}

// Gives somebody the turn. False when the step ends here.
static bool choose(struct ptx_run *run)
{
  start_more(run);
  while (run->ready == run->polled && run->pending > 0) { // they may wait for what is on its way
    ptx_late_drain_some(run);
    ptx_cta_reap(run);
    start_more(run);
  }
  if (run->ready == 0) {
    if (run->nlive == 0 && run->started == run->ctas) {
      run->state = PTX_DONE;
    } else {
      ptx_fault_deadlock(run);
    }
    return false;
  }
  if (run->ready == run->polled) {
    run->stuck = true;
    return false;
  }
  run->turn = run->shuffled ? any_at_random(run) : next_in_order(run);
  run->portion = run->shuffled ? random_portion(run) : PORTION;
  return true;
}

static void end_turn(struct ptx_run *run)
{
  struct ptx_cta *cta = run->turn->cta;
  run->turn->yields = false;
  run->turn = NULL;
  if (run->pending > 0 && ptx_draw(run, run->lateness) == 0) {
    ptx_late_drain_some(run);
    ptx_cta_reap(run);
  } else if (cta->left == 0) {
    ptx_cta_reap(run);
  }
}

enum ptx_state ptx_run_step(struct ptx_run *run, uint64_t instructions)
{
  if (run->state == PTX_DONE || run->state == PTX_FAULT) {
    return run->state;
  }
  uint64_t end = run->instructions + instructions;
  run->state = PTX_RUNNING;
  if (run->stuck) { // until something happens, all look again and again
    run->epoch++;
    run->polled = 0;
  }
  while (run->instructions < end) {
    if (!run->turn && !choose(run)) {
      break;
    }
    int64_t most = (int64_t)(end - run->instructions);
    int64_t did = ptx_interpret(run->turn, most < run->portion ? most : run->portion);
    run->instructions += (uint64_t)did;
    run->portion -= did;
    if (run->state == PTX_FAULT) {
      break;
    }
    if (run->portion <= 0 || run->turn->wait != PTX_READY || run->turn->yields) {
      end_turn(run);
    }
  }
  if (run->state == PTX_RUNNING && run->stuck) {
    run->state = PTX_POLLING;
  }
  return run->state;
}
