// Another user connects to every socket of the library that any user can reach, until their queues are full and all the
// while. Further communicators are made as ever, and calls on memory from ncclMemAlloc, which peers map, are served as
// ever: by the log no peer falls back to reading by address, and nobody waits for a queue. Needs root.
#include "harness.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { RANKS = 2, FLOODER = 2, COUNT = 1 << 20, CALLS = 4, NOBODY = 65534 };
enum {
  FULL = RANKS,
  DONE
}; // on the board, behind the ranks' process numbers: the queues are full; ranks that need no flood any more

// Fills the queue of one socket. A connection that is closed stays in it all the same.
static void fill(const char *name, size_t length)
{
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  memcpy(a.sun_path + 1, name, length);
  int s, e = 0;
  for (int i = 0; i < 100000 && e == 0; i++) {
    CHECK((s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) >= 0, "no socket");
    e = connect(s, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length));
    close(s);
  }
}

// Fills those that the ranks' processes listen at. Returns whether each process had one.
static bool fill_all(void)
{
  char line[512], own[RANKS][32];
  bool found[RANKS] = {false}, all = true;
  for (int i = 0; i < RANKS; i++) {
    snprintf(own[i], sizeof own[i], "@tutti-%d-", (int)atomic_load(&the_board->word[i]));
  }
  FILE *f = fopen("/proc/net/unix", "r");
  CHECK(f != NULL, "no /proc/net/unix");
  while (fgets(line, sizeof line, f) != NULL) {
    for (int i = 0; i < RANKS; i++) {
      const char *at = strstr(line, own[i]);
      if (at != NULL && strlen(at) < 100) {
        fill(at + 1, strcspn(at, "\n") - 1);
        found[i] = true;
      }
    }
  }
  fclose(f);
  for (int i = 0; i < RANKS; i++) {
    all &= found[i];
  }
  return all;
}

static void flood(void)
{
  CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0, "cannot become another user");
  while (atomic_load(&the_board->word[0]) == 0 || atomic_load(&the_board->word[1]) == 0) {
    sleep_ms(1);
  }
  double end = seconds_now() + GENEROUS(6); // should the ranks fail
  while (atomic_load(&the_board->word[DONE]) < RANKS && seconds_now() < end) {
    if (fill_all()) {
      atomic_store(&the_board->word[FULL], 1);
    }
    sleep_ms(1);
  }
}

static void one_call(ncclComm_t comm, int rank)
{
  float *in, *out;
  OK(ncclMemAlloc((void **)&in, COUNT * sizeof *in));
  OK(ncclMemAlloc((void **)&out, COUNT * sizeof *out));
  for (int i = 0; i < COUNT; i++) {
    in[i] = (float)(i % 1000 + rank);
  }
  OK(ncclAllReduce(in, out, COUNT, ncclFloat, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  for (int i = 0; i < COUNT; i++) {
    CHECK(out[i] == (float)(2 * (i % 1000) + 1), "element %d: %g", i, (double)out[i]);
  }
  OK(ncclMemFree(in));
  OK(ncclMemFree(out));
}

static void one_communicator(ncclComm_t parent, int rank)
{
  ncclComm_t comm;
  float x = (float)rank;
  OK(ncclCommSplit(parent, 0, rank, &comm, NULL));
  OK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(x == 1, "sum %g", (double)x);
  OK(ncclCommDestroy(comm));
}

static void check_log(const char *path)
{
  static char text[1 << 20];
  FILE *f = fopen(path, "r");
  CHECK(f != NULL, "no %s", path);
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  CHECK(strstr(text, "Init COMPLETE") != NULL, "%s is no log", path);
  const char *const falls[] = {"by address", "cannot pass", "no descriptor arrived"};
  for (size_t i = 0; i < sizeof falls / sizeof falls[0]; i++) {
    const char *at = strstr(text, falls[i]);
    CHECK(at == NULL, "the log says: %.200s", at);
  }
}

static void body(int rank, void *arg)
{
  (void)arg;
  if (rank == FLOODER) {
    flood();
    return;
  }
  char path[64];
  snprintf(path, sizeof path, "/tmp/tutti_flood_%d.log", (int)getpid());
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "ALL", 1);
  setenv("NCCL_DEBUG_FILE", path, 1);
  ncclComm_t comm = join_processes(0, RANKS, rank);
  atomic_store(&the_board->word[rank], (uint64_t)getpid());
  while (atomic_load(&the_board->word[FULL]) == 0) {
    sleep_ms(1);
  }
  for (int i = 0; i < CALLS; i++) {
    one_communicator(comm, rank);
    one_call(comm, rank);
  }
  atomic_fetch_add(&the_board->word[DONE], 1);
  OK(ncclCommDestroy(comm));
  check_log(path);
  CHECK(unlink(path) == 0, "%s stays", path);
}

static void another_user_fills_queues(void **state)
{
  (void)state;
  if (geteuid() != 0 || over_network()) {
    print_message("skipped: %s\n", over_network() ? "no memory is shared" : "needs root, to run as two users");
    skip();
  }
  PROCESSES(RANKS + 1, 60, body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(another_user_fills_queues),
  };
  return RUN_TESTS("flood", tests, argc, argv);
}
