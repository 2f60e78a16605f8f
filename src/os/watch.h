// watch.h: threads that sleep on descriptors: a descriptor to wake them with (eventfd), and sets of descriptors whose changes wake (epoll).
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define TT_WATCH_FOREVER UINT64_MAX

// A descriptor that polls readable from tt_wake_set until tt_wake_clear. 0 or -errno. Closed with tt_fd_close or tt_sock_close.
int tt_wake_open(int *fd);
// Any thread, any number of times. Never waits.
void tt_wake_set(int fd);
void tt_wake_clear(int fd);
// Sleeps until the descriptor is set or `timeout_ns` has passed. May return early. Does not clear.
void tt_wake_wait(int fd, uint64_t timeout_ns);

// An empty set. 0 or -errno. Closed with tt_fd_close or tt_sock_close.
int tt_watch_open(int *set);
// From now on the set wakes when `fd` becomes readable. `edge`: once for every change, and once if it is readable now; else as long as it is
// readable. 0 or -errno. Any thread, also while another one waits.
int tt_watch_add(int set, int fd, bool edge);
void tt_watch_remove(int set, int fd);
// Sleeps until something happens in the set or `timeout_ns` (to the millisecond above) has passed. May return early.
void tt_watch_wait(int set, uint64_t timeout_ns);
