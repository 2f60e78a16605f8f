// harness.h: what the system tests share: ranks as threads and as processes, time limits, checks.
//
// Every test body runs in children of the test program, which itself never calls the library: so each has a fresh
// library, may set its environment, has a time limit, and takes everything with it when it dies. A failed CHECK ends
// the child with status 1.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/ranks_rig.h"
#include "nccl.h"
#include "tools/sanitizer.h"
#include "tutti.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define SLOWER 10 // how much less to do, and how much longer to wait, in an instrumented program
#define MAPS_COUNT 0
#elif defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define SLOWER 5
#define MAPS_COUNT 1
#else
#define SLOWER 1
#define MAPS_COUNT 1
#endif
// A limit of time that only guards against hangs, in seconds: ten times what suffices on a machine with little else to
// do, because a thread may wait seconds for its turn where other tests run beside it.
#define GENEROUS(seconds) (10 * SLOWER * (seconds))
#define HARNESS __attribute__((unused)) static

enum { MAX_RANKS = RANKS_MOST, BOARD_WORDS = 4096 };

// Memory that all processes of a test share. Zero at the start of each run.
typedef struct board {
  _Atomic int ids_made[MAX_RANKS];
  ncclUniqueId ids[MAX_RANKS];
  _Atomic int arrived, round;
  _Atomic uint64_t word[BOARD_WORDS];
} board;

HARNESS double seconds_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

HARNESS void sleep_ms(double ms)
{
  struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)((ms - 1000 * (double)(long)(ms / 1000)) * 1e6)};
  while (nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

__attribute__((noreturn, format(printf, 3, 4))) HARNESS void check_failed(const char *file, int line, const char *fmt,
                                                                          ...)
{
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  fprintf(stderr, "%s:%d: %s (last error: %s)\n", file, line, text, ncclGetLastError(NULL));
  fflush(NULL);
  _exit(1);
}

#define CHECK(cond, ...)                             \
  do {                                               \
    if (!(cond)) {                                   \
      check_failed(__FILE__, __LINE__, __VA_ARGS__); \
    }                                                \
  } while (0)

// The call gives this code.
#define GIVES(call, code)                                                                                            \
  do {                                                                                                               \
    ncclResult_t gives_ = (call);                                                                                    \
    CHECK(gives_ == (code), "%s gave %d (%s), not %d", #call, (int)gives_, ncclGetErrorString(gives_), (int)(code)); \
  } while (0)
#define OK(call) GIVES(call, ncclSuccess)

// A port of the loopback on which nothing listens, below those that the kernel hands out (32768 and up): nobody
// who asks for any port gets it before the caller listens there. Processes start their search in different places.
HARNESS int free_port(void)
{
  static unsigned tried;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int bound = -1;
  for (int i = 0; i < 8192 && bound != 0; i++) {
    at.sin_port = htons((uint16_t)(16384 + ((unsigned)getpid() * 97 + tried++) % 8192));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bound = bind(fd, (struct sockaddr *)&at, sizeof at);
    close(fd);
  }
  assert_int_equal(bound, 0);
  return ntohs(at.sin_port);
}

// `text` contains each of the words, which end with NULL.
HARNESS bool has_words(const char *text, const char *const *words)
{
  for (; *words != NULL; words++) {
    if (strstr(text, *words) == NULL) {
      return false;
    }
  }
  return true;
}

// The call gives this code and a text with all these words.
#define REFUSED(call, code, ...)                                                       \
  do {                                                                                 \
    GIVES(call, code);                                                                 \
    CHECK(has_words(ncclGetLastError(NULL), (const char *const[]){__VA_ARGS__, NULL}), \
          "%s: the text lacks one of: %s", #call, #__VA_ARGS__);                       \
  } while (0)

// Is every pair of ranks of this run on the network (cmake/tutti_tests.cmake)?
HARNESS bool over_network(void)
{
  const char *p2p = getenv("NCCL_P2P_DISABLE"), *shm = getenv("NCCL_SHM_DISABLE");
  return p2p != NULL && shm != NULL && p2p[0] == '1' && shm[0] == '1';
}

// --- Processes

typedef ranks_job run;

HARNESS board *the_board; // of the run in progress; also in its children

HARNESS void board_open(void)
{
  the_board = mmap(NULL, sizeof *the_board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(the_board != MAP_FAILED);
}

HARNESS void board_close(void)
{
  munmap(the_board, sizeof *the_board);
  the_board = NULL;
}

// The time limit of a process that needs so many seconds at most: what is generous, but less than ctest's own limit
// (cmake/tutti_tests.cmake), so that it is said which process hangs.
HARNESS int hang_seconds(int seconds)
{
  int needed = seconds * SLOWER, most = SLOWER > 1 ? 1000 : 500;
  most = most > needed ? most : needed;
  return GENEROUS(seconds) < most ? GENEROUS(seconds) : most;
}

// Starts the processes of a run with a board and its time limit.
HARNESS void start_processes(ranks_set *r, const run *job)
{
  run timed = *job;
  timed.seconds = hang_seconds(job->seconds);
  board_open();
  ranks_start(r, &timed);
}

// Waits for them. Returns how many did not end as expected.
HARNESS int finish_processes(ranks_set *r)
{
  int bad = ranks_wait(r);
  board_close();
  return bad;
}

// Runs fn(rank, arg) in n children with a board; the number of those that failed.
HARNESS int run_processes(const run *job)
{
  ranks_set r;
  start_processes(&r, job);
  return finish_processes(&r);
}

#define PROCESSES(count, limit, function, argument) \
  assert_int_equal(run_processes(&(run){.n = (count), .seconds = (limit), .fn = (function), .arg = (argument)}), 0)
#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})

// All processes of the run meet. Nothing of the library is used.
HARNESS void meet(int n)
{
  int round = atomic_load(&the_board->round);
  if (atomic_fetch_add(&the_board->arrived, 1) == n - 1) {
    atomic_store(&the_board->arrived, 0);
    atomic_fetch_add(&the_board->round, 1);
    return;
  }
  while (atomic_load(&the_board->round) == round) {
    sleep_ms(0.2);
  }
}

// The unique id number `slot` of the run; process 0 makes it.
HARNESS ncclUniqueId shared_id(int slot, int rank)
{
  if (rank == 0) {
    OK(ncclGetUniqueId(&the_board->ids[slot]));
    atomic_store(&the_board->ids_made[slot], 1);
  }
  while (atomic_load(&the_board->ids_made[slot]) == 0) {
    sleep_ms(0.2);
  }
  return the_board->ids[slot];
}

// Rank `rank` of `n` processes.
HARNESS ncclComm_t join_processes(int slot, int n, int rank)
{
  ncclComm_t comm = NULL;
  OK(ncclCommInitRank(&comm, n, shared_id(slot, rank), rank));
  return comm;
}

// The seed of a test of chance: `given`, else the variable TEST_SEED, else 1. "clock": another one each second.
HARNESS unsigned choose_seed(const char *given)
{
  const char *text = given != NULL ? given : getenv("TEST_SEED");
  const unsigned seed = text == NULL                 ? 1
                        : strcmp(text, "clock") == 0 ? (unsigned)time(NULL)
                                                     : (unsigned)strtoul(text, NULL, 10);
  print_message("seed %u (second argument, or TEST_SEED: another one)\n", seed);
  return seed;
}

// What main returns. An argument chooses tests by name, as in "group_test 'split*'".
#define RUN_TESTS(name, tests, argc, argv) \
  ((argc) > 1 ? cmocka_set_test_filter((argv)[1]) : (void)0, cmocka_run_group_tests_name(name, tests, NULL, NULL))

// --- Ranks in one process

typedef struct world {
  int n;
  ncclComm_t comm[MAX_RANKS];
  cudaStream_t stream[MAX_RANKS];
} world;

HARNESS void world_open(world *w, int n)
{
  w->n = n;
  OK(ncclCommInitAll(w->comm, n, NULL));
  for (int i = 0; i < n; i++) {
    OK(tuttiSetDevice(i));
    OK(tuttiStreamCreate(&w->stream[i], TUTTI_STREAM_DEFAULT));
  }
  OK(tuttiSetDevice(0));
}

HARNESS void world_wait(const world *w)
{
  for (int i = 0; i < w->n; i++) {
    OK(tuttiStreamSynchronize(w->stream[i]));
  }
}

HARNESS void world_close(world *w)
{
  for (int i = 0; i < w->n; i++) {
    OK(ncclCommDestroy(w->comm[i]));
    OK(tuttiStreamDestroy(w->stream[i]));
  }
}

// --- Threads

typedef struct thread_call {
  void (*fn)(int rank, void *arg);
  void *arg;
  int rank;
  pthread_t id;
} thread_call;

HARNESS void *thread_main(void *p)
{
  thread_call *c = p;
  c->fn(c->rank, c->arg);
  return NULL;
}

// fn(0…n-1, arg) on n threads; waits for all.
HARNESS void run_threads(int n, void (*fn)(int rank, void *arg), void *arg)
{
  thread_call calls[MAX_RANKS];
  for (int i = 0; i < n; i++) {
    calls[i] = (thread_call){.fn = fn, .arg = arg, .rank = i};
    CHECK(pthread_create(&calls[i].id, NULL, thread_main, &calls[i]) == 0, "no thread %d", i);
  }
  for (int i = 0; i < n; i++) {
    pthread_join(calls[i].id, NULL);
  }
}

// --- What this process holds

// Descriptors, threads, mappings, resident KiB. Under ThreadSanitizer mappings are not counted: its shadow of memory
// that was given back stays, in pieces.
typedef struct holdings {
  int descriptors, threads, mappings;
  long rss_kib;
} holdings;

HARNESS long status_value(const char *file, const char *key)
{
  char line[256];
  long value = -1;
  FILE *f = fopen(file, "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    if (strncmp(line, key, strlen(key)) == 0) {
      value = strtol(line + strlen(key), NULL, 10);
    }
  }
  if (f != NULL) {
    fclose(f);
  }
  return value;
}

HARNESS holdings holdings_now(void)
{
  tt_sanitizer_begin();
  holdings h = {.threads = (int)status_value("/proc/self/status", "Threads:"),
                .rss_kib = status_value("/proc/self/status", "VmRSS:")};
  for (int fd = 0; fd < 1024; fd++) {
    h.descriptors += fcntl(fd, F_GETFD) != -1;
  }
  FILE *f = fopen("/proc/self/maps", "r");
  for (int c; f != NULL && (c = fgetc(f)) != EOF;) {
    h.mappings += MAPS_COUNT && c == '\n';
  }
  if (f != NULL) {
    fclose(f);
  }
  return h;
}

// Waits for a while until this process has no more threads and descriptors than `before` (both end a little after their
// last use).
HARNESS holdings holdings_settled(const holdings *before)
{
  holdings h = holdings_now();
  for (double end = seconds_now() + GENEROUS(5);
       seconds_now() < end && (h.threads > before->threads || h.descriptors > before->descriptors);) {
    sleep_ms(5);
    h = holdings_now();
  }
  return h;
}
