#define _GNU_SOURCE // accept4, POLLRDHUP
#include "tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "system.h"

static void set_option(int fd, int level, int name, int value)
{
  setsockopt(fd, level, name, &value, sizeof(value)); // without it things are slower, not wrong
}

static void set_options(int fd)
{
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 6);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 60000);
}

static int new_socket(int family)
{
  int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  return fd < 0 ? -errno : fd;
}

static int listen_at(const struct sockaddr *address, socklen_t length)
{
  int fd = new_socket(address->sa_family);
  if (fd < 0) {
    return fd;
  }
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1); // the port may have been used a minute ago
  if (address->sa_family == AF_INET6) {
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, !IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr));
  }
  if (bind(fd, address, length) != 0 || listen(fd, SOMAXCONN) != 0) {
    int error = errno;
    close(fd);
    return -error;
  }
  return fd;
}

static int listen_everywhere(int port, int *fds)
{
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
  struct sockaddr_in four = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_ANY)};
  fds[0] = listen_at((struct sockaddr *)&six, sizeof(six));
  if (fds[0] < 0 && fds[0] != -EADDRINUSE && fds[0] != -EACCES) {
    fds[0] = listen_at((struct sockaddr *)&four, sizeof(four)); // a machine without IPv6
  }
  return fds[0] < 0 ? fds[0] : 1;
}

static struct addrinfo *resolve(const char *host, int port, int flags, int *error)
{
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV},
                  *list = NULL;
  char service[16];
  snprintf(service, sizeof(service), "%d", port);
  *error = getaddrinfo(host, service, &hints, &list);
  if (*error && strcmp(host, "localhost") == 0) { // some containers have no /etc/hosts
    *error = getaddrinfo("127.0.0.1", service, &hints, &list);
  }
  return *error ? NULL : list;
}

static bool is_loopback(const struct sockaddr *a)
{
  if (a->sa_family == AF_INET) {
    return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
  }
  return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

// The addresses of "localhost", or one written as a number. The name of a host may be the loopback on this host alone.
static struct addrinfo *loopback_addresses(const char *host, int port)
{
  int error;
  bool named = strcmp(host, "localhost") == 0;
  struct addrinfo *list = resolve(host, port, named ? 0 : AI_NUMERICHOST, &error);
  for (struct addrinfo *a = list; a; a = a->ai_next) {
    if (!is_loopback(a->ai_addr)) {
      freeaddrinfo(list);
      return NULL;
    }
  }
  return list;
}

static void close_all(int *fds, int count)
{
  for (int i = 0; i < count; i++) {
    close(fds[i]);
  }
}

int perf_tcp_listen(const char *host, int port, int *fds)
{
  struct addrinfo *list = loopback_addresses(host, port);
  if (!list) {
    return listen_everywhere(port, fds);
  }
  int count = 0, error = 0;
  for (struct addrinfo *a = list; a && count < PERF_TCP_LISTENERS; a = a->ai_next) {
    int fd = listen_at(a->ai_addr, a->ai_addrlen);
    if (fd >= 0) {
      fds[count++] = fd;
    } else if (error != -EADDRINUSE) {
      error = fd;
    }
  }
  freeaddrinfo(list);
  if (count == 0 || error == -EADDRINUSE) { // the process that has the other address would be taken for us
    close_all(fds, count);
    return error;
  }
  return count;
}

int perf_tcp_accept(int listener)
{
  for (;;) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      set_options(fd);
      return fd;
    }
    if (errno != EINTR && errno != ECONNABORTED) {
      return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
  }
}

bool perf_tcp_poll(struct pollfd *fds, size_t count, uint64_t deadline_ns)
{
  for (;;) {
    uint64_t now = perf_now();
    if (deadline_ns && now >= deadline_ns) {
      return poll(fds, count, 0) > 0;
    }
    uint64_t ms = deadline_ns ? (deadline_ns - now) / 1000000 + 1 : INT_MAX;
    int n = poll(fds, count, ms > INT_MAX ? INT_MAX : (int)ms);
    if (n > 0) {
      return true;
    }
    if (n < 0 && errno != EINTR) {
      poll(NULL, 0, 10); // no memory for the moment
    }
  }
}

// A port of the range for outgoing connections can be connected to itself.
static bool is_itself(int fd)
{
  struct sockaddr_storage mine = {0}, theirs = {0};
  socklen_t a = sizeof(mine), b = sizeof(theirs);
  return getsockname(fd, (struct sockaddr *)&mine, &a) == 0 && getpeername(fd, (struct sockaddr *)&theirs, &b) == 0 &&
         a == b && memcmp(&mine, &theirs, a) == 0;
}

static int finish_connect(int fd, int ms)
{
  struct pollfd p = {.fd = fd, .events = POLLOUT};
  int error = 0;
  socklen_t length = sizeof(error);
  if (!perf_tcp_poll(&p, 1, perf_now() + (uint64_t)ms * 1000000)) {
    return -ETIMEDOUT;
  }
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 ? -errno : -error;
}

static int connect_to(const struct addrinfo *a, int ms)
{
  int fd = new_socket(a->ai_family);
  if (fd < 0) {
    return fd;
  }
  int error = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : -errno;
  if (error == -EINPROGRESS || error == -EINTR) {
    error = finish_connect(fd, ms);
  }
  if (!error && is_itself(fd)) {
    error = -ECONNREFUSED;
  }
  if (error) {
    close(fd);
    return error;
  }
  set_options(fd);
  return fd;
}

int perf_tcp_connect(const char *host, int port, int ms, char *why, size_t size)
{
  int error, fd = -1;
  struct addrinfo *list = resolve(host, port, 0, &error);
  if (!list) {
    snprintf(why, size, "%s", gai_strerror(error));
    return -1;
  }
  for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
    fd = connect_to(a, ms);
  }
  freeaddrinfo(list);
  if (fd < 0) {
    snprintf(why, size, "%s", strerror(-fd));
    return -1;
  }
  return fd;
}

int perf_tcp_send(int fd, const void *data, size_t size, uint64_t deadline_ns)
{
  const char *from = data;
  while (size > 0) {
    ssize_t n = send(fd, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      from += n;
      size -= (size_t)n;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      struct pollfd p = {.fd = fd, .events = POLLOUT};
      if (!perf_tcp_poll(&p, 1, deadline_ns)) {
        return -ETIMEDOUT;
      }
    } else if (errno != EINTR) {
      return -errno;
    }
  }
  return 0;
}

long perf_tcp_read(int fd, void *data, size_t size)
{
  for (;;) {
    ssize_t n = recv(fd, data, size, MSG_DONTWAIT);
    if (n > 0) {
      return n;
    }
    if (n == 0) {
      return -ECONNRESET;
    }
    if (errno != EINTR) {
      return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
    }
  }
}

int perf_tcp_recv(int fd, void *data, size_t size, uint64_t deadline_ns)
{
  size_t got = 0;
  while (got < size) {
    long n = perf_tcp_read(fd, (char *)data + got, size - got);
    if (n < 0) {
      return (int)n;
    }
    got += (size_t)n;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (n == 0 && !perf_tcp_poll(&p, 1, deadline_ns)) {
      return -ETIMEDOUT;
    }
  }
  return 0;
}

void perf_tcp_peer(int fd, char *buf, size_t size)
{
  struct sockaddr_storage a;
  socklen_t length = sizeof(a);
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (getpeername(fd, (struct sockaddr *)&a, &length) != 0 ||
      getnameinfo((struct sockaddr *)&a, length, host, sizeof(host), service, sizeof(service),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    snprintf(buf, size, "an unknown address");
    return;
  }
  snprintf(buf, size, strchr(host, ':') ? "[%.100s]:%.10s" : "%.100s:%.10s", host, service);
}
