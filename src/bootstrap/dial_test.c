// dial_test.c: both sides of the handshake: which side gets in, which does not, which address is taken, and that
// strangers disturb nobody. Loopback only.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/dial_rig.h"
#include "bootstrap/greet.h"
#include "os/random.h"
#include "tools/sockets.h"

enum { LONG_MS = 100000 }; // only a hang takes longer

static const tt_key key = {.b = {7, 7, 7}}, other_key = {.b = {8}};
static const tt_hello usual = {
    .kind = TT_HELLO_NET, .rank = 3, .to = 5, .nranks = 8, .tag = 0x1122334455667788, .cookie = 42};

static tt_addr loopback(uint8_t last)
{
  return (tt_addr){.family = AF_INET, .ip = {127, 0, 0, last}};
}

static uint64_t soon(uint64_t ms)
{
  return tt_now_ns() + ms * TT_NS_PER_MS;
}

// A greeter of rank 5 for connections of the network on n addresses.
static void open_greeter(tt_greeter *g, uint8_t n)
{
  tt_addrs at = {.n = n};
  for (uint8_t i = 0; i < n; i++) {
    at.a[i] = loopback((uint8_t)(i + 1));
  }
  assert_int_equal(tt_greeter_open(g, &at, &key, TT_HELLO_NET | TT_HELLO_PROXY, 5), 0);
  assert_int_equal(g->addrs.n, n);
}

// A port of the loopback where nobody listens.
static tt_addr closed_port(void)
{
  tt_addr at = loopback(1), bound;
  int fd = -1;
  assert_int_equal(tt_tcp_listen(&at, &fd, &bound), 0);
  tt_sock_close(&fd);
  return bound;
}

typedef struct {
  int dialled; // as tt_dial_step
  int fd[2];   // of the connecting, of the accepting side
  tt_addr at;
  tt_hello heard;
  int guests; // how many got in
} meeting;

// Both sides in one thread until the connecting one is through or has failed; then what else gets in within a moment.
static meeting run_meeting(tt_greeter *g, const tt_addrs *to, const tt_key *k, const tt_hello *h, uint64_t deadline_ns)
{
  meeting m = {.fd = {-1, -1}};
  tt_dial *d = NULL;
  int spare = -1;
  assert_int_equal(tt_dial_start(to, k, h, deadline_ns, &d), 0);
  uint64_t end = 0;
  while (end == 0 || tt_now_ns() < end) {
    if (m.dialled == 0) {
      m.dialled = tt_dial_step(d, &m.fd[0], &m.at);
    }
    if (m.dialled != 0 && end == 0) {
      end = soon(20);
    }
    struct pollfd fds[TT_DIAL_POLL + TT_GREET_POLL];
    tt_until wait = {.deadline_ns = soon(5)};
    size_t n = m.dialled == 0 ? tt_dial_poll(d, fds, &wait.deadline_ns) : 0;
    n += tt_greeter_poll(g, fds + n, &wait.deadline_ns);
    (void)tt_sock_poll(fds, n, &wait);
    while (tt_greeter_next(g, &m.heard, m.fd[1] < 0 ? &m.fd[1] : &spare)) {
      m.guests++;
      tt_sock_close(&spare);
    }
  }
  if (m.dialled < 0) {
    assert_int_equal(tt_dial_step(d, &m.fd[0], &m.at), m.dialled); // the same again
  }
  tt_dial_cancel(d);
  return m;
}

static void close_meeting(meeting *m)
{
  tt_sock_close(&m->fd[0]);
  tt_sock_close(&m->fd[1]);
}

static void test_seals(void **state)
{
  (void)state;
  tt_greeting g, later;
  tt_hello h = usual;
  tt_greeting_make(&g);
  tt_greeting_make(&later);
  tt_hello_seal(&h, &key, &g);
  assert_null(tt_hello_check(&h, sizeof(h), &key, &g));
  assert_non_null(tt_hello_check(&h, sizeof(h), &other_key, &g));
  assert_non_null(tt_hello_check(&h, sizeof(h), &key, &later)); // recorded and said again
  for (size_t bit = 0; bit < 8 * sizeof(h); bit++) {
    tt_hello bad = h;
    ((uint8_t *)&bad)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_non_null(tt_hello_check(&bad, sizeof(bad), &key, &g));
  }
  for (size_t got = 0; got < sizeof(h); got++) {
    assert_null(tt_hello_check(&h, got, &key, &g));
  }
  for (size_t got = 0; got <= sizeof(g); got++) {
    assert_int_equal(tt_greeting_check(&g, got), 0);
  }
  tt_seal proof = tt_proof_make(&h, &key, &g), wrong = tt_proof_make(&h, &other_key, &g);
  assert_false(tt_seal_same(&proof, &h.seal)); // a hello is no proof
  assert_false(tt_seal_same(&proof, &wrong));
  g.version++;
  assert_int_equal(tt_greeting_check(&g, sizeof(g)), -EPROTONOSUPPORT);
  assert_int_equal(tt_greeting_check((tt_greeting *)&h, sizeof(g)), -EPROTO);
}

static void test_keys(void **state)
{
  (void)state;
  uint8_t secret[TT_SECRET_BYTES] = {1};
  tt_key a = tt_key_of(secret), b = tt_key_derive(&a, "x", "yz", 2), c = tt_key_derive(&a, "xy", "z", 1),
         d = tt_key_derive(&a, "x", "yz", 2);
  assert_memory_not_equal(&a, &b, sizeof(a));
  assert_memory_not_equal(&b, &c, sizeof(a)); // where a part ends counts
  assert_memory_equal(&b, &d, sizeof(a));
  secret[15] = 1;
  b = tt_key_of(secret);
  assert_memory_not_equal(&a, &b, sizeof(a));
}

static void test_meet(void **state)
{
  (void)state;
  tt_greeter g;
  for (uint8_t n = 1; n <= TT_ADDRS_MAX; n = (uint8_t)(2 * n)) {
    open_greeter(&g, n);
    meeting m = {.fd = {-1, -1}};
    bool plain = false;
    for (int tries = 0; tries < 100 && !plain;
         tries++) { // another address than the first is tried only if this thread is late
      uint32_t strangers = (uint32_t)g.strangers;
      close_meeting(&m);
      m = run_meeting(&g, &g.addrs, &key, &usual, soon(LONG_MS));
      assert_int_equal(m.dialled, 1);
      assert_int_equal(m.guests, 1); // one connection, however many addresses
      plain = memcmp(&m.at, &g.addrs.a[0], sizeof(m.at)) == 0 && g.strangers == strangers;
    }
    assert_true(plain);
    assert_int_equal(m.heard.rank, 3);
    assert_int_equal(m.heard.kind, TT_HELLO_NET);
    assert_true(m.heard.tag == usual.tag && m.heard.cookie == usual.cookie);
    // What follows the handshake is untouched, both ways.
    char c[3] = "";
    tt_until until = {.deadline_ns = soon(LONG_MS)};
    assert_int_equal(tt_sock_send(m.fd[0], "ab", 2), 2);
    assert_int_equal(tt_sock_send(m.fd[1], "cd", 2), 2);
    assert_int_equal(tt_sock_recv_all(m.fd[1], c, 2, &until), 0);
    assert_string_equal(c, "ab");
    assert_int_equal(tt_sock_recv_all(m.fd[0], c, 2, &until), 0);
    assert_string_equal(c, "cd");
    close_meeting(&m);
    tt_greeter_close(&g, true);
    assert_int_equal(g.addrs.n, 0);
  }
}

static void test_refusals(void **state)
{
  (void)state;
  tt_greeter g;
  open_greeter(&g, 2);
  tt_hello wrong_rank = usual, wrong_kind = usual;
  wrong_rank.to = 6;
  wrong_kind.kind = TT_HELLO_JOIN;
  meeting m = run_meeting(&g, &g.addrs, &other_key, &usual, soon(LONG_MS));
  assert_int_equal(m.dialled, -EACCES);
  assert_int_equal(m.guests, 0);
  m = run_meeting(&g, &g.addrs, &key, &wrong_rank, soon(LONG_MS));
  assert_int_equal(m.dialled, -EACCES);
  m = run_meeting(&g, &g.addrs, &key, &wrong_kind, soon(LONG_MS));
  assert_int_equal(m.dialled, -EACCES);
  assert_int_equal(m.guests, 0);
  assert_true(g.strangers >= 6);
  m = run_meeting(&g, &g.addrs, &key, &usual, soon(LONG_MS));
  assert_int_equal(m.dialled, 1);
  close_meeting(&m);
  tt_greeter_close(&g, true);
}

// A listener that never answers a SYN: its queue is full.
typedef struct {
  int fds[8];
  tt_addr at;
} deaf;

static void open_deaf(deaf *d)
{
  tt_addr at = loopback(1);
  assert_int_equal(tt_tcp_listen(&at, &d->fds[0], &d->at), 0);
  assert_int_equal(listen(d->fds[0], 0), 0);
  for (int i = 1; i < 8; i++) {
    int e = tt_tcp_connect_start(&d->at, &d->fds[i]);
    assert_true(e == 0 || e == -EINPROGRESS);
  }
}

static void close_deaf(deaf *d)
{
  for (int i = 7; i >= 0; i--) {
    tt_sock_close(&d->fds[i]);
  }
}

static void test_other_way(void **state)
{
  (void)state;
  tt_greeter g;
  deaf d;
  open_greeter(&g, 2);
  open_deaf(&d);
  int silent = -1;
  tt_addr at = loopback(3), mute;
  assert_int_equal(tt_tcp_listen(&at, &silent, &mute), 0); // connects, and says nothing
  const tt_addr first[] = {closed_port(), d.at, mute, {.family = 99, .port = 1}};
  for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
    tt_addrs to = {.n = 2, .a = {first[i], g.addrs.a[1]}};
    meeting m = run_meeting(&g, &to, &key, &usual, soon(LONG_MS));
    assert_int_equal(m.dialled, 1);
    assert_int_equal(m.guests, 1);
    assert_memory_equal(&m.at, &g.addrs.a[1], sizeof(m.at));
    close_meeting(&m);
  }
  // All at once, and a listener with another key among them: the last one is the right one.
  tt_greeter foreign;
  tt_addrs there = {.n = 1, .a = {loopback(4)}};
  assert_int_equal(tt_greeter_open(&foreign, &there, &other_key, TT_HELLO_NET, 5), 0);
  tt_addrs to = {.n = 4, .a = {first[0], d.at, mute, g.addrs.a[0]}};
  meeting m = run_meeting(&g, &to, &key, &usual, soon(LONG_MS));
  assert_int_equal(m.dialled, 1);
  assert_memory_equal(&m.at, &g.addrs.a[0], sizeof(m.at));
  close_meeting(&m);
  tt_greeter_close(&foreign, true);
  tt_sock_close(&silent);
  close_deaf(&d);
  tt_greeter_close(&g, true);
}

static void test_no_way(void **state)
{
  (void)state;
  tt_greeter none;
  deaf d;
  tt_dial *dial = NULL;
  memset(&none, 0, sizeof(none));
  open_deaf(&d);
  tt_addrs to = {.n = 0};
  assert_int_equal(tt_dial_start(&to, &key, &usual, 0, &dial), -EINVAL);
  to.n = TT_ADDRS_MAX + 1;
  assert_int_equal(tt_dial_start(&to, &key, &usual, 0, &dial), -EINVAL);
  assert_null(dial);
  to = (tt_addrs){.n = 2, .a = {closed_port(), closed_port()}};
  assert_int_equal(run_meeting(&none, &to, &key, &usual, 0).dialled, -ECONNREFUSED);
  to = tt_addrs_one(&d.at);
  assert_int_equal(run_meeting(&none, &to, &key, &usual, soon(50)).dialled, -ETIMEDOUT);
  uint32_t flag = 1;
  int fd = -1;
  tt_addr at;
  tt_until until = {.abort_flag = &flag};
  assert_int_equal(rig_dial(&to, &key, &usual, &until, &fd, &at), -ECANCELED);
  to.a[0] = closed_port();
  until.abort_flag = NULL;
  assert_int_equal(rig_dial(&to, &key, &usual, &until, &fd, &at), -ECONNREFUSED);
  assert_int_equal(fd, -1);
  close_deaf(&d);
}

// A listener that ends while somebody connects: the kernel may leave that end connected with nobody, and tell it
// nothing.
enum { ENDINGS = 400 };

typedef struct {
  int fd;    // listens; atomic: -1 when it is closed
  int round; // atomic: the next one to be closed; -1: the end
} ender;

static void spin(uint32_t turns)
{
  for (volatile uint32_t i = 0; i < turns; i++) {
  }
}

static uint32_t random_below(uint32_t limit)
{
  uint32_t x;
  tt_random(&x, sizeof(x));
  return x % limit;
}

static void *run_ender(void *arg)
{
  ender *e = arg;
  for (int done = 0, round; (round = __atomic_load_n(&e->round, __ATOMIC_ACQUIRE)) >= 0;) {
    if (round > done) {
      int fd = e->fd;
      done = round;
      spin(random_below(30000));
      tt_sock_close(&fd);
      __atomic_store_n(&e->fd, -1, __ATOMIC_RELEASE);
    }
  }
  return NULL;
}

static void begin_ending(ender *e, int round, tt_dial **d)
{
  tt_addr at = loopback(1), bound;
  int fd;
  assert_int_equal(tt_tcp_listen(&at, &e->fd, &bound), 0);
  tt_addrs to = tt_addrs_one(&bound);
  assert_int_equal(tt_dial_start(&to, &key, &usual, soon(LONG_MS), d), 0);
  __atomic_store_n(&e->round, round, __ATOMIC_RELEASE);
  spin(random_below(30000));
  assert_true(tt_dial_step(*d, &fd, &at) <= 0);
  while (__atomic_load_n(&e->fd, __ATOMIC_ACQUIRE) >= 0) {
  }
}

static void test_ends_while_connecting(void **state)
{
  (void)state;
  tt_dial *d[ENDINGS] = {NULL};
  ender e = {.fd = -1};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, run_ender, &e), 0);
  for (int i = 0; i < ENDINGS; i++) {
    begin_ending(&e, i + 1, &d[i]);
  }
  __atomic_store_n(&e.round, -1, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  int left = ENDINGS;
  for (uint64_t end = soon(20000); left > 0 && tt_now_ns() < end;) { // not as long as keep-alive, 30 s
    tt_sleep_ns(20 * TT_NS_PER_MS);
    left = 0;
    for (int i = 0; i < ENDINGS; i++) {
      int fd;
      tt_addr at;
      left += tt_dial_step(d[i], &fd, &at) == 0;
    }
  }
  for (int i = 0; i < ENDINGS; i++) {
    tt_dial_cancel(d[i]);
  }
  assert_int_equal(left, 0);
}

// A listener that lies: what it says when connected, and after the hello.
typedef struct {
  tt_addr at;
  int fd;
  size_t first, second; // bytes
  uint8_t words[64];
  int over; // atomic: the dialling side has finished
} liar;

static void *lie(void *arg)
{
  liar *l = arg;
  int fd = -1;
  uint8_t hello[sizeof(tt_hello)];
  tt_until until = {.deadline_ns = soon(LONG_MS)};
  struct pollfd p = {.fd = l->fd, .events = POLLIN};
  if (tt_sock_poll(&p, 1, &until) < 0 || tt_tcp_accept(l->fd, &fd, NULL) != 0) {
    return NULL;
  }
  (void)tt_sock_send_all(fd, l->words, l->first, &until);
  if (l->second > 0 && tt_sock_recv_all(fd, hello, sizeof(hello), &until) == 0) {
    (void)tt_sock_send_all(fd, l->words + l->first, l->second, &until);
  }
  if (l->first == 0) {
    tt_sock_close(&l->fd);
  }
  while (l->first > 0 && !__atomic_load_n(&l->over, __ATOMIC_ACQUIRE)) {
    tt_sleep_ns(TT_NS_PER_MS);
  }
  tt_sock_close(&fd);
  return NULL;
}

// What dialling it gives.
static int dial_liar(liar *l, uint64_t ms)
{
  pthread_t t;
  tt_addr at = loopback(1);
  int fd = -1;
  assert_int_equal(tt_tcp_listen(&at, &l->fd, &l->at), 0);
  pthread_create(&t, NULL, lie, l);
  tt_addrs to = tt_addrs_one(&l->at);
  tt_until until = {.deadline_ns = soon(ms)};
  int e = rig_dial(&to, &key, &usual, &until, &fd, &at);
  __atomic_store_n(&l->over, 1, __ATOMIC_RELEASE);
  pthread_join(t, NULL);
  tt_sock_close(&l->fd);
  assert_int_equal(fd, -1);
  return e;
}

static void test_liars(void **state)
{
  (void)state;
  tt_greeting good, old;
  tt_greeting_make(&good);
  old = good;
  old.version--;
  liar l = {.first = 10, .words = "HTTP/1.1 200"};
  assert_int_equal(dial_liar(&l, LONG_MS), -EPROTO);
  l = (liar){.first = sizeof(old)};
  memcpy(l.words, &old, sizeof(old));
  assert_int_equal(dial_liar(&l, LONG_MS), -EPROTONOSUPPORT);
  l = (liar){.first = sizeof(good), .second = sizeof(tt_seal)};
  memcpy(l.words, &good, sizeof(good));
  memset(l.words + sizeof(good), 0x55, sizeof(tt_seal));
  assert_int_equal(dial_liar(&l, LONG_MS), -EACCES);
  l = (liar){.first = 0}; // drops the connection, which is made again, and by then nobody listens
  assert_int_equal(dial_liar(&l, LONG_MS), -ECONNREFUSED);
  l = (liar){.first = 5}; // half a greeting
  memcpy(l.words, &good, sizeof(good));
  assert_int_equal(dial_liar(&l, 90), -ETIMEDOUT);
}

static int connect_stranger(const tt_addr *at)
{
  int fd = -1;
  tt_until until = {.deadline_ns = soon(LONG_MS)};
  assert_int_equal(tt_tcp_connect(at, &until, &fd), 0);
  return fd;
}

// The greeter's work until it has nothing more to do; how many got in.
static int serve(tt_greeter *g)
{
  int guests = 0, fd = -1;
  tt_hello h;
  for (int idle = 0; idle < 3;) {
    struct pollfd fds[TT_GREET_POLL];
    tt_until wait = {.deadline_ns = soon(10)};
    size_t n = tt_greeter_poll(g, fds, &wait.deadline_ns);
    idle += tt_sock_poll(fds, n, &wait) < 0;
    while (tt_greeter_next(g, &h, &fd)) {
      guests++;
      tt_sock_close(&fd);
    }
  }
  return guests;
}

static void test_replay(void **state)
{
  (void)state;
  tt_greeter g;
  tt_greeting greeting;
  tt_hello h = usual;
  uint8_t proof[sizeof(tt_seal)];
  tt_until until = {.deadline_ns = soon(LONG_MS)};
  open_greeter(&g, 1);
  int fd = connect_stranger(&g.addrs.a[0]);
  assert_int_equal(serve(&g), 0);
  assert_int_equal(tt_sock_recv_all(fd, &greeting, sizeof(greeting), &until), 0);
  tt_hello_seal(&h, &key, &greeting);
  assert_int_equal(tt_sock_send(fd, &h, sizeof(h)), sizeof(h));
  assert_int_equal(serve(&g), 1);
  assert_int_equal(tt_sock_recv_all(fd, proof, sizeof(proof), &until), 0);
  tt_sock_close(&fd);
  fd = connect_stranger(&g.addrs.a[0]);
  assert_int_equal(tt_sock_send(fd, &h, sizeof(h)), sizeof(h)); // the very bytes that were good before
  assert_int_equal(serve(&g), 0);
  assert_int_equal(g.strangers, 1);
  tt_sock_close(&fd);
  tt_greeter_close(&g, true);
}

static void test_strangers(void **state)
{
  (void)state;
  tt_greeter g;
  tt_hello h = usual;
  tt_greeting none = {.magic = 0};
  open_greeter(&g, 1);
  tt_hello_seal(&h, &key, &none);
  int fds[4];
  for (int i = 0; i < 4; i++) {
    fds[i] = connect_stranger(&g.addrs.a[0]);
  }
  assert_int_equal(tt_sock_send(fds[0], "GET / HTTP/1.0\r\n\r\n", 18), 18);
  assert_int_equal(tt_sock_send(fds[1], &h, sizeof(h) / 2), sizeof(h) / 2);
  tt_sock_close(&fds[2]); // without a word
  assert_int_equal(serve(&g), 0);
  assert_int_equal(g.strangers, 2);
  assert_int_equal(g.npending, 2); // half a hello, and silence
  assert_true(g.logged && g.quiet_logged);
  for (int i = 0; i < 2; i++) {
    g.pending[i].came_ns -= TT_GREET_NS;
    g.pending[i].heard_ns -= TT_GREET_NS;
  }
  assert_int_equal(tt_sock_send(fds[1], &h, 1), 1);
  assert_int_equal(serve(&g), 0);
  assert_int_equal(g.npending, 1); // what speaks is slow, or this process is
  assert_int_equal(g.strangers, 3);
  g.pending[0].heard_ns -= TT_GREET_NS;
  assert_int_equal(serve(&g), 0);
  assert_int_equal(g.npending, 0);
  assert_int_equal(g.strangers, 4);
  for (int i = 0; i < 4; i++) {
    tt_sock_close(&fds[i]);
  }
  tt_greeter_close(&g, true);
}

// Connections of all kinds, as fast as they go, until told to stop.
typedef struct {
  tt_addr to;
  int stop; // atomic
  unsigned made;
} flood;

static void *run_flood(void *arg)
{
  flood *f = arg;
  int fds[600];
  char junk[sizeof(tt_hello)];
  memset(fds, 0xff, sizeof(fds));
  memset(junk, 'x', sizeof(junk));
  for (unsigned i = 0; !__atomic_load_n(&f->stop, __ATOMIC_ACQUIRE); i++) {
    int *fd = &fds[i % 600];
    tt_until until = {.deadline_ns = soon(LONG_MS)};
    tt_sock_close(fd);
    if (tt_tcp_connect(&f->to, &until, fd) == 0) {
      f->made++;
      if (i % 4 == 0) {
        (void)tt_sock_send(*fd, junk, sizeof(junk));
      } else if (i % 4 == 1) {
        tt_sock_close(fd);
      }
    }
  }
  for (int i = 0; i < 600; i++) {
    tt_sock_close(&fds[i]);
  }
  return NULL;
}

static void test_flood(void **state)
{
  (void)state;
  tt_greeter g;
  open_greeter(&g, 1);
  flood f[2] = {{.to = g.addrs.a[0]}, {.to = g.addrs.a[0]}};
  pthread_t t[2];
  for (int i = 0; i < 2; i++) {
    pthread_create(&t[i], NULL, run_flood, &f[i]);
  }
  while (g.strangers < 1000) {
    (void)serve(&g);
  }
  for (int round = 0; round < 20; round++) {
    meeting m = run_meeting(&g, &g.addrs, &key, &usual, soon(LONG_MS));
    assert_int_equal(m.dialled, 1);
    assert_int_equal(m.guests, 1);
    close_meeting(&m);
  }
  for (int i = 0; i < 2; i++) {
    __atomic_store_n(&f[i].stop, 1, __ATOMIC_RELEASE);
  }
  while (g.npending > 0) {
    (void)serve(&g);
    for (int i = 0; i < g.npending; i++) {
      g.pending[i].heard_ns -= TT_GREET_NS;
    }
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(t[i], NULL);
  }
  print_message("%u connections of strangers, %u dropped\n", f[0].made + f[1].made, g.strangers);
  tt_greeter_close(&g, true);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_seals),
      cmocka_unit_test(test_keys),
      cmocka_unit_test(test_meet),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_other_way),
      cmocka_unit_test(test_no_way),
      cmocka_unit_test(test_liars),
      cmocka_unit_test(test_replay),
      cmocka_unit_test(test_strangers),
      cmocka_unit_test(test_flood),
      cmocka_unit_test(test_ends_while_connecting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
