// pool.c: the pool that communicators come from and go back to, also by way of an abort.
#include <pthread.h>
#include <sched.h>

#include "base/result.h"
#include "comm/comm.h"
#include "device/host/stream.h"

#define ABORT_TRIES 1000 // looks at the streams before an aborted communicator is left to the worker

// Never given back to the system, so that a stale handle can be recognised. Under `pool_lock`.
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *pool;

__attribute__((constructor)) static void at_start(void)
{
  tt_proc_hold_at_fork(&pool_lock);
}

ncclResult_t tt_comm_new(struct ncclComm **out)
{
  pthread_mutex_lock(&pool_lock);
  struct ncclComm *c = pool;
  tt_barrier_prepare();
  if (c != NULL) {
    pool = c->pool;
  }
  pthread_mutex_unlock(&pool_lock);
  if (c == NULL) {
    c = tt_calloc_line(sizeof *c);
  } else {
    memset(c, 0, sizeof *c);
  }
  if (c == NULL) {
    return tt_fail(ncclSystemError, "no memory for a communicator");
  }
  tt_turns_init(&c->turns);
  c->generation = tt_proc_generation;
  atomic_store(&c->state, TT_COMM_STARTING);
  atomic_store(&c->magic, TT_COMM_MAGIC);
  *out = c;
  return ncclSuccess;
}

static bool bury(tt_deferred *d)
{
  struct ncclComm *comm = (struct ncclComm *)((char *)d - offsetof(struct ncclComm, grave));
  if (tt_comm_outstanding(comm) != 0) {
    return false;
  }
  tt_comm_free(comm);
  return true;
}

static void pass(tt_stream *s, void *arg)
{
  (void)arg;
  tt_stream_pass(s);
}

void tt_comm_free_aborted(struct ncclComm *comm)
{
  atomic_store(&comm->magic, 0);
  tt_comm_expel(comm);
  for (int i = 0; i < ABORT_TRIES && tt_comm_outstanding(comm) != 0; i++) {
    tt_stream_help(NULL, 1 << 20);
    sched_yield();
  }
  if (tt_comm_outstanding(comm) != 0) { // another thread may still be in one: its buffers are the user's as soon as this returns
    tt_stream_each(pass, NULL);
  }
  if (tt_comm_outstanding(comm) != 0) { // plans behind work of others in streams, which have not begun; or a thread is just taking one back
    comm->grave.run = bury;
    tt_worker_defer(&comm->grave);
  } else {
    tt_comm_free(comm);
  }
}

void tt_comm_free(struct ncclComm *comm)
{
  atomic_store(&comm->magic, 0);
  tt_comm_announce_gone(comm);
  while (tt_comm_outstanding(comm) != 0) {
    tt_stream_help(NULL, 1 << 20);
    sched_yield(); // plans that a helper is completing right now
  }
  tt_comm_free_plans(comm);
  tt_comm_free_schedules(comm);
  tt_comm_take_down(comm);
  tt_comm_free_registrations(comm);
  tt_free(comm->userops);
  comm->userops = NULL;
  atomic_store(&comm->state, TT_COMM_FREE);
  pthread_mutex_lock(&pool_lock);
  comm->pool = pool;
  pool = comm;
  pthread_mutex_unlock(&pool_lock);
}
