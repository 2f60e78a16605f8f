// Strangers at the doors: port scans, garbage, half a message, silence, floods and replays against every listening port
// of running inits. Every init succeeds. An argument says how many connections ("hostile_test 100000"); twenty inits
// share them.
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "bootstrap/hello.h"
#include "harness.h"

enum { INITS = 20, RANKS = 4, ATTACKERS = 3, HELD = 200, PORTS_MAX = 64 };
// Words of the board. WAITING: most connections that one of the victim's ports has not accepted yet; PORTS and what
// follows: port, or 1 << 16 | port with IPv6.
enum { MADE, WANTED, STOP, VICTIM, WAITING, NPORTS, PORTS };

static uint64_t get(int word)
{
  return atomic_load(&the_board->word[word]);
}

// --- What the victim listens on

// Is this socket (an inode) open in the process?
static bool is_open_in(pid_t pid, unsigned long inode)
{
  char path[64], name[64], want[64];
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  snprintf(want, sizeof want, "socket:[%lu]", inode);
  DIR *dir = opendir(path);
  bool found = false;
  for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL && !found; e = readdir(dir)) {
    char link[512];
    snprintf(link, sizeof link, "%s/%s", path, e->d_name);
    ssize_t n = readlink(link, name, sizeof name - 1);
    found = n > 0 && (name[n] = '\0', strcmp(name, want) == 0);
  }
  if (dir != NULL) {
    closedir(dir);
  }
  return found;
}

// Adds the listening ports of the process, from one of the kernel's tables, and raises *waiting. Returns how many there
// are then.
static int scan(const char *table, uint64_t family_bit, pid_t pid, int n, unsigned *waiting)
{
  char line[512];
  FILE *f = fopen(table, "r");
  while (f != NULL && n < PORTS_MAX && fgets(line, sizeof line, f) != NULL) {
    unsigned port, state, queue;
    unsigned long inode;
    if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%x %*s %*s %*u %*u %lu", &port, &state, &queue,
               &inode) == 4 &&
        state == 10 && is_open_in(pid, inode)) {
      *waiting = queue > *waiting ? queue : *waiting;
      atomic_store(&the_board->word[PORTS + n++], family_bit | port);
    }
  }
  if (f != NULL) {
    fclose(f);
  }
  return n;
}

static void *scout(void *arg)
{
  (void)arg;
  while (get(STOP) == 0) {
    pid_t pid = (pid_t)get(VICTIM);
    unsigned waiting = 0;
    int n = scan("/proc/net/tcp", 0, pid, 0, &waiting);
    n = scan("/proc/net/tcp6", 1 << 16, pid, n, &waiting);
    atomic_store(&the_board->word[WAITING], waiting);
    atomic_store(&the_board->word[NPORTS], (uint64_t)n);
    sleep_ms(2);
  }
  return NULL;
}

// --- Attackers

static int knock(uint64_t port)
{
  struct sockaddr_in v4 = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in6 v6 = {
      .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  bool six = port >> 16 != 0;
  int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct timeval second = {.tv_sec = 1};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  if (connect(fd, six ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4, six ? sizeof v6 : sizeof v4) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

static void say(int fd, const void *data, size_t size)
{
  (void)!send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// A connection of one of eight kinds. Returns it if it shall stay open.
static int molest(uint64_t port, unsigned kind, uint8_t junk[128])
{
  static const tt_key wrong = {.b = {1}};
  struct linger at_once = {.l_onoff = 1};
  tt_greeting g = {.magic = 0};
  tt_hello h = {.kind = (uint16_t)(1 << kind % 6), .to = -1, .nranks = RANKS};
  int fd = knock(port);
  if (fd < 0) {
    sleep_ms(1);
    return -1;
  }
  atomic_fetch_add(&the_board->word[MADE], 1);
  tt_hello_seal(&h, &wrong, &g);
  switch (kind % 8) {
  case 0: say(fd, junk, 128); break; // garbage
  case 1: say(fd, &h, sizeof h / 2); return fd;
  case 2: say(fd, &h, sizeof h); break; // sealed with another secret
  case 3: return fd;                    // silence
  case 4: say(fd, &h, 1); return fd;
  case 5: // waits for the greeting, then answers it with another key
    (void)!recv(fd, &g, sizeof g, MSG_DONTWAIT);
    tt_hello_seal(&h, &wrong, &g);
    say(fd, &h, sizeof h);
    return fd;
  case 6: setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once); break; // a reset
  default: break;                                                                 // a port scan
  }
  close(fd);
  return -1;
}

static void *attack(void *arg)
{
  unsigned seed = (unsigned)(uintptr_t)arg;
  int held[HELD];
  uint8_t junk[128];
  memset(held, 0xff, sizeof held);
  memset(junk, (int)seed, sizeof junk);
  for (unsigned i = 0; get(STOP) == 0; i++) {
    uint64_t n = get(NPORTS);
    if (n == 0 || get(MADE) >= get(WANTED)) { // not more at a time than each init's share
      sleep_ms(0.2);
      continue;
    }
    int *at = &held[i % HELD];
    if (*at >= 0) {
      close(*at);
    }
    *at = molest(get(PORTS + (int)(rand_r(&seed) % n)), (unsigned)rand_r(&seed) / 16, junk);
  }
  for (int i = 0; i < HELD; i++) {
    if (held[i] >= 0) {
      close(held[i]);
    }
  }
  return NULL;
}

static void attackers_main(void)
{
  pthread_t threads[ATTACKERS + 1];
  while (get(VICTIM) == 0) {
    sleep_ms(0.2);
  }
  CHECK(pthread_create(&threads[ATTACKERS], NULL, scout, NULL) == 0, "no thread");
  for (uintptr_t i = 0; i < ATTACKERS; i++) {
    CHECK(pthread_create(&threads[i], NULL, attack, (void *)(i + 1)) == 0, "no thread");
  }
  for (int i = 0; i <= ATTACKERS; i++) {
    pthread_join(threads[i], NULL);
  }
}

// --- Victims

typedef struct scene {
  ncclUniqueId id;
  uint64_t go_on; // connections of strangers that the last rank waits for
} scene;

// All have been let in or turned away, also at the doors of ranks that wait for the last one.
static void await_open_doors(void)
{
  double end = seconds_now() + GENEROUS(10);
  sleep_ms(50);
  while (get(WAITING) > 8) {
    CHECK(seconds_now() < end, "%llu connections wait at one port, and nobody accepts them",
          (unsigned long long)get(WAITING));
    sleep_ms(1);
  }
}

static void victim(int rank, void *arg)
{
  const scene *s = arg;
  ncclComm_t comm = NULL;
  float in = (float)rank, out = -1;
  while (rank == RANKS - 1 && get(MADE) < s->go_on) {
    sleep_ms(0.2);
  }
  if (rank == RANKS - 1) {
    await_open_doors();
  }
  OK(tuttiSetDevice(rank));
  OK(ncclCommInitRank(&comm, RANKS, s->id, rank));
  OK(ncclAllReduce(&in, &out, 1, ncclFloat, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(out == RANKS * (RANKS - 1) / 2, "rank %d: %g", rank, (double)out);
  OK(ncclCommDestroy(comm));
}

static void victims_main(uint64_t connections)
{
  double began = seconds_now(), longest = 0;
  atomic_store(&the_board->word[VICTIM], (uint64_t)getpid());
  for (uint64_t i = 1; i <= INITS; i++) {
    scene s = {.go_on = connections * i / INITS};
    double start = seconds_now();
    OK(ncclGetUniqueId(&s.id));
    atomic_store(&the_board->word[WANTED], s.go_on + ATTACKERS);
    run_threads(RANKS, victim, &s);
    longest = seconds_now() - start > longest ? seconds_now() - start : longest;
  }
  atomic_store(&the_board->word[STOP], 1);
  printf("%d inits, %llu connections of strangers, %.1f s; the longest init with its strangers %.2f s\n", INITS,
         (unsigned long long)get(MADE), seconds_now() - began, longest);
}

static void body(int process, void *arg)
{
  const uint64_t *connections = arg;
  if (process == 0) {
    victims_main(*connections);
  } else {
    attackers_main();
  }
}

static uint64_t connections = 6000 / SLOWER;

static void strangers(void **state)
{
  (void)state;
  int limit = (int)(60 + connections / 200);
  assert_int_equal(run_processes(&(run){
                       .n = 2, .seconds = limit, .fn = body, .arg = &connections, .env = ENV("NCCL_SOCKET_IFNAME=lo")}),
                   0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(strangers)};
  connections = argc > 1 ? strtoull(argv[1], NULL, 10) : connections;
  return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
