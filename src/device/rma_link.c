// rma_link.c: see rma_link.h.
#include "device/rma_link.h"

#include <string.h>

#include "base/result.h"
#include "device/lane.h"
#include "device/owner.h"

enum { HEAD_AT = 0, SLOTS_AT = 4096, NOTES_AT_ONCE = 1024 };

static tt_rma_head *head_of(tt_slot *s)
{
  return (tt_rma_head *)(void *)s->data;
}

size_t tt_rma_fifo_bytes(void)
{
  return TT_ROUND_UP(SLOTS_AT + TT_RMA_SLOTS * (sizeof(tt_slot) + TT_RMA_SLOT_BYTES), 4096);
}

tt_fifo tt_rma_fifo(char *memory)
{
  return (tt_fifo){.slots = memory + SLOTS_AT,
                   .data = memory + SLOTS_AT + sizeof(tt_slot),
                   .head = (_Atomic uint32_t *)(void *)(memory + HEAD_AT),
                   .stride = sizeof(tt_slot) + TT_RMA_SLOT_BYTES,
                   .data_stride = sizeof(tt_slot) + TT_RMA_SLOT_BYTES,
                   .mask = TT_RMA_SLOTS - 1,
                   .capacity = TT_RMA_SLOT_BYTES};
}

bool tt_rma_link_idle(const tt_rma_link *l)
{
  uint32_t written = atomic_load_explicit(&l->written, memory_order_acquire);
  return atomic_load_explicit(l->send.head, memory_order_acquire) == written;
}

// ---- writing. Lock held

static void publish(tt_rma_link *l, const tt_rma_head *h, size_t bytes)
{
  *head_of(tt_fifo_slot(&l->send)) = *h;
  tt_fifo_publish(&l->send, (uint32_t)bytes, TT_RMA_SIG, 0);
  atomic_store_explicit(&l->written, l->send.next, memory_order_release);
}

bool tt_rma_link_owes(const tt_rma *rma, const tt_rma_link *l)
{
  return __atomic_load_n(&l->sent_changes, __ATOMIC_RELAXED) !=
             atomic_load_explicit(&rma->changes, memory_order_acquire) ||
         atomic_load_explicit(&l->refuses, memory_order_acquire);
}

// Notes what the peer does not know of the window at this place of the board: one note, or two.
static size_t compare_place(const tt_rma *rma, tt_rma_link *l, size_t place, tt_rma_note notes[2])
{
  const tt_window_note *w = &rma->board->windows[place];
  uint64_t now = atomic_load_explicit(&w->number, memory_order_acquire), known = l->known[place];
  size_t n = 0;
  if (now == known) {
    return 0;
  }
  if (known != 0) {
    notes[n++] = (tt_rma_note){.number = known};
  }
  if (now != 0) {
    notes[n++] = (tt_rma_note){.number = now, .size = w->size};
  }
  l->known[place] = now;
  return n;
}

// The launching thread may open and close windows meanwhile: what it does after `changes` was read is sent_changes
// again.
static bool tell_windows(const tt_rma *rma, tt_rma_link *l)
{
  uint64_t changes = atomic_load_explicit(&rma->changes, memory_order_acquire);
  uint64_t opened = atomic_load_explicit(&rma->board->opened, memory_order_acquire);
  size_t places = TT_MIN(opened + 1, (uint64_t)TT_WINDOWS);
  for (size_t place = 0; l->sent_changes != changes;) {
    if (!tt_fifo_room(&l->send)) {
      return false;
    }
    tt_rma_note *notes = (tt_rma_note *)(void *)tt_fifo_data(&l->send);
    size_t n = 0;
    for (; place < places && n + 2 <= NOTES_AT_ONCE; place++) {
      n += compare_place(rma, l, place, &notes[n]);
    }
    bool all = place == places;
    publish(l, &(tt_rma_head){.kind = TT_RMA_NOTES, .window = all ? opened : 0}, n * sizeof *notes);
    if (all) {
      __atomic_store_n(&l->sent_changes, changes, __ATOMIC_RELAXED);
    }
  }
  return true;
}

bool tt_rma_link_tell(tt_rma *rma, tt_rma_link *l)
{
  if (atomic_load_explicit(&l->refuses, memory_order_acquire)) {
    if (!tt_fifo_room(&l->send)) {
      return false;
    }
    publish(l, &l->refused, 0);
    atomic_store_explicit(&l->refuses, false, memory_order_relaxed);
  }
  return tell_windows(rma, l);
}

static void put_one(tt_rma_link *l, tt_rma_op *op)
{
  size_t n = TT_MIN(op->bytes, (size_t)TT_RMA_SLOT_BYTES);
  bool last = n == op->bytes, lends = n >= TT_LEND_MIN;
  tt_rma_head h = {.kind = last ? TT_RMA_SIGNAL : TT_RMA_PUT,
                   .ctx = (uint16_t)op->ctx,
                   .sig = (uint16_t)op->sig,
                   .window = op->window,
                   .offset = op->offset};
  if (lends) {
    h.elsewhere = (uint64_t)(uintptr_t)op->from;
  } else if (n > 0) {
    memcpy(tt_fifo_data(&l->send), op->from, n);
  }
  publish(l, &h, n);
  op->from = n > 0 ? op->from + n : op->from;
  op->offset += n;
  op->bytes -= n;
  op->passed = last;
  if (lends) {
    op->lent = true;
    op->until = l->send.next;
  }
}

void tt_rma_link_put(tt_rma *rma, tt_rma_link *l, tt_rma_op *op)
{
  pthread_mutex_lock(&l->lock);
  if (tt_rma_link_tell(rma, l)) {
    while (!op->passed && tt_fifo_room(&l->send)) {
      put_one(l, op);
    }
  }
  pthread_mutex_unlock(&l->lock);
}

// ---- payloads between ranks of a machine

size_t tt_rma_box_put(tt_rma_peer *peer, const tt_rma_op *op, size_t bytes)
{
  size_t done = 0;
  pthread_mutex_lock(&peer->lock);
  while (done < bytes && tt_fifo_room(&peer->put)) {
    const size_t n = TT_MIN(bytes - done, (size_t)TT_RMA_SLOT_BYTES);
    *head_of(tt_fifo_slot(&peer->put)) =
        (tt_rma_head){.kind = TT_RMA_PUT, .window = op->window, .offset = op->offset + done};
    memcpy(tt_fifo_data(&peer->put), op->from + done, n);
    tt_fifo_publish(&peer->put, (uint32_t)n, TT_RMA_SIG, 0);
    done += n;
  }
  pthread_mutex_unlock(&peer->lock);
  return done;
}

bool tt_rma_box_take(const tt_rma *rma, tt_rma_peer *peer)
{
  bool moved = false;
  // What is there already fits into the slots; a peer that goes on filling them does not hold up the others.
  for (int i = 0; i < TT_RMA_SLOTS && tt_fifo_arrived(&peer->comes) && !tt_page_stopped(rma->port->page); i++) {
    tt_slot *s = tt_fifo_slot(&peer->comes);
    const tt_rma_head *h = head_of(s);
    rma->place(peer, h->window, h->offset, tt_fifo_data(&peer->comes), s->bytes);
    tt_fifo_release(&peer->comes);
    moved = true;
  }
  if (moved && peer->put.slots == NULL) { // a peer on the host may sleep until there is room
    tt_bell_fence();
    tt_bell_ring(&peer->page->bell);
  }
  return moved;
}

// ---- taking

static ncclResult_t damaged_message(const tt_rma *rma, const tt_rma_link *l, const char *what)
{
  return tt_fail(ncclRemoteError, "rank %d: a one-sided message of rank %d is damaged: %s", rma->port->rank, l->peer,
                 what);
}

static void refuse_put(tt_rma_link *l, const tt_rma_head *h, size_t bytes, bool closed)
{
  l->refused = *h;
  l->refused.kind = TT_RMA_REFUSED;
  l->refused.elsewhere = 0;
  l->refused.bytes = bytes;
  l->refused.closed = closed;
  atomic_store_explicit(&l->refuses, true, memory_order_release);
}

// Copies into the own window, under the peer's count: so deregistration, abort and destruction wait for the copy
// (one_sided.h). False: it has been refused.
static bool take_payload_of(tt_rma *rma, tt_rma_link *l, const tt_rma_head *h, const char *payload, size_t bytes)
{
  tt_rma_peer *p = &rma->peers[l->peer];
  tt_window_note note = {.size = 0};
  bool fits = true;
  atomic_fetch_add(&p->in->writing, 1);
  tt_bell_fence_after_rmw();
  if (!tt_page_stopped(rma->port->page)) { // else nobody will look at it
    int found = tt_board_find(rma->board, h->window, &note);
    fits = found > 0 && h->offset <= note.size && bytes <= note.size - h->offset;
    if (fits) {
      if (rma->place != NULL) {
        rma->place(p, h->window, h->offset, payload, bytes);
      } else {
        memcpy((char *)(uintptr_t)note.base + h->offset, payload, bytes);
      }
    } else {
      refuse_put(l, h, bytes, found <= 0);
    }
  }
  atomic_fetch_sub(&p->in->writing, 1);
  return fits;
}

static ncclResult_t take_put(tt_rma *rma, tt_rma_link *l, const tt_rma_head *h, const char *payload, size_t bytes)
{
  if (h->ctx >= rma->contexts || h->sig >= rma->signals) {
    return damaged_message(rma, l, "no such signal");
  }
  if (bytes > 0 && !take_payload_of(rma, l, h, payload, bytes)) {
    return ncclSuccess;
  }
  if (h->kind == TT_RMA_SIGNAL) {
    atomic_fetch_add_explicit(&rma->peers[l->peer].in->count[h->ctx * rma->signals + h->sig], 1, memory_order_acq_rel);
  }
  return ncclSuccess;
}

// The copy of the peer's board: a reader looks at `opened` first.
static ncclResult_t take_notes(tt_rma *rma, tt_rma_link *l, const tt_rma_head *h, const char *payload, size_t bytes)
{
  tt_board *board = rma->peers[l->peer].board;
  if (bytes % sizeof(tt_rma_note) != 0) {
    return damaged_message(rma, l, "notes of windows");
  }
  for (size_t at = 0; at < bytes; at += sizeof(tt_rma_note)) {
    tt_rma_note n;
    memcpy(&n, payload + at, sizeof n);
    tt_window_note *w = &board->windows[n.number % TT_WINDOWS];
    w->size = n.size;
    atomic_store_explicit(&w->number, n.size == 0 ? 0 : n.number, memory_order_release);
  }
  if (h->window > atomic_load_explicit(&board->opened, memory_order_relaxed)) {
    atomic_store_explicit(&board->opened, h->window, memory_order_release);
  }
  return ncclSuccess;
}

static ncclResult_t take_refusal(const tt_rma *rma, const tt_rma_link *l, const tt_rma_head *h)
{
  return h->closed
             ? tt_fail(ncclInvalidUsage,
                       "rank %d: ncclPutSignal into window %llu of rank %d, which has deregistered it", rma->port->rank,
                       (unsigned long long)h->window, l->peer)
             : tt_fail(ncclInvalidUsage,
                       "rank %d: ncclPutSignal of %llu bytes at offset %llu of window %llu of rank %d, which ends "
                       "before",
                       rma->port->rank, (unsigned long long)h->bytes, (unsigned long long)h->offset,
                       (unsigned long long)h->window, l->peer);
}

ncclResult_t tt_rma_take(tt_rma *rma, tt_rma_link *l, const tt_slot *s, const char *payload)
{
  tt_rma_head h;
  memcpy(&h, s->data, sizeof h);
  size_t bytes = s->bytes;
  if (s->sig != TT_RMA_SIG || bytes > TT_RMA_SLOT_BYTES) {
    return damaged_message(rma, l, "not its beginning");
  }
  switch (h.kind) {
  case TT_RMA_PUT:
  case TT_RMA_SIGNAL: return take_put(rma, l, &h, payload, bytes);
  case TT_RMA_NOTES: return take_notes(rma, l, &h, payload, bytes);
  case TT_RMA_REFUSED: return take_refusal(rma, l, &h);
  default: return damaged_message(rma, l, "an unknown kind");
  }
}
