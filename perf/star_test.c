// Processes that meet in a star; strangers that knock; processes that come twice, not at all, or die. Everything on the
// loopback, every process a fork.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fail.h"
#include "star_priv.h"
#include "system.h"
#include "tcp.h"

enum {
  N = 4,
  LONG = 60,
  SHORT = 5
}; // SHORT: seconds until somebody gives up or dies, and for others to come before that

// A port that is free and stays so: one of those that the system gives to nobody by itself.
static int free_port(void)
{
  static int next;
  int low = 32768;
  FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
  if (range) {
    assert_int_equal(fscanf(range, "%d", &low), 1);
    fclose(range);
  }
  assert_true(low > 2048);
  for (int tries = 0; tries < 1000; tries++) {
    next = next ? next + 1 : (int)getpid() * 16;
    int port = 1024 + next % (low - 1024);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY), .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool ok = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 1) == 0;
    close(fd);
    if (ok) {
      return port;
    }
  }
  fail_msg("no free port");
  return 0;
}

static perf_star_plan plan_of(int proc, int procs, int port)
{
  return (perf_star_plan){.proc = proc,
                          .procs = procs,
                          .host = "127.0.0.1",
                          .ports = {port},
                          .nports = 1,
                          .identity = 17,
                          .seconds = LONG,
                          .seconds_name = "LIMIT",
                          .hint = "; hint"};
}

// What a process does; its exit status.
typedef int (*body)(perf_star_plan plan);

typedef struct child {
  pid_t pid;
  int err; // what it says on standard error
} child;

static child start(body run, perf_star_plan plan)
{
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  child c = {.pid = fork(), .err = ends[0]};
  assert_true(c.pid >= 0);
  if (c.pid == 0) {
    alarm(2 * LONG);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    perf_name_process(plan.proc, plan.procs, 1);
    _exit(run(plan));
  }
  close(ends[1]);
  return c;
}

// Waits for its end; text (1024 bytes) gets what it said. Returns the exit status, or 128 + signal.
static int finish(child c, char *text)
{
  size_t len = 0;
  ssize_t n;
  char rest[256];
  while ((n = read(c.err, text + len, 1023 - len)) > 0) {
    len += (size_t)n;
  }
  text[len] = '\0';
  while (read(c.err, rest, sizeof(rest)) > 0) {
  }
  close(c.err);
  int status;
  assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect(child c, int want, const char *text)
{
  char said[1024];
  int status = finish(c, said);
  if (status != want || !strstr(said, text) || (!*text && *said)) {
    fail_msg("status %d, want %d; said '%s', want '%s'", status, want, said, text);
  }
}

static void fill(char *at, size_t size, int proc)
{
  for (size_t i = 0; i < size; i++) {
    at[i] = (char)(proc * 31 + (int)i);
  }
}

static bool holds(const char *at, size_t size, int proc)
{
  for (size_t i = 0; i < size; i++) {
    if (at[i] != (char)(proc * 31 + (int)i)) {
      return false;
    }
  }
  return true;
}

// Gathers, spreads and fetches `size` bytes. 0 when all is right.
static int exchange(perf_star *s, const perf_star_plan *plan, size_t size)
{
  int wrong = 0;
  char *mine = malloc(size + 1), *all = malloc(size * (size_t)plan->procs + 1);
  fill(mine, size, plan->proc);
  if (!perf_star_gather(s, mine, all, size) || !perf_star_spread(s, all, size * (size_t)plan->procs)) {
    wrong = 1;
  }
  for (int p = 0; p < plan->procs && !wrong; p++) {
    wrong += !holds(all + (size_t)p * size, size, p);
  }
  int from = plan->procs - 1;
  fill(mine, size, plan->proc == from ? 77 : 5);
  if (wrong || !perf_star_fetch(s, mine, size, from) || !perf_star_spread(s, mine, size)) {
    wrong++;
  }
  wrong += !wrong && !holds(mine, size, 77);
  free(mine);
  free(all);
  return wrong;
}

static int work(perf_star_plan plan)
{
  perf_star *s = perf_star_join(&plan);
  int wrong = !s;
  for (int round = 0; round < 50 && !wrong; round++) {
    wrong = !(perf_star_gather(s, NULL, NULL, 0) && perf_star_spread(s, NULL, 0));
    wrong += wrong ? 0 : exchange(s, &plan, (size_t)round * 7);
  }
  wrong += wrong ? 0 : exchange(s, &plan, 3000000); // more than sockets hold
  perf_star_leave(s);
  return wrong != 0;
}

static void all_work(int procs, int port, const char *host)
{
  child c[16];
  for (int p = procs - 1; p >= 0; p--) { // process 0 comes last
    perf_star_plan plan = plan_of(p, procs, port);
    plan.host = host;
    c[p] = start(work, plan);
  }
  for (int p = 0; p < procs; p++) {
    expect(c[p], 0, "");
  }
}

static void test_exchange(void **state)
{
  (void)state;
  all_work(2, free_port(), "127.0.0.1");
  all_work(N, free_port(), "localhost");
  all_work(9, free_port(), "127.0.0.1");
}

static void test_other_addresses(void **state)
{
  (void)state;
  char name[256];
  int fds[PERF_TCP_LISTENERS];
  int port = free_port();
  int n = perf_tcp_listen("::1", port, fds);
  for (int i = 0; i < n; i++) {
    close(fds[i]);
  }
  if (n > 0) { // this machine has IPv6
    all_work(N, port, "::1");
  }
  // 127.0.0.2 stands for an address of another interface: process 0 listens at the loopback that was named.
  all_work(2, free_port(), "127.0.0.2");
  char why[128];
  gethostname(name, sizeof(name));
  perf_host_name(name, sizeof(name));
  int listener = perf_tcp_listen(name, port = free_port(), fds) > 0 ? fds[0] : -1;
  int fd = perf_tcp_connect(name, port, 1000, why, sizeof(why));
  close(listener);
  if (fd >= 0) { // the host knows its own name
    close(fd);
    all_work(2, free_port(), name);
  }
}

static int knock(int port)
{
  char why[128];
  for (int i = 0; i < 100 * LONG; i++) {
    int fd = perf_tcp_connect("127.0.0.1", port, 1000, why, sizeof(why));
    if (fd >= 0) {
      return fd;
    }
    usleep(10000);
  }
  fail_msg("nobody listens at port %d: %s", port, why);
  return -1;
}

// Does the other end close this connection?
static void expect_dropped(int fd)
{
  char rest[1024];
  int error = 0;
  while (error == 0) {
    error = perf_tcp_recv(fd, rest, 1, perf_now() + LONG * 1000000000ull);
  }
  assert_int_not_equal(error, -ETIMEDOUT);
  close(fd);
}

static star_hello hello_of(int proc, int procs)
{
  return (star_hello){.magic = STAR_MAGIC,
                      .identity = 17,
                      .version = STAR_VERSION,
                      .proc = (uint32_t)proc,
                      .procs = (uint32_t)procs,
                      .pid = 1,
                      .host = "elsewhere"};
}

static void send_bytes(int fd, const void *data, size_t size)
{
  perf_tcp_send(fd, data, size, perf_now() + LONG * 1000000000ull); // it may have been closed already
}

static void test_strangers(void **state)
{
  (void)state;
  int port = free_port();
  child zero = start(work, plan_of(0, 3, port)), one = start(work, plan_of(1, 3, port));
  int silent = knock(port), half = knock(port), fd;
  star_hello h = hello_of(2, 3);
  send_bytes(half, &h, sizeof(h) / 2);
  send_bytes(fd = knock(port), "GET / HTTP/1.1\r\n\r\n", 18);
  expect_dropped(fd);
  h.identity = 18;
  send_bytes(fd = knock(port), &h, sizeof(h));
  expect_dropped(fd);
  h = hello_of(2, 5); // another size: told so
  send_bytes(fd = knock(port), &h, sizeof(h));
  expect_dropped(fd);
  h = hello_of(7, 3);
  send_bytes(fd = knock(port), &h, sizeof(h));
  expect_dropped(fd);
  h = hello_of(2, 3);
  h.version++;
  send_bytes(fd = knock(port), &h, sizeof(h));
  expect_dropped(fd);
  h = hello_of(2, 3); // says the right thing, and goes before it has heard the answer: not taken for a member
  send_bytes(fd = knock(port), &h, sizeof(h));
  close(fd);
  srand(3);
  for (int i = 0; i < 2000; i++) { // more than there is room for, in all stages of saying nothing useful
    unsigned char garbage[128];
    size_t size = (size_t)rand() % sizeof(garbage);
    for (size_t b = 0; b < size; b++) {
      garbage[b] = (unsigned char)rand();
    }
    memcpy(garbage, &h, (size_t)rand() % 17);
    fd = knock(port);
    send_bytes(fd, garbage, size);
    close(fd);
  }
  child two = start(work, plan_of(2, 3, port));
  expect(two, 0, "");
  expect(one, 0, "");
  expect(zero, 0, "dropped a connection from 127.0.0.1:");
  close(silent);
  close(half);
}

// Silence does not keep the others out, and ends.
static void test_silent_flood(void **state)
{
  (void)state;
  enum { MANY = 300 };
  int fds[MANY], port = free_port();
  child zero = start(work, plan_of(0, 2, port));
  for (int i = 0; i < MANY; i++) {
    fds[i] = knock(port);
  }
  expect(start(work, plan_of(1, 2, port)), 0, "");
  expect(zero, 0, "silent while many others came");
  for (int i = 0; i < MANY; i++) {
    expect_dropped(fds[i]);
  }
}

static void test_number_taken(void **state)
{
  (void)state;
  int port = free_port();
  child zero = start(work, plan_of(0, 3, port)), one = start(work, plan_of(1, 3, port));
  int fd = knock(port);
  star_hello h = hello_of(1, 3);
  char said[1024];
  send_bytes(fd, &h, sizeof(h)); // first or second, whichever comes sooner
  assert_int_equal(finish(zero, said), 1);
  assert_non_null(strstr(said, "two processes have number 1:"));
  assert_non_null(strstr(said, "pid 1 on elsewhere"));
  assert_int_equal(finish(one, said), 1);
  assert_non_null(strstr(said, "two processes have number 1:"));
  close(fd);
  port = free_port();
  zero = start(work, plan_of(0, 2, port));
  fd = knock(port);
  h = hello_of(0, 2);
  send_bytes(fd, &h, sizeof(h));
  expect(zero, 1, "two processes have number 0: process 0 itself, and pid 1 on elsewhere");
  close(fd);
}

static void test_port_taken(void **state)
{
  (void)state;
  int fds[PERF_TCP_LISTENERS], port = free_port();
  assert_int_equal(perf_tcp_listen("127.0.0.1", port, fds), 1);
  expect(start(work, plan_of(0, 2, port)), 1, "Address already in use (is there another process 0, or another job?)");
  // With several to choose from, the next one is taken, and found, although somebody else is at the first.
  perf_star_plan zero = plan_of(0, 2, port), one = plan_of(1, 2, port);
  zero.nports = one.nports = 2;
  zero.ports[1] = one.ports[1] = free_port();
  child a = start(work, zero), b = start(work, one);
  perf_tcp_poll(&(struct pollfd){.fd = fds[0], .events = POLLIN}, 1, 0);
  int fd = perf_tcp_accept(fds[0]);
  star_hello h;
  assert_int_equal(perf_tcp_recv(fd, &h, sizeof(h), 0), 0);
  close(fd);
  expect(a, 0, "");
  expect(b, 0, "");
  close(fds[0]);
}

static void test_too_late(void **state)
{
  (void)state;
  int port = free_port();
  perf_star_plan zero = plan_of(0, 4, port), two = plan_of(2, 4, port), lost = plan_of(1, 4, free_port());
  zero.seconds = lost.seconds = SHORT;
  child a = start(work, zero), b = start(work, two), c = start(work, lost);
  expect(a, 1, "after 5 s (LIMIT) 2 of 4 processes are at port");
  expect(b, 1, "missing: 1, 3; hint");
  expect(c, 1, "within 5 s (LIMIT): Connection refused; hint");
  lost.host = "no-such-host.invalid";
  char said[1024];
  assert_int_equal(finish(start(work, lost), said), 1);
  assert_non_null(strstr(said, "process 1 (rank 1): process 0 was not found"));
}

static int die_after_join(perf_star_plan plan)
{
  perf_star *s = perf_star_join(&plan);
  if (!s || !perf_star_gather(s, NULL, NULL, 0) || !perf_star_spread(s, NULL, 0)) {
    return 1;
  }
  raise(SIGKILL);
  return 1;
}

static int speak_and_die(perf_star_plan plan)
{
  perf_star *s = perf_star_join(&plan);
  if (!s || !perf_star_gather(s, NULL, NULL, 0)) {
    return 1;
  }
  perf_star_stop(s, "my dog ate it");
  return 3;
}

static void someone_dies(body how, int victim, int status, const char *said_by_0, const char *said_by_others)
{
  child c[N];
  int port = free_port();
  for (int p = 0; p < N; p++) {
    c[p] = start(p == victim ? how : work, plan_of(p, N, port));
  }
  for (int p = 0; p < N; p++) {
    expect(c[p], p == victim ? status : 1, p == victim ? "" : p ? said_by_others : said_by_0);
  }
}

static void test_deaths(void **state)
{
  (void)state;
  someone_dies(die_after_join, 2, 128 + SIGKILL, "process 2 (pid ", "is gone: its connection was closed");
  someone_dies(die_after_join, 0, 128 + SIGKILL, "", "the job is over: process 0 is gone: its connection was closed");
  someone_dies(speak_and_die, 1, 3, " says: my dog ate it", "says: my dog ate it");
  someone_dies(speak_and_die, 0, 3, "", "the job is over: my dog ate it");
}

static int other_work(perf_star_plan plan)
{
  char x[8] = {0}, all[8 * N];
  perf_star *s = perf_star_join(&plan);
  bool ok = s && perf_star_gather(s, x, all, plan.proc == 1 ? 7 : 8) && perf_star_spread(s, all, sizeof(all));
  perf_star_leave(s);
  return ok ? 0 : 1;
}

static void test_disagreement(void **state)
{
  (void)state;
  child c[N];
  int port = free_port();
  for (int p = 0; p < N; p++) {
    c[p] = start(other_work, plan_of(p, N, port));
  }
  for (int p = 0; p < N; p++) {
    expect(c[p], 1, "is at step 1 (7 bytes), process 0 at step 1 (8 bytes)");
  }
}

// A process that dies before all are there.
static int join_and_die(perf_star_plan plan)
{
  alarm(SHORT);
  perf_star_join(&plan);
  return 1;
}

static void test_death_while_waiting(void **state)
{
  (void)state;
  int port = free_port();
  child zero = start(work, plan_of(0, 3, port)), one = start(join_and_die, plan_of(1, 3, port));
  expect(one, 128 + SIGALRM, "");
  expect(zero, 1, "left before all processes were there: its connection was closed");
  zero = start(join_and_die, plan_of(0, 3, port = free_port()));
  one = start(work, plan_of(1, 3, port));
  expect(zero, 128 + SIGALRM, "");
  expect(one, 1, "process 0 is gone before all processes were there: its connection was closed");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exchange),     cmocka_unit_test(test_other_addresses),
      cmocka_unit_test(test_strangers),    cmocka_unit_test(test_silent_flood),
      cmocka_unit_test(test_number_taken), cmocka_unit_test(test_port_taken),
      cmocka_unit_test(test_too_late),     cmocka_unit_test(test_deaths),
      cmocka_unit_test(test_disagreement), cmocka_unit_test(test_death_while_waiting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
