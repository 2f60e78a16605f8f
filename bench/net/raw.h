// raw.h: two processes joined by TCP connections over the loopback, and the traffic of a two-rank collective over them
// with nothing but send() and recv(): what a library on the same sockets can reach at most.
#pragma once
#include <stddef.h>

#define RAW_SOCKETS 8
#define RAW_SMALL ((size_t)32 << 10) // up to here an all-reduce sends everything to everybody

// How a process waits when it can neither send nor receive.
typedef enum { RAW_SPIN, RAW_POLL, RAW_SPIN_THEN_POLL } raw_wait;

// One end of a pair.
typedef struct raw_pair {
  int rank; // 0 or 1
  int n;    // sockets in use, of those that are open
  int open;
  int fd[RAW_SOCKETS];
  raw_wait wait;
  size_t chunk;  // most bytes per system call
  char *scratch; // of max(chunk, RAW_SMALL) bytes, for what arrives to be summed
} raw_pair;

// Forks the other end: returns as rank 0 in the caller and as rank 1 in the child, which dies with it. `sockets`
// connections with TCP_NODELAY; `chunk` is the largest that will be used. 0 on success.
int raw_fork(raw_pair *p, int sockets, size_t chunk);
// Closes everything; rank 0 waits for the child. Returns the child's exit status (0 in the child).
int raw_end(raw_pair *p);

// Both ends send `bytes` from `out` and receive `bytes` into `in` at the same time, cut over the sockets. 0 on success.
int raw_exchange(const raw_pair *p, const void *out, void *in, size_t bytes);
// The same with different numbers of bytes each way, of which one may be 0; over the first socket.
int raw_move(const raw_pair *p, const void *out, size_t out_bytes, void *in, size_t in_bytes);
// Sum of `count` floats over both ends, over the first socket. Small: each sends everything. Large: each sums one half;
// its own finished part goes out behind the other's raw one, so that each end sends and receives count floats in all. 0
// on success.
int raw_all_reduce(const raw_pair *p, const float *in, float *out, size_t count);
// One ball of `bytes` bytes, `times` there and back, with recv() that sleeps or with recv() that looks again. 0 on
// success.
int raw_ping_pong(const raw_pair *p, size_t bytes, int times);

// Seconds of the monotonic clock.
double raw_now(void);
