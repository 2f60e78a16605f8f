// visit_rig.h: somebody who speaks to a rank's service by hand, for the tests of this folder.
#pragma once
#include "bootstrap/dial_rig.h"
#include "proxy/proxy_rig.h"
#include "proxy/service_priv.h"
#include "tools/sockets.h"

// A control connection to rank 0 by somebody who knows the key and calls himself rank 1; -1: not let in.
FAKE int visit(rig *r, int nranks, uint64_t tag, int rank)
{
  tt_proxy *p = r->ranks[0].proxy;
  tt_hello h = {.kind = TT_HELLO_PROXY, .rank = rank, .to = 0, .nranks = nranks, .tag = tag};
  tt_until until = {.deadline_ns = tt_now_ns() + RIG_WAIT_NS};
  tt_addr at;
  int fd = -1;
  FAKE_DEMAND(rig_dial(&r->ranks[0].where.addrs, &p->service->key, &h, &until, &fd, &at) == 0);
  return fd;
}

FAKE void say(int fd, unsigned type, uint32_t id, int from, const void *body, size_t size)
{
  tt_msg_head h = {.type = (uint16_t)type, .size = (uint16_t)size, .id = id, .from = from};
  tt_until until = {.deadline_ns = tt_now_ns() + RIG_WAIT_NS};
  tt_sock_send_all(fd, &h, sizeof h, &until);
  if (size > 0) {
    tt_sock_send_all(fd, body, size, &until);
  }
}

FAKE void say_init(int fd)
{
  tt_msg_init init = {.hash = 4711, .nranks = 2, .version = TT_MSG_VERSION};
  say(fd, TT_MSG_INIT, 0, 1, &init, sizeof init);
}
