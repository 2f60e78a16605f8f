// players.c: starts the libraries' processes, gives them orders over sockets, and ends them.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "drive.h"

#define START_S 60
#define ANSWER_S 45

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// A listening socket in the abstract space: it leaves nothing behind. One for each player: a player that comes too late
// for its own is refused.
static int listen_socket(char *name, size_t size, int number)
{
  snprintf(name, size, "coll-bench-%d-%d", (int)getpid(), number);
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  memcpy(a.sun_path + 1, name, strlen(name));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
  if (fd < 0 || bind(fd, (struct sockaddr *)&a, length) != 0 || listen(fd, MAX_RANKS) != 0) {
    perror("coll_drive: cannot listen");
    return -1;
  }
  return fd;
}

// Reads one answer before the deadline. 0 on success.
static int receive(int fd, coll_answer *a, double deadline)
{
  size_t have = 0;
  while (have < sizeof *a) {
    double left = deadline - now();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) == 0) {
      return ETIMEDOUT;
    }
    ssize_t n = recv(fd, (char *)a + have, sizeof *a - have, 0);
    if (n <= 0 && errno != EINTR) {
      return ECONNRESET;
    }
    have += n > 0 ? (size_t)n : 0;
  }
  return 0;
}

static void lose(player *p, const char *why)
{
  fprintf(stderr, "coll_drive: %s %s: left out\n", p->name, why);
  p->lost = 1;
  if (p->pid > 0) {
    kill(-p->pid, SIGTERM);
  }
}

static pid_t launch(const char *command)
{
  pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (freopen("/dev/null", "r", stdin) != NULL && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) {
      execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    }
    _exit(127);
  }
  return pid;
}

static int ended(const player *p)
{
  siginfo_t info = {.si_pid = 0};
  return p->pid < 0 || (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0);
}

// Takes the ranks of one player in, in whatever order they come.
static int gather_ranks(player *p, int listener, int want)
{
  double deadline = now() + START_S;
  for (int have = 0; have < want;) {
    struct pollfd l = {.fd = listener, .events = POLLIN};
    if (poll(&l, 1, 100) <= 0) {
      if (ended(p) || now() > deadline) {
        lose(p, "did not start");
        return 1;
      }
      continue;
    }
    coll_answer hello;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 || receive(fd, &hello, deadline) != 0 || hello.rank < 0 || hello.rank >= want || hello.wrong != want) {
      lose(p, "started with other ranks than asked for");
      return 1;
    }
    p->fds[hello.rank] = fd;
    have++;
  }
  p->nranks = want;
  return 0;
}

// All begin at once, because each fills its buffers.
int players_start(run_options *o)
{
  char name[64], bytes[32];
  int listeners[MAX_PLAYERS], res = 0;
  snprintf(bytes, sizeof bytes, "%zu", o->buffer);
  setenv(COLL_BUFFER_ENV, bytes, 1);
  for (int i = 0; i < o->nplayers; i++) {
    player *p = &o->players[i];
    listeners[i] = listen_socket(name, sizeof name, i);
    if (listeners[i] < 0) {
      p->lost = 1;
      res = 1;
      continue;
    }
    setenv(COLL_SOCKET_ENV, name, 1);
    p->pid = launch(p->command);
  }
  for (int i = 0; i < o->nplayers; i++) {
    if (listeners[i] >= 0) {
      gather_ranks(&o->players[i], listeners[i], o->nranks);
      close(listeners[i]);
    }
  }
  return res != 0 || o->players[0].lost;
}

int player_ask(player *p, const coll_order *order, coll_answer answers[MAX_RANKS])
{
  if (p->lost) {
    return 1;
  }
  for (int i = 0; i < p->nranks; i++) {
    if (send(p->fds[i], order, sizeof *order, MSG_NOSIGNAL) != sizeof *order) {
      lose(p, "has ended");
      return 1;
    }
  }
  double deadline = now() + ANSWER_S;
  for (int i = 0; i < p->nranks; i++) {
    int e = receive(p->fds[i], &answers[i], deadline);
    if (e != 0) {
      char why[128];
      snprintf(why, sizeof why, "%s at %s of %lld bytes", e == ETIMEDOUT ? "gave no answer" : "ended",
               coll_names[order->kind], (long long)order->bytes);
      lose(p, why);
      return 1;
    }
  }
  return 0;
}

void players_stop(run_options *o)
{
  coll_order end = {.what = COLL_ORDER_END};
  for (int i = 0; i < o->nplayers; i++) {
    player *p = &o->players[i];
    for (int k = 0; k < p->nranks && !p->lost; k++) {
      send(p->fds[k], &end, sizeof end, MSG_NOSIGNAL);
    }
  }
  double deadline = now() + 10;
  for (int i = 0; i < o->nplayers; i++) {
    player *p = &o->players[i];
    while (!ended(p) && now() < deadline) {
      usleep(10000);
    }
    if (p->pid > 0 && !ended(p)) {
      kill(-p->pid, SIGKILL);
    }
    waitpid(p->pid, NULL, 0);
  }
}
