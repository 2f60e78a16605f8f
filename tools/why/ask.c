// ask.c: see ask.h. A client of the RAS protocol (docs/ras.md).
#include "ask.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "os/clock.h"
#include "tools/sockets.h"

enum { ASK_SECONDS = 10 };

static bool ask_complain(const char *place, const char *what)
{
  fprintf(stderr, "tutti-why: %s: %s\n", place, what);
  return false;
}

// One of the addresses, or a negative errno.
static int ask_connect(const char *place, const tt_until *until, int *fd)
{
  tt_addrs at;
  int e = tt_addrs_parse(place, AF_UNSPEC, &at);
  for (uint32_t i = 0; e == 0 && i < at.n; i++) {
    int failed = tt_tcp_connect(&at.a[i], until, fd);
    if (failed == 0) {
      return 0;
    }
    e = i + 1 == at.n ? failed : 0;
  }
  return e != 0 ? e : -ENOENT;
}

// Prints what comes until the end: 0, or a negative errno.
static int ask_print(int fd, const tt_until *until)
{
  char text[4096];
  bool first = true, refused = false;
  for (;;) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int e = tt_sock_poll(&p, 1, until);
    ssize_t n = e < 0 ? e : tt_sock_take(fd, text, sizeof text, false);
    if (n == -EAGAIN) {
      continue;
    }
    if (n <= 0) {
      return n == 0 && (first || refused) ? -EPROTO : (int)n;
    }
    refused |= first && n >= 5 && memcmp(text, "ERROR", 5) == 0; // of a job that does not know the question
    first = false;
    (void)fwrite(text, 1, (size_t)n, refused ? stderr : stdout);
  }
}

bool why_ask(const char *place)
{
  static const char question[] = "TIMEOUT 8\nWHY\n";
  const tt_until until = {.deadline_ns = tt_now_ns() + ASK_SECONDS * TT_NS_PER_S};
  char ok[3];
  int fd = -1, e = ask_connect(place, &until, &fd);
  if (e == -EINVAL || e == -ENOENT) {
    return ask_complain(place, "expected HOST:PORT or [IPV6]:PORT of a known host");
  }
  e = e == 0 ? tt_sock_send_all(fd, question, sizeof question - 1, &until) : e;
  e = e == 0 ? tt_sock_recv_all(fd, ok, sizeof ok, &until) : e;
  e = e == 0 && memcmp(ok, "OK\n", 3) != 0 ? -EPROTO : e;
  e = e == 0 ? ask_print(fd, &until) : e;
  tt_sock_close(&fd);
  return e == 0 ||
         ask_complain(place, e == -EPROTO      ? "no job of this library answers there"
                             : e == -ETIMEDOUT ? "no answer in 10 s; the process that was asked may be stopped"
                                               : strerror(-e));
}
