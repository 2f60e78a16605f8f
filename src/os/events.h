// events.h: one descriptor that polls readable when something has happened to any of many descriptors, and a descriptor that threads can
// ring.
//
// Everything is edge-triggered: an event is told once, when it comes. Quiet as socket.h: 0 or a negative errno. Any thread.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define TT_EVENTS_FOREVER UINT64_MAX

// Opens a set of descriptors.
int tt_events_open(int *set);
// Adds `fd`: tell when it becomes readable (`in`), or when it can be written to again; its end and its errors are told in any case. It
// leaves the set when its last copy is closed.
int tt_events_add(int set, int fd, bool in);
// Takes `fd` out of the set. Not in a forked child, whose set is the parent's.
void tt_events_remove(int set, int fd);
// In a forked child: closes its copies of the set, of the sets in it, and of all that they watch, whoever opened that; the parent's stay as they are. For
// sets of libraries that have no word for this. Takes no lock and no memory. What cannot be found out (no /proc) stays open.
void tt_events_close_watched(int set);
// Sleeps until something happens in the set, and forgets it, or until `timeout_ns` (to the millisecond above) has passed. May return early.
void tt_events_wait(int set, uint64_t timeout_ns);

// Opens a descriptor that is rung by tt_ring and polls readable until tt_ring_clear (in a set: every ring is an event, clearing is not
// needed).
int tt_ring_open(int *fd);
void tt_ring(int fd);
void tt_ring_clear(int fd);
// Sleeps until the descriptor is rung (it stays so), or until `timeout_ns` has passed. May return early.
void tt_ring_wait(int fd, uint64_t timeout_ns);
