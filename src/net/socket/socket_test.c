// socket_test.c: what arrives through the socket network is what was sent: all sizes, many requests, every number of
// sockets and threads.
#define _GNU_SOURCE
#include "pair_rig.h"
#include "tools/sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 24 };

// One stream of messages between two ends of a pair.
typedef struct {
  char *out[MANY], *in[MANY];
  void *sreq[MANY], *rreq[MANY];
  size_t size[MANY], room[MANY], got[MANY];
  int n, sent, posted, sdone, rdone;
  bool spare; // what messages do not fill may be overwritten
} stream;

static bool all_spare;  // of the streams that run makes
static int overwritten; // messages behind which something of the next ones was read

static void stream_open(stream *s, int n, const size_t *sizes, const size_t *rooms, unsigned first)
{
  memset(s, 0, sizeof(*s));
  s->n = n;
  for (int i = 0; i < n; i++) {
    s->size[i] = sizes[i];
    s->room[i] = rooms != NULL ? rooms[i] : sizes[i];
    s->out[i] = malloc(sizes[i] + 1);
    s->in[i] = malloc(s->room[i] + 1);
    assert_non_null(s->out[i]);
    assert_non_null(s->in[i]);
    pair_pattern(s->out[i], sizes[i], first + (unsigned)i);
    memset(s->in[i], 0x55, s->room[i] + 1);
  }
}

static void stream_close(stream *s, unsigned first)
{
  for (int i = 0; i < s->n; i++) {
    assert_int_equal(s->got[i], s->size[i]);
    assert_true(pair_pattern_holds(s->in[i], TT_MIN(s->size[i], s->room[i]), first + (unsigned)i));
    assert_int_equal(s->in[i][s->room[i]], 0x55);
    bool touched = s->size[i] < s->room[i] && s->in[i][s->size[i]] != 0x55;
    assert_true(s->spare || !touched); // nothing was written behind the message
    overwritten += touched;
    free(s->out[i]);
    free(s->in[i]);
  }
}

// Every other message in two parts, cut anywhere; the two ends need not agree.
static int start_send(const pair *p, stream *s, int i)
{
  size_t cut = (size_t)i * 977 % (s->size[i] + 1);
  if (!NET->has_parts(p->send) || i % 2 == 0) {
    return NET->isend(p->send, s->out[i], s->size[i], 0, NULL, NULL, &s->sreq[i]);
  }
  tt_net_part parts[2] = {{.data = s->out[i], .size = cut}, {.data = s->out[i] + cut, .size = s->size[i] - cut}};
  return NET->isend_parts(p->send, parts, 0, NULL, &s->sreq[i]);
}

static int start_recv(const pair *p, stream *s, int i)
{
  size_t cut = i % 3 == 0 ? TT_MIN(60, s->room[i]) : (size_t)i * 1301 % (s->room[i] + 1);
  int tag = 0;
  void *data = s->in[i];
  if (!NET->has_parts(p->recv) || i % 4 == 0) {
    return NET->irecv(p->recv, 1, &data, &s->room[i], &tag, NULL, NULL, &s->rreq[i]);
  }
  if (s->spare && i % 5 == 0) {
    cut = s->room[i]; // the proxy's slots
  }
  tt_net_part parts[2] = {{.data = s->in[i], .size = cut, .spare = s->spare},
                          {.data = s->in[i] + cut, .size = s->room[i] - cut}};
  if (cut == s->room[i]) {
    parts[1].data = NULL;
  }
  return NET->irecv_parts(p->recv, parts, tag, NULL, &s->rreq[i]);
}

static void step_send(pair *p, stream *s)
{
  if (s->sent < s->n) {
    int i = s->sent;
    assert_int_equal(start_send(p, s, i), ncclSuccess);
    s->sent += s->sreq[i] != NULL;
  }
  for (int i = s->sdone; i < s->sent; i++) {
    int done = 0;
    if (s->sreq[i] != NULL) {
      assert_int_equal(NET->test(s->sreq[i], &done, NULL), ncclSuccess);
      s->sreq[i] = done ? NULL : s->sreq[i];
    }
    s->sdone += done && i == s->sdone;
  }
  while (s->sdone < s->sent && s->sreq[s->sdone] == NULL) {
    s->sdone++;
  }
}

static void step_recv(pair *p, stream *s)
{
  if (s->posted < s->n) {
    int i = s->posted;
    assert_int_equal(start_recv(p, s, i), ncclSuccess);
    s->posted += s->rreq[i] != NULL;
  }
  for (int i = s->rdone; i < s->posted; i++) {
    int done = 0;
    if (s->rreq[i] != NULL) {
      assert_int_equal(NET->test(s->rreq[i], &done, &s->got[i]), ncclSuccess);
      s->rreq[i] = done ? NULL : s->rreq[i];
    }
  }
  while (s->rdone < s->posted && s->rreq[s->rdone] == NULL) {
    s->rdone++;
  }
}

static void stream_run(pair *p, int n, const size_t *sizes, const size_t *rooms)
{
  static unsigned first;
  stream s;
  uint64_t end = tt_now_ns() + 100 * TT_NS_PER_S;
  stream_open(&s, n, sizes, rooms, first);
  s.spare = all_spare;
  while (s.sdone < n || s.rdone < n) {
    step_send(p, &s);
    step_recv(p, &s);
    assert_true(tt_now_ns() < end);
  }
  stream_close(&s, first);
  first += (unsigned)n;
}

// Around every limit of the code: frame, read-ahead, bulk, piece, socket buffers.
static const size_t limits[] = {0, 1, 8, 16, 100, TT_SNET_BULK, 16384, TT_SNET_AHEAD, 65536, 131072, 1 << 20, 3 << 20};

static void every_size(pair *p)
{
  for (size_t i = 0; i < TT_COUNT(limits); i++) {
    for (int off = -1; off <= 1; off++) {
      size_t size = limits[i] + (size_t)(limits[i] == 0 ? TT_MAX(off, 0) : off);
      stream_run(p, 1, &size, NULL);
      stream_run(p, 3, (size_t[]){size, size, 8}, NULL);
      stream_run(p, 3, (size_t[]){8, size, size}, NULL);
    }
  }
}

static void test_stream_sizes(void **state)
{
  (void)state;
  pair p;
  pair_open(&p, 0, 0);
  every_size(&p);
  pair_close(&p);
}

static void test_sizes_spare(void **state)
{
  all_spare = true;
  test_stream_sizes(state);
  all_spare = false;
}

// Everything is there before the receiver looks, and messages are shorter and longer than it expects: nothing is lost,
// nothing moved.
static void test_early(void **state)
{
  (void)state;
  enum { N = 6, BULK = TT_SNET_BULK, EARLY = TT_SNET_EARLY };
  static const size_t some[][N] = {{BULK, BULK, BULK, BULK, BULK, BULK},
                                   {30000, 9000, 100, 20000, 0, 30000},
                                   {30000, 1, 2, 3, 4, 5},
                                   {9000, 35000, 9000, 70000, 9000, 9000},
                                   {30000, 0, 0, 0, 40000, 8},
                                   {EARLY, EARLY, EARLY + 1, EARLY, 8, EARLY},
                                   {36000, 16, 36000, 15, 36000, 17},
                                   {20000, BULK - 1, 20000, BULK, 1, 20000}};
  pair p;
  pair_open(&p, 0, 0);
  for (unsigned k = 0; k < 4 * TT_COUNT(some); k++) {
    const size_t *sizes = some[k / 4];
    size_t rooms[N];
    stream s;
    uint64_t end = tt_now_ns() + 20 * TT_NS_PER_S;
    for (int i = 0; i < N; i++) { // as long as the message; longer; shorter
      rooms[i] = k % 4 == 0 ? sizes[i] : k % 4 == 1 ? 120000 : k % 4 == 2 ? TT_MAX(sizes[i], 30000) : sizes[i] / 2;
    }
    stream_open(&s, N, sizes, rooms, 100 * k);
    s.spare = true;
    for (int turn = 0; s.sent < N || turn < 20;
         turn++) { // the first one is received before: what it makes the receiver expect counts
      step_send(&p, &s);
      if (s.rdone == 0) {
        step_recv(&p, &s);
      }
    }
    while (s.sdone < N || s.rdone < N) {
      step_send(&p, &s);
      step_recv(&p, &s);
      assert_true(tt_now_ns() < end);
    }
    stream_close(&s, 100 * k);
  }
  assert_true(overwritten > 0); // frames and payloads were read in one call
  pair_close(&p);
}

static void test_stream_many(void **state)
{
  (void)state;
  pair p;
  size_t sizes[MANY];
  pair_open(&p, 0, 0);
  srand(11);
  for (int round = 0; round < 200; round++) {
    for (int i = 0; i < MANY; i++) {
      int kind = rand() % 8;
      sizes[i] = (size_t)rand() % (kind == 0 ? 300000 : kind < 3 ? 40000 : kind < 5 ? 1 : 200);
    }
    all_spare = round % 2 != 0;
    stream_run(&p, MANY, sizes, NULL);
  }
  all_spare = false;
  pair_close(&p);
}

static void test_sockets_and_threads(void **state)
{
  (void)state;
  static const int threads[] = {0, 1, 2, 4}, each[] = {1, 2, 8};
  for (size_t t = 0; t < TT_COUNT(threads); t++) {
    for (size_t e = 0; e < TT_COUNT(each); e++) {
      pair p;
      pair_open(&p, threads[t], TT_MAX(threads[t], 1) * each[e]);
      assert_int_equal(((tt_snet_conn *)p.send)->data.nsocks, TT_MAX(threads[t], 1) * each[e]);
      for (int round = 0; round < 3; round++) {
        stream_run(&p, 6, (size_t[]){1 << 20, 65537, 8, 70000, (2 << 20) + 3, 65536}, NULL);
      }
      stream_run(&p, 3, (size_t[]){200000, 8, 300000}, (size_t[]){100, 8, 299999});
      pair_close(&p);
    }
  }
}

static void test_ends_differ(void **state)
{
  (void)state;
  static const int cases[][4] = {{0, 4, 2, 4}, {2, 8, 1, 3}, {1, 2, 0, 0}, {0, 0, 4, 4}, {4, 4, 0, 1}};
  for (size_t i = 0; i < TT_COUNT(cases); i++) {
    pair p;
    pair_open2(&p, (int[]){cases[i][0], cases[i][2]}, (int[]){cases[i][1], cases[i][3]});
    assert_int_equal(((tt_snet_conn *)p.send)->data.nsocks, TT_MIN(cases[i][1], cases[i][3]));
    stream_run(&p, 4, (size_t[]){1 << 20, 65537, 8, 200000}, NULL);
    pair_close(&p);
  }
}

// Too large for the buffer: the first part is kept, the whole size told, and what comes after is whole again.
static void test_too_large(void **state)
{
  (void)state;
  pair p;
  pair_open(&p, 0, 0);
  for (size_t i = 0; i < TT_COUNT(limits); i++) {
    stream_run(&p, 4, (size_t[]){limits[i], 9, limits[i], limits[i]},
               (size_t[]){0, 9, limits[i] / 2, limits[i] > 0 ? limits[i] - 1 : 5});
  }
  stream_run(&p, 3, (size_t[]){4, 5, 6}, (size_t[]){100, 100000, 7});
  pair_close(&p);
}

static void test_six(void **state)
{
  (void)state;
  pair p;
  memset(&p, 0, sizeof(p));
  for (int i = 0; i < 2; i++) {
    p.net[i] = pair_context(i, 1, 2);
    p.net[i]->base.devs[0].addrs = tt_addrs_one(&(tt_addr){.family = AF_INET6, .ip = {[15] = 1}});
  }
  tt_addr here = {.family = AF_INET6, .ip = {[15] = 1}}, at;
  int fd = -1;
  if (tt_tcp_listen(&here, &fd, &at) != 0) {
    NET->finalize(p.net[0]);
    NET->finalize(p.net[1]);
    skip(); // a machine without IPv6
  }
  tt_sock_close(&fd);
  pair_listen(&p);
  pair_connect(&p);
  assert_int_equal(((tt_snet_conn *)p.send)->at.family, AF_INET6);
  stream_run(&p, 3, (size_t[]){8, 1 << 20, 0}, NULL);
  pair_close(&p);
}

// At least TT_NET_REQUESTS sends and receives can be posted before anything is tested; then "not now".
static void test_request_limit(void **state)
{
  (void)state;
  pair p;
  void *s[TT_NET_REQUESTS], *r[TT_NET_REQUESTS], *more = &p;
  int in[TT_NET_REQUESTS], out[TT_NET_REQUESTS], tag = 0, done;
  size_t room = sizeof(int), got;
  pair_open(&p, 0, 0);
  for (int i = 0; i < TT_NET_REQUESTS; i++) {
    void *data = &in[i];
    out[i] = 1000 + i;
    assert_int_equal(NET->irecv(p.recv, 1, &data, &room, &tag, NULL, NULL, &r[i]), ncclSuccess);
    assert_int_equal(NET->isend(p.send, &out[i], room, 0, NULL, NULL, &s[i]), ncclSuccess);
    assert_non_null(r[i]);
    assert_non_null(s[i]);
  }
  assert_int_equal(NET->isend(p.send, &out[0], room, 0, NULL, NULL, &more), ncclSuccess);
  assert_null(more);
  for (int i = 0; i < TT_NET_REQUESTS; i++) {
    do {
      assert_int_equal(NET->test(r[i], &done, &got), ncclSuccess);
    } while (!done);
    assert_int_equal(got, sizeof(int));
    assert_int_equal(in[i], 1000 + i);
    assert_int_equal(NET->test(s[TT_NET_REQUESTS - 1 - i], &done, NULL), ncclSuccess);
    assert_int_equal(done, 1);
  }
  void *two[2] = {&in[0], &in[1]};
  assert_int_equal(NET->irecv(p.recv, 2, two, (size_t[]){4, 4}, (int[]){0, 0}, NULL, NULL, &more), ncclInvalidUsage);
  pair_close(&p);
}

// Large messages of a side that only sends wait for the test, and leave in calls of several, cut wherever the socket is
// full; small ones between them, too.
static void test_together(void **state)
{
  (void)state;
  enum { BEFORE = 20, N = MANY };
  static const size_t some[] = {200000, 0, 61516, 8, 1024, 1025, 70000, 9000};
  size_t before[BEFORE], sizes[N];
  pair p;
  stream s;
  for (int i = 0; i < BEFORE; i++) {
    before[i] = TT_SNET_BULK;
  }
  for (int i = 0; i < N; i++) {
    sizes[i] = some[i % 8] * (i < 8 ? 1 : 7);
  }
  pair_open(&p, 0, 0);
  stream_run(&p, BEFORE, before, NULL);
  stream_run(&p, BEFORE, before, NULL);
  stream_open(&s, N, sizes, NULL, 5);
  for (; s.sent < N; s.sent++) {
    assert_int_equal(start_send(&p, &s, s.sent), ncclSuccess);
    assert_non_null(s.sreq[s.sent]);
  }
  const tt_snet_conn *c = p.send;
  assert_int_equal(c->posted - c->front, N);
  assert_int_equal(c->moved, 0);
  for (uint64_t end = tt_now_ns() + 100 * TT_NS_PER_S; s.sdone < N || s.rdone < N;) {
    step_send(&p, &s);
    step_recv(&p, &s);
    assert_true(tt_now_ns() < end);
  }
  stream_close(&s, 5);
  pair_close(&p);
}

// Several connections, one after the other through one listener too, do not disturb each other.
static void test_several_connections(void **state)
{
  (void)state;
  enum { N = 8 };
  pair p[N];
  memset(p, 0, sizeof(p));
  tt_snet *a = pair_context(0, 1, 2), *b = pair_context(1, 0, 1);
  for (int i = 0; i < N; i++) {
    p[i].net[0] = i % 2 ? b : a;
    p[i].net[1] = i % 2 ? a : b;
    pair_listen(&p[i]);
  }
  for (int i = N - 1; i >= 0; i--) {
    pair_connect(&p[i]);
  }
  for (int i = 0; i < N; i++) {
    stream_run(&p[i], 4, (size_t[]){8, 100000, 70000, 0}, NULL);
  }
  for (int i = 0; i < N; i++) {
    NET->close_send(p[i].send);
    stream_run(&p[(i + 1) % N], i + 1 < N ? 2 : 0, (size_t[]){8, 100000}, NULL);
    NET->close_recv(p[i].recv);
    if (i == 0) {
      p[0].send = p[0].recv = NULL;
      pair_connect(&p[0]);
      stream_run(&p[0], 1, (size_t[]){8}, NULL);
    }
  }
  NET->finalize(a); // closes what is left: listeners, a connection
  NET->finalize(b);
}

// Waits for the context's events edge-triggered, as a progress thread does. False: nothing for a minute.
static bool stream_event(int outer)
{
  struct epoll_event e;
  return epoll_wait(outer, &e, 1, 60000) == 1;
}

static int watch_events(tt_snet *net)
{
  int outer = epoll_create1(0), fd = NET->events_fd(net);
  assert_true(outer >= 0 && fd >= 0);
  assert_int_equal(epoll_ctl(outer, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN | EPOLLET}), 0);
  return outer;
}

// Tests until the request is done, asleep between two tests. In turns the events are watched only while it sleeps: on,
// tested once more, off.
static int sleep_until_done(tt_snet *net, int outer, bool in_turns, void *r, size_t *got)
{
  int done = 0;
  assert_int_equal(NET->test(r, &done, got), ncclSuccess);
  if (!done && in_turns) {
    assert_true(NET->watch_events(net, true) >= 0);
    assert_int_equal(NET->test(r, &done, got), ncclSuccess);
  }
  while (!done && stream_event(outer)) {
    assert_int_equal(NET->test(r, &done, got), ncclSuccess);
  }
  if (in_turns) {
    assert_int_equal(NET->watch_events(net, false), 0);
  }
  return done;
}

typedef struct sleepers {
  pair p;
  bool in_turns;
} sleepers;

static void *late_sender(void *arg)
{
  sleepers *both = arg;
  pair *p = &both->p;
  int outer = watch_events(p->net[0]);
  for (unsigned i = 0; i < 40; i++) {
    size_t size = i % 2 ? 4 << 20 : 100;
    char *data = malloc(size);
    void *r = NULL;
    tt_sleep_ns(i % 4 == 0 ? 2 * TT_NS_PER_MS : 0);
    pair_pattern(data, size, i);
    assert_int_equal(NET->isend(p->send, data, size, 0, NULL, NULL, &r), ncclSuccess);
    assert_int_equal(sleep_until_done(p->net[0], outer, both->in_turns, r, NULL), 1);
    free(data);
  }
  close(outer);
  return NULL;
}

// Both sides sleep on nothing but the events: none is lost.
static void sleeping_pair(int threads, int sockets, bool in_turns)
{
  sleepers both = {.in_turns = in_turns};
  pair *p = &both.p;
  pthread_t t;
  char *in = malloc(4 << 20);
  pair_open(p, threads, sockets);
  int outer = watch_events(p->net[1]);
  assert_int_equal(pthread_create(&t, NULL, late_sender, &both), 0);
  for (unsigned i = 0; i < 40; i++) {
    size_t room = 4 << 20, got = 0;
    int tag = 0;
    void *r = NULL, *data = in;
    assert_int_equal(NET->irecv(p->recv, 1, &data, &room, &tag, NULL, NULL, &r), ncclSuccess);
    assert_int_equal(sleep_until_done(p->net[1], outer, in_turns, r, &got), 1);
    assert_int_equal(got, i % 2 ? 4 << 20 : 100);
    assert_true(pair_pattern_holds(in, got, i));
  }
  pthread_join(t, NULL);
  close(outer);
  pair_close(p);
  free(in);
}

static void test_stream_events(void **state)
{
  (void)state;
  for (int in_turns = 0; in_turns < 2; in_turns++) {
    sleeping_pair(0, 0, in_turns);
    sleeping_pair(0, 3, in_turns);
    sleeping_pair(2, 4, in_turns);
  }
}

// Two processes: the child receives.
static void test_stream_processes(void **state)
{
  (void)state;
  enum { N = 300 };
  pair p;
  memset(&p, 0, sizeof(p));
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    p.net[1] = pair_context(1, 1, 2);
    pair_listen(&p);
    if (write(fds[1], p.handle, sizeof(p.handle)) != sizeof(p.handle)) {
      _exit(1);
    }
    while (p.recv == NULL && NET->accept(p.listener, &p.recv) == ncclSuccess) {
    }
    char *in = malloc(1 << 20);
    for (unsigned i = 0; i < N; i++) {
      size_t room = 1 << 20, got;
      int done = 0, tag = 0;
      void *r = NULL, *data = in;
      if (NET->irecv(p.recv, 1, &data, &room, &tag, NULL, NULL, &r) != ncclSuccess) {
        _exit(2);
      }
      while (!done) {
        if (NET->test(r, &done, &got) != ncclSuccess) {
          _exit(3);
        }
      }
      if (got != (size_t)i * i * 10 || !pair_pattern_holds(in, got, i)) {
        _exit(4);
      }
    }
    free(in);
    NET->finalize(p.net[1]);
    _exit(0);
  }
  p.net[0] = pair_context(0, 2, 2);
  assert_int_equal(read(fds[0], p.handle, sizeof(p.handle)), sizeof(p.handle));
  close(fds[0]);
  close(fds[1]);
  while (p.send == NULL) {
    assert_int_equal(NET->connect(p.net[0], 0, p.handle, &p.send), ncclSuccess);
  }
  char *out = malloc(1 << 20);
  for (unsigned i = 0; i < N; i++) {
    void *r = NULL;
    int done = 0;
    pair_pattern(out, (size_t)i * i * 10, i);
    assert_int_equal(NET->isend(p.send, out, (size_t)i * i * 10, 0, NULL, NULL, &r), ncclSuccess);
    while (!done) {
      assert_int_equal(NET->test(r, &done, NULL), ncclSuccess);
    }
  }
  NET->close_send(p.send); // what was sent still arrives
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  NET->finalize(p.net[0]);
  free(out);
}

static void test_stream_properties(void **state)
{
  (void)state;
  tt_net_props props;
  int n = 0;
  tt_snet *net = pair_context(0, 0, 0);
  assert_int_equal(NET->devices(net, &n), ncclSuccess);
  assert_int_equal(n, 1);
  assert_int_equal(NET->get_properties(net, 0, &props), ncclSuccess);
  assert_string_equal(props.name, "lo");
  assert_null(props.pci_path);
  assert_int_equal(props.speed, 10000);
  assert_int_equal(props.max_recvs, 1);
  assert_int_equal(NET->get_properties(net, 1, &props), ncclInvalidUsage);
  assert_int_equal(NET->get_properties(net, -1, &props), ncclInvalidUsage);
  NET->finalize(net);
  assert_int_equal(NET->finalize(NULL), ncclSuccess);
}

static void stream_write_file(const char *dir, const char *name, const char *text)
{
  char path[256];
  snprintf(path, sizeof(path), "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void test_device(void **state)
{
  (void)state;
  char root[] = "/tmp/tt_netXXXXXX", path[256], command[300];
  tt_rdv_dev d;
  assert_non_null(mkdtemp(root));
  snprintf(path, sizeof(path), "%s/eth7", root);
  assert_int_equal(mkdir(path, 0700), 0);
  stream_write_file(path, "speed", "25000\n");
  snprintf(command, sizeof(command), "%s/device", path);
  assert_int_equal(mkdir(command, 0700), 0);
  stream_write_file(command, "vendor", "0x1d0f\n");
  tt_rdv_dev_open(&d, root, "eth7");
  assert_int_equal(d.speed, 25000);
  assert_string_equal(d.pci_path, command);
  assert_int_equal(d.nthreads, 2);
  assert_int_equal(d.nsocks, 16);
  tt_rdv_dev_close(&d);
  stream_write_file(path, "speed", "-1\n");
  tt_rdv_dev_open(&d, root, "eth7");
  assert_int_equal(d.speed, 10000);
  tt_rdv_dev_close(&d);
  snprintf(command, sizeof(command), "rm -r %s", root);
  assert_int_equal(system(command), 0);
}

static void test_stream_numbers(void **state)
{
  (void)state;
  static const struct {
    int64_t threads, each;
    const char *vendor;
    int nthreads, nsocks;
  } cases[] = {{-2, -2, NULL, 0, 0}, {-2, -2, "0x1ae0", 4, 4},  {-2, -2, "0x8086", 0, 0},
               {2, -2, "", 2, 2},    {-2, 4, "0x1d0f", 2, 8},   {0, 8, "0x1d0f", 0, 0},
               {17, 1, "", 16, 16},  {16, 8, "", 16, 64},       {3, 64, "", 3, 63},
               {-5, 1, "", 0, 0},    {1, INT64_MAX, "", 1, 64}, {INT64_MAX, 2, "", 16, 32},
               {2, -9, "", 0, 0},    {1, 64, NULL, 1, 64},      {INT64_MIN, INT64_MIN, "", 0, 0}};
  for (size_t i = 0; i < TT_COUNT(cases); i++) {
    int t = -1, s = -1;
    tt_rdv_dev_sockets(cases[i].threads, cases[i].each, cases[i].vendor, &t, &s);
    assert_int_equal(t, cases[i].nthreads);
    assert_int_equal(s, cases[i].nsocks);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_together),
      cmocka_unit_test(test_stream_sizes),
      cmocka_unit_test(test_sizes_spare),
      cmocka_unit_test(test_early),
      cmocka_unit_test(test_stream_many),
      cmocka_unit_test(test_ends_differ),
      cmocka_unit_test(test_sockets_and_threads),
      cmocka_unit_test(test_too_large),
      cmocka_unit_test(test_six),
      cmocka_unit_test(test_request_limit),
      cmocka_unit_test(test_several_connections),
      cmocka_unit_test(test_stream_events),
      cmocka_unit_test(test_stream_processes),
      cmocka_unit_test(test_stream_properties),
      cmocka_unit_test(test_device),
      cmocka_unit_test(test_stream_numbers),
  };
  setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
