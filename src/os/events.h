// events.h: one descriptor that polls readable when something has happened to any of many descriptors, a descriptor
// that threads can ring, and times in order. A thread that waits for many connections looks only at those that are
// ready or due.
//
// What tt_events_add adds is edge-triggered: an event is told once, when it comes. Quiet as socket.h: 0 or a negative
// errno. Any thread.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/spans.h"

#define TT_EVENTS_FOREVER UINT64_MAX

// Opens a set of descriptors.
int tt_events_open(int *set);
// Adds `fd`: tell when it becomes readable (`in`), or when it can be written to again; its end and its errors are told
// in any case. It leaves the set when its last copy is closed.
int tt_events_add(int set, int fd, bool in);
// How tt_events_watch watches.
enum {
  TT_EVENTS_IN = 1,   // tell when it is readable; its end and its errors are told in any case
  TT_EVENTS_OUT = 2,  // tell when it is writable
  TT_EVENTS_EDGE = 4, // tell once, when that begins; otherwise as long as it is so
};
// Adds `fd`, or changes how it is watched. tt_events_take returns `owner`. Call tt_events_remove before closing: a
// copy of the descriptor in a forked child would keep it in the set.
int tt_events_watch(int set, int fd, unsigned how, void *owner);
// Writes the owners of up to `room` (at most TT_EVENTS_AT_ONCE) descriptors that are ready, and returns how many. Never
// waits. What there is no room for is told by the next call.
enum { TT_EVENTS_AT_ONCE = 64 };
int tt_events_take(int set, void **owners, int room);
// Takes `fd` out of the set. Not in a forked child, whose set is the parent's.
void tt_events_remove(int set, int fd);
// In a forked child: closes its copies of the set, of the sets in it, and of all that they watch, also where a
// library opened that; the parent's stay as they are. For sets of libraries that have no call for this. Takes no
// lock and no memory. What cannot be found out (no /proc) stays open.
void tt_events_close_watched(int set);
// Sleeps until something happens in the set, and forgets it, or until `timeout_ns` (to the millisecond above) has
// passed. May return early.
void tt_events_wait(int set, uint64_t timeout_ns);

// Opens a descriptor that is rung by tt_ring and polls readable until tt_ring_clear (in a set: every ring is an event,
// clearing is not needed).
int tt_ring_open(int *fd);
void tt_ring(int fd);
void tt_ring_clear(int fd);
// Sleeps until the descriptor is rung (it stays so), or until `timeout_ns` has passed. May return early.
void tt_ring_wait(int fd, uint64_t timeout_ns);

// Times in order: a set of spans (base/spans.h) that stand in the caller's objects and start at a time in nanoseconds.
// Sets that of `t`, which may be in the set; 0: none. Takes time in proportion to the logarithm of their number. No
// locks: the caller's.
void tt_timer_set(tt_span **timers, tt_span *t, uint64_t at_ns);
// Lowers `wake_ns` (0: none yet), the time when to wake up at the latest, to `at_ns` (0: no time). Pure.
void tt_wake_by(uint64_t *wake_ns, uint64_t at_ns);
// The timer that is due first; NULL: none is set. Its `start` is its time.
tt_span *tt_timer_first(tt_span *timers);
