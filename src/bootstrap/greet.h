// greet.h: a listening socket that lets in only those who can prove that they know the key, and never waits for any one of them.
//
// A connection is a guest until its hello is complete. Guests that send something else, nothing for TT_GREET_NS, or close are dropped; the
// first such stranger is logged. At most TT_GREET_MAX guests at a time: another one pushes out the oldest.
#pragma once
#include "bootstrap/hello.h"
#include "nccl.h"
#include "os/clock.h"

enum { TT_GREET_MAX = 128 };
#define TT_GREET_NS (5 * TT_NS_PER_S)

typedef struct tt_guest {
  int fd;
  tt_addr from;
  uint64_t deadline_ns;
  size_t got; // bytes of the hello
  tt_hello hello;
} tt_guest;

typedef struct tt_greeter {
  int fd; // listening, or -1
  tt_addr addr;
  tt_key key;
  unsigned kinds;     // tt_hello_kind bits let in
  int to;             // the listener's own rank; -1: root
  unsigned strangers; // dropped so far
  bool full_logged;   // out of descriptors, said once
  int nguests;
  tt_guest *guests; // TT_GREET_MAX, oldest first; made when the first one comes
} tt_greeter;

// Zeroes `g` to a state that tt_greeter_close accepts.
void tt_greeter_none(tt_greeter *g);
// Listens on `at`. The socket's errors are returned as a negative errno (the caller knows the purpose), 0 on success.
int tt_greeter_open(tt_greeter *g, const tt_addr *at, const tt_key *key, unsigned kinds, int to);
// Writes what to poll for into `fds` (room for 1 + TT_GREET_MAX) and returns how many. `wake_ns` is lowered to the first guest's deadline.
size_t tt_greeter_poll(const tt_greeter *g, struct pollfd *fds, uint64_t *wake_ns);
// Accepts and reads whatever is there without waiting. When a hello is complete, writes it and its socket (now the caller's) and returns
// true; call again until false.
bool tt_greeter_next(tt_greeter *g, tt_hello *hello, int *fd);
// Stops to listen (also in forked copies when `kill` is set: only the process that opened it may do so) and drops the guests.
void tt_greeter_close(tt_greeter *g, bool kill);
