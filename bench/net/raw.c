// raw.c: see raw.h.
#define _GNU_SOURCE
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 100 // before RAW_SPIN_THEN_POLL sleeps: some tens of microseconds

// One direction of one socket: bytes done of bytes to do.
typedef struct flow {
  char *at;
  size_t done, size;
} flow;

double raw_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int complain(const char *what)
{
  fprintf(stderr, "raw sockets: %s: %s\n", what, strerror(errno));
  return 1;
}

static int listen_anywhere(struct sockaddr_in *at)
{
  socklen_t length = sizeof *at;
  *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)at, sizeof *at) != 0 || listen(fd, RAW_SOCKETS) != 0 ||
      getsockname(fd, (struct sockaddr *)at, &length) != 0) {
    complain("cannot listen");
    return -1;
  }
  return fd;
}

static int join(raw_pair *p, int listener, const struct sockaddr_in *at, int sockets)
{
  const int one = 1;
  for (; p->open < sockets; p->open++) {
    int fd =
        p->rank == 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || (p->rank == 1 && connect(fd, (const struct sockaddr *)at, sizeof *at) != 0)) {
      return complain("cannot connect");
    }
    p->fd[p->open] = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  return 0;
}

int raw_fork(raw_pair *p, int sockets, size_t chunk)
{
  struct sockaddr_in at;
  *p = (raw_pair){.n = sockets, .chunk = chunk};
  int listener = listen_anywhere(&at);
  pid_t child = listener < 0 || sockets > RAW_SOCKETS ? -1 : fork();
  if (child < 0) {
    return complain("cannot fork");
  }
  p->rank = child == 0;
  if (p->rank == 1) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  p->scratch = malloc(chunk > RAW_SMALL ? chunk : RAW_SMALL);
  int res = p->scratch == NULL ? complain("no memory") : join(p, listener, &at, sockets);
  close(listener);
  return res;
}

int raw_end(raw_pair *p)
{
  int status = 0;
  for (int i = 0; i < p->open; i++) {
    close(p->fd[i]);
  }
  free(p->scratch);
  if (p->rank == 0 && waitpid(-1, &status, 0) < 0) {
    return complain("the other end");
  }
  return status != 0;
}

// Moves what goes without waiting, at most `most` bytes: 1 some, 0 nothing, -1 error.
static int push(int fd, flow *f, size_t most, int sending)
{
  size_t left = f->size - f->done;
  if (left == 0 || most == 0) {
    return 0;
  }
  left = left < most ? left : most;
  ssize_t n = sending ? send(fd, f->at + f->done, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                      : recv(fd, f->at + f->done, left, MSG_DONTWAIT);
  if (n <= 0) {
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
  }
  f->done += (size_t)n;
  return 1;
}

// Called after a look that moved nothing, the `idle`th in a row: looks again, or sleeps until one of the flows can
// move.
static void await(const raw_pair *p, const flow *out, const flow *in, int n, int idle)
{
  struct pollfd fds[RAW_SOCKETS];
  if (p->wait == RAW_SPIN || (p->wait == RAW_SPIN_THEN_POLL && idle < LOOKS)) {
    return;
  }
  for (int i = 0; i < n; i++) {
    short events = (short)((out[i].done < out[i].size ? POLLOUT : 0) | (in[i].done < in[i].size ? POLLIN : 0));
    fds[i] = (struct pollfd){.fd = events != 0 ? p->fd[i] : -1, .events = events};
  }
  poll(fds, (nfds_t)n, -1);
}

// Moves all flows, one each way per socket.
static int move_all(const raw_pair *p, flow *o, flow *i, int n)
{
  int idle = 0;
  for (int busy = 1; busy;) {
    int moved = 0;
    busy = 0;
    for (int k = 0; k < n; k++) {
      int sent = push(p->fd[k], &o[k], p->chunk, 1), got = push(p->fd[k], &i[k], p->chunk, 0);
      if (sent < 0 || got < 0) {
        return complain("connection lost");
      }
      moved += sent + got;
      busy += o[k].done < o[k].size || i[k].done < i[k].size;
    }
    idle = moved > 0 ? 0 : idle + 1;
    if (busy && idle > 0) {
      await(p, o, i, n, idle);
    }
  }
  return 0;
}

int raw_exchange(const raw_pair *p, const void *out, void *in, size_t bytes)
{
  flow o[RAW_SOCKETS], i[RAW_SOCKETS];
  for (int k = 0; k < p->n; k++) {
    size_t from = bytes * (size_t)k / (size_t)p->n, to = bytes * (size_t)(k + 1) / (size_t)p->n;
    o[k] = (flow){.at = (char *)(uintptr_t)out + from, .size = to - from};
    i[k] = (flow){.at = (char *)in + from, .size = to - from};
  }
  return move_all(p, o, i, p->n);
}

int raw_move(const raw_pair *p, const void *out, size_t out_bytes, void *in, size_t in_bytes)
{
  flow o = {.at = (char *)(uintptr_t)out, .size = out_bytes}, i = {.at = in, .size = in_bytes};
  return move_all(p, &o, &i, 1);
}

static void add(float *to, const float *a, const float *b, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    to[i] = a[i] + b[i];
  }
}

// What has arrived of the other end's contribution to my half: summed by whole floats once the scratch is full or all
// is there.
static void sum_arrived(const float *in, float *out, flow *f, size_t *summed, size_t half)
{
  if (f->done == f->size) {
    add(out + *summed, in + *summed, (const float *)(void *)f->at, f->size / sizeof *out);
    *summed += f->size / sizeof *out;
    size_t left = (half - *summed) * sizeof *out;
    *f = (flow){.at = f->at, .size = left < f->size ? left : f->size};
  }
}

static int reduce_halves(const raw_pair *p, const float *in, float *out, size_t count)
{
  size_t cut = count / 2, first[2] = {0, cut}, length[2] = {cut, count - cut}, summed = 0;
  int me = p->rank, other = 1 - me;
  const float *my_in = in + first[me];
  float *my_out = out + first[me];
  size_t piece = p->chunk / sizeof *out, mine = length[me] * sizeof *out;
  flow raw_out = {.at = (char *)(uintptr_t)(in + first[other]), .size = length[other] * sizeof *out};
  flow raw_in = {.at = p->scratch, .size = (length[me] < piece ? length[me] : piece) * sizeof *out};
  flow sum_out = {.at = (char *)my_out, .size = mine},
       sum_in = {.at = (char *)(out + first[other]), .size = raw_out.size};
  for (int idle = 0; sum_out.done < mine || sum_in.done < sum_in.size;) {
    flow *o = raw_out.done < raw_out.size ? &raw_out : &sum_out, *i = summed < length[me] ? &raw_in : &sum_in;
    size_t ready = o == &raw_out ? p->chunk : summed * sizeof *out - sum_out.done;
    int sent = push(p->fd[0], o, ready < p->chunk ? ready : p->chunk, 1), got = push(p->fd[0], i, p->chunk, 0);
    if (sent < 0 || got < 0) {
      return complain("connection lost");
    }
    if (i == &raw_in && got > 0) {
      sum_arrived(my_in, my_out, &raw_in, &summed, length[me]);
    }
    idle = sent + got > 0 ? 0 : idle + 1;
    if (idle > 0) { // of the results, what is summed can go out
      await(p, &(flow){.size = ready}, i, 1, idle);
    }
  }
  return 0;
}

int raw_all_reduce(const raw_pair *p, const float *in, float *out, size_t count)
{
  if (count * sizeof *in > RAW_SMALL) {
    return reduce_halves(p, in, out, count);
  }
  raw_pair one = *p;
  one.n = 1;
  int res = raw_exchange(&one, in, one.scratch, count * sizeof *in);
  if (p->rank == 0) {
    add(out, in, (const float *)(void *)one.scratch, count);
  } else {
    add(out, (const float *)(void *)one.scratch, in, count);
  }
  return res;
}

int raw_ping_pong(const raw_pair *p, size_t bytes, int times)
{
  char ball[64] = {0};
  int flags = p->wait == RAW_SPIN ? MSG_DONTWAIT : 0;
  for (int i = 0; i < 2 * times; i++) {
    if (i % 2 == p->rank) {
      if (send(p->fd[0], ball, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) {
        return complain("send");
      }
      continue;
    }
    for (size_t have = 0; have < bytes;) {
      ssize_t n = recv(p->fd[0], ball + have, bytes - have, flags);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        return complain("recv");
      }
      have += n > 0 ? (size_t)n : 0;
    }
  }
  return 0;
}
