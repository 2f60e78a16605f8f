// wait.c: the one place where a rank of a formed or forming ring waits, and what arrives from peers meanwhile.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"

#define LINE_NS (30 * TT_NS_PER_S)
#define FIRST_ROOM (64ul << 10)       // for a message; more as it arrives
#define SLICE_NS (100 * TT_NS_PER_MS) // the longest sleep between two looks at the abort flags

tt_bootstrap *tt_bs_new(int rank, int nranks, const tt_key *key, const volatile uint32_t *abort_flag)
{
  tt_bootstrap *b = tt_calloc(1, sizeof(*b));
  if (b != NULL) {
    b->addrs = tt_calloc((size_t)nranks, sizeof(b->addrs[0]));
    b->out = tt_calloc((size_t)nranks, sizeof(b->out[0]));
    tt_greeter_none(&b->door);
    b->next = b->prev = -1;
  }
  if (b == NULL || b->addrs == NULL || b->out == NULL) {
    tt_bootstrap_destroy(b);
    (void)tt_fail(ncclSystemError, "no memory for the bootstrap of rank %d of %d", rank, nranks);
    return NULL;
  }
  memset(b->out, 0xff, (size_t)nranks * sizeof(b->out[0]));
  b->rank = rank;
  b->nranks = nranks;
  b->owner = getpid();
  b->key = *key;
  tt_key name = tt_key_derive(key, "name", NULL, 0);
  memcpy(b->name, name.b, sizeof(b->name));
  b->abort_flag = abort_flag;
  b->letters_end = &b->letters;
  return b;
}

ncclResult_t tt_bs_begin(tt_bootstrap *b, const char *fmt, ...)
{
  va_list ap;
  int used = snprintf(b->doing, sizeof(b->doing), "rank %d of %d: ", b->rank, b->nranks);
  va_start(ap, fmt);
  vsnprintf(b->doing + used, sizeof(b->doing) - (size_t)used, fmt, ap);
  va_end(ap);
  b->line_ns = tt_now_ns() + LINE_NS;
  if (getpid() != b->owner) {
    return tt_fail(ncclInvalidUsage, "%s: a forked child cannot use its parent's communicator; create one in the child", b->doing);
  }
  if (b->broken != ncclSuccess) {
    return tt_fail(b->broken, "%s: this bootstrap has failed before and cannot be used again", b->doing);
  }
  return ncclSuccess;
}

void tt_bs_keep(tt_bootstrap *b, tt_letter *l)
{
  l->next = NULL;
  *b->letters_end = l;
  b->letters_end = &l->next;
}

static ncclResult_t add_inlet(tt_bootstrap *b, int fd, int from)
{
  if (b->ninlets == b->inlets_room) {
    int room = TT_MAX(4, 2 * b->inlets_room);
    tt_inlet *bigger = tt_calloc((size_t)room, sizeof(*bigger));
    if (bigger == NULL) {
      tt_sock_close(&fd);
      return tt_fail(ncclSystemError, "%s: no memory for a connection from rank %d", b->doing, from);
    }
    if (b->ninlets > 0) {
      memcpy(bigger, b->inlets, (size_t)b->ninlets * sizeof(*bigger));
    }
    tt_free(b->inlets);
    b->inlets = bigger;
    b->inlets_room = room;
  }
  b->inlets[b->ninlets++] = (tt_inlet){.fd = fd, .from = from};
  return ncclSuccess;
}

static ncclResult_t add_connection(tt_bootstrap *b, const tt_hello *h, int fd)
{
  int prev = (b->rank + b->nranks - 1) % b->nranks;
  if (h->kind == TT_HELLO_PEER && h->rank >= 0 && h->rank < b->nranks) {
    return add_inlet(b, fd, h->rank);
  }
  if (h->kind == TT_HELLO_RING && h->rank == prev && b->prev < 0) {
    b->prev = fd;
    return ncclSuccess;
  }
  tt_info(TT_BOOTSTRAP, "%s: dropped a second connection from rank %d", b->doing, h->rank);
  tt_sock_close(&fd);
  return ncclSuccess;
}

// Makes room for more of the arriving message: as much again as has come, never as much as its sender claims.
static ncclResult_t grow_letter(const tt_bootstrap *b, tt_inlet *in)
{
  size_t have = in->letter == NULL ? 0 : in->letter->room, size = in->frame.size;
  size_t room = TT_MIN(size, TT_MAX(FIRST_ROOM, 2 * have));
  tt_letter *l = tt_calloc(1, sizeof(*l) + room);
  if (l == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory for a message of %llu bytes from rank %d", b->doing, (unsigned long long)size, in->from);
  }
  if (have > 0) {
    memcpy(l->data, in->letter->data, have);
  }
  l->from = in->from;
  l->tag = in->frame.tag;
  l->size = size;
  l->room = room;
  tt_free(in->letter);
  in->letter = l;
  return ncclSuccess;
}

// Reads one piece of an incoming connection. *more: something came, look again.
static ncclResult_t read_piece(tt_bootstrap *b, tt_inlet *in, bool *more)
{
  const size_t head = sizeof(in->frame);
  bool in_head = in->got < head;
  char *at = in_head ? (char *)&in->frame + in->got : (char *)in->letter->data + (in->got - head);
  ssize_t n = tt_sock_recv(in->fd, at, in_head ? head - in->got : in->letter->room - (in->got - head));
  *more = n > 0;
  if (n < 0) {
    if (n != -EAGAIN) {
      tt_sock_close(&in->fd);
    }
    return ncclSuccess;
  }
  in->got += (size_t)n;
  bool full = in->got == head || (in->got > head && in->got == head + in->letter->room && in->letter->room < in->letter->size);
  if (full && grow_letter(b, in) != ncclSuccess) {
    tt_sock_close(&in->fd);
    return ncclSystemError;
  }
  if (in->letter != NULL && in->got == head + in->letter->size) {
    tt_bs_keep(b, in->letter);
    in->letter = NULL;
    in->got = 0;
  }
  return ncclSuccess;
}

ncclResult_t tt_bs_take(tt_bootstrap *b)
{
  tt_hello h;
  int fd = -1;
  while (tt_greeter_next(&b->door, &h, &fd)) {
    TT_TRY(add_connection(b, &h, fd));
  }
  for (int i = 0; i < b->ninlets;) {
    tt_inlet *in = &b->inlets[i];
    bool more = true;
    while (more) {
      TT_TRY(read_piece(b, in, &more));
    }
    if (in->fd < 0) {
      tt_free(in->letter);
      *in = b->inlets[--b->ninlets];
    } else {
      i++;
    }
  }
  return ncclSuccess;
}

static ncclResult_t reserve_fds(tt_bootstrap *b, size_t n)
{
  if (n <= b->fds_room) {
    return ncclSuccess;
  }
  tt_free(b->fds);
  b->fds = tt_calloc(2 * n, sizeof(b->fds[0]));
  b->fds_room = b->fds == NULL ? 0 : 2 * n;
  return b->fds != NULL ? ncclSuccess : tt_fail(ncclSystemError, "%s: no memory to wait for %zu connections", b->doing, n);
}

static bool aborted(const tt_bootstrap *b)
{
  return tt_aborted(b->abort_flag) || tt_aborted(b->abort_also);
}

// When the next sleep must end, whatever happens.
static uint64_t sleep_end(const tt_bootstrap *b, uint64_t wake_ns)
{
  bool watched = b->abort_flag != NULL || b->abort_also != NULL;
  uint64_t end = watched ? TT_MIN(tt_now_ns() + SLICE_NS, b->line_ns) : b->line_ns;
  return wake_ns != 0 ? TT_MIN(end, wake_ns) : end;
}

static void end_lost(int fd)
{
  if (fd >= 0 && tt_sock_lost(fd)) {
    tt_sock_kill(fd); // whoever waits for it finds that it has ended
  }
}

// After half a minute of waiting: says so, and ends connections whose other end cannot be reached any more.
static void still_waiting(tt_bootstrap *b)
{
  tt_info(TT_BOOTSTRAP, "%s: still waiting", b->doing);
  b->line_ns += LINE_NS;
  end_lost(b->next);
  for (int i = 0; i < b->nranks; i++) {
    end_lost(b->out[i]);
  }
}

ncclResult_t tt_bs_wait(tt_bootstrap *b, struct pollfd *want, size_t nwant, uint64_t wake_ns)
{
  TT_TRY(reserve_fds(b, nwant + TT_GREET_POLL + (size_t)b->ninlets));
  if (aborted(b)) {
    return ncclInternalError;
  }
  memcpy(b->fds, want, nwant * sizeof(*want));
  tt_until until = {.deadline_ns = sleep_end(b, wake_ns)};
  size_t n = nwant + tt_greeter_poll(&b->door, b->fds + nwant, &until.deadline_ns);
  for (int i = 0; i < b->ninlets; i++) {
    b->fds[n++] = (struct pollfd){.fd = b->inlets[i].fd, .events = POLLIN};
  }
  (void)tt_sock_poll(b->fds, n, &until);
  memcpy(want, b->fds, nwant * sizeof(*want));
  bool others = b->door.nguests > 0;
  for (size_t i = nwant; i < n; i++) {
    others |= b->fds[i].revents != 0;
  }
  if (aborted(b)) {
    return ncclInternalError;
  }
  if (tt_now_ns() >= b->line_ns) {
    still_waiting(b);
  }
  return others ? tt_bs_take(b) : ncclSuccess;
}

ncclResult_t tt_bs_dial(tt_bootstrap *b, const tt_addrs *to, const tt_hello *hello, uint64_t deadline_ns, int *fd, int *e)
{
  tt_dial *d = NULL;
  tt_addr at;
  ncclResult_t res = ncclSuccess;
  *e = tt_dial_start(to, &b->key, hello, deadline_ns, &d);
  if (*e != 0) {
    return ncclSuccess;
  }
  while (res == ncclSuccess && (*e = tt_dial_step(d, fd, &at)) == 0) {
    struct pollfd want[TT_DIAL_POLL];
    uint64_t wake_ns = 0;
    size_t n = tt_dial_poll(d, want, &wake_ns);
    res = tt_bs_wait(b, want, n, wake_ns);
  }
  *e = TT_MIN(*e, 0);
  tt_dial_cancel(d);
  return res;
}
