// far.c: see far.h.
#include "proxy/far.h"

#include <string.h>

#include "base/result.h"

typedef enum {
  FAR_MESSAGE = 1, // payload: a part of a message
  FAR_OPEN,        // the receiver has that FIFO
  FAR_FREED,       // its kernels have taken so many messages
  FAR_CLOSED       // it has that FIFO no more
} far_what;

// Stands in a slot behind `count`, and travels as it is.
typedef struct far_head {
  uint64_t elsewhere;  // tt_slot's: 0
  uint64_t sig, count; // MESSAGE: what stands in its slot. OPEN: number of messages and of slots
  uint32_t number;     // of the FIFO: tt_far_end
  uint32_t at;         // MESSAGE: where the part begins. FREED: how many
  uint32_t bytes;      // MESSAGE: of all of it. OPEN: of the longest one
  uint8_t what, kind;  // far_what; of the FIFO
  uint16_t zero;
} far_head;
_Static_assert(sizeof(far_head) == 40, "lies in a slot");

// A FIFO between two replays of the sender's.
typedef struct tt_far_rest {
  const _Atomic uint32_t *head; // is `messages` until the next one begins,
  uint32_t messages;
  tt_far_fifo *fifo;
} tt_far_rest;

struct tt_far_fifo {
  tt_far_fifo *next; // of its bucket
  tt_far_fifo *next_busy;
  bool busy; // it is in that list
  int rest;  // its place among those that rest; -1: it is not there
  tt_proxy_puts *pair;
  tt_far_end end;    // kind, number and `sends` alone, while this rank is not `here`
  bool early;        // the receiver has told of it before this rank has had it
  bool here;         // this rank has it: its memory can be used
  bool left;         // this rank has had it
  bool open;         // the receiver has said that it has it
  bool closed;       // and that it has it no more
  tt_fifo_shape its; // the same, of what shape
  uint32_t turn;     // number, in its replay, of the next message to be sent or to come,
  uint32_t total;    // and among those of all replays
  uint32_t at;       // bytes of it that have been sent, or have come,
  uint32_t bytes;    // and how many it has, as its first part has said
  uint32_t freed;    // messages that the receiver's kernels have taken, as far as it has said
  char *copy;        // of what was not sent when this rank left
};

// ---- The set of a pair ----

static tt_far_fifo **far_bucket(tt_proxy_puts *g, uint32_t number)
{
  return &g->far.first[number % TT_FAR_BUCKETS];
}

// The one of that kind and number; NULL: there is none.
static tt_far_fifo *far_find(tt_proxy_puts *g, uint8_t kind, uint32_t number, bool sends)
{
  tt_far_fifo *f = *far_bucket(g, number);
  while (f != NULL && (f->end.number != number || f->end.kind != kind || f->end.sends != sends)) {
    f = f->next;
  }
  return f;
}

// The next round looks at it.
static void far_wake(tt_far_fifo *f)
{
  tt_far_set *set = &f->pair->far;
  if (f->rest >= 0) {
    set->rests[f->rest] = set->rests[--set->nrests];
    set->rests[f->rest].fifo->rest = f->rest;
    f->rest = -1;
  }
  if (!f->busy) {
    f->busy = true;
    f->next_busy = set->busy;
    set->busy = f;
  }
}

static ncclResult_t far_new(tt_proxy_puts *g, uint8_t kind, uint32_t number, bool sends, tt_far_fifo **out)
{
  TT_TRY(TT_NEW(*out, 1, "no memory for a captured operation with rank %d", g->peer.rank));
  **out = (tt_far_fifo){
      .next = *far_bucket(g, number), .rest = -1, .pair = g, .end = {.kind = kind, .number = number, .sends = sends}};
  *far_bucket(g, number) = *out;
  return ncclSuccess;
}

// It is not busy, nor does it rest; or all go.
static void far_drop(tt_far_fifo *f)
{
  tt_far_fifo **at = far_bucket(f->pair, f->end.number);
  while (*at != f) {
    at = &(*at)->next;
  }
  *at = f->next;
  tt_free(f->copy);
  tt_free(f);
}

void tt_far_free(tt_proxy_puts *g)
{
  for (int i = 0; i < TT_FAR_BUCKETS; i++) {
    while (g->far.first[i] != NULL) {
      far_drop(g->far.first[i]);
    }
  }
  tt_free(g->far.rests);
  g->far = (tt_far_set){.early = 0};
}

// ---- Memory ----

static tt_slot *far_slot(const tt_far_fifo *f)
{
  const tt_fifo *m = &f->end.fifo;
  return (tt_slot *)(void *)(m->slots + (size_t)(f->turn & m->mask) * m->stride);
}

static char *far_data(const tt_far_fifo *f)
{
  const tt_fifo *m = &f->end.fifo;
  return m->data + (size_t)(f->turn & m->mask) * m->data_stride;
}

// The next message has been sent, or has come.
static void far_advance(tt_far_fifo *f)
{
  f->turn = f->turn + 1 == f->end.shape.messages ? 0 : f->turn + 1;
  f->total++;
  f->at = 0;
}

// Sending: have the kernels sent the next message?
static bool far_is_filled(const tt_far_fifo *f)
{
  return (f->here || f->copy != NULL) && atomic_load_explicit(&far_slot(f)->seq, memory_order_acquire) == f->turn + 1;
}

// ---- Coming and going ----

static bool far_shapes_differ(const tt_far_fifo *f)
{
  return f->here && f->open && memcmp(&f->its, &f->end.shape, sizeof f->its) != 0;
}

static ncclResult_t far_differs(const tt_far_fifo *f)
{
  return tt_far_differs(f->pair->peer.send.proxy->rank, f->pair->peer.rank, f->end.number, &f->end.shape, &f->its);
}

static ncclResult_t far_come(tt_proxy_puts *g, const tt_far_end *end, tt_far_fifo **out)
{
  tt_far_fifo *f = far_find(g, end->kind, end->number, end->sends);
  if (f == NULL) {
    TT_TRY(far_new(g, end->kind, end->number, end->sends, &f));
  }
  far_wake(f);
  g->far.early -= f->early;
  f->early = false;
  f->end = *end;
  f->here = true;
  if (end->sends && far_shapes_differ(f)) {
    f->here = false;
    return far_differs(f);
  }
  *out = f;
  return ncclSuccess;
}

ncclResult_t tt_far_attach(tt_proxy *p, const tt_far_end *end, tt_far_fifo **out)
{
  tt_proxy_puts *g;
  TT_TRY(tt_puts_open(p, end->peer, TT_MSG_GRAPHS, &g));
  tt_proxy_run_hold(p);
  const ncclResult_t res = far_come(g, end, out);
  tt_proxy_run_release(p);
  tt_proxy_look(p);
  tt_proxy_kick(p, false);
  return res;
}

// Messages that have not been sent stay: those of the last replay. Everything else of the sender's is the peer's.
static bool far_keep(tt_far_fifo *f)
{
  tt_fifo *m = &f->end.fifo;
  const size_t slots = ((size_t)m->mask + 1) * m->stride, data = ((size_t)m->mask + 1) * m->data_stride;
  f->copy = tt_calloc_line(TT_CACHE_LINE + slots + data);
  if (f->copy == NULL) {
    return false;
  }
  memcpy(f->copy + TT_CACHE_LINE, m->slots, slots);
  memcpy(f->copy + TT_CACHE_LINE + slots, m->data, data);
  m->head = (_Atomic uint32_t *)(void *)f->copy;
  m->slots = f->copy + TT_CACHE_LINE;
  m->data = m->slots + slots;
  return true;
}

void tt_far_detach(tt_proxy *p, tt_far_fifo *f)
{
  tt_proxy_run_hold(p);
  const bool lost = f->end.sends && far_is_filled(f) && !f->closed && !far_keep(f);
  f->here = false;
  f->left = true;
  far_wake(f);
  tt_proxy_run_release(p);
  if (lost) {
    tt_port_stop(p->port, tt_fail(ncclSystemError, "rank %d: no memory for what a captured operation sends", p->rank));
  }
  tt_proxy_look(p);
  tt_proxy_kick(p, false);
}

// ---- What has come ----

static ncclResult_t far_damaged(const tt_proxy_puts *g, const char *what)
{
  return tt_fail(ncclRemoteError, "rank %d: a message of a captured operation of rank %d is damaged: %s",
                 g->peer.send.proxy->rank, g->peer.rank, what);
}

// Have the receiver's kernels left room for the next message? They must have taken all of a replay before the next one
// begins.
static bool far_has_place(const tt_far_fifo *f)
{
  const uint32_t head = atomic_load_explicit(f->end.fifo.head, memory_order_acquire);
  return f->turn == 0 ? head == f->end.shape.messages : f->turn - head <= f->end.fifo.mask;
}

// All of the message has come.
static void far_publish(tt_far_fifo *f, const far_head *h)
{
  tt_slot *s = far_slot(f);
  s->bytes = h->bytes;
  s->sig = h->sig;
  s->count = h->count;
  if (f->turn == 0) {
    atomic_store_explicit(f->end.fifo.head, 0, memory_order_relaxed);
  }
  atomic_store_explicit(&s->seq, f->turn + 1, memory_order_release);
  far_advance(f);
  far_wake(f);
}

static ncclResult_t far_take_message(tt_proxy_puts *g, const far_head *h, const char *payload, size_t bytes)
{
  tt_far_fifo *f = far_find(g, h->kind, h->number, false);
  if (f == NULL || !f->here) { // what the peer had sent before it knew
    return ncclSuccess;
  }
  if (h->at != f->at || h->bytes > f->end.fifo.capacity || h->at > h->bytes || bytes > h->bytes - h->at ||
      !far_has_place(f)) {
    return far_damaged(g, "there is no place for it");
  }
  if (h->at > 0 && h->bytes != f->bytes) {
    return far_damaged(g, "its parts differ");
  }
  f->bytes = h->bytes;
  memcpy(far_data(f) + f->at, payload, bytes);
  f->at += (uint32_t)bytes;
  if (f->at == h->bytes) {
    far_publish(f, h);
  }
  return ncclSuccess;
}

// The receiver's first word of a FIFO is OPEN, its last one CLOSED, and only behind that this rank drops it.
static ncclResult_t far_of_word(tt_proxy_puts *g, const far_head *h, tt_far_fifo **out)
{
  *out = far_find(g, h->kind, h->number, true);
  if (*out != NULL) {
    return ncclSuccess;
  }
  if (h->what != FAR_OPEN || g->far.early == TT_FAR_EARLY) {
    return far_damaged(g, h->what != FAR_OPEN ? "of none that is open" : "there are too many");
  }
  TT_TRY(far_new(g, h->kind, h->number, true, out));
  (*out)->early = true;
  g->far.early++;
  return ncclSuccess;
}

static ncclResult_t far_take_word(tt_proxy_puts *g, const far_head *h)
{
  tt_far_fifo *f = NULL;
  TT_TRY(far_of_word(g, h, &f));
  far_wake(f);
  switch (h->what) {
  case FAR_OPEN:
    f->its = (tt_fifo_shape){.slots = (uint32_t)h->count, .bytes = h->bytes, .messages = (uint32_t)h->sig};
    f->open = true;
    return far_shapes_differ(f) ? far_differs(f) : ncclSuccess;
  case FAR_FREED: f->freed = h->at; return ncclSuccess;
  case FAR_CLOSED: f->closed = true; return ncclSuccess;
  default: return far_damaged(g, "an unknown kind");
  }
}

ncclResult_t tt_far_take(tt_proxy_puts *g, const tt_slot *s, const char *payload)
{
  far_head h;
  memcpy(&h, s->data, sizeof h);
  if (s->sig != TT_FAR_SIG || s->bytes > TT_RMA_SLOT_BYTES || h.kind >= TT_PROXY_FIFOS) {
    return far_damaged(g, "not its beginning");
  }
  return h.what == FAR_MESSAGE ? far_take_message(g, &h, payload, s->bytes) : far_take_word(g, &h);
}

// ---- What is sent ----

static bool far_say(tt_proxy_puts *g, const tt_far_fifo *f, far_head *h, const char *payload, size_t bytes)
{
  tt_fifo *out = &g->link.send;
  if (!tt_fifo_room(out)) {
    return false;
  }
  h->kind = f->end.kind;
  h->number = f->end.number;
  memcpy(tt_fifo_slot(out)->data, h, sizeof *h);
  if (bytes > 0) {
    memcpy(tt_fifo_data(out), payload, bytes);
  }
  tt_fifo_publish(out, (uint32_t)bytes, TT_FAR_SIG, 0);
  atomic_store_explicit(&g->link.written, out->next, memory_order_release);
  return true;
}

// Is there room for the next message at the receiver, as far as it has said?
static bool far_may_send(const tt_far_fifo *f)
{
  return f->open && !f->closed && (f->turn == 0 ? f->freed == f->total : f->total - f->freed <= f->end.fifo.mask);
}

// Sends the parts of the next message. False: there is no room now.
static bool far_send_next(tt_proxy_puts *g, tt_far_fifo *f)
{
  const tt_slot *s = far_slot(f);
  do {
    const uint32_t part = TT_MIN(s->bytes - f->at, (uint32_t)TT_RMA_SLOT_BYTES);
    far_head h = {.what = FAR_MESSAGE, .sig = s->sig, .count = s->count, .at = f->at, .bytes = s->bytes};
    if (!far_say(g, f, &h, far_data(f) + f->at, part)) {
      return false;
    }
    f->at += part;
  } while (f->at < s->bytes);
  return true;
}

static ncclResult_t far_send_all(tt_proxy_puts *g, tt_far_fifo *f, bool *moved)
{
  while (far_is_filled(f) && far_may_send(f)) {
    tt_slot *s = far_slot(f);
    if (s->bytes > f->end.fifo.capacity) { // the executor's own bug, or memory that somebody else has written to
      return tt_fail(ncclInternalError, "rank %d: a message of %u bytes to rank %d in a slot of %u",
                     g->peer.send.proxy->rank, s->bytes, g->peer.rank, f->end.fifo.capacity);
    }
    if (!far_send_next(g, f)) {
      break;
    }
    atomic_store_explicit(&s->seq, 0, memory_order_relaxed);
    atomic_store_explicit(f->end.fifo.head, f->turn + 1, memory_order_release);
    far_advance(f);
    *moved = true;
  }
  return ncclSuccess;
}

// Says when this rank has the FIFO, and when half of its slots are free again, or all of a replay's messages taken.
static void far_grant(tt_proxy_puts *g, tt_far_fifo *f, bool *moved)
{
  const tt_fifo_shape *shape = &f->end.shape;
  far_head h = {.what = FAR_OPEN, .sig = shape->messages, .count = shape->slots, .bytes = shape->bytes};
  if (!f->open && f->here) {
    f->open = far_say(g, f, &h, NULL, 0);
    *moved |= f->open;
  }
  if (!f->open || !f->here) {
    return;
  }
  const uint32_t head = atomic_load_explicit(f->end.fifo.head, memory_order_acquire);
  const uint32_t freed = f->total - (f->turn == 0 ? shape->messages : f->turn) + head;
  h = (far_head){.what = FAR_FREED, .at = freed};
  if (freed != f->freed && (head == shape->messages || freed - f->freed > f->end.fifo.mask / 2) &&
      far_say(g, f, &h, NULL, 0)) {
    f->freed = freed;
    *moved = true;
  }
}

// Nothing will come of it any more: both ranks have left, and each knows of the other.
static bool far_is_over(tt_proxy_puts *g, tt_far_fifo *f)
{
  far_head h = {.what = FAR_CLOSED};
  if (!f->left) {
    return false;
  }
  if (f->copy != NULL && !far_is_filled(f)) {
    tt_free(f->copy);
    f->copy = NULL;
  }
  return f->end.sends ? f->closed : !f->open || far_say(g, f, &h, NULL, 0);
}

// Can nothing be done until something comes, the rank comes or goes, or, where it sends, its kernels begin a replay?
static bool far_may_rest(const tt_far_fifo *f)
{
  if (!f->end.sends) {
    return f->here && f->open && f->freed == f->total;
  }
  if (!f->here || f->closed) {
    return !(far_is_filled(f) && far_may_send(f));
  }
  return f->turn == 0 && f->at == 0 &&
         atomic_load_explicit(f->end.fifo.head, memory_order_relaxed) == f->end.shape.messages;
}

// False: no memory.
static bool far_rest(tt_far_fifo *f)
{
  tt_far_set *set = &f->pair->far;
  if (f->end.sends && f->here && !f->closed) {
    if (!tt_grow(&set->rests, set->nrests, 1, &set->room, sizeof *set->rests)) {
      return false;
    }
    f->rest = set->nrests++;
    set->rests[f->rest] = (tt_far_rest){.head = f->end.fifo.head, .messages = f->end.shape.messages, .fifo = f};
  }
  return true;
}

// Kernels have begun to send: they set the head to 0 before the first message of a replay.
static void far_wake_begun(tt_far_set *set)
{
  for (int i = set->nrests - 1; i >= 0; i--) { // the last one takes the place of one that leaves
    const tt_far_rest *r = &set->rests[i];
    if (atomic_load_explicit(r->head, memory_order_relaxed) != r->messages) {
      far_wake(r->fifo);
    }
  }
}

ncclResult_t tt_far_tell(tt_proxy_puts *g, bool *moved)
{
  ncclResult_t res = ncclSuccess;
  far_wake_begun(&g->far);
  for (tt_far_fifo **at = &g->far.busy, *f = *at; f != NULL && res == ncclSuccess; f = *at) {
    if (f->end.sends) {
      res = far_send_all(g, f, moved);
    } else {
      far_grant(g, f, moved);
    }
    const bool over = far_is_over(g, f);
    if (!over && !(far_may_rest(f) && far_rest(f))) {
      at = &f->next_busy;
      continue;
    }
    *at = f->next_busy;
    f->busy = false;
    if (over) {
      far_drop(f);
    }
  }
  return res;
}

bool tt_far_idle(const tt_proxy_puts *g)
{
  bool idle = true;
  for (int i = 0; i < TT_FAR_BUCKETS; i++) {
    for (const tt_far_fifo *f = g->far.first[i]; f != NULL && idle; f = f->next) {
      idle = !f->end.sends || f->closed || !far_is_filled(f);
    }
  }
  return idle;
}
