// sockets.h: sockets for programs that may wait: tests, benchmarks, tutti-tune. Errors are negative errno values, as in
// os/socket.h.
#pragma once
#include "os/socket.h"

// A list of one address. Pure.
static inline tt_addrs tt_addrs_one(const tt_addr *a)
{
  return (tt_addrs){.n = 1, .a = {*a}};
}

// The first address of tt_addrs_parse, with its errors.
int tt_addr_parse(const char *text, int family, tt_addr *out);
// Connects, waiting for the outcome. One attempt. -ETIMEDOUT, -ECANCELED (abort flag), -ECONNREFUSED, ...
int tt_tcp_connect(const tt_addr *to, const tt_until *until, int *fd);
// Sends exactly `size` bytes. -ETIMEDOUT, -ECANCELED, or what the connection said.
int tt_sock_send_all(int fd, const void *data, size_t size, const tt_until *until);

// Receives exactly `size` bytes. -ETIMEDOUT, -ECANCELED, or what the connection said.
int tt_sock_recv_all(int fd, void *data, size_t size, const tt_until *until);
