// sockuser.c: see sockuser.h.
#define _GNU_SOURCE
#include "os/sockuser.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "os/socket.h"

typedef struct question {
  struct nlmsghdr head;
  struct inet_diag_req_v2 body;
} question;

typedef struct answer {
  struct nlmsghdr head;
  union {
    struct nlmsgerr error;
    struct inet_diag_msg found;
    char room[1024]; // attributes follow
  } body;
} answer;

static void put_end(const tt_addr *a, __be16 *port, __be32 ip[4])
{
  *port = htons(a->port);
  memcpy(ip, a->ip, sizeof a->ip);
}

// Asks for the socket at the other end: ours, with the ends exchanged. False: no TCP connection.
static bool make_question(int fd, question *q)
{
  tt_addr own, peer;
  if (tt_sock_local(fd, &own) != 0 || tt_sock_peer(fd, &peer) != 0 ||
      (own.family != AF_INET && own.family != AF_INET6)) {
    return false;
  }
  *q = (question){.head = {.nlmsg_len = sizeof *q, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST}};
  q->body.sdiag_family = (uint8_t)own.family;
  q->body.sdiag_protocol = IPPROTO_TCP;
  q->body.idiag_states = ~0u;
  q->body.id.idiag_cookie[0] = q->body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  q->body.id.idiag_if = own.scope;
  put_end(&peer, &q->body.id.idiag_sport, q->body.id.idiag_src);
  put_end(&own, &q->body.id.idiag_dport, q->body.id.idiag_dst);
  return true;
}

// 0 or -errno; -ENOENT: there is no such socket here. The kernel answers before send(2) returns.
static int query_diag(const question *q, answer *a)
{
  int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (fd < 0) {
    return -errno;
  }
  ssize_t n = send(fd, q, sizeof *q, 0);
  n = n < 0 ? n : recv(fd, a, sizeof *a, MSG_DONTWAIT);
  int e = n < 0 ? -errno : 0;
  close(fd);
  if (e == 0 && (size_t)n >= sizeof a->head + sizeof a->body.error && a->head.nlmsg_type == NLMSG_ERROR) {
    return a->body.error.error;
  }
  return e != 0                                                                                            ? e
         : (size_t)n >= sizeof a->head + sizeof a->body.found && a->head.nlmsg_type == SOCK_DIAG_BY_FAMILY ? 0
                                                                                                           : -EPROTO;
}

bool tt_sock_is_strangers(int fd)
{
  question q;
  answer a;
  if (!make_question(fd, &q)) {
    return false;
  }
  int e = query_diag(&q, &a);
  if (e != 0) {
    if (e != -ENOENT) {
      tt_info(TT_BOOTSTRAP, "bootstrap: the kernel does not say whose process is at the other end of a connection (%s)",
              strerror(-e));
    }
    return false;
  }
  // Where no connection fits, the kernel looks for a listener on all addresses, which is another process.
  return a.body.found.idiag_state != TCP_LISTEN && a.body.found.idiag_uid != geteuid();
}
