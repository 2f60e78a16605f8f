// relay.c: one rank of a job in which rank 0 sends to the last rank, message after message, while others do something
// to the proxy in between. Public API only. Started by tests/netns_pxn.sh; environment: RANK, WORLD_SIZE, MEMBER_DIR.
//
//   relay SECONDS COUNT [WHO WHAT [early]]   rank WHO does WHAT (leave, abort) when messages come; early: before the
//                                            first one is sent
//
// Files in MEMBER_DIR: `id`, `running` (messages come), `left` (WHO has done it), `over` (the last one is sent, or
// somebody has failed). Exit status as member.c: 0 done, 3 the library reported an error (line "rank R: FAILED at T:
// code: text"), 4 wrong data, 5 the test itself cannot go on, 7 hang.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"
#include "tutti.h"

enum { FAILED = 3, WRONG = 4, UNABLE = 5, HANGS = 7, RUNNING_AFTER = 5, LIMIT_S = 100 };

static int rank, nranks;
static const char *dir;
static ncclComm_t comm;
static cudaStream_t stream;

static double now(clockid_t clock)
{
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void path_of(char path[4096], const char *name)
{
  snprintf(path, 4096, "%s/%s", dir, name);
}

static bool exists(const char *name)
{
  char path[4096];
  path_of(path, name);
  return access(path, F_OK) == 0;
}

static void publish(const char *name, const void *data, size_t size)
{
  char path[4096], draft[4096];
  path_of(path, name);
  snprintf(draft, sizeof draft, "%s/draft.%d", dir, rank);
  int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) != 0 || rename(draft, path) != 0) {
    perror(path);
    exit(UNABLE);
  }
}

static void must(ncclResult_t res)
{
  if (res != ncclSuccess) {
    printf("rank %d: FAILED at %.6f: %d %s: %s\n", rank, now(CLOCK_REALTIME), (int)res, ncclGetErrorString(res),
           ncclGetLastError(NULL));
    fflush(stdout);
    publish("over", "", 0);
    ncclCommAbort(comm);
    exit(FAILED);
  }
}

static void await(const char *name, bool watch)
{
  while (!exists(name)) {
    ncclResult_t async = ncclSuccess;
    if (watch) {
      must(ncclCommGetAsyncError(comm, &async));
      must(async);
    }
    usleep(1000);
  }
}

static void join(void)
{
  char path[4096];
  ncclUniqueId id;
  if (rank == 0) {
    must(ncclGetUniqueId(&id));
    publish("id", &id, sizeof id);
  }
  await("id", false);
  path_of(path, "id");
  int fd = open(path, O_RDONLY);
  if (fd < 0 || read(fd, &id, sizeof id) != sizeof id) {
    exit(UNABLE);
  }
  close(fd);
  must(ncclCommInitRank(&comm, nranks, id, rank));
  must(tuttiStreamCreate(&stream, 0));
}

static int value(int round, size_t i)
{
  return round * 7 + (int)(i % 1000);
}

static void send_all(double seconds, size_t count, int *data)
{
  double end = now(CLOCK_MONOTONIC) + seconds;
  for (int round = 1, more = 1; more; round++) {
    more = now(CLOCK_MONOTONIC) < end;
    for (size_t i = 1; i < count; i++) {
      data[i] = value(round, i);
    }
    data[0] = more;
    must(ncclSend(data, count, ncclInt, nranks - 1, comm, stream));
    must(tuttiStreamSynchronize(stream));
  }
  publish("over", "", 0);
}

static void receive_all(size_t count, int *data)
{
  int round = 0;
  do {
    must(ncclRecv(data, count, ncclInt, 0, comm, stream));
    must(tuttiStreamSynchronize(stream));
    round++;
    for (size_t i = 1; i < count; i++) {
      if (data[i] != value(round, i)) {
        printf("rank %d: WRONG: element %zu of message %d is %d\n", rank, i, round, data[i]);
        exit(WRONG);
      }
    }
    if (round == RUNNING_AFTER) {
      publish("running", "", 0);
    }
  } while (data[0]);
  printf("rank %d: done: %d messages\n", rank, round);
}

static void on_alarm(int sig)
{
  (void)sig;
  _exit(HANGS);
}

static void act(const char *what)
{
  if (strcmp(what, "abort") == 0) {
    must(ncclCommAbort(comm));
  } else {
    must(ncclCommDestroy(comm));
  }
  publish("left", "", 0);
  printf("rank %d: has done it (%s)\n", rank, what);
  exit(0);
}

int main(int argc, char **argv)
{
  rank = atoi(getenv("RANK"));
  nranks = atoi(getenv("WORLD_SIZE"));
  dir = getenv("MEMBER_DIR");
  if (argc < 3 || dir == NULL) {
    return UNABLE;
  }
  size_t count = (size_t)atol(argv[2]);
  int *data = calloc(count, sizeof *data), who = argc > 4 ? atoi(argv[3]) : -1;
  bool early = argc > 5;
  signal(SIGALRM, on_alarm);
  alarm(LIMIT_S);
  join();
  if (who == rank) {
    if (!early) {
      await("running", false);
    }
    act(argv[4]);
  }
  if (early) {
    await("left", false);
  }
  if (rank == 0) {
    send_all(atof(argv[1]), count, data);
  } else if (rank == nranks - 1) {
    receive_all(count, data);
  } else {
    await("over", true);
  }
  must(ncclCommDestroy(comm));
  free(data);
  return 0;
}
