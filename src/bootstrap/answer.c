// answer.c: see answer.h.
#include "bootstrap/answer.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

enum { AT_ONCE = 64 }; // connections open at a time

// Sends the part of hello + text that goes now. 0: all sent; -EAGAIN: wait; else the connection's error.
static int push(tt_answer *a, const char *text, size_t size)
{
  while (a->sent < sizeof(a->hello) + size) {
    bool head = a->sent < sizeof(a->hello);
    const char *from = head ? (const char *)&a->hello + a->sent : text + (a->sent - sizeof(a->hello));
    ssize_t n = tt_sock_send(a->fd, from, head ? sizeof(a->hello) - a->sent : size - (a->sent - sizeof(a->hello)));
    if (n < 0) {
      return (int)n;
    }
    a->sent += (size_t)n;
  }
  return 0;
}

static void advance(tt_answer *a, const char *text, size_t size)
{
  int e = a->connected ? 0 : tt_tcp_connect_end(a->fd);
  if (e == 0) {
    a->connected = true;
    e = push(a, text, size);
  }
  if (e != -EAGAIN) {
    tt_sock_close(&a->fd);
  }
}

static void run_batch(tt_answer *a, int n, const char *text, size_t size, uint64_t deadline_ns)
{
  struct pollfd fds[AT_ONCE];
  tt_until until = {.deadline_ns = deadline_ns};
  for (;;) {
    int open = 0;
    for (int i = 0; i < n; i++) {
      fds[i] = (struct pollfd){.fd = a[i].fd, .events = POLLOUT};
      open += a[i].fd >= 0;
    }
    if (open == 0 || tt_sock_poll(fds, (size_t)n, &until) < 0) {
      break;
    }
    for (int i = 0; i < n; i++) {
      if (a[i].fd >= 0 && fds[i].revents != 0) {
        advance(&a[i], text, size);
      }
    }
  }
  for (int i = 0; i < n; i++) {
    tt_sock_close(&a[i].fd);
  }
}

void tt_answer_all(tt_answer *answers, int n, const tt_key *key, const char *text, uint64_t deadline_ns)
{
  size_t size = strlen(text);
  for (int first = 0; first < n; first += AT_ONCE) {
    int count = TT_MIN(AT_ONCE, n - first);
    for (int i = first; i < first + count; i++) {
      tt_answer *a = &answers[i];
      a->fd = -1;
      a->sent = 0;
      a->hello.size = (uint32_t)size;
      tt_hello_seal(&a->hello, key);
      a->connected = tt_tcp_connect_start(&a->to, &a->fd) == 0;
    }
    run_batch(answers + first, count, text, size, deadline_ns);
  }
}
