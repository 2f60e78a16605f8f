// handover.c: see handover.h.
#include "device/host/handover.h"

#include "base/param.h"
#include "base/result.h"
#include "device/host/mem.h"

// Ranks of a communicator up to which each pair has pipes, and up to which they are long. Together they hold less than
// half of the 16384 pages that an ordinary user may have in pipes before all others get short ones.
#define PIPE_RANKS 8
#define LONG_PIPE_RANKS 6

// Where ranks share cores there is no outbox: a second copy would take time from the others, and trials would measure
// whose turn it was. If memory for the trials is lacking, offers go without copies.
static void open_outbox(const tt_port *port, tt_handover *h, const tt_link_env *env)
{
  int64_t copies = tt_params_get()->host_copies;
  bool wanted = copies < 0 ? !port->crowded : copies > 0;
  h->trials = wanted && env->box_bytes > 0 ? tt_calloc(1, sizeof *h->trials) : NULL;
  if (h->trials != NULL) {
    h->outbox = (tt_outbox){.base = env->outbox, .size = env->box_bytes};
    h->trials->off = copies > 0;
  }
  h->inbox = env->inbox;
  h->inbox_size = env->box_bytes;
  h->wants = env->wants;
  h->wanted = env->wanted;
  if (copies == 0 && h->wants != NULL) {
    atomic_store_explicit(h->wants, TT_WANTS_PAGES, memory_order_relaxed);
  }
}

ncclResult_t tt_handover_open(const tt_port *port, tt_link *link, const tt_link_env *env)
{
  tt_handover *h = tt_calloc_line(sizeof *h);
  if (h == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for what rank %d hands over", link->rank, link->peer);
  }
  link->handover = h;
  if (link->access == TT_ACCESS_COPY) {
    h->pages.pages = port->nranks <= LONG_PIPE_RANKS ? TT_PAGEPIPE_PAGES : TT_PAGEPIPE_LEAST;
    h->pages.state = tt_params_get()->host_pipes && port->nranks <= PIPE_RANKS ? TT_PAGEPIPE_UNTRIED : TT_PAGEPIPE_NONE;
    open_outbox(port, h, env);
  }
  return ncclSuccess;
}

void tt_handover_close(tt_link *link)
{
  tt_handover *h = link->handover;
  if (h != NULL) {
    tt_mem_forget(link);
    tt_pagepipe_close(&h->pages);
    tt_pagetap_close(&h->tap);
    tt_free(h->trials);
    tt_free(h);
    link->handover = NULL;
  }
}
