// late.c: one of two ranks, whose first communicators are made before its machine's interface comes up. Public API
// only. Started by tests/netns_late.sh; environment: RANK, MEMBER_DIR.
//
//   late SECONDS ROUNDS [early]   SECONDS: then it hangs. early: the id is the first that is made (NCCL_COMM_ID)
//
// First makes an id, and, but for `early`, a communicator of two ranks in this process, which stays. Then, in each
// round r, waits for the file up.r, makes a communicator with the other process, sums, writes running.RANK.r, waits for
// the file checked.r, sums, destroys it, and writes ended.RANK.r. Exit status as member.c: 0 done, 3 the library
// reported an error, 4 wrong data, 5 the test itself cannot go on, 7 hang.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "nccl.h"
#include "tutti.h"

enum { FAILED = 3, WRONG = 4, UNABLE = 5, HANGS = 7, COUNT = 100000 };

static int rank;
static const char *dir;

static void must(ncclResult_t res)
{
  if (res != ncclSuccess) {
    printf("rank %d: FAILED: %d %s: %s\n", rank, (int)res, ncclGetErrorString(res), ncclGetLastError(NULL));
    exit(FAILED);
  }
}

static void path_of(char path[4096], const char *name, int round)
{
  snprintf(path, 4096, "%s/%s.%d", dir, name, round);
}

static void publish(const char *name, int round, const void *data, size_t size)
{
  char path[4096], draft[4200];
  path_of(path, name, round);
  snprintf(draft, sizeof draft, "%s.draft", path);
  int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) != 0 || rename(draft, path) != 0) {
    perror(path);
    exit(UNABLE);
  }
}

static int await(const char *name, int round)
{
  char path[4096];
  int fd;
  path_of(path, name, round);
  while ((fd = open(path, O_RDONLY)) < 0) {
    usleep(1000);
  }
  return fd;
}

static void sum(ncclComm_t comm, cudaStream_t stream, int round)
{
  static float x[COUNT];
  for (int i = 0; i < COUNT; i++) {
    x[i] = (float)(rank + 1 + round);
  }
  must(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, comm, stream));
  must(tuttiStreamSynchronize(stream));
  for (int i = 0; i < COUNT; i++) {
    if (x[i] != (float)(3 + 2 * round)) {
      printf("rank %d: WRONG: element %d is %g\n", rank, i, (double)x[i]);
      exit(WRONG);
    }
  }
}

static ncclUniqueId new_id(int round)
{
  ncclUniqueId id;
  if (rank == 0) {
    must(ncclGetUniqueId(&id));
    publish("id", round, &id, sizeof id);
  }
  int fd = await("id", round);
  if (read(fd, &id, sizeof id) != sizeof id) {
    exit(UNABLE);
  }
  close(fd);
  return id;
}

// `first`: the id; NULL: a new one.
static void play(int round, const ncclUniqueId *first, cudaStream_t stream)
{
  char name[32];
  ncclComm_t comm;
  close(await("up", round));
  must(ncclCommInitRank(&comm, 2, first != NULL ? *first : new_id(round), rank));
  sum(comm, stream, round);
  snprintf(name, sizeof name, "running.%d", rank);
  publish(name, round, "", 0);
  close(await("checked", round));
  sum(comm, stream, round);
  must(ncclCommDestroy(comm));
  snprintf(name, sizeof name, "ended.%d", rank);
  publish(name, round, "", 0);
}

static void on_alarm(int sig)
{
  (void)sig;
  _exit(HANGS);
}

int main(int argc, char **argv)
{
  ncclUniqueId first;
  ncclComm_t own[2] = {NULL, NULL};
  cudaStream_t stream;
  dir = getenv("MEMBER_DIR");
  if (argc < 3 || dir == NULL || getenv("RANK") == NULL) {
    return UNABLE;
  }
  rank = atoi(getenv("RANK"));
  setvbuf(stdout, NULL, _IOLBF, 0);
  signal(SIGALRM, on_alarm);
  alarm((unsigned)atoi(argv[1]));
  must(ncclGetUniqueId(&first));
  if (argc < 4) {
    must(ncclCommInitAll(own, 2, NULL));
  }
  must(tuttiStreamCreate(&stream, 0));
  publish("alone", rank, "", 0);
  for (int round = 0; round < atoi(argv[2]); round++) {
    play(round, argc < 4 ? NULL : &first, stream);
  }
  for (int i = 0; i < 2 && own[i] != NULL; i++) {
    must(ncclCommDestroy(own[i]));
  }
  printf("rank %d: done\n", rank);
  return 0;
}
