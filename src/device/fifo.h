// fifo.h: the FIFO between two ranks, as it lies in memory. One writer, one reader, in one process or two.
//
// Every message takes one slot. A slot starts with a 64-byte line: sequence number, size, fingerprint of the call; the
// line travels as a whole, so a message of up to 40 bytes costs one hand-over of one cache line. Four geometries of the
// same thing:
//   SIMPLE  few large slots; the data lies in a page-aligned area of its own
//   LL      many small slots; the data follows the header, flag and data in one line when small
//   TOKEN   header only; its 40 bytes hold the sender's addresses
//   TINY    as LL, but more and smaller slots, close together: a rank that only sends runs further ahead. In shared
//   memory alone
// Rules: the writer owns slots[i] from the moment head > i - nslots until it publishes `seq` = i + 1 (release); the
// reader looks at `seq` (acquire), uses the slot, and gives it back by storing head = i + 1 (release) on a cache line
// of its own. Nobody writes the other's words. Memory starts zeroed, which is a valid empty FIFO: neither side waits
// for the other to set it up.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

typedef enum { TT_SIMPLE, TT_LL, TT_TOK, TT_TINY, TT_NFIFOS } tt_proto;

enum {
  TT_TINY_BYTES = 232, // payload of a TINY slot
  TT_TOKEN_SLOTS = 8   // an outbox remembers where the copies of twice as many end (device/host/handover.h)
};

// Memory of this process that peers can map; a token names it by its handle. 0: there is none.
typedef struct tt_mappable {
  uint32_t handle;
  uintptr_t from;
  size_t size;
} tt_mappable;

// What a token tells the receiver: where the sender's buffers are, as addresses of the sender's address space. A `mem`
// that is not 0 names the shareable allocation that the buffer lies in, which the receiver maps if it may
// (device/host/mem.h).
typedef struct tt_desc {
  uint64_t in, out;
  uint32_t in_mem, out_mem;
  uint64_t scalar; // the sender's pre-scaling factor
  // How many shareable allocations the sender has freed: a change invalidates what the receiver has mapped.
  uint32_t freed;
  uint32_t put : 1;   // the sender has written its last TT_STEP_PUT into the receiver's output
  uint32_t along : 2; // 1 + tt_way: how the slot's `bytes` bytes of what the token offers come along
                      // (device/host/offer.h); 0: nothing does
  // PAGES: number, in the sender's process, of the pipe (os/pagepipe.h); COPY: where in the sender's outbox, in cache
  // lines.
  uint32_t place : 29;
} tt_desc;

typedef struct tt_slot {
  _Atomic uint32_t seq; // number of this message + 1; written last
  uint32_t bytes;       // payload; token: what comes along with it
  uint64_t sig;         // fingerprint of the call: sequence number, function, type, operation, root
  uint64_t count;       // its count
  union {
    unsigned char data[40];
    tt_desc desc;
    uint64_t elsewhere; // SIMPLE over the network: address of a payload that does not lie in the slot, in the process
                        // of this FIFO; 0: it does
  };
} tt_slot;
_Static_assert(sizeof(tt_desc) == 40, "shared memory layout");
_Static_assert(sizeof(tt_slot) == 64, "shared memory layout");

// The reader's line of a FIFO. `uses` and `ended` are those of TOKEN alone, between ranks on GPUs
// (device/cuda/work/owner.h).
typedef struct tt_fifo_line {
  _Atomic uint32_t head;  // reader's count of slots given back
  _Atomic uint32_t uses;  // 1: kernels of the reader are using memory of the writer
  _Atomic uint32_t ended; // 1: the writer has stopped, and its memory is its user's. The writer's word
} tt_fifo_line;
_Static_assert(sizeof(tt_fifo_line) <= TT_CACHE_LINE, "shared memory layout");

// One side's view of a FIFO. Private to the rank that holds it; the thread that runs the rank's plan uses it.
typedef struct tt_fifo {
  char *slots;            // first header
  char *data;             // first payload
  _Atomic uint32_t *head; // of its tt_fifo_line
  uint32_t stride;        // bytes between headers
  uint32_t data_stride;   // bytes between payloads
  uint32_t mask;          // number of slots - 1 (a power of two)
  uint32_t capacity;      // payload bytes per slot
  uint32_t next;          // number of the next message
  uint32_t seen;          // writer: last value of head it has read
} tt_fifo;

static inline tt_fifo_line *tt_fifo_line_of(const tt_fifo *f)
{
  return (tt_fifo_line *)(void *)f->head; // its first member
}

static inline tt_slot *tt_fifo_slot(const tt_fifo *f)
{
  return (tt_slot *)(f->slots + (size_t)(f->next & f->mask) * f->stride);
}

static inline char *tt_fifo_data(const tt_fifo *f)
{
  return f->data + (size_t)(f->next & f->mask) * f->data_stride;
}

// Reader: is the next message there?
static inline bool tt_fifo_arrived(const tt_fifo *f)
{
  return atomic_load_explicit(&tt_fifo_slot(f)->seq, memory_order_acquire) == f->next + 1;
}

// Writer: is there a free slot?
static inline bool tt_fifo_room(tt_fifo *f)
{
  if (TT_LIKELY(f->next - f->seen <= f->mask)) {
    return true;
  }
  f->seen = atomic_load_explicit(f->head, memory_order_acquire);
  return f->next - f->seen <= f->mask;
}

// Writer: has the reader given back everything?
static inline bool tt_fifo_drained(tt_fifo *f)
{
  f->seen = atomic_load_explicit(f->head, memory_order_acquire);
  return f->seen == f->next;
}

// Writer: hands the slot over. The payload has been written.
static inline void tt_fifo_publish(tt_fifo *f, uint32_t bytes, uint64_t sig, uint64_t count)
{
  tt_slot *s = tt_fifo_slot(f);
  s->bytes = bytes;
  s->sig = sig;
  s->count = count;
  f->next++;
  atomic_store_explicit(&s->seq, f->next, memory_order_release);
}

// Writer: has the next slot's line brought here for writing, meanwhile: the reader still has it from the message
// before. For messages of one line, by ranks that only send: a reader that waits for this one would take the line back
// at once.
static inline void tt_fifo_claim(const tt_fifo *f)
{
  if (TT_UNLIKELY(f->next - f->seen > f->mask)) {
    return; // it may not have been read yet
  }
#if defined(__x86_64__) // the builtin would fetch for reading; does nothing on processors that lack the instruction
  __asm__ __volatile__("prefetchw %0" : : "m"(*tt_fifo_slot(f)));
#else
  __builtin_prefetch(tt_fifo_slot(f), 1);
#endif
}

// Reader: gives the slot back.
static inline void tt_fifo_release(tt_fifo *f)
{
  f->next++;
  atomic_store_explicit(f->head, f->next, memory_order_release);
  // The next message may be there already: its line travels while this call is completed.
  __builtin_prefetch(tt_fifo_slot(f));
}
