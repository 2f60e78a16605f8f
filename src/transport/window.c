// window.c: the FIFOs of one direction between two ranks, laid out in a piece of memory.
#include "base/param.h"
#include "transport/segment.h"

#define PAGE 4096
#define SIMPLE_SLOTS 8
#define LL_SLOTS 16
#define TINY_SLOTS 64
#define TINY_SLOT_BYTES (offsetof(tt_slot, data) + TT_TINY_BYTES)
#define LL_BYTES_DEFAULT (128 << 10)
#define SIMPLE_BYTES_DEFAULT (512 << 10)
#define NET_BYTES_DEFAULT (1 << 20)
#define LL_SLOT_MAX (64u << 10)
#define SIMPLE_SLOT_MAX (64u << 20)

// What stands at the start of a window. Lines (but for `ended`) and what the receiver wants are written by the
// receiver, everything else by the sender.
typedef struct header {
  struct {
    _Alignas(TT_CACHE_LINE) tt_fifo_line line;
  } lines[TT_NFIFOS];
  struct {
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t word;
  } wants;
  tt_slot tokens[TT_TOKEN_SLOTS];
  tt_slot simple[SIMPLE_SLOTS];
} header;
_Static_assert(TINY_SLOT_BYTES % TT_CACHE_LINE == 0 && TINY_SLOTS * TINY_SLOT_BYTES % PAGE == 0,
               "shared memory layout");
_Static_assert(sizeof(header) == 5 * 64 + 16 * 64 && offsetof(header, tokens) == 5 * 64, "shared memory layout");

// Bytes per slot out of a buffer of `bytes` with `slots` slots, kept within [lo, hi] and a multiple of `unit`.
static uint32_t window_slot_bytes(int64_t bytes, int slots, uint32_t unit, uint32_t hi)
{
  int64_t each = bytes / slots / unit * unit;
  return (uint32_t)TT_CLAMP(each, (int64_t)unit, (int64_t)hi);
}

tt_geometry tt_geometry_default(void)
{
  const tt_params *p = tt_params_get();
  int64_t ll = p->ll_buffsize > 0 ? p->ll_buffsize : LL_BYTES_DEFAULT;
  int64_t simple = p->buffsize > 0 ? p->buffsize : SIMPLE_BYTES_DEFAULT,
          net = p->buffsize > 0 ? p->buffsize : NET_BYTES_DEFAULT;
  return (tt_geometry){.ll_slots = LL_SLOTS,
                       .ll_slot_bytes = window_slot_bytes(ll, LL_SLOTS, 128, LL_SLOT_MAX),
                       .simple_slots = SIMPLE_SLOTS,
                       .simple_slot_bytes = window_slot_bytes(simple, SIMPLE_SLOTS, PAGE, SIMPLE_SLOT_MAX),
                       .net_slot_bytes = window_slot_bytes(net, SIMPLE_SLOTS, PAGE, SIMPLE_SLOT_MAX)};
}

static size_t window_ll_at(void)
{
  return TT_ROUND_UP(sizeof(header), TT_CACHE_LINE);
}

static size_t window_simple_at(const tt_geometry *g)
{
  return TT_ROUND_UP(window_ll_at() + (size_t)g->ll_slots * g->ll_slot_bytes, PAGE);
}

static size_t window_tiny_at(const tt_geometry *g)
{
  return window_simple_at(g) + (size_t)g->simple_slots * g->simple_slot_bytes;
}

size_t tt_window_bytes(const tt_geometry *g)
{
  return window_tiny_at(g) + TINY_SLOTS * TINY_SLOT_BYTES;
}

static bool window_slot_valid(uint32_t bytes, uint32_t unit, uint32_t most)
{
  return bytes % unit == 0 && bytes >= unit && bytes <= most;
}

bool tt_geometry_valid(const tt_geometry *g)
{
  return g->ll_slots == LL_SLOTS && g->simple_slots == SIMPLE_SLOTS &&
         window_slot_valid(g->ll_slot_bytes, 128, LL_SLOT_MAX) &&
         window_slot_valid(g->simple_slot_bytes, PAGE, SIMPLE_SLOT_MAX) &&
         window_slot_valid(g->net_slot_bytes, PAGE, SIMPLE_SLOT_MAX);
}

static size_t window_net_simple_at(const tt_geometry *g)
{
  return window_ll_at() + (size_t)g->ll_slots * g->ll_slot_bytes;
}

size_t tt_net_window_bytes(const tt_geometry *g)
{
  return window_net_simple_at(g) + (size_t)g->simple_slots * (sizeof(tt_slot) + g->net_slot_bytes);
}

void tt_net_window_view(const tt_geometry *g, char *base, tt_fifo fifos[TT_NFIFOS])
{
  tt_window_view(g, base, fifos);
  tt_fifo *f = &fifos[TT_SIMPLE];
  f->slots = base + window_net_simple_at(g);
  f->data = f->slots + sizeof(tt_slot);
  f->stride = f->data_stride = (uint32_t)sizeof(tt_slot) + g->net_slot_bytes;
  f->capacity = g->net_slot_bytes;
  fifos[TT_TINY] = (tt_fifo){.head = fifos[TT_TINY].head};
}

_Atomic uint32_t *tt_window_wants(char *base)
{
  return &((header *)base)->wants.word;
}

void tt_window_view(const tt_geometry *g, char *base, tt_fifo fifos[TT_NFIFOS])
{
  header *h = (header *)base;
  size_t inline_at = offsetof(tt_slot, data);
  fifos[TT_SIMPLE] = (tt_fifo){.slots = (char *)h->simple,
                               .stride = sizeof(tt_slot),
                               .data = base + window_simple_at(g),
                               .data_stride = g->simple_slot_bytes,
                               .mask = g->simple_slots - 1,
                               .capacity = g->simple_slot_bytes};
  fifos[TT_LL] = (tt_fifo){.slots = base + window_ll_at(),
                           .stride = g->ll_slot_bytes,
                           .data = base + window_ll_at() + inline_at,
                           .data_stride = g->ll_slot_bytes,
                           .mask = g->ll_slots - 1,
                           .capacity = g->ll_slot_bytes - (uint32_t)inline_at};
  fifos[TT_TOK] = (tt_fifo){.slots = (char *)h->tokens,
                            .stride = sizeof(tt_slot),
                            .data = (char *)h->tokens[0].data,
                            .data_stride = sizeof(tt_slot),
                            .mask = TT_TOKEN_SLOTS - 1};
  fifos[TT_TINY] = (tt_fifo){.slots = base + window_tiny_at(g),
                             .stride = TINY_SLOT_BYTES,
                             .data = base + window_tiny_at(g) + inline_at,
                             .data_stride = TINY_SLOT_BYTES,
                             .mask = TINY_SLOTS - 1,
                             .capacity = TT_TINY_BYTES};
  for (int i = 0; i < TT_NFIFOS; i++) {
    fifos[i].head = &h->lines[i].line.head;
  }
}
