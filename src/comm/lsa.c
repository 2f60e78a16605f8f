// lsa.c: see lsa.h.
#include "comm/lsa.h"

#include "base/result.h"
#include "comm/comm.h"
#include "comm/one_sided.h"
#include "device/owner.h"
#include "os/clock.h"

#define PATIENCE_NS (10 * TT_NS_PER_S)

static int common_divisor(int a, int b)
{
  while (b != 0) {
    int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// How many ranks each team has.
static int lsa_size(const struct ncclComm *comm)
{
  const tt_layout *l = comm->layout;
  const char *why;
  int n = 0;
  if (l == NULL || !tt_rma_supported(comm, &why) || !tt_rma_reaches(comm)) {
    return 1;
  }
  for (int i = 0; i < comm->nranks; i++) {
    if (l->order[i] != i) {
      return 1;
    }
  }
  for (int k = 0; k < l->nnodes; k++) {
    n = common_divisor(l->first[k + 1] - l->first[k], n);
  }
  return n;
}

tt_lsa tt_lsa_team(const struct ncclComm *comm)
{
  int n = lsa_size(comm);
  return (tt_lsa){.first = comm->rank - comm->rank % n, .n = n};
}

// Waits until the peer has opened its window of this number.
static ncclResult_t lsa_await(const struct ncclComm *comm, const char *what, int peer, uint64_t number,
                              tt_window_note *note)
{
  const tt_rma_peer *p = &comm->rma->peers[peer];
  const uint64_t end = tt_now_ns() + PATIENCE_NS;
  for (;;) {
    bool ended = tt_link_ended(p->link) || tt_page_stopped(p->page);
    int found = tt_board_find(p->board, number, note);
    if (found > 0) {
      return ncclSuccess;
    }
    if (found < 0) {
      return tt_fail(ncclInvalidUsage, "%s on rank %d: rank %d has deregistered its window %llu", what, comm->rank,
                     peer, (unsigned long long)number);
    }
    TT_TRY(tt_port_status(&comm->port));
    if (ended) {
      return tt_fail(ncclRemoteError, "%s on rank %d: rank %d has ended before it registered its window %llu", what,
                     comm->rank, peer, (unsigned long long)number);
    }
    if (tt_now_ns() > end) {
      return tt_fail(ncclInvalidUsage,
                     "%s on rank %d: rank %d has not registered its window %llu for 10 s; all ranks register before "
                     "one asks for a peer's address",
                     what, comm->rank, peer, (unsigned long long)number);
    }
    tt_sleep_ns(200000);
  }
}

ncclResult_t tt_lsa_address(const struct ncclComm *comm, const char *what, const tt_window *w, int peer, char **out)
{
  tt_window_note note;
  if (peer == comm->rank) {
    *out = w->base;
    return ncclSuccess;
  }
  TT_TRY(lsa_await(comm, what, peer, w->number, &note));
  *out = comm->port.row->window_address(&comm->rma->peers[peer], w->number, &note);
  return ncclSuccess;
}
