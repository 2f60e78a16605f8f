// shm.c: two ranks on one machine. FIFOs in the shared segment; buffers are read by process_vm_readv where that is permitted, and mapped
// where they come from ncclMemAlloc.
#include "base/param.h"
#include "transport/transport.h"

// Ranks of a communicator up to which each pair has pipes, and up to which they are long: together they hold less than half of the 16384 pages that an ordinary
// user may have in pipes before all others get short ones.
#define PIPE_RANKS 8
#define LONG_PIPE_RANKS 6

static bool can_connect(const tt_wiring *w, const tt_endpoint *me, const tt_endpoint *peer)
{
  return w->segment != NULL && !tt_params_get()->shm_disable && me->host == peer->host;
}

// Where ranks share cores a second copy takes time off the others, and trials would measure whose turn it was. Without memory for it offers go without copies.
static void open_outbox(const tt_wiring *w, tt_link *link)
{
  int64_t copies = tt_params_get()->host_copies;
  bool wanted = copies < 0 ? !w->port->crowded : copies > 0;
  link->tastes = wanted && link->outbox.size > 0 && link->access == TT_ACCESS_COPY ? tt_calloc(1, sizeof *link->tastes) : NULL;
  if (link->tastes == NULL) {
    link->outbox.size = 0;
  } else {
    link->tastes->only = copies > 0;
  }
  if (copies == 0) {
    atomic_store_explicit(link->wants, TT_WANTS_PAGES, memory_order_relaxed);
  }
}

static ncclResult_t connect(const tt_wiring *w, tt_link *link)
{
  tt_segment_connect(w->segment, link);
  link->access = w->can_copy ? TT_ACCESS_COPY : TT_ACCESS_NONE;
  link->pages.pages = w->nranks <= LONG_PIPE_RANKS ? TT_PAGEPIPE_PAGES : TT_PAGEPIPE_LEAST;
  link->pages.state = tt_params_get()->host_pipes && w->nranks <= PIPE_RANKS ? TT_PAGEPIPE_UNTRIED : TT_PAGEPIPE_NONE;
  open_outbox(w, link);
  return ncclSuccess;
}

static void disconnect(tt_link *link)
{
  tt_pagepipe_close(&link->pages);
  tt_pagetap_close(&link->tap);
  tt_free(link->tastes);
}

const tt_transport tt_transport_shm = {.name = "shm", .can_connect = can_connect, .connect = connect, .disconnect = disconnect};
