// waits.c: see waits.h.
#include "device/cuda/work/waits.h"

enum { WAITS_OF_BLOCK = 126 };

typedef struct waits_block {
  struct waits_block *_Atomic next; // written by the thread that submits, when this one is full
  _Atomic uint32_t n;               // the same, behind the wait (release)
  uint32_t read;                    // the reader's
  gpu_wait of[WAITS_OF_BLOCK];
} waits_block;

struct gpu_waits {
  waits_block *first; // the reader's
  waits_block *last;  // of the thread that submits
};

static struct gpu_waits *waits_new(void)
{
  struct gpu_waits *w = tt_calloc(1, sizeof *w);
  waits_block *b = tt_calloc(1, sizeof *b);
  if (w == NULL || b == NULL) {
    tt_free(w);
    tt_free(b);
    return NULL;
  }
  w->first = w->last = b;
  return w;
}

// The block with room for one more. NULL: no memory.
static waits_block *waits_room(tt_gpu_port *p)
{
  struct gpu_waits *w = p->waits;
  if (w == NULL) {
    w = waits_new();
    __atomic_store_n(&p->waits, w, __ATOMIC_RELEASE);
  } else if (atomic_load_explicit(&w->last->n, memory_order_relaxed) == WAITS_OF_BLOCK) {
    waits_block *b = tt_calloc(1, sizeof *b);
    if (b == NULL) {
      return NULL;
    }
    atomic_store_explicit(&w->last->next, b, memory_order_release);
    w->last = b;
  }
  return w != NULL ? w->last : NULL;
}

void tt_gpu_waits_add(tt_gpu_port *p, const gpu_wait *wait)
{
  waits_block *b = waits_room(p);
  if (b != NULL) {
    const uint32_t n = atomic_load_explicit(&b->n, memory_order_relaxed);
    b->of[n] = *wait;
    atomic_store_explicit(&b->n, n + 1, memory_order_release);
  }
}

static bool waits_is_over(const tt_gpu_port *p, const gpu_wait *w)
{
  return tt_gpu_port_done(p, w->number) ||
         (int32_t)(atomic_load_explicit(w->word, memory_order_acquire) - w->value) >= 0;
}

bool tt_gpu_waits_first(tt_gpu_port *p, gpu_wait *out)
{
  struct gpu_waits *w = __atomic_load_n(&p->waits, __ATOMIC_ACQUIRE);
  while (w != NULL) {
    waits_block *b = w->first, *next = atomic_load_explicit(&b->next, memory_order_acquire);
    const uint32_t n = atomic_load_explicit(&b->n, memory_order_acquire);
    while (b->read < n && waits_is_over(p, &b->of[b->read])) {
      b->read++;
    }
    if (b->read < n) {
      *out = b->of[b->read];
      return true;
    }
    if (next == NULL) {
      return false;
    }
    w->first = next;
    tt_free(b);
  }
  return false;
}

void tt_gpu_waits_free(tt_gpu_port *p)
{
  if (p->waits == NULL) {
    return;
  }
  for (waits_block *b = p->waits->first, *next; b != NULL; b = next) {
    next = b->next;
    tt_free(b);
  }
  tt_free(p->waits);
  p->waits = NULL;
}

// ---- Links ----

static uint32_t next_of(const tt_fifo *f)
{
  return __atomic_load_n(&f->next, __ATOMIC_ACQUIRE); // a thread may be submitting
}

bool tt_gpu_link_lacks(const tt_gpu_port *p, const tt_link *link, bool blocked)
{
  for (int k = 0; k < TT_NFIFOS; k++) {
    const tt_fifo *in = &link->recv[k];
    const uint32_t next = next_of(in) + (blocked && tt_gpu_port_submits(p, link->peer, k));
    const tt_slot *last =
        in->slots == NULL ? NULL : (tt_slot *)(in->slots + (size_t)((next - 1) & in->mask) * in->stride);
    if (last != NULL && (int32_t)(atomic_load_explicit(&last->seq, memory_order_acquire) - next) < 0) {
      return true;
    }
  }
  for (int k = 0; k < TT_NFIFOS; k++) {
    const tt_fifo *out = &link->send[k];
    const bool token = k == TT_TOK; // they are waited for until the peer has read what they offer
    const uint32_t room = token ? 0 : out->mask, sent = next_of(out),
                   more = blocked && !token && tt_gpu_port_submits(p, link->peer, TT_NFIFOS + k);
    // The head may be ahead: the peer has taken what a thread has submitted just now.
    if (out->slots != NULL &&
        (int32_t)(sent + more - room - atomic_load_explicit(out->head, memory_order_acquire)) > 0) {
      return true;
    }
  }
  return false;
}

uint64_t tt_gpu_link_mark(const tt_link *link)
{
  uint64_t mark = 0;
  for (int k = 0; k < TT_NFIFOS; k++) {
    const tt_fifo *in = &link->recv[k], *out = &link->send[k];
    mark += in->slots != NULL ? atomic_load_explicit(in->head, memory_order_relaxed) : 0;
    mark += out->slots != NULL ? atomic_load_explicit(out->head, memory_order_relaxed) : 0;
  }
  return mark;
}
