// dial_rig.h: a connection that is dialled and waited for, for tests.
#pragma once
#include "bootstrap/dial.h"

// 0 and *fd, *at, or -errno as tt_dial_finish.
static inline int rig_dial(const tt_addrs *to, const tt_key *key, const tt_hello *hello, const tt_until *until, int *fd, tt_addr *at)
{
  tt_dial *d = NULL;
  int e = tt_dial_start(to, key, hello, until->deadline_ns, &d);
  if (e == 0) {
    e = tt_dial_finish(d, until->abort_flag, fd, at);
    tt_dial_cancel(d);
  }
  return e == 1 ? 0 : e;
}
