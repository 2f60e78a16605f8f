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

// Memory that holds nothing but messages. `at` NULL: there is none.
typedef struct messages {
  tt_fifo *fifos; // which lie there
  bool sent;      // by this rank
  void *at;
  size_t size;
} messages;

// That of the two directions between this rank and another: both for a peer over the network, of which nobody else
// knows (no network has registered it, no neighbour sends from it); to one of this machine what this rank sends.
static void find_messages(const struct ncclComm *comm, int peer, messages out[2])
{
  tt_link *link = comm->port.links[peer];
  bool network = link != NULL && link->networked && comm->network.ops != NULL && comm->network.ops->reg_mr == NULL;
  out[0] = out[1] = (messages){.at = NULL};
  if (comm->port.row->pins) {
    return;
  }
  if (local_link(comm, peer) != NULL) {
    out[0] = (messages){.fifos = link->send, .sent = true};
    out[0].at = tt_segment_messages(comm->segment, tt_segment_place(comm->segment, comm->rank),
                                    tt_segment_place(comm->segment, peer), &out[0].size);
  }
  for (int send = 0; network && send < 2; send++) {
    out[send] = (messages){.fifos = send ? link->send : link->recv, .sent = send};
    out[send].at = tt_net_messages(link, send, &out[send].size);
  }
}

// Has everything been taken, by the peer, or by this rank?
static bool is_empty(const messages *m)
{
  bool empty = true;
  for (int i = 0; i < TT_NFIFOS; i++) {
    tt_fifo *f = &m->fifos[i];
    empty &= f->next < LAST_NUMBER && (m->sent ? tt_fifo_drained(f) : f->slots == NULL || !tt_fifo_arrived(f));
  }
  return empty;
}

// Returns how many bytes of pages have been given back.
static uint64_t drop_messages(const struct ncclComm *comm)
{
  uint64_t bytes = 0;
  messages m[2];
  for (int i = 0; i < 2 * comm->nranks; i++) {
    find_messages(comm, i / 2, m);
    const messages *one = &m[i % 2];
    uint64_t there = one->at == NULL ? 0 : tt_shm_resident(one->at, one->size); // a look at a slot makes its page
    if (one->at != NULL && is_empty(one)) {
      bytes += tt_shm_drop(one->at, one->size) ? there : 0;
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
  messages m[2];
  for (int i = 0; i < 2 * comm->nranks; i++) {
    find_messages(comm, i / 2, m);
    bytes += m[i % 2].at != NULL ? tt_shm_resident(m[i % 2].at, m[i % 2].size) : 0;
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
    messages m[2];
    if (link != NULL) {
      find_messages(comm, peer, m);
      bool goes = m[0].at != NULL;
      bytes += sizeof *link + (local_link(comm, peer) != NULL ? 4096
                               : link->networked ? 2 * (goes ? 4096 : tt_net_window_bytes(&comm->peers[0].geometry))
                                                 : 0);
    }
  }
  return bytes;
}
