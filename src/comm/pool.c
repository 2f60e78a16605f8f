// pool.c: where communicators come from, and how they end, also by way of an abort.
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/result.h"
#include "comm/comm.h"
#include "comm/decide.h"
#include "comm/family.h"
#include "comm/group.h"
#include "comm/init.h"
#include "comm/launch.h"
#include "comm/one_sided.h"
#include "comm/register.h"
#include "comm/schedules.h"

// 2 MiB of address space, which the C library maps: no page is touched before its place is taken.
#define BLOCK_PLACES 256

// Places for communicators. Each is used once, so that a handle never means another communicator. Afterwards its pages
// are given back, but for their addresses: they read as zero, which is no magic.
typedef struct block {
  struct block *before;
  char places[];
} block;

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER; // over the next two
static block *newest;
static unsigned used; // places, of all blocks

__attribute__((constructor)) static void pool_at_start(void)
{
  tt_proc_hold_at_fork(&pool_lock);
}

// A place is whole pages.
static size_t page_size(void)
{
  return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t place_size(void)
{
  return TT_ROUND_UP(sizeof(struct ncclComm), page_size());
}

// The place with this number, which is in the block. Communicators begin at different cache lines of their pages, lest
// all use the same sets of a cache.
static struct ncclComm *place_at(block *b, unsigned number)
{
  size_t size = place_size(), lines = (size - sizeof(struct ncclComm)) / TT_CACHE_LINE + 1;
  uintptr_t first = TT_ROUND_UP((uintptr_t)b->places, page_size());
  return (struct ncclComm *)(first + number % BLOCK_PLACES * size + number % lines * TT_CACHE_LINE);
}

// A zeroed place; NULL: no memory.
static struct ncclComm *pool_take_place(void)
{
  size_t size = place_size();
  if (used % BLOCK_PLACES == 0) {
    block *b = tt_calloc(1, sizeof *b + (BLOCK_PLACES + 1) * size);
    if (b == NULL) {
      return NULL;
    }
    b->before = newest;
    newest = b;
  }
  return place_at(newest, used++);
}

// Locked memory cannot be given back, and stays.
static void leave_place(struct ncclComm *comm)
{
  uintptr_t place = (uintptr_t)comm / page_size() * page_size();
  (void)madvise((void *)place, place_size(), MADV_DONTNEED);
}

// The process exits, and its communicators have not been destroyed: their peers shall see that it was not killed.
// Other threads may still use them, or end them.
static void mark_exit(struct ncclComm *c)
{
  if (atomic_load(&c->magic) != TT_COMM_MAGIC) {
    return; // its memory stays untouched
  }
  atomic_fetch_add(&c->lookers, 1);
  if (atomic_load(&c->magic) == TT_COMM_MAGIC && c->generation == tt_proc_generation &&
      tt_comm_stands(atomic_load(&c->state))) {
    atomic_store_explicit(&c->port.page->exits, 1, memory_order_release);
    tt_bootstrap_exit(c->boot);
  }
  atomic_fetch_sub(&c->lookers, 1);
}

__attribute__((destructor)) static void pool_at_exit(void)
{
  if (pthread_mutex_trylock(&pool_lock) != 0) {
    return;
  }
  unsigned i = used;
  for (block *b = newest; b != NULL; b = b->before) {
    do {
      i--;
      mark_exit(place_at(b, i));
    } while (i % BLOCK_PLACES != 0);
  }
  pthread_mutex_unlock(&pool_lock);
}

ncclResult_t tt_comm_new(const tt_device_ops *row, struct ncclComm **out)
{
  pthread_mutex_lock(&pool_lock);
  tt_barrier_prepare();
  struct ncclComm *c = pool_take_place();
  pthread_mutex_unlock(&pool_lock);
  if (c == NULL) {
    return tt_fail(ncclSystemError, "no memory for a communicator");
  }
  tt_turns_init(&c->splits.turns);
  c->port.row = row;
  c->port.shortcut = row->shortcut;
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

void tt_comm_free_aborted(struct ncclComm *comm)
{
  atomic_store(&comm->magic, 0);
  tt_family_leave(comm);
  tt_comm_expel(comm);
  tt_job_join(comm);        // that the call inside has started
  tt_comm_drop_plans(comm); // the buffers are the user's as soon as this returns
  if (tt_comm_outstanding(comm) !=
      0) { // plans behind work of others in streams, which have not begun; or a thread is just taking one back
    comm->grave.run = bury;
    atomic_store(&comm->ending, TT_ENDING_NOT);
    comm->port.row->defer(&comm->grave);
  } else {
    tt_comm_free(comm);
  }
}

void tt_comm_free(struct ncclComm *comm)
{
  atomic_store(&comm->magic, 0);
  tt_family_leave(comm);
  tt_comm_await_lookers(comm);
  tt_comm_announce_gone(comm);
  while (tt_comm_outstanding(comm) != 0) {
    comm->port.row->progress();
    sched_yield(); // plans that a helper is completing right now
  }
  tt_rma_free(comm);
  tt_comm_free_plans(comm);
  tt_comm_free_decisions(comm);
  tt_comm_free_schedules(comm);
  tt_comm_take_down(comm);
  tt_comm_free_registrations(comm);
  tt_free(comm->userops.ops);
  atomic_store(&comm->ending, TT_ENDING_NOT);
  leave_place(comm);
}
