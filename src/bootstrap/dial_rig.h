// dial_rig.h: a connection that is dialled and waited for, for tests.
#pragma once
#include <errno.h>

#include "bootstrap/dial.h"

// 0 and *fd, *at, or -errno as tt_dial_step; -ECANCELED: the abort flag.
static inline int rig_dial(const tt_addrs *to, const tt_key *key, const tt_hello *hello, const tt_until *until, int *fd,
                           tt_addr *at)
{
  tt_dial *d = NULL;
  int e = tt_dial_start(to, key, hello, until->deadline_ns, &d);
  if (e != 0) {
    return e;
  }
  while ((e = tt_dial_step(d, fd, at)) == 0) {
    struct pollfd fds[TT_DIAL_POLL];
    tt_until wait = {.abort_flag = until->abort_flag};
    size_t n = tt_dial_poll(d, fds, &wait.deadline_ns);
    if (tt_sock_poll(fds, n, &wait) == -ECANCELED) {
      e = -ECANCELED;
      break;
    }
  }
  tt_dial_cancel(d);
  return e == 1 ? 0 : e;
}
