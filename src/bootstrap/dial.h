// dial.h: the connecting side of greet.h: to whichever address of a listener answers first. Nothing here waits.
//
// The first address is tried at once, each next one 100 ms later, or as soon as one before it has failed. Only one
// connection at a time says the hello, so that a listener with many addresses never gets two; the others are given up
// when it is answered. A connection that is dropped before the answer (strangers pushed it out) is made again.
#pragma once
#include "bootstrap/conn.h"

enum { TT_DIAL_POLL = TT_ADDRS_MAX };

typedef struct tt_dial tt_dial;

// Starts to connect to one of `to`, proving `key` with `hello` (kind, rank, to, nranks, tag and cookie are the
// caller's). `deadline_ns` 0: none. 0, or -EINVAL (no address), -ENOMEM. Free it with tt_dial_cancel.
int tt_dial_start(const tt_addrs *to, const tt_key *key, const tt_hello *hello, uint64_t deadline_ns, tt_dial **out);
// Before the first step: the set `events` (os/events.h) tells `owner` when a connection makes the next step possible.
// It must outlive the dial.
void tt_dial_watch(tt_dial *d, int events, void *owner);
// Goes on without waiting. 0: not yet; 1: done, *fd is the caller's (non-blocking) and *at the address that answered; <
// 0: -errno of the failure that says most. -EMFILE and its like (tt_sock_is_shortage): this process could not try.
// -ETIMEDOUT: an address has stayed silent until the deadline. -EACCES: the listener has another secret, or is another
// rank. -EKEYREJECTED: the key is public, and the listener is another user's process. -EPROTONOSUPPORT: another
// version. -ENOKEY: another encryption key, or none on one side. -EPROTO: another program. -ECONNREFUSED, -ECONNRESET,
// … Answers the same again after a failure; not to be called again after 1.
int tt_dial_step(tt_dial *d, int *fd, tt_addr *at);
// Writes what to poll for before the next step (room for TT_DIAL_POLL; NULL: a set watches) and returns how many.
// `wake_ns` (0: none yet) is lowered to the time of the next step that is due in any case.
size_t tt_dial_poll(const tt_dial *d, struct pollfd *fds, uint64_t *wake_ns);
// The hello that was answered, with its nonce and seal: both ends know it, so it can key what follows. After a step
// that returned 1.
const tt_hello *tt_dial_hello(const tt_dial *d);
// Gives up, or frees what is done or failed. NULL is allowed.
void tt_dial_cancel(tt_dial *d);
