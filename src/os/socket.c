// socket.c: see socket.h.
#define _GNU_SOURCE // accept4
#include "os/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "base/util.h"
#include "os/clock.h"
#include "os/ports.h"
#include "os/retry.h"
#include "os/tls.h"

enum { BACKLOG = 4096, ABORT_POLL_MS = 100, MISSES = 16 };

typedef union {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
} sock_name;

// Returns the length for the kernel, 0 for a family that we do not speak.
static socklen_t to_kernel(const tt_addr *a, sock_name *s)
{
  memset(s, 0, sizeof(*s));
  s->any.sa_family = a->family;
  if (a->family == AF_INET) {
    s->v4.sin_port = htons(a->port);
    memcpy(&s->v4.sin_addr, a->ip, 4);
    return sizeof(s->v4);
  }
  if (a->family == AF_INET6) {
    s->v6.sin6_port = htons(a->port);
    s->v6.sin6_scope_id = a->scope;
    memcpy(&s->v6.sin6_addr, a->ip, 16);
    return sizeof(s->v6);
  }
  return 0;
}

void tt_addr_of_kernel(const struct sockaddr *s, tt_addr *a)
{
  memset(a, 0, sizeof(*a));
  a->family = s->sa_family;
  if (a->family == AF_INET) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)s;
    a->port = ntohs(v4->sin_port);
    memcpy(a->ip, &v4->sin_addr, 4);
  } else if (a->family == AF_INET6) {
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)s;
    a->port = ntohs(v6->sin6_port);
    a->scope = v6->sin6_scope_id;
    memcpy(a->ip, &v6->sin6_addr, 16);
  }
}

const char *tt_addr_ip_text(const tt_addr *a, char buf[TT_ADDR_TEXT])
{
  char ip[INET6_ADDRSTRLEN];
  if ((a->family != AF_INET && a->family != AF_INET6) || inet_ntop(a->family, a->ip, ip, sizeof(ip)) == NULL) {
    snprintf(buf, TT_ADDR_TEXT, "(no address)");
  } else if (a->family == AF_INET6 && a->scope != 0) {
    snprintf(buf, TT_ADDR_TEXT, "%s%%%u", ip, a->scope);
  } else {
    snprintf(buf, TT_ADDR_TEXT, "%s", ip);
  }
  return buf;
}

const char *tt_addr_text(const tt_addr *a, char buf[TT_ADDR_TEXT])
{
  char ip[TT_ADDR_TEXT];
  tt_addr_ip_text(a, ip);
  if (a->family == AF_INET || a->family == AF_INET6) {
    snprintf(buf, TT_ADDR_TEXT, a->family == AF_INET ? "%.60s:%u" : "[%.60s]:%u", ip, a->port);
  } else {
    memcpy(buf, ip, sizeof(ip));
  }
  return buf;
}

bool tt_addr_same_ip(const tt_addr *a, const tt_addr *b)
{
  return a->family == b->family && a->scope == b->scope && memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

bool tt_addr_is_link_local(const tt_addr *a)
{
  return a->family == AF_INET6 && a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80;
}

uint32_t tt_addrs_find(const tt_addrs *list, const tt_addr *a, bool port)
{
  for (uint32_t i = 0; i < list->n; i++) {
    if (tt_addr_same_ip(&list->a[i], a) && (!port || list->a[i].port == a->port)) {
      return i + 1;
    }
  }
  return 0;
}

void tt_addrs_add(tt_addrs *list, const tt_addr *a)
{
  if (tt_addrs_find(list, a, true) == 0) {
    if (list->n < TT_ADDRS_MAX) {
      list->a[list->n++] = *a;
    } else {
      list->more++;
    }
  }
}

bool tt_addrs_good(const tt_addrs *list)
{
  if (list->n < 1 || list->n > TT_ADDRS_MAX) {
    return false;
  }
  for (uint32_t i = 0; i < list->n; i++) {
    if ((list->a[i].family != AF_INET && list->a[i].family != AF_INET6) || list->a[i].port == 0) {
      return false;
    }
  }
  return true;
}

const char *tt_addrs_text(const tt_addrs *list, char buf[TT_ADDRS_TEXT])
{
  char one[TT_ADDR_TEXT];
  buf[0] = '\0';
  for (uint32_t i = 0; i < list->n && i < TT_ADDRS_MAX; i++) {
    tt_list_add(buf, TT_ADDRS_TEXT, "%s", tt_addr_text(&list->a[i], one));
  }
  size_t used = strlen(buf);
  if (used == 0) {
    snprintf(buf, TT_ADDRS_TEXT, "(no address)");
  } else if (list->more > 0) {
    snprintf(buf + used, TT_ADDRS_TEXT - used, " (%u more %s left out)", list->more,
             list->more == 1 ? "address was" : "addresses were");
  }
  return buf;
}

// Splits "host:port" or "[host]:port" into host (copied) and port.
static int split_port(const char *text, char *host, size_t room, uint16_t *port)
{
  bool bracket = text[0] == '[';
  const char *from = text + bracket;
  const char *end = bracket ? strchr(from, ']') : strrchr(from, ':');
  if (end == NULL || (bracket && end[1] != ':') || end == from || (size_t)(end - from) >= room) {
    return -EINVAL;
  }
  const char *digits = end + 1 + bracket;
  char *rest;
  errno = 0;
  unsigned long p = strtoul(digits, &rest, 10);
  if (errno != 0 || *digits < '0' || *digits > '9' || *rest != '\0' || p == 0 || p > 65535) {
    return -EINVAL;
  }
  memcpy(host, from, (size_t)(end - from));
  host[end - from] = '\0';
  *port = (uint16_t)p;
  return 0;
}

// Adds what the resolver found of one family.
static void add_found(tt_addrs *list, const struct addrinfo *found, int family, uint16_t port)
{
  for (const struct addrinfo *i = found; i != NULL; i = i->ai_next) {
    if (i->ai_family == family) {
      tt_addr a;
      tt_addr_of_kernel(i->ai_addr, &a);
      a.port = port;
      tt_addrs_add(list, &a);
    }
  }
}

int tt_addrs_parse(const char *text, int family, tt_addrs *out)
{
  char host[256];
  uint16_t port;
  int e = split_port(text, host, sizeof(host), &port);
  if (e != 0) {
    return e;
  }
  struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM}, *found = NULL;
  if (getaddrinfo(host, NULL, &hints, &found) != 0) {
    return -ENOENT;
  }
  tt_addrs list = {.n = 0};
  add_found(&list, found, AF_INET, port);
  add_found(&list, found, AF_INET6, port);
  freeaddrinfo(found);
  if (list.n == 0) {
    return -ENOENT;
  }
  *out = list;
  return 0;
}

// How many seconds nothing may come before the other end's kernel is asked, after which pause it is asked again, and
// how often in vain.
static void keep_alive(int fd, int idle, int interval, int count)
{
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

// A machine that vanishes without a word is noticed after about a minute in both cases.
void tt_sock_watch(int fd, bool closely)
{
  if (closely) {
    keep_alive(fd, 1, 1, 60);
  } else {
    keep_alive(fd, 30, 10, 3);
  }
}

static void tune_tcp(int fd)
{
  tt_tls_end(fd); // of a descriptor that was closed elsewhere (a forked child)
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  tt_sock_watch(fd, false);
}

// A program that has closed its standard output may still write to it: no socket takes its number, or those of input
// and errors.
static int above_standard(int fd)
{
  if (fd < 0 || fd > STDERR_FILENO) {
    return fd;
  }
  int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), e = errno;
  close(fd);
  errno = e;
  return higher;
}

// What is left of a connection holds its port for a minute, unless it and the socket that wants the port allow it
// (ports.h).
static int open_tcp(int family)
{
  int fd = above_standard(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), on = 1;
  if (fd < 0) {
    return -errno;
  }
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return fd;
}

// The address of one end of a socket: `get` is getsockname(2) or getpeername(2).
static int end_of_socket(int fd, int (*get)(int, struct sockaddr *, socklen_t *), tt_addr *out)
{
  sock_name s;
  socklen_t len = sizeof(s);
  memset(&s, 0, sizeof(s));
  if (get(fd, &s.any, &len) != 0) {
    return -errno;
  }
  tt_addr_of_kernel(&s.any, out);
  return 0;
}

int tt_sock_local(int fd, tt_addr *out)
{
  return end_of_socket(fd, getsockname, out);
}

int tt_sock_peer(int fd, tt_addr *out)
{
  return end_of_socket(fd, getpeername, out);
}

// Connecting a UDP socket only chooses the route.
int tt_addr_source(const tt_addr *to, tt_addr *out)
{
  sock_name s;
  socklen_t len = to_kernel(to, &s);
  int fd = socket(to->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return -errno;
  }
  int e = connect(fd, &s.any, len) != 0 ? -errno : tt_sock_local(fd, out);
  close(fd);
  return e;
}

// One try, on exactly that port; 0: the kernel's choice.
static int listen_on(const tt_addr *at, bool shared, int *fd, tt_addr *bound)
{
  sock_name s;
  socklen_t len = to_kernel(at, &s);
  if (len == 0) {
    return -EAFNOSUPPORT;
  }
  int sock = open_tcp(at->family);
  if (sock < 0) {
    return sock;
  }
  if (shared) {
    setsockopt(sock, SOL_SOCKET, SO_REUSEPORT, &(int){1}, sizeof(int));
  }
  int e = bind(sock, &s.any, len) != 0 || listen(sock, BACKLOG) != 0 ? -errno : tt_sock_local(sock, bound);
  if (e != 0) {
    tt_sock_close(&sock);
    return e;
  }
  *fd = sock;
  return 0;
}

int tt_tcp_listen(const tt_addr *at, int *fd, tt_addr *bound)
{
  int e = listen_on(at, false, fd, bound);
  if (e != -EADDRINUSE || at->port != 0) {
    return e;
  }
  tt_ports ports;
  tt_addr try = *at;
  tt_ports_begin(&ports, NULL, NULL);
  while (e == -EADDRINUSE && (try.port = tt_ports_next(&ports)) != 0) {
    e = listen_on(&try, false, fd, bound);
  }
  return e == -EADDRINUSE ? -EADDRNOTAVAIL : e;
}

int tt_tcp_listen_shared(const tt_addr *at, int *fd, tt_addr *bound)
{
  return listen_on(at, true, fd, bound);
}

int tt_tcp_accept(int listen_fd, int *fd, tt_addr *from)
{
  sock_name s;
  socklen_t len = sizeof(s);
  memset(&s, 0, sizeof(s));
  int sock;
  do {
    // A connection that its maker has already dropped (ECONNABORTED) says nothing about the next one in the queue.
    sock = above_standard(accept4(listen_fd, &s.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC));
  } while (sock < 0 && (errno == EINTR || errno == ECONNABORTED));
  if (sock < 0) {
    return -errno;
  }
  tune_tcp(sock);
  if (from != NULL) {
    tt_addr_of_kernel(&s.any, from);
  }
  *fd = sock;
  return 0;
}

// One try; `port` 0: the kernel's choice of the own one. -EADDRINUSE: that port is not to be had.
static int connect_from(uint16_t port, const tt_addr *to, int *fd)
{
  sock_name s, own;
  tt_addr from = {.family = to->family, .port = port};
  socklen_t len = to_kernel(to, &s), own_len = to_kernel(&from, &own);
  if (len == 0) {
    return -EAFNOSUPPORT;
  }
  int sock = open_tcp(to->family);
  if (sock < 0) {
    return sock;
  }
  tune_tcp(sock);
  int e = port == 0 || bind(sock, &own.any, own_len) == 0 ? 0 : -errno;
  if (e == 0 && connect(sock, &s.any, len) != 0) {
    e = errno == EINTR ? -EINPROGRESS : -errno; // an interrupted connect goes on by itself
  }
  if (e != 0 && e != -EINPROGRESS) {
    tt_sock_close(&sock);
    return e;
  }
  *fd = sock;
  return e;
}

// The kernel says -EADDRNOTAVAIL when it has no port, when this pair of ports is taken, and for an address that this
// machine cannot reach at all: a few such answers are enough.
int tt_tcp_connect_start(const tt_addr *to, int *fd)
{
  int e = connect_from(0, to, fd);
  if (e != -EADDRNOTAVAIL) {
    return e;
  }
  tt_ports ports;
  uint16_t port;
  tt_ports_begin(&ports, NULL, NULL);
  for (int left = MISSES; left > 0 && (port = tt_ports_next(&ports)) != 0;) {
    int again = connect_from(port, to, fd);
    if (again != -EADDRINUSE && again != -EADDRNOTAVAIL) {
      return again;
    }
    left -= again == -EADDRNOTAVAIL;
  }
  return e;
}

int tt_tcp_connect_end(int fd)
{
  int e = 0;
  socklen_t len = sizeof(e);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) != 0 ? -errno : -e;
}

ssize_t tt_sock_send(int fd, const void *data, size_t size)
{
  tt_tls *t = tt_tls_of(fd);
  if (t != NULL) {
    return tt_tls_send(t, &(struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = size}, 1);
  }
  ssize_t n;
  TT_RETRY(n, send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT));
  return n < 0 ? -errno : n;
}

ssize_t tt_sock_recv(int fd, void *data, size_t size)
{
  ssize_t n = tt_sock_take(fd, data, size, false);
  return n == 0 ? -ECONNRESET : n;
}

ssize_t tt_sock_take(int fd, void *data, size_t size, bool peek)
{
  tt_tls *t = tt_tls_of(fd);
  if (t != NULL) {
    return peek ? tt_tls_peek(t, data, size) : tt_tls_recv(t, &(struct iovec){.iov_base = data, .iov_len = size}, 1);
  }
  ssize_t n;
  TT_RETRY(n, recv(fd, data, size, MSG_DONTWAIT | (peek ? MSG_PEEK : 0)));
  return n < 0 ? -errno : n;
}

bool tt_sock_ended(int fd)
{
  struct pollfd p = {.fd = fd, .events = POLLRDHUP};
  return poll(&p, 1, 0) > 0;
}

ssize_t tt_sock_sendv(int fd, const struct iovec *parts, int count)
{
  tt_tls *t = tt_tls_of(fd);
  if (t != NULL) {
    return tt_tls_send(t, parts, count);
  }
  struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
  ssize_t n;
  TT_RETRY(n, sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT));
  return n < 0 ? -errno : n;
}

ssize_t tt_sock_recvv(int fd, const struct iovec *parts, int count)
{
  struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
  tt_tls *t = tt_tls_of(fd);
  ssize_t n;
  if (t != NULL) {
    n = tt_tls_recv(t, parts, count);
    return n == 0 ? -ECONNRESET : n;
  }
  TT_RETRY(n, recvmsg(fd, &m, MSG_DONTWAIT));
  return n < 0 ? -errno : n == 0 ? -ECONNRESET : n;
}

int tt_sock_pass(int fd, void *message, size_t size, size_t *at, bool send)
{
  while (*at < size) {
    char *from = (char *)message + *at;
    ssize_t n = send ? tt_sock_send(fd, from, size - *at) : tt_sock_recv(fd, from, size - *at);
    if (n < 0) {
      return n == -EAGAIN ? 0 : n == -EPIPE ? -ECONNRESET : (int)n;
    }
    *at += (size_t)n;
  }
  return 1;
}

int tt_sock_send_whole(int fd, const void *message, size_t size)
{
  ssize_t n = tt_sock_send(fd, message, size);
  return n == (ssize_t)size ? 0 : n < 0 && n != -EAGAIN ? (int)n : -ENOBUFS;
}

bool tt_aborted(const volatile uint32_t *flag)
{
  return flag != NULL && __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

// Milliseconds for the next poll: up to the deadline (rounded up), at most one look at the abort flag; -1: for ever.
static int slice_ms(const tt_until *until, uint64_t now)
{
  uint64_t ms = UINT64_MAX;
  if (until->deadline_ns != 0) {
    ms = until->deadline_ns <= now ? 0 : (until->deadline_ns - now + TT_NS_PER_MS - 1) / TT_NS_PER_MS;
  }
  if (until->abort_flag != NULL && ms > ABORT_POLL_MS) {
    ms = ABORT_POLL_MS;
  }
  return ms == UINT64_MAX ? -1 : ms > 1000000 ? 1000000 : (int)ms;
}

int tt_sock_poll(struct pollfd *fds, size_t n, const tt_until *until)
{
  for (;;) {
    if (tt_aborted(until->abort_flag)) {
      return -ECANCELED;
    }
    uint64_t now = tt_now_ns();
    int ready = poll(fds, (nfds_t)n, slice_ms(until, now));
    if (ready > 0) {
      return ready;
    }
    if (ready < 0 && errno != EINTR) {
      return -errno;
    }
    if (until->deadline_ns != 0 && now >= until->deadline_ns) {
      return -ETIMEDOUT;
    }
  }
}

int tt_sock_copy(int fd, int *copy)
{
  if (tt_tls_of(fd) != NULL) {
    return -EOPNOTSUPP;
  }
  int e = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  *copy = e < 0 ? *copy : e;
  return e < 0 ? -errno : 0;
}

// What the kernel says of a connection; zeros where it says nothing.
static struct tcp_info info_of(int fd)
{
  struct tcp_info info;
  socklen_t len = sizeof(info);
  memset(&info, 0, sizeof(info));
  (void)getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
  return info;
}

// The kernel doubles the pause after each try from 0.2 s on: the eighth in a row comes after 51 s. Any answer starts
// from nought.
bool tt_sock_lost(int fd)
{
  struct tcp_info info = info_of(fd);
  return info.tcpi_retransmits >= 8 || info.tcpi_probes >= 8;
}

bool tt_sock_finished(int fd)
{
  return info_of(fd).tcpi_state != TCP_ESTABLISHED;
}

void tt_sock_finish(int fd)
{
  if (fd >= 0) {
    shutdown(fd, SHUT_WR);
  }
}

void tt_sock_kill(int fd)
{
  if (fd >= 0) {
    shutdown(fd, SHUT_RDWR);
  }
}

void tt_sock_close(int *fd)
{
  if (*fd >= 0) {
    tt_tls_end(*fd);
    close(*fd);
    *fd = -1;
  }
}

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44 // since Linux 6.15; a kernel that does not know it says so, and nothing is lost
#endif

// The kernel gives up after 15 resends (or unanswered looks at a full receiver); only the pause between them can be
// chosen. With at most a twelfth of the time between two, it comes out at about the whole.
void tt_sock_patience(int fd, unsigned seconds)
{
  int longest_ms = (int)TT_CLAMP(seconds * 1000ull / 12, 1000ull, 120000ull);
  keep_alive(fd, (int)TT_CLAMP(seconds / 2, 1u, 32767u), (int)TT_CLAMP(seconds / 6, 1u, 32767u), 3);
  setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &longest_ms, sizeof(longest_ms));
}

unsigned tt_sock_silent_ms(int fd)
{
  struct tcp_info info = info_of(fd);
  return info.tcpi_unacked > 0 || info.tcpi_probes > 1 ? info.tcpi_last_ack_recv : 0;
}

bool tt_sock_is_shortage(int e)
{
  return e == -EMFILE || e == -ENFILE || e == -EADDRNOTAVAIL || e == -ENOBUFS || e == -ENOMEM;
}

const char *tt_sock_error_text(int e)
{
  switch (e) {
  case -EMFILE: return "this process has no descriptors left (raise its limit of open files: ulimit -n)";
  case -ENFILE: return "this machine has no descriptors left (sysctl fs.file-max)";
  // The kernel has one number for both.
  case -EADDRNOTAVAIL:
    return "this machine does not have that address, or has no free port (sysctl net.ipv4.ip_local_port_range)";
  case -ENOBUFS:
  case -ENOMEM:
    return "this machine has no memory left for a connection (free memory, the container's limit, sysctl "
           "net.ipv4.tcp_mem)";
  case -ENOKEY:
    return "this process and that one have not the same encryption key: call ncclSetEncryption with one key on every "
           "rank, before ncclGetUniqueId";
  default: return strerror(-e);
  }
}

uint64_t tt_sock_raise_file_limit(void)
{
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) != 0) {
    return UINT64_MAX;
  }
  rlim_t before = r.rlim_cur;
  r.rlim_cur = r.rlim_max;
  return before < r.rlim_max && setrlimit(RLIMIT_NOFILE, &r) != 0 ? before : r.rlim_max;
}
