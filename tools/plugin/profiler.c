#include "profiler.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/util.h"
#include "nccl.h"
#include "tutti.h"

enum {
  RANKS = 2,
  OPERATIONS = 50,
  EVENTS = 10000,
  WARM = 1000,
  THREADS = 4,
  LOADS = 50,
  FIRST_LOADS = 10,
  COUNT = 1000,
  LEAK = 64,
  GROWTH = 8
};
enum { KINDS = (1 << 16) - 1 };

// What is looked at, in a process of its own.
typedef struct look {
  const char *name;
  void (*fn)(const pc_job *job, prof_board *b);
  bool newest; // only for the version that a job takes
} look;

static const tt_profilers_env pair[RANKS] = {{.name = "job", .hash = 0x7e57, .nnodes = 2, .nranks = RANKS, .rank = 0},
                                             {.name = NULL, .hash = 0x7e57, .nnodes = 2, .nranks = RANKS, .rank = 1}};

static prof_rank rank_of(const pc_job *job, prof_board *b, int *mask)
{
  return (prof_rank){.a = tt_profiler_adapter_of(job->version), .table = job->table, .board = b, .mask = mask};
}

static void operation(prof_rank *p)
{
  prof_allreduce(p);
  prof_send(p);
  prof_progress(p);
}

static void two_ranks(const pc_job *job, prof_board *b)
{
  int mask = 0;
  pc_manners manners;
  prof_rank p[RANKS];
  pc_manners_take(&manners);
  for (int i = 0; i < RANKS; i++) {
    p[i] = rank_of(job, b, &mask);
    ncclResult_t res = prof_begin(&p[i], &pair[i]);
    if (!pc_rule(job, res == ncclSuccess,
                 "init: returns %d for rank %d of %d; a profiler that cannot be used is done without", (int)res, i,
                 RANKS)) {
      return;
    }
  }
  if ((mask & ~KINDS) != 0) {
    pc_note(job, "init: sets bits 0x%x of *eActivationMask, which no kind of event has", (unsigned)(mask & ~KINDS));
  }
  if (mask == 0) {
    pc_note(job, "init: wants no events (*eActivationMask is 0), so there is little to look at");
  }
  for (int i = 0; i < OPERATIONS; i++) {
    operation(&p[0]);
    operation(&p[1]);
  }
  for (int i = 0; i < RANKS; i++) {
    prof_end(&p[i]);
  }
  pc_say("mask 0x%x: %d calls of startEvent for two ranks and %d operations each", (unsigned)mask,
         (int)(p[0].started + p[1].started), OPERATIONS);
  pc_manners_check(job, &manners);
}

// One rank, played as `how` says.
static void one_rank(const pc_job *job, prof_board *b, const tt_profilers_env *env, const prof_rank *how)
{
  int mask = 0;
  prof_rank p = rank_of(job, b, &mask);
  if (prof_begin(&p, env) != ncclSuccess) {
    return;
  }
  p.orphans = how->orphans;
  p.foreign = how->foreign;
  p.broken_off = how->broken_off;
  for (int i = 0; i < OPERATIONS; i++) {
    operation(&p);
  }
  prof_end(&p);
}

static void orphans(const pc_job *job, prof_board *b)
{
  one_rank(job, b, &pair[0], &(prof_rank){.orphans = true});
}

static void foreign(const pc_job *job, prof_board *b)
{
  one_rank(job, b, &pair[0], &(prof_rank){.foreign = true});
}

static void broken_off(const pc_job *job, prof_board *b)
{
  one_rank(job, b, &pair[0], &(prof_rank){.broken_off = true});
}

static void large_job(const pc_job *job, prof_board *b)
{
  static const char name[] =
      "a communicator with a name that is as long as somebody who likes to tell what it is for has made it";
  one_rank(job, b, &(tt_profilers_env){.name = name, .hash = 0x7e57, .nnodes = 12500, .nranks = 100000, .rank = 99999},
           &(prof_rank){0});
}

// ---- threads

static void *play_often(void *arg)
{
  prof_rank *p = arg;
  for (int i = 0; i < OPERATIONS * 4; i++) {
    operation(p);
  }
  return NULL;
}

// Events of one communicator come from several threads.
static void threads(const pc_job *job, prof_board *b)
{
  int mask = 0, begun = 0;
  pthread_t ids[THREADS];
  prof_rank first = rank_of(job, b, &mask), p[THREADS];
  if (prof_begin(&first, &pair[0]) != ncclSuccess) {
    return;
  }
  for (int i = 0; i < THREADS; i++) {
    p[i] = first;
    p[i].quiet = true;
  }
  atomic_store(&b->now, PROF_START);
  for (; begun < THREADS && pthread_create(&ids[begun], NULL, play_often, &p[begun]) == 0; begun++) {
  }
  for (int i = 0; i < begun; i++) {
    pthread_join(ids[i], NULL);
  }
  atomic_store(&b->now, PROF_NOTHING);
  prof_end(&first);
}

// ---- many events

static double seconds_of_cpu(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void many(const pc_job *job, prof_board *b)
{
  int mask = 0, operations = 0;
  prof_rank p = rank_of(job, b, &mask);
  if (prof_begin(&p, &pair[0]) != ncclSuccess) {
    return;
  }
  p.quiet = true;
  atomic_store(&b->now, PROF_START);
  for (int i = 0; i < WARM; i++) {
    prof_allreduce(&p);
  }
  pc_holdings before = pc_holdings_now();
  uint64_t started = p.started;
  double begin = seconds_of_cpu();
  for (; mask != 0 && p.started > 0 && p.started < started + EVENTS; operations++) {
    prof_allreduce(&p);
  }
  double took = seconds_of_cpu() - begin;
  pc_holdings after = pc_holdings_now();
  atomic_store(&b->now, PROF_NOTHING);
  if (operations > 0) {
    size_t more = after.memory > before.memory ? after.memory - before.memory : 0;
    pc_say("an all-reduce over the network: %d events, %.1f us in its callbacks",
           (int)((p.started - started) / (uint64_t)operations), took * 1e6 / operations);
    if (more > (size_t)EVENTS * GROWTH) {
      pc_note(job, "memory grows by about %zu bytes for each event, though all are stopped: a job may run for days",
              more / EVENTS);
    }
  }
  prof_end(&p);
}

// ---- again and again

// Opens the library, follows a communicator, closes it. False: told.
static bool load_once(const pc_job *job, prof_board *b)
{
  char why[TT_LIBRARY_WHY], symbol[64];
  tt_library *lib = NULL;
  pc_job again = *job;
  snprintf(symbol, sizeof symbol, tt_plugin_kind_info(TT_PLUGIN_PROFILER)->symbol, job->version);
  bool open = tt_library_open(job->path, &lib, why) == TT_LIBRARY_OPEN &&
              (again.table = tt_library_symbol(lib, symbol)) != NULL;
  if (!pc_rule(job, open, "the library cannot be opened again after it has been closed: %s", why)) {
    return false;
  }
  int mask = 0;
  prof_rank p = rank_of(&again, b, &mask);
  ncclResult_t res = prof_begin(&p, &pair[0]);
  if (res == ncclSuccess) {
    operation(&p);
    prof_end(&p);
  }
  tt_library_close(lib);
  return pc_rule(job, res == ncclSuccess, "init: returns %d when the library has been closed and opened again",
                 (int)res);
}

static void loads(const pc_job *job, prof_board *b)
{
  tt_library_close(job->lib);
  pc_holdings first = pc_holdings_now(), before = first;
  for (int i = 0; i < LOADS; i++) {
    if (i == FIRST_LOADS) { // what is made once has been
      before = pc_holdings_now();
    }
    if (!load_once(job, b)) {
      return;
    }
  }
  pc_holdings after = pc_holdings_settled(&first, 2);
  size_t more = after.memory > before.memory ? after.memory - before.memory : 0;
  pc_rule(job, after.threads <= first.threads,
          "finalize: %d threads are there when the library has been closed; their code is not",
          after.threads - first.threads);
  pc_rule(job, after.descriptors <= before.descriptors,
          "finalize: the library, opened and closed %d times, leaves %d descriptors open", LOADS - FIRST_LOADS,
          after.descriptors - before.descriptors);
  pc_rule(job, more < (size_t)(LOADS - FIRST_LOADS) * LEAK,
          "finalize: the library, opened and closed, leaves about %zu bytes behind each time",
          more / (LOADS - FIRST_LOADS));
}

// ---- a job of the library's own

static void sum(ncclComm_t *comms, cudaStream_t *streams, float *x)
{
  ncclGroupStart();
  for (int i = 0; i < RANKS; i++) {
    ncclAllReduce(x + i * COUNT, x + i * COUNT, COUNT, ncclFloat, ncclSum, comms[i], streams[i]);
  }
  ncclGroupEnd();
}

static void exchange(ncclComm_t *comms, cudaStream_t *streams, float *x)
{
  ncclGroupStart();
  for (int i = 0; i < RANKS; i++) {
    ncclSend(x + i * COUNT, COUNT / 2, ncclFloat, !i, comms[i], streams[i]);
    ncclRecv(x + i * COUNT + COUNT / 2, COUNT / 2, ncclFloat, !i, comms[i], streams[i]);
  }
  ncclGroupEnd();
}

// Two ranks over sockets, one all-reduce of which is aborted.
static void real_job(const pc_job *job, prof_board *b)
{
  static float x[RANKS * COUNT];
  ncclComm_t comms[RANKS];
  cudaStream_t streams[RANKS];
  (void)b;
  setenv("NCCL_PROFILER_PLUGIN", job->path, 1);
  setenv("NCCL_NET_PLUGIN", "none", 1);
  setenv("NCCL_NET", "Socket", 1);
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  ncclResult_t res = ncclCommInitAll(comms, RANKS, NULL);
  if (!pc_rule(job, res == ncclSuccess, "a job of two ranks over sockets cannot begin: %.150s",
               ncclGetLastError(NULL))) {
    return;
  }
  for (int i = 0; i < RANKS; i++) {
    tuttiSetDevice(i);
    tuttiStreamCreate(&streams[i], TUTTI_STREAM_DEFAULT);
  }
  for (int i = 0; i < OPERATIONS; i++) {
    sum(comms, streams, x);
    exchange(comms, streams, x);
  }
  for (int i = 0; i < RANKS; i++) {
    res = tuttiStreamSynchronize(streams[i]) == ncclSuccess ? res : ncclInternalError;
  }
  pc_rule(job, res == ncclSuccess, "an operation of a job of two ranks over sockets fails: %.150s",
          ncclGetLastError(NULL));
  ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, comms[0], streams[0]); // its peer does not come
  for (int i = 0; i < RANKS; i++) {
    ncclCommAbort(comms[i]);
    (void)tuttiStreamSynchronize(streams[i]);
    tuttiStreamDestroy(streams[i]);
  }
}

// ---- the job

static const look looks[] = {
    {"two communicators", two_ranks, false},
    {"parents without a handle", orphans, false},
    {"parents in another process: proxyOp.pid is not this one's", foreign, false},
    {"operations that are aborted, without states", broken_off, false},
    {"rank 99999 of 100000", large_job, false},
    {"events of one communicator from four threads", threads, false},
    {"ten thousand events", many, false},
    {"the library is opened and closed fifty times", loads, false},
    {"a job of two ranks over sockets", real_job, true},
};

typedef struct looking {
  const look *l;
  prof_board *b;
} looking;

static void look_once(const pc_job *job, void *arg)
{
  const looking *w = arg;
  w->l->fn(job, w->b);
}

static void look_all(const pc_job *job, prof_board *b)
{
  char how[64];
  for (size_t i = 0; i < TT_COUNT(looks); i++) {
    atomic_store(&b->now, PROF_NOTHING);
    if (looks[i].newest && !job->newest) {
      continue;
    }
    bool good = pc_survives(job, look_once, &(looking){&looks[i], b}, how);
    int f = atomic_load(&b->now);
    const char *in = f != PROF_NOTHING ? prof_names[f]
                     : looks[i].newest ? "one of its functions"
                                       : "outside of its functions";
    pc_rule(job, good, "%s: the process ends: %s (%s)", in, how, looks[i].name);
    if (!good && strcmp(how, PC_LATE) == 0) {
      pc_note(job, "what comes after \"%s\" is not looked at: %d checks of %d", looks[i].name,
              (int)(TT_COUNT(looks) - i) - 1, (int)TT_COUNT(looks));
      break;
    }
  }
  for (int f = PROF_START; f <= PROF_STATE; f++) {
    uint64_t blocked = atomic_load(&b->blocked[f]);
    pc_rule(job, blocked <= PC_BLOCKED_NS, "%s: blocks for %.2f s; whoever waits for the operation waits for it",
            prof_names[f], (double)blocked / 1e9);
  }
}

void pc_check_profiler(const pc_job *job)
{
  const tt_profiler_adapter *a = tt_profiler_adapter_of(job->version);
  if (!pc_members(job, a->members, a->nmembers)) {
    return;
  }
  pc_name(job);
  prof_board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (b == MAP_FAILED) {
    pc_rule(job, false, "tutti-plugin has no memory");
    return;
  }
  look_all(job, b);
  munmap(b, sizeof *b);
}
