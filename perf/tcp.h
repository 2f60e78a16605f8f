// tcp.h: TCP as the star needs it. All sockets are non-blocking, closed on exec, without delay, and notice a machine
// that went silent within about a minute. The caller polls before it reads or writes; EINTR and EAGAIN are dealt with
// here.
#pragma once
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PERF_TCP_LISTENERS = 8, PERF_TCP_NAME = 64 };

// Listens at `port`: on the loopback only when `host` is that, else on every interface (the host's name may mean
// another address here than elsewhere). Returns the number of sockets put into fds[PERF_TCP_LISTENERS], or a negative
// errno.
int perf_tcp_listen(const char *host, int port, int *fds);

// A new connection, or -EAGAIN when there is none (any more), or another negative errno.
int perf_tcp_accept(int listener);

// Connects to one of host's addresses, the first that answers, within `ms` for each. Returns the socket, or -1 and in
// `why` the reason.
int perf_tcp_connect(const char *host, int port, int ms, char *why, size_t size);

// Sends all of it, waiting as long as the peer takes (deadline_ns: not beyond this time of perf_now; 0: no limit). 0 or
// a negative errno.
int perf_tcp_send(int fd, const void *data, size_t size, uint64_t deadline_ns);

// What is there, at most `size` bytes: their number, 0 when there is nothing yet, -ECONNRESET at the end of the
// connection, or another negative errno.
long perf_tcp_read(int fd, void *data, size_t size);

// Receives exactly `size` bytes. As perf_tcp_send, and -ETIMEDOUT.
int perf_tcp_recv(int fd, void *data, size_t size, uint64_t deadline_ns);

// poll, until something happens or the deadline (0: none) is over; false then.
bool perf_tcp_poll(struct pollfd *fds, size_t count, uint64_t deadline_ns);

// "10.0.0.7:4711": the other end.
void perf_tcp_peer(int fd, char *buf, size_t size);
