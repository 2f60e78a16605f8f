// sockwindow.c: what the kernel tells of a connection's window and way (tt_sock_stands, tt_sock_trip_us). The C
// library's tcp_info lacks it, and its header cannot stand beside the kernel's.
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "os/socket.h"

bool tt_sock_stands(int fd)
{
  struct tcp_info info = {.tcpi_snd_wnd = 1};
  socklen_t size = sizeof info;
  struct pollfd room = {.fd = fd, .events = POLLOUT};
  int queued = 0, unsent = 0;
  if (poll(&room, 1, 0) != 0 || ioctl(fd, SIOCOUTQ, &queued) != 0 || ioctl(fd, SIOCOUTQNSD, &unsent) != 0 ||
      getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return false;
  }
  bool known = size >= offsetof(struct tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
  return known && info.tcpi_snd_wnd == 0 && queued > 0 && queued == unsent;
}

uint32_t tt_sock_trip_us(int fd)
{
  struct tcp_info info = {.tcpi_min_rtt = UINT32_MAX};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_min_rtt == UINT32_MAX) {
    return 0;
  }
  return info.tcpi_min_rtt;
}
