// sockets.c: see sockets.h.
#include "tools/sockets.h"

#include <errno.h>
#include <poll.h>

int tt_addr_parse(const char *text, int family, tt_addr *out)
{
  tt_addrs list;
  int e = tt_addrs_parse(text, family, &list);
  if (e == 0) {
    *out = list.a[0];
  }
  return e;
}

int tt_tcp_connect(const tt_addr *to, const tt_until *until, int *fd)
{
  int sock = -1;
  int e = tt_tcp_connect_start(to, &sock);
  if (e == -EINPROGRESS) {
    struct pollfd p = {.fd = sock, .events = POLLOUT};
    e = tt_sock_poll(&p, 1, until);
    e = e > 0 ? tt_tcp_connect_end(sock) : e;
  }
  if (e != 0) {
    tt_sock_close(&sock);
    return e;
  }
  *fd = sock;
  return 0;
}

// Sends or receives all of it, and waits for the socket where it must. 0, or -errno.
static int move_all(int fd, char *data, size_t size, short way, const tt_until *until)
{
  for (size_t done = 0; done < size;) {
    ssize_t n =
        way == POLLOUT ? tt_sock_send(fd, data + done, size - done) : tt_sock_recv(fd, data + done, size - done);
    if (n == -EAGAIN) {
      struct pollfd p = {.fd = fd, .events = way};
      n = tt_sock_poll(&p, 1, until);
      n = n < 0 ? n : 0;
    }
    if (n < 0) {
      return (int)n;
    }
    done += (size_t)n;
  }
  return 0;
}

int tt_sock_send_all(int fd, const void *data, size_t size, const tt_until *until)
{
  return move_all(fd, (char *)(uintptr_t)data, size, POLLOUT, until);
}

int tt_sock_recv_all(int fd, void *data, size_t size, const tt_until *until)
{
  return move_all(fd, data, size, POLLIN, until);
}
