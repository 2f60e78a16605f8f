// greet.h: listening sockets that let in only connections that prove that they know the key, and never wait for any.
//
// A connection is greeted at once and is pending until its hello is complete (conn.h). It is dropped when it sends
// something else, sends nothing for TT_GREET_NS, or closes; the first such stranger is logged. At most TT_GREET_MAX are
// pending: another one pushes out the oldest, but not before the oldest has had TT_GREET_STAY_NS to answer.
#pragma once
#include "bootstrap/conn.h"
#include "os/clock.h"

enum { TT_GREET_MAX = 512, TT_GREET_POLL = TT_ADDRS_MAX + TT_GREET_MAX };
#define TT_GREET_NS (5 * TT_NS_PER_S)
#define TT_GREET_STAY_NS (50 * TT_NS_PER_MS)

typedef struct tt_pending {
  tt_conn conn;
  tt_addr from;
  uint64_t came_ns, heard_ns; // heard: when it last sent something, or came
} tt_pending;

// Zeroed it listens nowhere.
typedef struct tt_greeter {
  tt_addrs addrs;        // where it listens; n is 0 when it does not
  int fds[TT_ADDRS_MAX]; // the same in sockets
  tt_welcome welcome;
  unsigned strangers; // dropped so far
  bool tells;         // tt_greeter_next also tells of ranks with another encryption key, and of lost ones
  bool quiet;         // strangers are said at INFO only; the caller sets it after tt_greeter_open
  bool logged;        // the first stranger was
  bool quiet_logged;  // the first one that closed without a word was
  int shortage; // -errno of the first connection that it could not accept (descriptors, memory), logged once; 0: none
  int npending, room;
  tt_pending *pending; // oldest first; room for `room`
} tt_greeter;

// Listens on as many of `at` as possible (port 0: any); g->addrs says where. 0, or, when it is none, the first one's
// -errno, but -EADDRINUSE if it is that of any (the caller knows the purpose). `key`, `kinds` and `to` as in
// tt_welcome; a listener with several keys sets g->welcome.find next.
int tt_greeter_open(tt_greeter *g, const tt_addrs *at, const tt_key *key, unsigned kinds, int to);
// Listens on one more socket (tt_tcp_listen; the greeter's from now on), whose address is `at`. Of TT_ADDRS_MAX the one
// that was opened first is closed.
void tt_greeter_add(tt_greeter *g, const tt_addr *at, int fd);
// Writes what to poll for into `fds` (room for TT_GREET_POLL) and returns how many. `wake_ns` (0: none yet) is lowered
// to the time of the next tt_greeter_next that is due in any case.
size_t tt_greeter_poll(const tt_greeter *g, struct pollfd *fds, uint64_t *wake_ns);
// Accepts and reads what is there without waiting, in bounded time whatever comes. When a connection has proved itself,
// writes its hello and the socket (now the caller's) and returns true; call again until false. With `tells`
// also when a rank that knows the key has another encryption key (TT_HELLO_DIFFERS), or has ended the connection once
// it had proved itself: the connection is closed, and *fd is -1.
bool tt_greeter_next(tt_greeter *g, tt_hello *hello, int *fd);
// Drops what is pending, and goes on listening: those that come stay in the kernel's queue until they are heard.
void tt_greeter_rest(tt_greeter *g);
// Stops listening (also in forked copies when `kill` is set: only the process that opened it may do so) and drops what
// is pending.
void tt_greeter_close(tt_greeter *g, bool kill);
