#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "base/util.h"
#include "os/thread.h"
#include "plugin/profiler/profiler_priv.h"

enum {
  NAME_BYTES = 64,
  KINDS = 16,
  NET = ncclProfileNetPlugin,
  STEP = NET | ncclProfileProxyStep,
  PROXY = STEP | ncclProfileProxyOp,
  CHANNEL = ncclProfileKernelCh | ncclProfileKernelPhase,
  TASK = PROXY | CHANNEL, // what hangs below a Coll or P2p
  COPY = ncclProfileCeColl | ncclProfileCeSync | ncclProfileCeBatch,
  COLL = TASK | ncclProfileColl,
  P2P = TASK | ncclProfileP2p,
};

// By number of the kind's bit: which bits of a mask want it. Source: NCCL's behaviour; seed 000.
static const uint32_t wanted_by[KINDS] = {
    COLL | P2P | ncclProfileGroup,
    COLL,
    P2P,
    PROXY,
    STEP,
    ncclProfileProxyCtrl,
    CHANNEL,
    NET,
    COLL | P2P | COPY | ncclProfileGroup | ncclProfileGroupApi | ncclProfileCollApi | ncclProfileP2pApi |
        ncclProfileKernelLaunch,
    COLL | COPY | ncclProfileCollApi,
    P2P | ncclProfileP2pApi,
    ncclProfileKernelLaunch,
    COPY,
    ncclProfileCeSync,
    ncclProfileCeBatch,
    ncclProfileKernelPhase,
};

static const char *const kind_names[KINDS] = {
    "Group",    "Coll",    "P2p",    "ProxyOp",      "ProxyStep", "ProxyCtrl", "KernelCh", "NetPlugin",
    "GroupApi", "CollApi", "P2pApi", "KernelLaunch", "CeColl",    "CeSync",    "CeBatch",  "KernelPhase"};

// One profiler's view of the communicator.
typedef struct context {
  tt_profiler_library *lib; // NULL: there is no such profiler, or it does not want the communicator
  void *ctx;
} context;

// A block that waits for its next use.
typedef struct block {
  struct block *next;
} block;

struct tt_profilers {
  _Atomic int holders; // 0: being finalized, by nobody's leave
  uint64_t id;
  struct tt_profilers *next; // of all that may be found
  int n;                     // rows in use, at most
  context rows[TT_PROFILERS];
  tt_profilers_env env;
  char name[NAME_BYTES];
  block *blocks;             // of the thread that takes them
  _Atomic(block *) returned; // by any thread
};

// Those that are not finalized yet, so that names of them can be looked up. Under its lock.
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_profilers *all;
static uint64_t last_id; // 0: nobody's

static inline uint32_t mask_of(const context *c)
{
  return c->lib == NULL ? 0 : (uint32_t)__atomic_load_n(&c->lib->mask, __ATOMIC_RELAXED);
}

static inline uint32_t wanted(uint64_t type)
{
  return wanted_by[__builtin_ctzll(type)];
}

bool tt_profiler_mask_wants(uint32_t mask, uint64_t type)
{
  return (mask & wanted(type)) != 0;
}

// ---- Life

static void mask_text(uint32_t mask, char *out, size_t size)
{
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < KINDS && used < size; i++) {
    if (mask >> i & 1) {
      used += (size_t)snprintf(out + used, size - used, " %s", kind_names[i]);
    }
  }
}

static void profilers_begin(context *c, tt_profiler_library *lib, const tt_profilers_env *env)
{
  ncclResult_t res = lib->adapter->init(lib->table, env, &lib->mask, &c->ctx);
  if (res != ncclSuccess) {
    tt_info(TT_INIT | TT_PROFILE,
            "PROFILER/Plugin: %s: init for rank %d of comm 0x%llx has failed with %d (%s); the rank goes on without it",
            lib->name, env->rank, (unsigned long long)env->hash, (int)res, ncclGetErrorString(res));
    c->ctx = NULL;
    return;
  }
  c->lib = lib;
  char kinds[256];
  mask_text(mask_of(c), kinds, sizeof kinds);
  tt_info(TT_INIT | TT_PROFILE, "PROFILER/Plugin: %s (version %d) follows rank %d of comm 0x%llx; mask 0x%x:%s",
          lib->name, tt_plugin_version(lib->plugin), env->rank, (unsigned long long)env->hash, mask_of(c),
          kinds[0] != '\0' ? kinds : " no events");
}

static bool any_library(const tt_profiler_library *libs)
{
  for (int i = 0; i < TT_PROFILERS; i++) {
    if (libs[i].plugin != NULL) {
      return true;
    }
  }
  return false;
}

static void profilers_add(tt_profilers *p)
{
  pthread_mutex_lock(&all_lock);
  p->id = ++last_id;
  p->next = all;
  all = p;
  pthread_mutex_unlock(&all_lock);
}

static void profilers_remove(const tt_profilers *p)
{
  pthread_mutex_lock(&all_lock);
  for (tt_profilers **at = &all; *at != NULL; at = &(*at)->next) {
    if (*at == p) {
      *at = p->next;
      break;
    }
  }
  pthread_mutex_unlock(&all_lock);
}

void tt_profilers_forget(void)
{
  pthread_mutex_init(&all_lock, NULL);
  all = NULL;
}

// The profilers of the libraries that are open.
static ncclResult_t profilers_make(const tt_profilers_env *env, tt_profiler_library *libs, tt_profilers **out)
{
  tt_profilers *p = tt_calloc(1, sizeof *p);
  if (p == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for profilers", env->rank);
  }
  atomic_store(&p->holders, 1);
  snprintf(p->name, sizeof p->name, "%s", env->name != NULL ? env->name : "");
  p->env = *env;
  p->env.name = p->name[0] != '\0' ? p->name : NULL;
  for (int i = 0; i < TT_PROFILERS; i++) {
    if (libs[i].plugin != NULL) {
      tt_profiler_row_lock(i);
      profilers_begin(&p->rows[i], &libs[i], &p->env);
      tt_profiler_row_unlock(i);
      p->n = i + 1;
    }
  }
  tt_profiler_libraries_share();
  profilers_add(p);
  *out = p;
  return ncclSuccess;
}

ncclResult_t tt_profilers_open(const tt_profilers_env *env, tt_profilers **out)
{
  tt_profiler_library *libs = NULL;
  *out = NULL;
  TT_TRY(tt_profiler_libraries_use(env->net, &libs));
  return any_library(libs) ? profilers_make(env, libs, out) : ncclSuccess;
}

tt_profilers *tt_profilers_hold(tt_profilers *p)
{
  if (p != NULL) {
    atomic_fetch_add_explicit(&p->holders, 1, memory_order_relaxed);
  }
  return p;
}

void *tt_profilers_take(tt_profilers *p, size_t size)
{
  if (p->blocks == NULL) {
    p->blocks = atomic_exchange_explicit(&p->returned, NULL, memory_order_acquire);
  }
  block *b = p->blocks;
  if (b == NULL) {
    return tt_calloc(1, TT_MAX(size, sizeof *b));
  }
  p->blocks = b->next;
  return memset(b, 0, size);
}

void tt_profilers_give(tt_profilers *p, void *which)
{
  block *b = which;
  b->next = atomic_load_explicit(&p->returned, memory_order_relaxed);
  while (
      !atomic_compare_exchange_weak_explicit(&p->returned, &b->next, b, memory_order_release, memory_order_relaxed)) {
  }
}

static void profilers_free_blocks(tt_profilers *p)
{
  block *lists[2] = {p->blocks, atomic_load_explicit(&p->returned, memory_order_acquire)};
  for (int i = 0; i < 2; i++) {
    for (block *b = lists[i], *next; b != NULL; b = next) {
      next = b->next;
      tt_free(b);
    }
  }
}

static void *profilers_end(void *arg)
{
  tt_profilers *p = arg;
  profilers_remove(p);
  for (int i = 0; i < p->n; i++) {
    const context *c = &p->rows[i];
    if (c->lib != NULL && c->ctx != NULL) {
      tt_profiler_row_lock(i);
      c->lib->adapter->finalize(c->lib->table, c->ctx);
      tt_profiler_row_unlock(i);
    }
  }
  tt_profiler_libraries_leave();
  profilers_free_blocks(p);
  tt_free(p);
  return NULL;
}

static bool is_last(tt_profilers *p)
{
  return p != NULL && atomic_fetch_sub(&p->holders, 1) == 1;
}

void tt_profilers_release(tt_profilers *p)
{
  if (is_last(p) && tt_thread_start_detached("tutti profiler", profilers_end, p) != ncclSuccess) {
    profilers_end(p);
  }
}

void tt_profilers_close(tt_profilers *p)
{
  if (is_last(p)) {
    profilers_end(p);
  }
  tt_profiler_libraries_leave();
}

uint64_t tt_profilers_id(const tt_profilers *p)
{
  return p != NULL ? p->id : 0;
}

tt_profilers *tt_profilers_find(uint64_t id)
{
  pthread_mutex_lock(&all_lock);
  tt_profilers *p = all;
  while (p != NULL && p->id != id) {
    p = p->next;
  }
  int n = p != NULL ? atomic_load(&p->holders) : 0;
  while (n > 0 && !atomic_compare_exchange_weak(&p->holders, &n, n + 1)) {
  }
  pthread_mutex_unlock(&all_lock);
  return n > 0 ? p : NULL;
}

// ---- Events

bool tt_profilers_want(const tt_profilers *p, uint64_t type)
{
  uint32_t masks = 0;
  for (int i = 0; p != NULL && i < p->n; i++) {
    masks |= mask_of(&p->rows[i]);
  }
  return (masks & wanted(type)) != 0;
}

static void set_parents(tt_prof_descr *d, void *parent, void *group)
{
  d->parentObj = parent;
  if (d->type == ncclProfileColl) {
    d->coll.parentGroup = group;
  } else if (d->type == ncclProfileP2p) {
    d->p2p.parentGroup = group;
  }
}

void tt_profilers_start(tt_profilers *p, tt_prof_descr *d, const tt_prof_event *parent, const tt_prof_event *group,
                        tt_prof_event *out)
{
  *out = (tt_prof_event){0};
  d->rank = d->type == ncclProfileProxyOp || d->type == ncclProfileProxyStep || d->type == ncclProfileNetPlugin
                ? d->rank
                : p->env.rank;
  const uint32_t bits = wanted(d->type);
  for (int i = 0; i < p->n; i++) {
    const context *c = &p->rows[i];
    if (mask_of(c) & bits) {
      tt_prof_descr copy, *own = d;
      if (i + 1 < p->n) { // the plugin may write into it
        copy = *d;
        own = &copy;
      }
      set_parents(own, parent != NULL ? parent->of[i] : NULL, group != NULL ? group->of[i] : NULL);
      c->lib->adapter->start(c->lib->table, c->ctx, &out->of[i], own);
    }
  }
}

void tt_profilers_state(tt_profilers *p, const tt_prof_event *e, ncclProfilerEventState_t state,
                        const tt_prof_args *args)
{
  for (int i = 0; i < p->n; i++) {
    if (e->of[i] != NULL) {
      p->rows[i].lib->adapter->state(p->rows[i].lib->table, e->of[i], state, args);
    }
  }
}

void tt_profilers_stop(tt_profilers *p, tt_prof_event *e)
{
  for (int i = 0; i < p->n; i++) {
    if (e->of[i] != NULL) {
      p->rows[i].lib->adapter->stop(p->rows[i].lib->table, e->of[i]);
      e->of[i] = NULL;
    }
  }
}

// ---- Messages

void tt_prof_transfer_start(tt_prof_transfer *t, tt_prof_descr *d, const tt_prof_event *parent)
{
  d->type = ncclProfileProxyOp;
  d->rank = t->rank;
  tt_profilers_start(t->profilers, d, parent, NULL, &t->op);
}

void tt_prof_step_start(tt_prof_transfer *t, uint32_t number, ncclProfilerEventState_t state, tt_prof_event *step)
{
  tt_prof_descr d = {.type = ncclProfileProxyStep, .rank = t->rank, .proxyStep = {.step = (int)number}};
  if (!t->in_progress) {
    t->in_progress = true;
    tt_prof_step_state(t, &t->op, ncclProfilerProxyOpInProgress_v4, 0);
  }
  tt_profilers_start(t->profilers, &d, &t->op, NULL, step);
  tt_prof_step_state(t, step, state, 0);
}

void tt_prof_step_state(const tt_prof_transfer *t, const tt_prof_event *step, ncclProfilerEventState_t state,
                        size_t bytes)
{
  const tt_prof_args args = {.proxyStep = {.transSize = bytes}};
  tt_profilers_state(t->profilers, step, state, &args);
}
