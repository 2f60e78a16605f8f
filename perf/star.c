#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "star_priv.h"
#include "system.h"
#include "tcp.h"

static uint64_t soon(void)
{
  return perf_now() + 2000000000u;
}

perf_star *star_create(int proc, int procs)
{
  int count = proc == 0 ? procs : 1;
  perf_star *s = calloc(1, sizeof(*s));
  star_peer *peers = calloc((size_t)count, sizeof(*peers));
  if (!s || !peers) {
    free(s);
    free(peers);
    return NULL;
  }
  *s = (perf_star){.proc = proc, .procs = procs, .peers = peers};
  pthread_mutex_init(&s->writing, NULL);
  for (int p = 0; p < count; p++) {
    peers[p].fd = -1;
  }
  return s;
}

void perf_star_leave(perf_star *s)
{
  if (!s) {
    return;
  }
  for (int p = 0; p < (s->proc == 0 ? s->procs : 1); p++) {
    if (s->peers[p].fd >= 0) {
      close(s->peers[p].fd);
    }
  }
  pthread_mutex_destroy(&s->writing);
  free(s->peers);
  free(s);
}

static int send_frame(const perf_star *s, int fd, star_kind kind, const void *data, size_t size, uint64_t deadline)
{
  star_frame f = {.magic = STAR_MAGIC, .size = size, .kind = kind, .seq = s->seq};
  int error = perf_tcp_send(fd, &f, sizeof(f), deadline);
  return error ? error : perf_tcp_send(fd, data, size, deadline);
}

int star_send(perf_star *s, int fd, star_kind kind, const void *data, size_t size)
{
  pthread_mutex_lock(&s->writing);
  int error = send_frame(s, fd, kind, data, size, 0);
  pthread_mutex_unlock(&s->writing);
  return error;
}

void star_describe(const perf_star *s, int peer, char *buf, size_t size)
{
  const star_peer *p = &s->peers[s->proc == 0 ? peer : 0];
  int n = snprintf(buf, size, "process %d", peer);
  if (p->pid && n > 0 && (size_t)n < size) {
    snprintf(buf + n, size - (size_t)n, " (pid %d on %s)", (int)p->pid, p->host);
  }
}

void star_read_stop(int fd, const star_frame *f, char *text, size_t size)
{
  size_t n = f->size < size ? f->size : size - 1;
  text[perf_tcp_recv(fd, text, n, soon()) == 0 ? n : 0] = '\0';
  for (char *c = text; *c; c++) {
    if ((unsigned char)*c < ' ') {
      *c = ' ';
    }
  }
}

// Tells the others. A peer that does not take it at once finds the connection closed instead.
static void tell(perf_star *s, const char *why)
{
  for (int p = 0; p < (s->proc == 0 ? s->procs : 1); p++) {
    if (s->peers[p].fd >= 0) {
      send_frame(s, s->peers[p].fd, STAR_STOP, why, strlen(why), perf_now() + 1000000);
    }
  }
}

void perf_star_stop(perf_star *s, const char *why)
{
  if (pthread_mutex_trylock(&s->writing) == 0) {
    if (!s->over) {
      tell(s, why);
      s->over = true;
    }
    pthread_mutex_unlock(&s->writing);
  }
}

bool star_over(perf_star *s, const char *why)
{
  perf_say("the job is over: %s", why);
  perf_star_stop(s, why);
  return false;
}

static bool lost(perf_star *s, int peer, int error)
{
  char name[128], why[STAR_TEXT];
  star_describe(s, peer, name, sizeof(name));
  bool closed = error == -ECONNRESET || error == -EPIPE;
  snprintf(why, sizeof(why), "%s is gone: %s", name, closed ? "its connection was closed" : strerror(-error));
  return star_over(s, why);
}

// The header that came from `peer` is not that of the data expected.
static bool refused(perf_star *s, int peer, const star_frame *f, size_t size)
{
  char name[128], text[STAR_TEXT - 160], why[STAR_TEXT];
  star_describe(s, peer, name, sizeof(name));
  if (f->magic == STAR_MAGIC && f->kind == STAR_STOP) {
    star_read_stop(s->peers[s->proc == 0 ? peer : 0].fd, f, text, sizeof(text));
    if (s->proc == 0) {
      snprintf(why, sizeof(why), "%s says: %s", name, text);
      return star_over(s, why);
    }
    return star_over(s, text);
  }
  snprintf(why, sizeof(why),
           "%s is at step %u (%llu bytes), process %d at step %u (%zu bytes): they run different things", name, f->seq,
           (unsigned long long)f->size, s->proc, s->seq, size);
  return star_over(s, why);
}

static bool is_expected(const perf_star *s, const star_frame *f, size_t size)
{
  return f->magic == STAR_MAGIC && f->kind == STAR_DATA && f->seq == s->seq && f->size == size;
}

// Process 0: `size` bytes of process `peer` into `data`.
static bool receive_from(perf_star *s, int peer, void *data, size_t size)
{
  star_frame f;
  int fd = s->peers[s->proc == 0 ? peer : 0].fd;
  int error = perf_tcp_recv(fd, &f, sizeof(f), 0);
  if (error) {
    return lost(s, peer, error);
  }
  if (!is_expected(s, &f, size)) {
    return refused(s, peer, &f, size);
  }
  error = perf_tcp_recv(fd, data, size, 0);
  return error ? lost(s, peer, error) : true;
}

// What process 0 has of one peer's contribution.
typedef struct inbox {
  size_t got; // header and data
  star_frame f;
} inbox;

// Takes what is there. False: the job is over.
static bool take(perf_star *s, int peer, inbox *in, char *data, size_t size)
{
  bool header = in->got < sizeof(in->f);
  char *to = header ? (char *)&in->f + in->got : data + (in->got - sizeof(in->f));
  size_t room = header ? sizeof(in->f) - in->got : sizeof(in->f) + size - in->got;
  long n = perf_tcp_read(s->peers[peer].fd, to, room);
  if (n < 0) {
    return lost(s, peer, (int)n);
  }
  in->got += (size_t)n;
  if (header && in->got == sizeof(in->f) && !is_expected(s, &in->f, size)) {
    return refused(s, peer, &in->f, size);
  }
  return true;
}

static bool gather_all(perf_star *s, inbox *in, struct pollfd *polls, char *all, size_t size)
{
  for (int missing = s->procs - 1; missing > 0;) {
    for (int p = 1; p < s->procs; p++) {
      polls[p] = (struct pollfd){.fd = s->peers[p].fd, .events = POLLIN};
    }
    perf_tcp_poll(polls + 1, (size_t)s->procs - 1, 0);
    for (int p = 1; p < s->procs; p++) {
      bool done = in[p].got == sizeof(in[p].f) + size;
      if (!polls[p].revents) {
        continue;
      }
      if (done) { // it should wait for the others, but something happened to it
        return receive_from(s, p, NULL, SIZE_MAX);
      }
      if (!take(s, p, &in[p], all + (size_t)p * size, size)) {
        return false;
      }
      missing -= in[p].got == sizeof(in[p].f) + size;
    }
  }
  return true;
}

static bool send_up(perf_star *s, const void *mine, size_t size)
{
  int error = star_send(s, s->peers[0].fd, STAR_DATA, mine, size);
  if (!error) {
    return true;
  }
  star_frame f; // it may have said why it went
  if (perf_tcp_recv(s->peers[0].fd, &f, sizeof(f), soon()) == 0) {
    return refused(s, 0, &f, size);
  }
  return lost(s, 0, error);
}

bool perf_star_gather(perf_star *s, const void *mine, void *all, size_t size)
{
  s->seq++;
  if (s->proc != 0) {
    return send_up(s, mine, size);
  }
  inbox *in = calloc((size_t)s->procs, sizeof(*in));
  struct pollfd *polls = calloc((size_t)s->procs, sizeof(*polls));
  bool ok = in && polls ? gather_all(s, in, polls, all, size) : star_over(s, "process 0 has no memory");
  if (ok && size) {
    memmove(all, mine, size);
  }
  free(in);
  free(polls);
  return ok;
}

bool perf_star_fetch(perf_star *s, void *data, size_t size, int from)
{
  s->seq++;
  if (s->proc == 0) {
    return receive_from(s, from, data, size);
  }
  return s->proc != from || send_up(s, data, size);
}

bool perf_star_spread(perf_star *s, void *data, size_t size)
{
  s->seq++;
  if (s->proc != 0) {
    return receive_from(s, 0, data, size);
  }
  for (int p = 1; p < s->procs; p++) {
    int error = star_send(s, s->peers[p].fd, STAR_DATA, data, size);
    if (error) {
      return lost(s, p, error);
    }
  }
  return true;
}
