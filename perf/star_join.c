// How the processes of a star find each other. Process 0 listens; the others try until it answers. Everybody else who
// connects is a stranger: nothing but a whole hello of this job is heard, and silence does not hold anybody up.
#define _GNU_SOURCE // program_invocation_short_name
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fail.h"
#include "star_priv.h"
#include "system.h"
#include "tcp.h"

enum {
  WAITING = 128,
  HELLO_MS = 5000,
  ANSWER_MS = 5000,
  PAUSE_MS = 100,
  LONGEST_PAUSE_MS = 1000,
  CONNECT_MS = 5000,
  NOTE_MS = 10000
};

static uint64_t after_ms(uint64_t ms)
{
  return perf_now() + ms * 1000000;
}

// Somebody who connected and has not said who he is.
typedef struct stranger {
  int fd;
  uint64_t until;
  size_t got;
  star_hello hello;
} stranger;

// Process 0 while the others come.
typedef struct door {
  perf_star *s;
  const perf_star_plan *plan;
  int port;
  int listeners[PERF_TCP_LISTENERS], nlisteners;
  stranger waiting[WAITING];
  int nwaiting;
  int joined; // those that have said that they are in; itself included
  bool mentioned;
  struct pollfd *polls; // [PERF_TCP_LISTENERS + WAITING + procs]
} door;

// Every process is a descriptor; the usual limit is 1024.
static void raise_limit(int procs)
{
  struct rlimit r;
  rlim_t want = (rlim_t)procs + 512;
  if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < want) {
    r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
    setrlimit(RLIMIT_NOFILE, &r);
  }
}

static bool open_door(door *d)
{
  const perf_star_plan *plan = d->plan;
  for (int i = 0; i < plan->nports; i++) {
    d->port = plan->ports[i];
    d->nlisteners = perf_tcp_listen(plan->host, d->port, d->listeners);
    if (d->nlisteners > 0) {
      return true;
    }
  }
  perf_say("cannot listen at port %d for %s: %s%s", d->port, plan->host, strerror(-d->nlisteners),
           d->nlisteners == -EADDRINUSE ? " (is there another process 0, or another job?): set MASTER_PORT" : "");
  d->nlisteners = 0;
  return false;
}

static void close_door(door *d)
{
  for (int i = 0; i < d->nlisteners; i++) {
    close(d->listeners[i]);
  }
  for (int i = 0; i < d->nwaiting; i++) {
    close(d->waiting[i].fd);
  }
  free(d->polls);
  free(d);
}

static void forget(door *d, int i)
{
  d->waiting[i] = d->waiting[--d->nwaiting];
}

static void drop(door *d, int i, const char *why)
{
  if (!d->mentioned) {
    char name[PERF_TCP_NAME + 64];
    perf_tcp_peer(d->waiting[i].fd, name, sizeof(name));
    perf_say("dropped a connection from %s at port %d: %s (others are dropped silently)", name, d->port, why);
    d->mentioned = true;
  }
  close(d->waiting[i].fd);
  forget(d, i);
}

static void refuse(door *d, int i, const char *why)
{
  stranger *w = &d->waiting[i];
  star_frame f = {.magic = STAR_MAGIC, .size = strlen(why), .kind = STAR_STOP};
  if (perf_tcp_send(w->fd, &f, sizeof(f), after_ms(1)) == 0) {
    perf_tcp_send(w->fd, why, strlen(why), after_ms(1));
  }
  drop(d, i, why);
}

// The process is in when it has answered the welcome: until then it may have given up this connection and come with
// another.
static void admit(door *d, int i)
{
  stranger *w = &d->waiting[i];
  star_peer *p = &d->s->peers[w->hello.proc];
  if (p->fd >= 0) {
    d->joined -= p->joined;
    close(p->fd);
  }
  *p = (star_peer){.fd = w->fd, .pid = w->hello.pid};
  memcpy(p->host, w->hello.host, sizeof(p->host));
  p->host[sizeof(p->host) - 1] = '\0';
  forget(d, i);
  star_send(d->s, p->fd, STAR_WELCOME, NULL, 0); // if that fails, its end is noticed by the next poll
}

// Is the process that the hello is from another one than it has to be? Then the job cannot come together.
static bool second_of_its_number(door *d, int i)
{
  const star_hello *h = &d->waiting[i].hello;
  const star_peer *p = h->proc ? &d->s->peers[h->proc] : NULL;
  if (p && (p->fd < 0 || (p->pid == h->pid && strncmp(p->host, h->host, sizeof(h->host) - 1) == 0))) {
    return false;
  }
  char first[160] = "process 0 itself", why[STAR_TEXT];
  if (p) {
    star_describe(d->s, (int)h->proc, first, sizeof(first));
  }
  snprintf(why, sizeof(why), "two processes have number %u: %s, and pid %d on %.63s", h->proc, first, (int)h->pid,
           h->host);
  refuse(d, i, why);
  star_over(d->s, why);
  return true;
}

// A whole hello is there. False: the job cannot come together.
static bool judge(door *d, int i)
{
  const star_hello *h = &d->waiting[i].hello;
  char why[STAR_TEXT];
  if (h->identity != d->plan->identity) {
    drop(d, i, "a process of another job");
  } else if (h->version != STAR_VERSION || h->procs != (uint32_t)d->s->procs || h->proc >= h->procs) {
    snprintf(why, sizeof(why),
             "process %u of %u (pid %d on %.63s) does not belong to the job of %d processes at port %d", h->proc,
             h->procs, (int)h->pid, h->host, d->s->procs, d->port);
    refuse(d, i, why);
  } else if (second_of_its_number(d, i)) {
    return false;
  } else {
    admit(d, i);
  }
  return true;
}

// Something came from stranger i, or the connection ended. False: the job cannot come together.
static bool hear(door *d, int i)
{
  stranger *w = &d->waiting[i];
  long n = perf_tcp_read(w->fd, (char *)&w->hello + w->got, sizeof(w->hello) - w->got);
  if (n < 0) {
    drop(d, i, w->got ? "half a greeting" : "said nothing");
    return true;
  }
  w->got += (size_t)n;
  const uint64_t magic = STAR_MAGIC;
  if (memcmp(&w->hello, &magic, w->got < sizeof(magic) ? w->got : sizeof(magic)) != 0) {
    drop(d, i, "not a greeting of ours");
    return true;
  }
  return w->got < sizeof(w->hello) || judge(d, i);
}

static void drop_oldest(door *d)
{
  int oldest = 0;
  for (int i = 1; i < d->nwaiting; i++) {
    oldest = d->waiting[i].until < d->waiting[oldest].until ? i : oldest;
  }
  if (d->nwaiting) {
    drop(d, oldest, "silent while many others came");
  }
}

// Lets in who knocks at this listener. False: no more descriptors although nobody is waiting.
static bool let_in(door *d, int listener)
{
  for (int count = 0; count < WAITING; count++) {
    if (d->nwaiting == WAITING) {
      drop_oldest(d);
    }
    int fd = perf_tcp_accept(listener);
    if (fd == -EMFILE || fd == -ENFILE) {
      bool somebody = d->nwaiting > 0;
      drop_oldest(d);
      return somebody || star_over(d->s, "process 0 may open no more connections (ulimit -n)");
    }
    if (fd < 0) {
      return true;
    }
    d->waiting[d->nwaiting++] = (stranger){.fd = fd, .until = after_ms(HELLO_MS)};
  }
  return true;
}

// Something came from a process that was let in. False: it left, and the job cannot come together.
static bool hear_member(door *d, int proc)
{
  star_peer *p = &d->s->peers[proc];
  star_frame f = {0};
  char name[128], text[STAR_TEXT - 160] = "its connection was closed", why[STAR_TEXT];
  int error = perf_tcp_recv(p->fd, &f, sizeof(f), after_ms(100));
  if (!p->joined) {
    p->joined = !error && f.magic == STAR_MAGIC && f.kind == STAR_WELCOME;
    d->joined += p->joined;
    if (!p->joined) {
      close(p->fd);
      p->fd = -1;
    }
    return true;
  }
  if (!error && f.magic == STAR_MAGIC && f.kind == STAR_STOP) {
    star_read_stop(p->fd, &f, text, sizeof(text));
  }
  star_describe(d->s, proc, name, sizeof(name));
  snprintf(why, sizeof(why), "%s left before all processes were there: %s", name, text);
  return star_over(d->s, why);
}

static size_t fill_polls(door *d)
{
  size_t n = 0;
  for (int i = 0; i < d->nlisteners; i++) {
    d->polls[n++] = (struct pollfd){.fd = d->listeners[i], .events = POLLIN};
  }
  for (int i = 0; i < d->nwaiting; i++) {
    d->polls[n++] = (struct pollfd){.fd = d->waiting[i].fd, .events = POLLIN};
  }
  for (int p = 1; p < d->s->procs; p++) {
    d->polls[n++] = (struct pollfd){.fd = d->s->peers[p].fd, .events = POLLIN}; // poll leaves out what is negative
  }
  return n;
}

// One round. Members first: a stranger may become one and take the place of one in `peers`.
static bool look_round(door *d)
{
  const struct pollfd *listeners = d->polls, *waiting = listeners + d->nlisteners, *members = waiting + d->nwaiting;
  for (int p = 1; p < d->s->procs; p++) {
    if (members[p - 1].revents && !hear_member(d, p)) {
      return false;
    }
  }
  for (int i = d->nwaiting - 1; i >= 0; i--) { // from the back: a member that leaves is replaced by the last
    if (waiting[i].revents) {
      if (!hear(d, i)) {
        return false;
      }
    } else if (perf_now() > d->waiting[i].until) {
      drop(d, i, "silent");
    }
  }
  for (int i = 0; i < d->nlisteners; i++) {
    if (listeners[i].revents && !let_in(d, d->listeners[i])) {
      return false;
    }
  }
  return true;
}

static bool nobody_more(door *d)
{
  char why[STAR_TEXT], list[128] = "";
  int named = 0;
  for (int p = 1; p < d->s->procs && named < 9; p++) {
    if (!d->s->peers[p].joined) {
      size_t len = strlen(list);
      snprintf(list + len, sizeof(list) - len, named == 8 ? ", ..." : named ? ", %d" : "%d", p);
      named++;
    }
  }
  snprintf(why, sizeof(why), "after %d s (%s) %d of %d processes are at port %d of %.100s; missing: %s%.200s",
           d->plan->seconds, d->plan->seconds_name, d->joined, d->s->procs, d->port, d->plan->host, list,
           d->plan->hint);
  return star_over(d->s, why);
}

static bool wait_for_all(door *d)
{
  uint64_t deadline = after_ms((uint64_t)d->plan->seconds * 1000);
  while (d->joined < d->s->procs) {
    if (perf_now() >= deadline) {
      return nobody_more(d);
    }
    uint64_t next = after_ms(500);
    size_t n = fill_polls(d);
    perf_tcp_poll(d->polls, n, next < deadline ? next : deadline);
    if (!look_round(d)) {
      return false;
    }
  }
  for (int p = 1; p < d->s->procs; p++) {
    star_send(d->s, d->s->peers[p].fd, STAR_START, NULL, 0);
  }
  return true;
}

static bool host_star(perf_star *s, const perf_star_plan *plan)
{
  door *d = calloc(1, sizeof(*d));
  raise_limit(plan->procs);
  if (d) {
    *d = (door){.s = s, .plan = plan, .joined = 1};
    d->polls = calloc((size_t)(PERF_TCP_LISTENERS + WAITING + plan->procs), sizeof(*d->polls));
  }
  if (!d || !d->polls) {
    free(d);
    perf_say("no memory for %d processes", plan->procs);
    return false;
  }
  bool ok = open_door(d) && wait_for_all(d);
  close_door(d);
  return ok;
}

// A process that looks for process 0.
typedef struct search {
  perf_star *s;
  const perf_star_plan *plan;
  uint64_t deadline, note;
  char why[STAR_TEXT]; // the last attempt failed
} search;

typedef enum { FOUND, NOT_YET, HOPELESS } verdict;

// What process 0 answered to the hello.
static verdict hear_answer(search *q, int fd)
{
  star_frame f;
  uint64_t until = after_ms(ANSWER_MS);
  int error = perf_tcp_recv(fd, &f, sizeof(f), until < q->deadline ? until : q->deadline);
  if (error == 0 && f.magic == STAR_MAGIC && f.kind == STAR_WELCOME) {
    return star_send(q->s, fd, STAR_WELCOME, NULL, 0) == 0 ? FOUND : NOT_YET;
  }
  if (error == 0 && f.magic == STAR_MAGIC && f.kind == STAR_STOP) {
    char text[STAR_TEXT];
    star_read_stop(fd, &f, text, sizeof(text));
    perf_say("refused by process 0: %s", text);
    return HOPELESS;
  }
  snprintf(q->why, sizeof(q->why), "somebody is there, but %s",
           error == -ETIMEDOUT ? "says nothing" : "it is not process 0 of this job (or has another secret)");
  return NOT_YET;
}

static verdict try_port(search *q, int port)
{
  star_hello h = {.magic = STAR_MAGIC,
                  .identity = q->plan->identity,
                  .version = STAR_VERSION,
                  .proc = (uint32_t)q->s->proc,
                  .procs = (uint32_t)q->s->procs,
                  .pid = (int32_t)getpid()};
  perf_host_name(h.host, sizeof(h.host));
  int fd = perf_tcp_connect(q->plan->host, port, CONNECT_MS, q->why, sizeof(q->why));
  if (fd < 0) {
    return NOT_YET;
  }
  verdict v = NOT_YET;
  if (perf_tcp_send(fd, &h, sizeof(h), after_ms(ANSWER_MS)) == 0) {
    v = hear_answer(q, fd);
  }
  if (v == FOUND) {
    q->s->peers[0].fd = fd;
  } else {
    close(fd);
  }
  return v;
}

static verdict try_ports(search *q)
{
  verdict v = NOT_YET;
  for (int i = 0; i < q->plan->nports && v == NOT_YET; i++) {
    v = try_port(q, q->plan->ports[i]);
  }
  return v;
}

static void note_delay(search *q)
{
  if (q->note && perf_now() > q->note) {
    q->note = 0;
    perf_say("still looking for process 0 at port %d of %s: %s", q->plan->ports[0], q->plan->host, q->why);
  }
}

static bool find_process_0(search *q)
{
  uint64_t pause = PAUSE_MS;
  for (;;) {
    verdict v = try_ports(q);
    if (v != NOT_YET) {
      return v == FOUND;
    }
    if (perf_now() + pause * 1000000 >= q->deadline) {
      perf_say("process 0 was not found at port %d of %s within %d s (%s): %s%s", q->plan->ports[0], q->plan->host,
               q->plan->seconds, q->plan->seconds_name, q->why, q->plan->hint);
      return false;
    }
    note_delay(q);
    usleep((useconds_t)pause * 1000);
    pause = pause * 2 < LONGEST_PAUSE_MS ? pause * 2 : LONGEST_PAUSE_MS;
  }
}

// Process 0 has the same time limit, and began before it answered; it says what is wrong.
static bool wait_for_start(search *q)
{
  star_frame f;
  char text[STAR_TEXT] = "its connection was closed";
  int fd = q->s->peers[0].fd;
  int error = perf_tcp_recv(fd, &f, sizeof(f), after_ms(((uint64_t)q->plan->seconds + 10) * 1000));
  if (error == 0 && f.magic == STAR_MAGIC && f.kind == STAR_START) {
    return true;
  }
  if (error == 0 && f.magic == STAR_MAGIC && f.kind == STAR_STOP) {
    star_read_stop(fd, &f, text, sizeof(text));
    perf_say("the job is over: %s", text);
  } else {
    perf_say("the job is over: process 0 is gone before all processes were there: %s",
             error == -ETIMEDOUT ? "it is silent" : text);
  }
  return false;
}

static bool seek_star(perf_star *s, const perf_star_plan *plan)
{
  search q = {.s = s, .plan = plan, .deadline = after_ms((uint64_t)plan->seconds * 1000), .note = after_ms(NOTE_MS)};
  return find_process_0(&q) && wait_for_start(&q);
}

perf_star *perf_star_join(const perf_star_plan *plan)
{
  perf_star *s = star_create(plan->proc, plan->procs);
  if (!s) {
    perf_say("no memory for %d processes", plan->procs);
    return NULL;
  }
  if (plan->proc == 0 ? host_star(s, plan) : seek_star(s, plan)) {
    return s;
  }
  perf_star_leave(s);
  return NULL;
}
