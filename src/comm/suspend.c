// suspend.c: see suspend.h.
#include "comm/suspend.h"

#include "base/log.h"
#include "base/result.h"
#include "comm/launch.h"
#include "os/shm.h"

// Near the end of the range of numbers a dropped slot, which reads as zero, would look like a message.
#define LAST_NUMBER (UINT32_MAX - 4096)

// The link to a rank of this machine, through the segment; NULL: there is none.
static tt_link *local_link(const struct ncclComm *comm, int peer)
{
  tt_link *link = comm->port.links[peer];
  bool local = link != NULL && comm->segment != NULL && peer != comm->rank && !link->networked && link->behind == NULL;
  return local ? link : NULL;
}

static void *messages_to(const struct ncclComm *comm, int peer, size_t *size)
{
  return tt_segment_messages(comm->segment, tt_segment_place(comm->segment, comm->rank),
                             tt_segment_place(comm->segment, peer), size);
}

// Has the peer taken everything that this rank has sent?
static bool is_empty(tt_link *link)
{
  bool empty = true;
  for (int i = 0; i < TT_NFIFOS; i++) {
    empty &= tt_fifo_drained(&link->send[i]) && link->send[i].next < LAST_NUMBER;
  }
  return empty;
}

// Returns how many bytes of pages have been given back.
static uint64_t drop_messages(const struct ncclComm *comm)
{
  uint64_t bytes = 0;
  for (int peer = 0; peer < comm->nranks; peer++) {
    tt_link *link = local_link(comm, peer);
    if (link != NULL && is_empty(link)) {
      size_t size;
      void *at = messages_to(comm, peer, &size);
      uint64_t there = tt_shm_resident(at, size);
      bytes += tt_shm_drop(at, size) ? there : 0;
    }
  }
  return bytes;
}

ncclResult_t tt_comm_suspend(struct ncclComm *comm)
{
  TT_TRY(tt_comm_flush(comm));
  TT_TRY(comm->nranks > 1 ? tt_bootstrap_barrier(comm->boot) : ncclSuccess); // peers have no messages under way either
  tt_comm_free_plans(comm);
  comm->suspended_bytes = drop_messages(comm);
  atomic_store(&comm->state, TT_COMM_SUSPENDED);
  tt_info(TT_ALLOC, "rank %d, communicator %#llx: suspended, %llu bytes given back", comm->rank,
          (unsigned long long)comm->hash, (unsigned long long)comm->suspended_bytes);
  return ncclSuccess;
}

ncclResult_t tt_comm_resume(struct ncclComm *comm)
{
  if (atomic_load(&comm->state) != TT_COMM_SUSPENDED) { // twice in one group
    return tt_fail(ncclInvalidUsage, "ncclCommResume on rank %d: the communicator is not suspended", comm->rank);
  }
  TT_TRY(comm->nranks > 1 ? tt_bootstrap_barrier(comm->boot) : ncclSuccess); // all have given back what they could
  comm->suspended_bytes = 0;
  atomic_store(&comm->state, TT_COMM_READY);
  return ncclSuccess;
}

uint64_t tt_comm_suspendable(const struct ncclComm *comm)
{
  uint64_t bytes = comm->suspended_bytes;
  for (int peer = 0; peer < comm->nranks; peer++) {
    if (local_link(comm, peer) != NULL) {
      size_t size;
      void *at = messages_to(comm, peer, &size);
      bytes += tt_shm_resident(at, size);
    }
  }
  return bytes;
}

uint64_t tt_comm_persistent(const struct ncclComm *comm)
{
  size_t n = (size_t)comm->nranks;
  uint64_t bytes = sizeof *comm + sizeof(tt_rank_page) +
                   n * (sizeof *comm->peers + sizeof *comm->wiring.ranks + sizeof *comm->port.links +
                        2 * sizeof *comm->plans.flows) +
                   (comm->port.bounce != NULL ? TT_BOUNCE_BYTES : 0) + comm->registered.moved_bytes;
  for (int peer = 0; peer < comm->nranks; peer++) {
    const tt_link *link = comm->port.links[peer];
    if (link != NULL) {
      bytes += sizeof *link + (local_link(comm, peer) != NULL ? 4096
                               : link->networked              ? 2 * tt_net_window_bytes(&comm->peers[0].geometry)
                                                              : 0);
    }
  }
  return bytes;
}
