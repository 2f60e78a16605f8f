// one_sided.c: the boards of one-sided operations: see one_sided.h.
#include "device/one_sided.h"

#include "os/clock.h"

#define SETTLE_NS TT_NS_PER_S // how long a window's owner waits for a peer that writes

// Peers over the network hear of it with the next message, or from the thread that moves messages.
static void board_changed(tt_rma *rma)
{
  const tt_port *port = rma->port;
  atomic_fetch_add_explicit(&rma->changes, 1, memory_order_release);
  if (port->mover != NULL) {
    port->mover->progress(port->mover_self, true);
    port->mover->kick(port->mover_self, false);
  }
}

bool tt_board_open(tt_rma *rma, const tt_window_note *note, uint64_t number)
{
  tt_window_note *w = &rma->board->windows[number % TT_WINDOWS];
  if (atomic_load_explicit(&w->number, memory_order_relaxed) != 0) {
    return false;
  }
  w->base = note->base;
  w->size = note->size;
  w->mem = note->mem;
  atomic_store_explicit(&w->number, number, memory_order_release);
  atomic_store_explicit(&rma->board->opened, number, memory_order_release);
  tt_bell_fence();
  for (int i = 0; i < rma->port->nranks; i++) {
    if (!rma->peers[i].networked) {
      tt_bell_ring(&rma->peers[i].page->bell);
    }
  }
  board_changed(rma);
  return true;
}

static bool board_is_written(const tt_rma *rma)
{
  if (atomic_load_explicit(&rma->placing, memory_order_acquire) != 0) {
    return true;
  }
  for (int i = 0; i < rma->port->nranks; i++) {
    const tt_rma_peer *p = &rma->peers[i];
    if (tt_row_is_written(p->in) && (p->networked || p->link == NULL || !tt_link_ended(p->link))) {
      return true;
    }
  }
  return false;
}

void tt_board_settle(const tt_rma *rma)
{
  tt_bell_fence();
  for (uint64_t end = tt_now_ns() + SETTLE_NS; board_is_written(rma) && tt_now_ns() < end;) {
    tt_sleep_ns(20000); // the time that a piece takes
  }
}

void tt_board_clear(const tt_rma *rma)
{
  const uint64_t opened = atomic_load_explicit(&rma->board->opened, memory_order_relaxed);
  for (uint64_t i = 0; i <= opened && i < TT_WINDOWS; i++) {
    atomic_store_explicit(&rma->board->windows[i].number, 0, memory_order_release);
  }
}

void tt_board_shut(const tt_rma *rma)
{
  tt_board_clear(rma);
  tt_board_settle(rma);
}

void tt_board_close(tt_rma *rma, uint64_t number)
{
  atomic_store_explicit(&rma->board->windows[number % TT_WINDOWS].number, 0, memory_order_release);
  tt_board_settle(rma);
  board_changed(rma);
}

int tt_board_find(tt_board *board, uint64_t number, tt_window_note *out)
{
  uint64_t opened = atomic_load_explicit(&board->opened, memory_order_acquire);
  const tt_window_note *w = &board->windows[number % TT_WINDOWS];
  if (opened < number) {
    return 0;
  }
  if (atomic_load_explicit(&w->number, memory_order_acquire) != number) {
    return -1;
  }
  out->base = w->base;
  out->size = w->size;
  out->mem = w->mem;
  return 1;
}
