// group.c: ncclGroupStart/End: collects operations and jobs of the calling thread, and starts them together.
//
// Operations are launched one communicator after the other; launching never waits for a peer for more than some
// microseconds, so one thread may issue for any number of ranks. Jobs (init, split, finalize) do wait for peers, so
// several of them run on threads of their own.
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/result.h"
#include "base/spans.h"
#include "comm/blocks.h"
#include "comm/comm.h"
#include "comm/inline.h"
#include "comm/launch.h"
#include "comm/one_sided.h"
#include "comm/profile.h"
#include "comm/task.h"
#include "os/events.h"
#include "os/library.h"
#include "os/shm.h"
#include "os/thread.h"

struct tt_job {
  tt_job_desc d;
  ncclResult_t result;
  tt_thread thread;
  int ring;              // that the thread of a non-blocking job listens to; -1: none
  struct tt_job *next;   // of the group
  struct tt_job *serial; // next one with the same serial, run by the same thread
  tt_span by_serial;     // see chain_jobs
  bool chained, unstarted;
  bool over;           // under the set's lock
  struct job_set *set; // NULL: does not run beside others
  char error[sizeof((struct ncclComm *)NULL)->job_error];
};

// The blocking jobs of a group. They wait for one another, so when one fails the others are stopped.
typedef struct job_set {
  pthread_mutex_t lock;
  tt_job *jobs;
  tt_job *failed; // the first one to fail
} job_set;

// An event that is to be recorded when the group's operations start.
typedef struct group_event {
  struct ncclComm *comm;
  cudaEvent_t event;
  cudaStream_t stream;
} group_event;

typedef struct group {
  int depth;
  ncclResult_t error; // first failure inside the group
  tt_task *tasks;
  size_t ntasks, room;
  tt_job *jobs, **jobs_end;
  group_event *launched; // `nlaunched` of them; NULL: none
  int nlaunched, launched_room;
  struct tt_rma_call *rma, **rma_end; // one-sided operations, in their order
  bool blocks;                        // a task has them (blocks.h)
  tt_group_events events;
} group;

static _Thread_local group open_group;
static pthread_key_t cleanup_key; // has a thread's task array: see cleanup
static pthread_once_t cleanup_once = PTHREAD_ONCE_INIT;

// The calling thread's. Asked once per call of the API. Finding thread-local memory takes a function call in a library
// that may be loaded at any time. The assembly hides where the address comes from, so the compiler does not make that
// call again where it is short of registers.
static inline group *my_group(void)
{
  group *g = &open_group;
  __asm__("" : "+r"(g));
  return g;
}

static void group_cancel(void);

// A thread ends. A group that it has left open is dropped: profilers would otherwise wait for its end for ever.
static void cleanup(void *tasks)
{
  group *g = my_group();
  if (g->depth > 0) {
    group_cancel();
  }
  g->tasks = NULL;
  g->room = 0;
  free(tasks);
}

static void cleanup_make(void)
{
  tt_library_stay(); // threads of the application call cleanup when they end
  pthread_key_create(&cleanup_key, cleanup);
}

bool tt_group_open(void)
{
  return my_group()->depth > 0;
}

static void group_note(group *g, ncclResult_t code)
{
  if (g->depth > 0 && g->error == ncclSuccess) {
    g->error = code;
  }
}

void tt_group_note(ncclResult_t code)
{
  group_note(my_group(), code);
}

ncclResult_t tt_group_start(void)
{
  my_group()->depth++;
  return ncclSuccess;
}

static __attribute__((noinline)) ncclResult_t group_make_room(group *g)
{
  size_t room = g->room == 0 ? 32 : g->room * 2;
  tt_task *tasks = realloc(g->tasks, room * sizeof *tasks);
  if (tasks == NULL) {
    return tt_fail(ncclSystemError, "no memory for a group of %zu operations", room);
  }
  pthread_once(&cleanup_once, cleanup_make);
  pthread_setspecific(cleanup_key, tasks);
  g->tasks = tasks;
  g->room = room;
  return ncclSuccess;
}

static inline ncclResult_t group_append(group *g, const tt_task *task)
{
  ncclResult_t res = TT_LIKELY(g->ntasks < g->room) ? ncclSuccess : group_make_room(g);
  if (TT_UNLIKELY(res != ncclSuccess)) {
    group_note(g, res);
    return res;
  }
  g->tasks[g->ntasks++] = *task;
  if (TT_UNLIKELY(task->blocks != NULL)) {
    g->blocks = true;
    tt_blocks_hold(task->blocks);
  }
  return ncclSuccess;
}

// The communicator has profilers. A single operation is a group to them.
static __attribute__((noinline)) ncclResult_t add_profiled(group *g, tt_task *task)
{
  tt_profile_call_start(&g->events, task, g->depth);
  ncclResult_t res = g->depth > 0 ? group_append(g, task) : ncclSuccess;
  tt_profile_call_stop(task->events);
  if (g->depth == 0) {
    tt_profile_group_ends(&g->events);
    res = tt_comm_launch(task->comm, task, 1, TT_INLINE_LOOKS);
    tt_profile_group_stop(&g->events);
  }
  if (g->depth == 0 || res != ncclSuccess) {
    tt_profile_drop(task, 1);
  }
  return res;
}

ncclResult_t tt_task_add(tt_task *task)
{
  group *g = my_group();
  if (TT_UNLIKELY(tt_profile_wanted(task->comm))) {
    return add_profiled(g, task);
  }
  if (TT_LIKELY(g->depth == 0)) {
    return tt_comm_launch(task->comm, task, 1, TT_INLINE_LOOKS);
  }
  return group_append(g, task);
}

ncclResult_t tt_group_record(struct ncclComm *comm, cudaEvent_t event, cudaStream_t stream)
{
  group *g = my_group();
  if (g->depth == 0) {
    return comm->port.row->record_event(event, stream, comm->device);
  }
  for (int i = 0; i < g->nlaunched; i++) {
    if (g->launched[i].comm == comm) {
      return tt_fail(ncclInvalidUsage, "rank %d: a second launchCompletionEvent of this communicator in one group",
                     comm->rank);
    }
  }
  if (!tt_grow(&g->launched, g->nlaunched, 1, &g->launched_room, sizeof *g->launched)) {
    return tt_fail(ncclSystemError, "rank %d: no memory for a launchCompletionEvent", comm->rank);
  }
  g->launched[g->nlaunched++] = (group_event){.comm = comm, .event = event, .stream = stream};
  return ncclSuccess;
}

tt_group_events *tt_group_profile(int *depth)
{
  group *g = my_group();
  *depth = g->depth;
  return &g->events;
}

void tt_group_add_rma(struct tt_rma_call *call)
{
  group *g = my_group();
  if (g->rma == NULL) {
    g->rma_end = &g->rma;
  }
  *g->rma_end = call;
  g->rma_end = &call->next;
}

// Launches the group's one-sided operations, or drops them.
static __attribute__((noinline)) ncclResult_t end_rma(group *g, bool launch)
{
  struct tt_rma_call *calls = g->rma;
  g->rma = NULL;
  if (launch) {
    return tt_rma_launch(calls);
  }
  tt_rma_drop(calls);
  return ncclSuccess;
}

static void drop_launched(group *g)
{
  tt_free(g->launched);
  g->launched = NULL;
  g->nlaunched = g->launched_room = 0;
}

// Records the group's events, whose communicators may have gone since.
static __attribute__((noinline)) ncclResult_t record_launched(group *g)
{
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < g->nlaunched && res == ncclSuccess; i++) {
    struct ncclComm *comm = g->launched[i].comm;
    res = tt_comm_begin(comm, "ncclGroupEnd", true);
    if (res == ncclSuccess) {
      res = comm->port.row->record_event(g->launched[i].event, g->launched[i].stream, comm->device);
      tt_comm_leave(comm);
    }
  }
  drop_launched(g);
  return res;
}

// Ends a job: its argument goes, then the job itself.
static void drop_job(tt_job *j, bool ran)
{
  if (j->d.release != NULL) {
    j->d.release(j->d.arg, ran);
  }
  tt_fd_close(j->ring);
  tt_free(j);
}

// Stops the jobs of the set that still create a communicator. Caller holds the lock.
static void stop_others(job_set *set)
{
  for (tt_job *k = set->jobs; k != NULL; k = k->next) {
    if (!k->over && k->d.comm != NULL && atomic_load(&k->d.comm->state) == TT_COMM_STARTING) {
      __atomic_store_n(&k->d.comm->port.abort_flag, 1, __ATOMIC_RELEASE);
    }
  }
}

static void end_in_set(tt_job *j, job_set *set)
{
  pthread_mutex_lock(&set->lock);
  j->over = true;
  if (j->result != ncclSuccess && set->failed == NULL) {
    set->failed = j;
    stop_others(set);
  } else if (j->result == ncclSuccess && set->failed != NULL && j->d.comm != NULL) {
    __atomic_store_n(&j->d.comm->port.abort_flag, 0, __ATOMIC_RELEASE); // was told to stop when it had just come up
  }
  pthread_mutex_unlock(&set->lock);
}

static void run_job(tt_job *j)
{
  j->result = j->d.fn(j->d.arg);
  if (j->result != ncclSuccess) {
    snprintf(j->error, sizeof j->error, "%s", tt_last_error());
  }
  if (j->set != NULL) {
    end_in_set(j, j->set);
  }
}

// Runs a job and those chained to it.
static void *run_chain(void *arg)
{
  for (tt_job *j = arg; j != NULL; j = j->serial) {
    run_job(j);
  }
  return NULL;
}

static void *run_nonblocking(void *arg)
{
  tt_job *j = arg;
  struct ncclComm *comm = j->d.comm;
  tt_bootstrap_listen(j->ring);
  run_job(j);
  memcpy(comm->job_error, j->error, sizeof comm->job_error);
  atomic_store_explicit(&comm->async, j->result, memory_order_release);
  return NULL;
}

static void *run_detached(void *arg)
{
  tt_job *j = arg;
  run_job(j);
  drop_job(j, true);
  return NULL;
}

void tt_job_join(struct ncclComm *comm)
{
  tt_job *j = atomic_exchange(&comm->job, NULL);
  if (j != NULL) {
    if (j->ring >= 0) {
      tt_ring(j->ring);
    }
    tt_thread_join(&j->thread);
    drop_job(j, true);
  }
}

// Starts a job that the caller does not wait for. Its communicator, if others know of it, has been entered.
static ncclResult_t start_nonblocking(tt_job *j)
{
  struct ncclComm *comm = j->d.comm;
  if (j->d.detached) {
    ncclResult_t r = tt_thread_start_detached("tutti job", run_detached, j);
    if (r != ncclSuccess) {
      drop_job(j, false);
    }
    return r == ncclSuccess ? ncclInProgress : r;
  }
  tt_job_join(comm); // the previous one is done: handles are checked for that
  atomic_store_explicit(&comm->async, ncclInProgress, memory_order_release);
  (void)tt_ring_open(&j->ring);
  ncclResult_t res = tt_thread_start(&j->thread, "tutti job", run_nonblocking, j);
  if (res != ncclSuccess) {
    snprintf(comm->job_error, sizeof comm->job_error, "%s", tt_last_error());
    atomic_store_explicit(&comm->async, res, memory_order_release);
    drop_job(j, false);
    return res;
  }
  atomic_store(&comm->job, j);
  return ncclInProgress;
}

// The same at the group's end. Another thread may have ended the communicator since the group was opened.
static ncclResult_t start_entered(tt_job *j)
{
  struct ncclComm *comm = j->d.comm;
  if (j->d.detached) {
    return start_nonblocking(j);
  }
  ncclResult_t res = tt_comm_begin(comm, "ncclGroupEnd", false);
  if (res != ncclSuccess) {
    drop_job(j, false);
    return res;
  }
  res = start_nonblocking(j);
  tt_comm_leave(comm);
  return res;
}

ncclResult_t tt_job_submit(const tt_job_desc *d)
{
  group *g = my_group();
  if (g->depth == 0 && !d->nonblocking) {
    ncclResult_t res = d->fn(d->arg);
    if (d->release != NULL) {
      d->release(d->arg, true);
    }
    return res;
  }
  tt_job *j = tt_calloc(1, sizeof *j);
  if (j == NULL) {
    if (d->release != NULL) {
      d->release(d->arg, false);
    }
    return tt_fail(ncclSystemError, "no memory for a job");
  }
  j->d = *d;
  j->ring = -1;
  if (g->depth == 0) {
    return start_nonblocking(j);
  }
  if (g->jobs == NULL) {
    g->jobs_end = &g->jobs;
  }
  *g->jobs_end = j;
  g->jobs_end = &j->next;
  return ncclSuccess;
}

bool tt_group_has_job(const struct ncclComm *comm)
{
  const tt_job *j = my_group()->jobs;
  while (j != NULL && j->d.comm != comm) {
    j = j->next;
  }
  return j != NULL;
}

// Puts jobs with the same serial behind one another. A set has the last job of each serial so far.
static void chain_jobs(tt_job *jobs)
{
  tt_span *lasts = NULL;
  for (tt_job *j = jobs; j != NULL; j = j->next) {
    tt_span *s = tt_spans_same(lasts, (uintptr_t)j->d.serial, 1);
    if (s != NULL) {
      TT_SPAN_OWNER(s, tt_job, by_serial)->serial = j;
      j->chained = true;
      tt_spans_remove(&lasts, s);
    }
    if (j->d.serial != NULL) {
      j->by_serial = (tt_span){.start = (uintptr_t)j->d.serial, .size = 1};
      tt_spans_add(&lasts, &j->by_serial);
    }
  }
}

// A job that gets no thread has failed; so have those that wait for it.
static void start_in_set(tt_job *j, job_set *set)
{
  ncclResult_t res = tt_thread_start(&j->thread, "tutti job", run_chain, j);
  for (tt_job *k = j; k != NULL && res != ncclSuccess; k = k->serial) {
    k->result = res;
    snprintf(k->error, sizeof k->error, "%s", tt_last_error());
    k->unstarted = true;
    end_in_set(k, set);
  }
}

// Runs blocking jobs on threads of their own and waits for all. Returns the first failure in time: the others follow
// from it.
static ncclResult_t run_blocking(tt_job *jobs)
{
  job_set set = {.lock = PTHREAD_MUTEX_INITIALIZER, .jobs = jobs};
  chain_jobs(jobs);
  for (tt_job *j = jobs; j != NULL; j = j->next) {
    j->set = &set;
  }
  for (tt_job *j = jobs; j != NULL; j = j->next) {
    if (!j->chained) {
      start_in_set(j, &set);
    }
  }
  for (tt_job *j = jobs; j != NULL; j = j->next) {
    tt_thread_join(&j->thread);
  }
  ncclResult_t res = set.failed == NULL ? ncclSuccess : set.failed->result;
  if (res != ncclSuccess) {
    tt_last_error_set(set.failed->error);
  }
  for (tt_job *j = jobs, *next; j != NULL; j = next) {
    next = j->next;
    drop_job(j, !j->unstarted);
  }
  pthread_mutex_destroy(&set.lock);
  return res;
}

static ncclResult_t run_jobs(tt_job *jobs)
{
  tt_job *blocking = NULL, **end = &blocking;
  ncclResult_t res = ncclSuccess;
  for (tt_job *j = jobs, *next; j != NULL; j = next) {
    next = j->next;
    j->next = NULL;
    if (j->d.nonblocking) {
      ncclResult_t r = start_entered(j);
      res = res == ncclSuccess || r != ncclInProgress ? r : res;
    } else {
      *end = j;
      end = &j->next;
    }
  }
  if (blocking != NULL && blocking->next == NULL) {
    ncclResult_t r = blocking->d.fn(blocking->d.arg);
    drop_job(blocking, true);
    return r != ncclSuccess ? r : res;
  }
  ncclResult_t r = blocking == NULL ? ncclSuccess : run_blocking(blocking);
  return r != ncclSuccess ? r : res;
}

static void group_leave_comms(const tt_task *tasks, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    tt_comm_leave(tasks[i].comm);
  }
}

// Enters the tasks' communicators (comm.h), whose handles were good when the tasks were added: since then one may have
// been destroyed, and none is entered.
static ncclResult_t group_enter_comms(const tt_task *tasks, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    tt_comm_mark(tasks[i].comm);
  }
  tt_barrier_often();
  for (size_t i = 0; i < n; i++) {
    struct ncclComm *comm = tasks[i].comm;
    if (TT_UNLIKELY(!tt_comm_lives(comm))) {
      group_leave_comms(tasks, n);
      return tt_comm_dead(comm, "ncclGroupEnd");
    }
    comm->group.tasks = 0;
    comm->group.place = UINT32_MAX; // not known
  }
  return ncclSuccess;
}

// For each task the last one that may be of the same communicator, on whatever rank: by some bits of its hash. What
// such a rank sends is not there yet.
typedef struct last_tasks {
  size_t at[64];
} last_tasks;

static inline size_t *last_of(last_tasks *l, const struct ncclComm *comm)
{
  return &l->at[comm->hash % TT_COUNT(l->at)];
}

// Counts the tasks of each communicator, which has been entered. Returns whether they are together.
static bool count_tasks(const tt_task *tasks, size_t n, last_tasks *last)
{
  bool together = true;
  const struct ncclComm *before = NULL;
  for (size_t i = 0; i < n; i++) {
    struct ncclComm *comm = tasks[i].comm;
    together &= comm == before || comm->group.tasks == 0;
    comm->group.tasks++;
    *last_of(last, comm) = i;
    before = comm;
  }
  return together;
}

// Brings the tasks of each communicator together, in their order, communicators in the order of their first task. Every
// swap brings one task to its place.
static __attribute__((noinline)) void gather_apart(tt_task *tasks, size_t n, last_tasks *last)
{
  uint32_t next = 0;
  for (size_t i = 0; i < n; i++) {
    struct ncclComm *comm = tasks[i].comm;
    if (comm->group.place == UINT32_MAX) { // its first one
      comm->group.place = next;
      next += comm->group.tasks;
    }
    tasks[i].place = comm->group.place++;
  }
  for (size_t i = 0; i < n; i++) {
    while (tasks[i].place != i) {
      tt_task *to = &tasks[tasks[i].place], t = *to;
      *to = tasks[i];
      tasks[i] = t;
    }
    *last_of(last, tasks[i].comm) = i;
  }
}

// Afterwards the tasks of each communicator are together, and it knows how many they are.
static inline void group_tasks_by_comm(tt_task *tasks, size_t n, last_tasks *last)
{
  if (TT_UNLIKELY(!count_tasks(tasks, n, last))) {
    gather_apart(tasks, n, last);
  }
}

// Launches the operations of several communicators: all of one communicator together, communicators in the order of
// their first operation.
static __attribute__((noinline)) ncclResult_t launch_several(tt_task *tasks, size_t n)
{
  last_tasks last;
  TT_TRY(group_enter_comms(tasks, n));
  bool over;
  ncclResult_t res = tt_comm_run_together(tasks, n, &over);
  over |= res != ncclSuccess;
  if (!over) {
    group_tasks_by_comm(tasks, n, &last);
  }
  const tt_device_ops *row = tasks->comm->port.row; // a process has one
  if (row->hold != NULL) {
    row->hold();
  }
  for (size_t done = 0, mine; done < n && !over; done += mine) {
    struct ncclComm *comm = tasks[done].comm;
    mine = comm->group.tasks;
    unsigned looks = *last_of(&last, comm) >= done + mine ? 0 : TT_INLINE_LOOKS;
    ncclResult_t r = tt_comm_launch(comm, tasks + done, mine, looks);
    res = res == ncclSuccess ? r : res;
  }
  ncclResult_t held = row->hold != NULL ? row->unhold() : ncclSuccess;
  group_leave_comms(tasks, n);
  return res == ncclSuccess ? held : res;
}

// Launches those of one communicator.
static inline ncclResult_t launch_one(struct ncclComm *comm, tt_task *tasks, size_t n)
{
  tt_comm_enter(comm);
  ncclResult_t res = TT_LIKELY(tt_comm_lives(comm)) ? tt_comm_launch(comm, tasks, n, TT_INLINE_LOOKS)
                                                    : tt_comm_dead(comm, "ncclGroupEnd");
  tt_comm_leave(comm);
  return res;
}

// Launches the group's operations.
static ncclResult_t launch_tasks(tt_task *tasks, size_t n)
{
  size_t of_first = 1;
  while (of_first < n && tasks[of_first].comm == tasks->comm) {
    of_first++;
  }
  return TT_LIKELY(of_first == n) ? launch_one(tasks->comm, tasks, n) : launch_several(tasks, n);
}

// Communicators work side by side: the slowest counts.
static ncclResult_t simulate_tasks(tt_task *tasks, size_t n, double *us)
{
  double most = 0;
  ncclResult_t res = ncclSuccess;
  last_tasks last;
  TT_TRY(group_enter_comms(tasks, n));
  group_tasks_by_comm(tasks, n, &last);
  for (size_t done = 0, mine; done < n && res == ncclSuccess; done += mine) {
    double one = 0;
    mine = tasks[done].comm->group.tasks;
    res = tt_comm_simulate(tasks[done].comm, tasks + done, mine, &one);
    most = TT_MAX(most, one);
  }
  group_leave_comms(tasks, n);
  *us = n > 0 && res == ncclSuccess ? most : *us;
  return res;
}

// The `n` tasks end: those that were not launched have events left; then the group's own ends.
static void end_group_tasks(group *g, size_t n)
{
  for (size_t i = 0; TT_UNLIKELY(g->blocks) && i < n; i++) {
    tt_blocks_drop(g->tasks[i].blocks);
  }
  g->blocks = false;
  if (TT_UNLIKELY(g->events.reported)) {
    tt_profile_drop(g->tasks, n);
  }
  if (TT_UNLIKELY(g->events.profilers != NULL)) {
    tt_profile_group_stop(&g->events);
  }
}

// Closes all open groups of the thread and drops what they have collected.
static void group_cancel(void)
{
  group *g = my_group();
  for (tt_job *j = g->jobs, *next; j != NULL; j = next) {
    next = j->next;
    drop_job(j, false);
  }
  drop_launched(g);
  end_rma(g, false);
  end_group_tasks(g, g->ntasks);
  g->jobs = NULL;
  g->ntasks = 0;
  g->error = ncclSuccess;
  g->depth = 0;
}

// A communicator that is suspended or resumed at the group's end can run nothing then.
static ncclResult_t check_alone(const group *g)
{
  for (const tt_job *j = g->jobs; j != NULL; j = j->next) {
    for (size_t i = 0; j->d.alone && i < g->ntasks; i++) {
      if (g->tasks[i].comm == j->d.comm) {
        return tt_fail(
            ncclInvalidUsage,
            "ncclGroupEnd on rank %d: the group suspends or resumes a communicator, and has operations of it",
            j->d.comm->rank);
      }
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_group_end(void)
{
  group *g = my_group();
  if (TT_UNLIKELY(g->depth == 0)) {
    return tt_fail(ncclInvalidUsage, "ncclGroupEnd: no group is open on this thread (ncclGroupStart was not called)");
  }
  if (--g->depth > 0) {
    return ncclSuccess;
  }
  ncclResult_t res = g->error;
  if (TT_UNLIKELY(g->jobs != NULL) && res == ncclSuccess) {
    res = check_alone(g);
  }
  tt_job *jobs = g->jobs;
  size_t n = g->ntasks;
  if (TT_UNLIKELY(g->events.profilers != NULL)) {
    tt_profile_group_ends(&g->events);
  }
  if (TT_UNLIKELY(res != ncclSuccess)) {
    group_cancel();
    return res;
  }
  g->jobs = NULL;
  g->ntasks = 0;
  if (TT_UNLIKELY(jobs != NULL)) {
    res = run_jobs(jobs);
  }
  ncclResult_t r = TT_UNLIKELY(g->launched != NULL) ? record_launched(g) : ncclSuccess;
  if (n > 0 && r == ncclSuccess && (res == ncclSuccess || res == ncclInProgress)) {
    r = launch_tasks(g->tasks, n);
  }
  if (TT_UNLIKELY(g->rma != NULL)) {
    ncclResult_t last = end_rma(g, r == ncclSuccess && (res == ncclSuccess || res == ncclInProgress));
    r = r == ncclSuccess ? last : r;
  }
  end_group_tasks(g, n);
  return r != ncclSuccess ? r : res;
}

ncclResult_t tt_group_simulate(double *us)
{
  group *g = my_group();
  if (g->depth == 0) {
    return tt_fail(ncclInvalidUsage,
                   "ncclGroupSimulateEnd: no group is open on this thread (ncclGroupStart was not called)");
  }
  if (--g->depth > 0) {
    return ncclSuccess;
  }
  tt_profile_group_ends(&g->events);
  ncclResult_t res = g->error;
  if (us == NULL) {
    res = tt_fail(ncclInvalidArgument, "ncclGroupSimulateEnd: simInfo is NULL or was not initialised with "
                                       "NCCL_SIM_INFO_INITIALIZER; the group has been dropped");
  }
  if (res == ncclSuccess && g->jobs != NULL) {
    res = tt_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: the group creates or ends communicators, which cannot be "
                                    "simulated; it has been dropped");
  }
  if (res == ncclSuccess) {
    res = simulate_tasks(g->tasks, g->ntasks, us);
  }
  group_cancel();
  return res;
}
