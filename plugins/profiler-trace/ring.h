// ring.h: events of one communicator on their way from the threads of the job to the plugin's own. Fixed size, no lock:
// a thread that finds no room loses its event, and the loss is counted. In a ring that keeps, finished events stay
// until they are overwritten.
//
// An event lives in a slot from start to stop. Its number is its name, and says which slot. A slot knows the number of
// its event, so that names of events which are long gone are seen to be so.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tt_record {
  uint64_t number;      // its name (plugin.c)
  uint64_t way;         // ProxyStep: peer, channel and direction once more, in one word; 0: none (tt_ring_way)
  uint64_t parent;      // a name; 0: none
  uint64_t start, stop; // nanoseconds of CLOCK_MONOTONIC
  // KernelCh, KernelPhase: the channel's own start and stop. ProxyStep: its three states. GroupApi: its two. Coll, P2p:
  // the user's tag. Coll: the name of the kernel variant, a constant of the library, NULL: unknown; is it symmetric?
  uint64_t mark[3];
  uint64_t bytes; // ProxyStep: of the message; ProxyOp: of a message at most; else count * size of the type
  uint64_t seq; // Coll: of the function; P2p: of the function and peer; ProxyStep: message of the connection; ProxyOp:
                // its first message
  union {
    struct {
      const char *func, *datatype, *algo, *proto; // constants of the library
    };

    struct {
      uint64_t op;  // ProxyStep: name of the Coll or P2p
      uint64_t pid; // ProxyOp: the process that `parent` belongs to
    };
  };

  int32_t peer, thread; // rank; thread id of the caller
  uint32_t nchannels;   // ProxyOp: messages; GroupApi: depth
  uint16_t channel;
  uint8_t kind; // number of the kind's bit
  uint8_t send; // ProxyOp, ProxyStep, P2p
} tt_record;

enum { TT_SLOT_FREE = 0, TT_SLOT_BUSY = 1, TT_SLOT_OPEN = 2, TT_SLOT_KEPT = 4, TT_SLOT_DONE = 0x80 };

typedef struct tt_ring {
  size_t n;           // slots, a power of two, at least 8
  bool keeps;         // finished events may be overwritten
  uint64_t *states;   // a byte for each slot, TT_SLOT_…
  tt_record *records; // of each slot
  _Alignas(64) _Atomic uint64_t next;
  _Alignas(64) _Atomic uint64_t lost; // no room
  _Atomic uint64_t overwritten;       // finished events that nobody has seen (keeps)
} tt_ring;

// False: no memory. n is rounded up to a power of two.
bool tt_ring_create(tt_ring *r, size_t n, bool keeps);
void tt_ring_destroy(tt_ring *r);

// A slot for a new event, all zero but its number, which is from 1 on; NULL: no room. Any thread, as the next three.
tt_record *tt_ring_start(tt_ring *r);
// The record is filled in: others may look the event up.
void tt_ring_started(tt_ring *r, tt_record *e);
// The open event of this number; NULL: it has ended, or its slot belongs to another.
tt_record *tt_ring_find(tt_ring *r, uint64_t number);
void tt_ring_stop(tt_ring *r, tt_record *e);
// `way` of the open event of this number, which may end meanwhile, and its slot be another's. False: it has ended.
void tt_ring_set_way(tt_record *e, uint64_t way);
bool tt_ring_way(tt_ring *r, uint64_t number, uint64_t *way);

// Calls `see` for each event that has finished since the last time, oldest first as far as can be told, and makes room.
// With `again`, in a ring that keeps, also for each one that was seen before and is still there. Returns how many. The
// plugin's thread alone.
size_t tt_ring_drain(tt_ring *r, bool again, void (*see)(void *arg, const tt_record *e), void *arg);
