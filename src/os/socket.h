// socket.h: TCP sockets with deadlines and an abort flag. The only place that retries EINTR and sees EAGAIN.
//
// These calls are quiet: they return 0 (or a count) on success and a negative errno otherwise, because only the caller
// knows which rank and which purpose belong into the text. All sockets are non-blocking, closed on exec, without delay
// (TCP_NODELAY), and never raise SIGPIPE. Different sockets may be used by different threads; one socket by one thread
// at a time. A socket may be encrypted (tls.h).
#pragma once
#include <assert.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

// An address as it travels between machines. All zero: none.
typedef struct tt_addr {
  uint16_t family; // AF_INET or AF_INET6
  uint16_t port;   // host byte order
  uint32_t scope;  // interface index of a link-local IPv6 address on the machine that owns it
  uint8_t ip[16];  // network byte order; IPv4 uses the first four
} tt_addr;
static_assert(sizeof(tt_addr) == 24, "tt_addr is sent as it is");

enum { TT_ADDRS_MAX = 8 };

// Where one listener can be reached, best first. Sent as it is.
typedef struct tt_addrs {
  uint32_t n;
  uint32_t more; // further addresses, for which there was no room
  tt_addr a[TT_ADDRS_MAX];
} tt_addrs;
static_assert(sizeof(tt_addrs) == 200, "tt_addrs is sent as it is");

// How long a call may wait.
typedef struct tt_until {
  const volatile uint32_t *abort_flag; // NULL: none; polled at least every 100 ms
  uint64_t deadline_ns;                // on tt_now_ns(); 0: none
} tt_until;

#define TT_ADDR_TEXT 72 // room for "[IPv6%scope]:port"

// Writes "192.0.2.1:4711" or "[fd00::1]:4711" into buf and returns it; "(no address)" for an empty or unknown address.
// Pure.
const char *tt_addr_text(const tt_addr *a, char buf[TT_ADDR_TEXT]);
// The same without the port: "192.0.2.1", "fd00::1", "fe80::1%scope". Pure.
const char *tt_addr_ip_text(const tt_addr *a, char buf[TT_ADDR_TEXT]);
// Reads every address of "host:port" (IPv4 first, at most TT_ADDRS_MAX), "1.2.3.4:port" or "[v6%interface]:port". A
// name is looked up (may wait for the resolver); `family` AF_UNSPEC prefers IPv4. Errors: -EINVAL (not of that form,
// port 0 or above 65535), -ENOENT (unknown name or interface).
int tt_addrs_parse(const char *text, int family, tt_addrs *out);
// True when both have the same family, IP and scope (ports are not compared). Pure.
bool tt_addr_same_ip(const tt_addr *a, const tt_addr *b);
// Is it an IPv6 address that holds on one link only (fe80::/10)? Pure.
bool tt_addr_is_link_local(const tt_addr *a);
// The kernel's form of an address; its family alone where we do not speak that. Pure.
struct sockaddr;
void tt_addr_of_kernel(const struct sockaddr *s, tt_addr *a);
// Place of `a` in the list, from 1; 0: it is not there. Ports count with `port`. Pure.
uint32_t tt_addrs_find(const tt_addrs *list, const tt_addr *a, bool port);
// Adds `a` at the end unless it is there (with its port); when the list is full, counts it in `more`. Pure.
void tt_addrs_add(tt_addrs *list, const tt_addr *a);
// True when what came from another machine can be used: at most TT_ADDRS_MAX, each of a family we speak, with a port.
// Pure.
bool tt_addrs_good(const tt_addrs *list);

#define TT_ADDRS_TEXT (TT_ADDRS_MAX * TT_ADDR_TEXT)
// Writes all of them, separated by ", ", and how many were left out, into buf and returns it. Pure.
const char *tt_addrs_text(const tt_addrs *list, char buf[TT_ADDRS_TEXT]);

// Opens a listening socket on `at` (port 0: any) and writes where it listens. A port is taken even while old
// connections of it linger, but not from another listener (-EADDRINUSE). -EADDRNOTAVAIL: the machine has not got the
// address, or (port 0) every port has a listener.
int tt_tcp_listen(const tt_addr *at, int *fd, tt_addr *bound);
// The same for a port that other processes of this user listen on as well: the kernel chooses one for each connection.
int tt_tcp_listen_shared(const tt_addr *at, int *fd, tt_addr *bound);
// Takes one waiting connection. -EAGAIN: none waits. `from` may be NULL. -EMFILE and the like: the connection stays in
// the queue.
int tt_tcp_accept(int listen_fd, int *fd, tt_addr *from);
// Starts to connect, if need be from a port where old connections linger. 0: connected; -EINPROGRESS: wait for
// POLLOUT, then ask tt_tcp_connect_end. *fd is valid in both cases.
int tt_tcp_connect_start(const tt_addr *to, int *fd);
// The outcome of tt_tcp_connect_start; the caller closes the socket on an error.
int tt_tcp_connect_end(int fd);

// Sends or receives what is possible now: bytes (> 0), or -EAGAIN. tt_sock_recv: -ECONNRESET also when the peer has
// closed. size > 0.
ssize_t tt_sock_send(int fd, const void *data, size_t size);
ssize_t tt_sock_recv(int fd, void *data, size_t size);
// As tt_sock_recv, but 0 when the peer has closed, which is no error of the connection. `peek`: what it reads stays
// there.
ssize_t tt_sock_take(int fd, void *data, size_t size, bool peek);
// Will nothing more come than what can be read already?
bool tt_sock_ended(int fd);
// Goes on to send or receive a message of `size` bytes, of which *at have passed. 1: all have; 0: not yet; < 0: the
// connection's error, which is -ECONNRESET also where nothing can be sent any more.
int tt_sock_pass(int fd, void *message, size_t size, size_t *at, bool send);
// Sends a message for which the connection has room unless the peer does not read. 0, -ENOBUFS (it does not), or the
// connection's error.
int tt_sock_send_whole(int fd, const void *message, size_t size);
// As tt_sock_send and tt_sock_recv, from and into several pieces of memory at once (at most 64, together > 0).
ssize_t tt_sock_sendv(int fd, const struct iovec *parts, int n);
ssize_t tt_sock_recvv(int fd, const struct iovec *parts, int n);

// As poll(2), until something is ready (> 0), or -ETIMEDOUT, or -ECANCELED when the abort flag is set. Negative fds are
// skipped, but count: with more entries than the process may have files open it is -EINVAL, at once.
int tt_sock_poll(struct pollfd *fds, size_t n, const tt_until *until);
// True when `flag` is not NULL and set.
bool tt_aborted(const volatile uint32_t *flag);

// The address from which this machine would send to `to` by its routes. Nothing is sent. -ENETUNREACH and the like: it
// has no route there.
int tt_addr_source(const tt_addr *to, tt_addr *out);
// The socket's own address.
int tt_sock_local(int fd, tt_addr *out);
// The address of the other end.
int tt_sock_peer(int fd, tt_addr *out);
// A second descriptor of the same socket, closed on exec. -EOPNOTSUPP: it is encrypted (tls.h).
int tt_sock_copy(int fd, int *copy);
// True when what was sent has gone unanswered for about a minute: the peer's machine or the way there is lost
// (keep-alive, which notices that on an idle connection, does not run while something is on its way). A peer that is
// alive and does not read is not lost.
bool tt_sock_lost(int fd);
// True when it takes nothing more to be sent, and all that it has waits here for the peer to read: nothing is on its
// way, and the peer's window is closed. With encryption the same of the records. False also where that is not known: an
// old kernel.
bool tt_sock_stands(int fd);
// The shortest time, in microseconds, between something sent and the answer of the peer's kernel, of the last minutes
// (tcp_min_rtt_wlen). Independent of process scheduling. 0: not known.
uint32_t tt_sock_trip_us(int fd);
// Has the peer of a TCP connection said that nothing more comes, or has the connection ended? What came before may
// still be unread.
bool tt_sock_finished(int fd);
// Says "nothing more comes" to the peer; what was sent still arrives. Works through copies of the descriptor that a
// fork has made.
void tt_sock_finish(int fd);
// Makes a socket dead in every process that has a copy of it: a listener stops to listen, a connection ends both ways.
// Does not close it.
void tt_sock_kill(int fd);
// Closes *fd and sets it to -1; a negative one is left alone.
void tt_sock_close(int *fd);

// A machine at the other end that does not answer for about `seconds` (3 or more) ends the connection with
// -ETIMEDOUT. Where the kernel does so only for idle connections (before Linux 6.15), tt_sock_silent_ms tells.
void tt_sock_patience(int fd, unsigned seconds);
// Milliseconds for which the other machine has not answered although it should have: it has not acknowledged what
// was sent, or it had no room and does not say so any more. 0 while all is well, however long the other process lets
// its data lie. (TCP_USER_TIMEOUT cannot tell these apart.)
unsigned tt_sock_silent_ms(int fd);

// `closely`: while nothing comes, the other end's kernel is asked every second, not every half minute, whether the
// connection is still there. For a caller that waits for a listener's first message. When a listener is closed in
// the middle of TCP's handshake, Linux drops its end without telling the connecting one (6.18: in one of 30 such
// cases), which is then connected with no peer.
void tt_sock_watch(int fd, bool closely);
// True when `e` (a negative errno of these calls) says that this process or machine has run out of something:
// descriptors, ports, memory. The other end is not to blame, and it may pass. Pure.
bool tt_sock_is_shortage(int e);
// What `e` says, for the end of a message: of a shortage what this machine lacks and what to do about it, else
// strerror's text.
const char *tt_sock_error_text(int e);

// Raises the process's soft limit of open files to its hard limit, because a root needs one descriptor per rank, and
// returns what it is then.
uint64_t tt_sock_raise_file_limit(void);
