// offer.c: see offer.h.
#include "device/host/offer.h"

#include "base/log.h"
#include "base/result.h"
#include "device/host/mem.h"
#include "device/host/step.h"
#include "device/owner.h"
#include "os/clock.h"

#define LOGGED_TRIALS 16 // of a link
#define BOTH_WAYS 8      // offers sent in a row without one taken, from which on a pair counts as one-way
#define LEAST_LOG2 15    // of the bytes: below twice that all calls share a trial

// By the call's size, not the chunk's: it tells which cache the data are in.
static int offer_size(const tt_call *c)
{
  int log2 = 63 - __builtin_clzll(c->count * c->esize | 1);
  return TT_CLAMP(log2 - LEAST_LOG2, 0, TT_TRIAL_SIZES - 1);
}

// Offers of one peer that the lane's call takes, up to the longest sample. Of each sub-chunk one; but among more than
// two ranks only an all-reduce has several, and takes of each peer what it sums, and that peer's sums.
static uint8_t offers_of_call(const tt_port *port, const tt_lane *l)
{
  size_t nsub = (size_t)l->sched->nsub, pass = nsub * l->max_chunk, part = l->end - l->begin;
  size_t each = port->nranks == 2 ? nsub : TT_MIN(nsub, 2), passes = TT_MIN(TT_DIV_UP(part, pass), TT_TRIAL_CHUNKS);
  return (uint8_t)TT_MIN(passes * each, TT_TRIAL_CHUNKS);
}

// ---- Taking

// Joins the peer's pipe, at the first token that names it. A peer that has failed may have closed it, so that the
// number names another file now; its page says so first.
static bool offer_join_pipe(tt_link *link, int fd)
{
  tt_handover *h = link->handover;
  bool first = h->tap.state == TT_PAGEPIPE_UNTRIED, here = tt_pagetap_join(&h->tap, link->proc.pid, fd);
  if (first && here && tt_page_stopped(link->page)) {
    tt_pagetap_close(&h->tap);
    h->tap.state = TT_PAGEPIPE_NONE;
    here = false;
  }
  return here;
}

// Reads the slot once, and checks that it leads to memory that both map.
static ncclResult_t offer_take_data(const tt_port *port, const tt_lane *l, tt_link *link, const tt_slot *s,
                                    size_t bytes)
{
  tt_handover *h = link->handover;
  const tt_desc d = s->desc;
  uint32_t along = s->bytes;
  if (d.along > TT_NWAYS) {
    return tt_fail(ncclSystemError,
                   "rank %d: rank %d hands over in way %u, which does not exist: different library versions?",
                   port->rank, link->peer, (unsigned)d.along);
  }
  h->timing.size = (uint8_t)offer_size(l->call);
  h->timing.chunks = offers_of_call(port, l);
  h->timing.came = (uint8_t)d.along;
  if (d.along == 1 + TT_WAY_COPY) {
    size_t at = (size_t)d.place * TT_CACHE_LINE;
    if (along != bytes || at > h->inbox_size || bytes > h->inbox_size - at) {
      return tt_fail(ncclSystemError,
                     "rank %d: rank %d says that it has laid %u of %zu bytes at %zu of %u: different library versions?",
                     port->rank, link->peer, along, bytes, at, h->inbox_size);
    }
    h->copied = h->inbox + at;
  } else if (along > 0 && offer_join_pipe(link, (int)d.place)) {
    h->offered = along; // else the data stay in the pipe, and the sender finds it full
  }
  return ncclSuccess;
}

// A peer in this process: its addresses are this one's.
static const tt_map whole_process = {.size = SIZE_MAX};

ncclResult_t tt_token_take(tt_port *port, const tt_lane *l, tt_link *link, size_t bytes)
{
  tt_handover *h = link->handover;
  const tt_slot *s = tt_fifo_slot(&link->recv[TT_TOK]);
  const tt_desc *d = &s->desc;
  h->scalar = d->scalar;
  h->peer_put = d->put != 0;
  h->in_remote = d->in;
  h->out_remote = d->out;
  h->offered = 0;
  h->copied = NULL;
  h->timing.came = 0;
  if (link->access == TT_ACCESS_LOCAL) {
    h->in_map = h->out_map = &whole_process;
    return ncclSuccess;
  }
  if (d->along != 0) {
    TT_TRY(offer_take_data(port, l, link, s, bytes));
  }
  tt_mem_import(link, d);
  return ncclSuccess;
}

// Logs what a trial has found.
static void offer_log_trial(const tt_link *link, const tt_trial *t)
{
  uint32_t copy_ns = t->least_ns[TT_WAY_COPY], pages_ns = t->least_ns[TT_WAY_PAGES];
  int size = link->handover->timing.size;
  if (copy_ns > 0 && pages_ns > 0) { // else one of them was unavailable
    tt_info(TT_TUNING,
            "rank %d: blocks from %u KiB of rank %d: %u us copied, %u us as pages: %s from now on (NCCL_HOST_COPIES)",
            link->rank, size == 0 ? 0 : 1u << (LEAST_LOG2 + size - 10), link->peer, copy_ns / 1000, pages_ns / 1000,
            t->chosen == TT_WAY_COPY ? "copies" : "pages");
  }
}

void tt_offer_taken(tt_link *link)
{
  tt_handover *h = link->handover;
  tt_trials *all = h->trials;
  if (all == NULL || all->off) {
    return;
  }
  all->sent[h->timing.size] = 0;
  tt_trial *t = &all->of_size[h->timing.size];
  uint64_t now_ns = tt_trial_is_on(t) ? tt_now_ns() : 0,
           ns = h->timing.since != 0 ? now_ns - h->timing.since : UINT32_MAX;
  if (tt_trial_add(t, (tt_way)(h->timing.came - 1), h->timing.chunks, ns) && all->logged < LOGGED_TRIALS) {
    all->logged++;
    offer_log_trial(link, t);
  }
  h->timing.since = h->timing.until = now_ns;
  uint32_t bit = 1u << h->timing.size, wants = atomic_load_explicit(h->wants, memory_order_relaxed);
  uint32_t now = tt_trial_way(t) == TT_WAY_PAGES ? wants | bit : wants & ~bit;
  if (now != wants) {
    atomic_store_explicit(h->wants, now, memory_order_relaxed);
  }
}

// ---- Sending

// The peer, which reads, decides. But of two ranks that offer each other something the lower one decides for both,
// because what each measures depends on what both do.
bool tt_offer_copies(const tt_link *link, const tt_call *c, size_t bytes)
{
  tt_handover *h = link->handover;
  if (bytes > h->outbox.size || bytes == 0) {
    return false;
  }
  int size = offer_size(c);
  bool decides = link->rank < link->peer && h->trials->sent[size] < BOTH_WAYS;
  uint32_t wanted = atomic_load_explicit(h->wanted, memory_order_relaxed);
  uint32_t pages = decides ? atomic_load_explicit(h->wants, memory_order_relaxed) : wanted;
  return (pages >> size & 1) == 0 && (wanted & TT_WANTS_PAGES) == 0;
}

static uint32_t outbox_lines(size_t bytes)
{
  return (uint32_t)TT_ROUND_UP(bytes, TT_CACHE_LINE);
}

// Moves the outbox's tail to a place for that many bytes. False: there is none until the peer has returned more slots.
static bool outbox_find_room(tt_link *link, size_t bytes)
{
  tt_outbox *box = &link->handover->outbox;
  tt_fifo *tokens = &link->send[TT_TOK];
  if (tt_fifo_drained(tokens)) { // starts at the beginning again, which is in the caches
    box->tail = box->end[(tokens->next - 1) % TT_COUNT(box->end)] = 0;
  }
  uint32_t free_to = box->end[(tokens->seen - 1) % TT_COUNT(box->end)], at = box->tail;
  if (at % box->size + outbox_lines(bytes) > box->size) {
    at = TT_ROUND_UP(at, box->size);
  }
  if (at + outbox_lines(bytes) - free_to > box->size) {
    return false;
  }
  box->tail = at;
  return true;
}

static char *outbox_tail(const tt_outbox *box)
{
  return box->base + box->tail % box->size;
}

// Would the peer need the kernel's help to read what the token offers?
static bool offer_is_far(const tt_link *link, const tt_call *c, const tt_program_ref *token, size_t bytes)
{
  return token->offer != TT_OFFER_NONE && link->access == TT_ACCESS_COPY &&
         !tt_call_maps(c, token->offer == TT_OFFER_OUT, token->offset, bytes);
}

// Does this rank time what it gets from the peer in calls of that size? Not where it only sends.
static bool offers_are_timed(const tt_link *link, int size)
{
  const tt_trials *all = link->handover->trials;
  return all->sent[size] < BOTH_WAYS && tt_trial_is_on(&all->of_size[size]);
}

bool tt_offer_room(tt_link *link, const tt_call *c, const tt_program_ref *token, size_t bytes)
{
  tt_handover *h = link->handover;
  if (h->outbox.laid > 0 || h->put || !offer_is_far(link, c, token, bytes) || !tt_offer_copies(link, c, bytes) ||
      outbox_find_room(link, bytes)) {
    return true;
  }
  if (h->timing.waits == 0 && h->trials != NULL && offers_are_timed(link, offer_size(c))) {
    h->timing.waits = tt_now_ns();
  }
  return false;
}

void *tt_offer_lay(tt_link *link, const tt_call *c, size_t bytes)
{
  bool may = link->access == TT_ACCESS_COPY && tt_offer_copies(link, c, bytes) && outbox_find_room(link, bytes);
  link->handover->outbox.laid = may ? (uint32_t)bytes : 0;
  return may ? outbox_tail(&link->handover->outbox) : NULL;
}

static void offer_copy(tt_link *link, const void *from, size_t bytes, tt_desc *d)
{
  tt_outbox *box = &link->handover->outbox;
  void *to = outbox_tail(box);
  if (box->laid == 0) {
    tt_copy(1, &to, from, bytes, 0);
  }
  d->along = 1 + TT_WAY_COPY;
  d->place = box->tail % box->size / TT_CACHE_LINE;
  link->handover->sent_bytes = (uint32_t)bytes;
  box->tail += outbox_lines(bytes);
}

static void offer_pages(tt_link *link, const void *from, size_t bytes, tt_desc *d)
{
  tt_handover *h = link->handover;
  h->sent_bytes = (uint32_t)tt_pagepipe_put(&h->pages, from, bytes);
  d->along = 1 + TT_WAY_PAGES;
  d->place = h->sent_bytes > 0 ? (uint32_t)h->pages.read : 0;
}

// This rank is about to offer something to the peer. `measured`: what it gets from the peer is timed. A call's time
// counts from its first offer on, or from when that found no room. Added is what the last call still took after all was
// read; what the program did in between is not.
static void offer_begin_timing(const tt_lane *l, tt_link *link, bool measured)
{
  tt_handover *h = link->handover;
  uint64_t sig = l->call->sig; // of a message the same for all
  bool first = sig >> 32 != 0 ? sig != h->timing.begun : l->pos == l->begin && l->pc == 0;
  h->timing.begun = sig;
  if (!measured) {
    h->timing.since = 0;
  } else if (first || h->timing.since == 0) {
    uint64_t last_ns = h->timing.since != 0 ? h->timing.until - h->timing.since : 0;
    h->timing.since = (h->timing.waits != 0 ? TT_MAX(h->timing.waits, h->timing.until) : tt_now_ns()) - last_ns;
  }
  h->timing.waits = 0;
}

// Sends what the token offers along, if the peer does not have it yet, and would need the kernel's help to read it.
static void offer_send_data(const tt_lane *l, const tt_program_ref *token, size_t bytes, tt_link *link, tt_desc *d)
{
  tt_handover *h = link->handover;
  const tt_call *c = l->call;
  if (d->put || !offer_is_far(link, c, token, bytes)) {
    d->along = d->put && h->put_far ? 1 + TT_WAY_PAGES : 0; // counts as pages
    if (!d->put && token->offer != TT_OFFER_NONE) {
      h->timing.since = 0; // the peer reads that without help: nothing is timed until the next offer
    }
    return;
  }
  const char *from = (token->offer == TT_OFFER_IN ? c->in : c->out) + token->offset;
  if (h->trials != NULL) {
    int size = offer_size(c);
    uint8_t *sent = &h->trials->sent[size];
    // A rank that offers in a call with a block for each rank also takes.
    int before = l->sched->out_blocks > 1 ? 0 : *sent;
    *sent = (uint8_t)TT_MIN(before + 1, BOTH_WAYS);
    offer_begin_timing(l, link, offers_are_timed(link, size));
  }
  if (h->outbox.laid > 0 || (tt_offer_copies(link, c, bytes) && outbox_find_room(link, bytes))) {
    offer_copy(link, from, bytes, d);
  } else {
    offer_pages(link, from, bytes, d);
  }
  h->timing.until = h->timing.since != 0 ? tt_now_ns() : 0;
}

void tt_token_fill(const tt_lane *l, const tt_program_ref *token, size_t bytes, tt_link *link)
{
  tt_handover *h = link->handover;
  const tt_call *c = l->call;
  tt_fifo *tokens = &link->send[TT_TOK];
  tt_desc *d = &tt_fifo_slot(tokens)->desc;
  *d = (tt_desc){.in = (uint64_t)(uintptr_t)c->in,
                 .out = (uint64_t)(uintptr_t)c->out,
                 .in_mem = c->in_mem.handle,
                 .out_mem = c->out_mem.handle,
                 .scalar = c->op.scalar,
                 .freed = tt_mem_freed(),
                 .put = h->put};
  h->put = false;
  h->sent_bytes = 0;
  offer_send_data(l, token, bytes, link, d);
  if (d->along != 1 + TT_WAY_COPY) {
    h->held = tokens->next + 1;
  }
  h->put_far = false;
  h->outbox.laid = 0;
  h->outbox.end[tokens->next % TT_COUNT(h->outbox.end)] = h->outbox.tail;
}
