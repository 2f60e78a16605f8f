// players.h: ranks of the bootstrap tests, as threads ("players") and as processes. Included by the tests of this
// folder only.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ranks_rig.h"
#include "base/result.h"
#include "bootstrap/bootstrap_priv.h"

// The root of these tests counts the ranks that have joined: those that it has said so.
static unsigned joined_ever;
static inline int send_and_count(tt_conn *c, uint32_t kind, const void *body, size_t size)
{
  int e = tt_note_send(c, kind, body, size);
  if (kind == TT_NOTE_JOINED && e == 0) {
    __atomic_add_fetch(&joined_ever, 1, __ATOMIC_RELEASE);
  }
  return e;
}
#define tt_note_send send_and_count
#include "bootstrap/root.c"
#undef tt_note_send

// How many ranks have joined the roots of this process so far.
static inline unsigned count_joined(void)
{
  return __atomic_load_n(&joined_ever, __ATOMIC_ACQUIRE);
}

#define UNUSED_OK __attribute__((unused))

enum { MAX = 64, MAX_IDS = 8 };
enum { LONG_S = 60, TIMEOUT_S = 6 }; // NCCL_BOOTSTRAP_TIMEOUT: only a hang takes longer; where somebody is missing

typedef struct {
  ncclUniqueId ids[MAX_IDS];
  int nids, nranks, rank;
  uint32_t abort_flag;
  bool keep; // leave the bootstrap in `b`
  ncclResult_t res;
  char text[1200];
  tt_bootstrap *b;
  void (*body)(tt_bootstrap *b, int rank, int nranks);
  pthread_t thread;
} player;

// One rank as a thread: init, body, destroy.
static UNUSED_OK void *run_player(void *arg)
{
  player *p = arg;
  p->res = tt_bootstrap_init(p->ids, p->nids, p->nranks, p->rank, &p->abort_flag, &p->b);
  snprintf(p->text, sizeof(p->text), "%s", p->res == ncclSuccess ? "" : tt_last_error());
  if (p->res == ncclSuccess && p->body != NULL) {
    p->body(p->b, p->rank, p->nranks);
  }
  if (!p->keep) {
    tt_bootstrap_destroy(p->b);
    p->b = NULL;
  }
  return NULL;
}

// n players with `nids` new ids. Free with free().
static UNUSED_OK player *cast_many(int n, int nids, void (*body)(tt_bootstrap *, int, int))
{
  player *p = calloc((size_t)n, sizeof(*p));
  ncclUniqueId ids[MAX_IDS];
  for (int i = 0; i < nids; i++) {
    assert_int_equal(tt_bootstrap_id(&ids[i]), ncclSuccess);
  }
  for (int i = 0; i < n; i++) {
    memcpy(p[i].ids, ids, (size_t)nids * sizeof(ids[0]));
    p[i].nids = nids;
    p[i].nranks = n;
    p[i].rank = i;
    p[i].body = body;
  }
  return p;
}

// n players with one new id.
static UNUSED_OK player *cast(int n, void (*body)(tt_bootstrap *, int, int))
{
  return cast_many(n, 1, body);
}

// Starts the threads of n players.
static UNUSED_OK void start_players(player *p, int n)
{
  for (int i = 0; i < n; i++) {
    assert_int_equal(pthread_create(&p[i].thread, NULL, run_player, &p[i]), 0);
  }
}

// Waits for them.
static UNUSED_OK void finish_players(player *p, int n)
{
  for (int i = 0; i < n; i++) {
    pthread_join(p[i].thread, NULL);
  }
}

// Both.
static UNUSED_OK void run_players(player *p, int n)
{
  start_players(p, n);
  finish_players(p, n);
}

// Every player succeeded.
static UNUSED_OK void expect_success(player *p, int n)
{
  for (int i = 0; i < n; i++) {
    if (p[i].res != ncclSuccess) {
      print_error("rank %d: %s\n", i, p[i].text);
    }
    assert_int_equal(p[i].res, ncclSuccess);
  }
}

// No unique id is left, or soon none is.
static UNUSED_OK void await_no_roots(void)
{
  uint64_t end = tt_now_ns() + LONG_S * TT_NS_PER_S;
  while (tt_lobby_count() > 0 && tt_now_ns() < end) {
    tt_sleep_ns(TT_NS_PER_MS);
  }
  assert_int_equal(tt_lobby_count(), 0);
}

// Entries of a directory, "." and ".." among them.
static UNUSED_OK int count_folder(const char *dir)
{
  DIR *d = opendir(dir);
  int n = 0;
  while (readdir(d) != NULL) {
    n++;
  }
  closedir(d);
  return n;
}

// Descriptors of this process: waits until they are `n`, or it takes too long. Returns how many they are: the lobby
// closes a connection only after its peer has heard the last word.
static UNUSED_OK int await_fds(int n)
{
  uint64_t end = tt_now_ns() + LONG_S * TT_NS_PER_S;
  while (count_folder("/proc/self/fd") != n && tt_now_ns() < end) {
    tt_sleep_ns(TT_NS_PER_MS);
  }
  return count_folder("/proc/self/fd");
}

// The numbers of this process's threads. How many.
static UNUSED_OK int list_threads(int *ids, int room)
{
  DIR *d = opendir("/proc/self/task");
  int n = 0;
  for (struct dirent *e; (e = readdir(d)) != NULL && n < room;) {
    if (e->d_name[0] != '.') {
      ids[n++] = atoi(e->d_name);
    }
  }
  closedir(d);
  return n;
}

// How many threads are not among those.
static UNUSED_OK int count_new_threads(const int *old, int n)
{
  int ids[2 * MAX], found = 0, now = list_threads(ids, 2 * MAX);
  for (int i = 0; i < now; i++) {
    bool old_one = false;
    for (int k = 0; k < n; k++) {
      old_one |= ids[i] == old[k];
    }
    found += !old_one;
  }
  return found;
}

// A thread is listed for a moment after its last line: waits until `n` are there that are not among the old ones, or it
// takes too long. How many there are.
static UNUSED_OK int await_new_threads(const int *old, int nold, int n)
{
  uint64_t end = tt_now_ns() + LONG_S * TT_NS_PER_S;
  while (count_new_threads(old, nold) != n && tt_now_ns() < end) {
    tt_sleep_ns(TT_NS_PER_MS);
  }
  return count_new_threads(old, nold);
}

// Waits until `*count`, which others raise, is `n`.
static UNUSED_OK bool await_count(const unsigned *count, unsigned n)
{
  for (uint64_t end = tt_now_ns() + LONG_S * TT_NS_PER_S; __atomic_load_n(count, __ATOMIC_ACQUIRE) != n;) {
    if (tt_now_ns() > end) {
      return false;
    }
    tt_sleep_ns(TT_NS_PER_MS);
  }
  return true;
}

// `n` ranks have joined the roots of this process since there were `before`.
static UNUSED_OK void await_joined(unsigned before, unsigned n)
{
  for (uint64_t end = tt_now_ns() + LONG_S * TT_NS_PER_S; count_joined() - before < n;) {
    assert_true(tt_now_ns() < end);
    tt_sleep_ns(TT_NS_PER_MS);
  }
}

// What ranks do with a bootstrap. Failures of threads are collected as a count: cmocka's asserts belong to the main
// thread.
static int wrong UNUSED_OK;

// Counts and prints what is not good.
static UNUSED_OK void check_rank_good(bool good, const char *what, int rank)
{
  if (!good) {
    print_error("rank %d: %s\n", rank, what);
    __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
  }
}

// Byte i of a rank.
static UNUSED_OK uint8_t rank_byte(int rank, size_t i)
{
  return (uint8_t)(rank * 37 + (int)(i % 251));
}

// All-gather of `size` bytes per rank, content checked.
static UNUSED_OK void gather_once(tt_bootstrap *b, int rank, int n, size_t size)
{
  uint8_t *data = calloc((size_t)n, size);
  for (size_t i = 0; i < size; i++) {
    data[(size_t)rank * size + i] = rank_byte(rank, i);
  }
  bool good = tt_bootstrap_allgather(b, data, size) == ncclSuccess;
  for (size_t k = 0; good && k < (size_t)n * size; k++) {
    good = data[k] == rank_byte((int)(k / size), k % size);
  }
  check_rank_good(good, "all-gather", rank);
  free(data);
}

// All-gathers, a barrier.
static UNUSED_OK void whole_life(tt_bootstrap *b, int rank, int n)
{
  static const size_t sizes[] = {1, 8, 100, 5000};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    gather_once(b, rank, n, sizes[i]);
  }
  check_rank_good(tt_bootstrap_barrier(b) == ncclSuccess, "barrier", rank);
}

// What rank processes do: body(&id, rank, n) is the exit status.
typedef struct rank_life {
  ncclUniqueId id;
  int n;
  int (*body)(const ncclUniqueId *id, int rank, int n);
} rank_life;

static UNUSED_OK void live_rank(int rank, void *arg)
{
  const rank_life *l = arg;
  int status = l->body(&l->id, rank, l->n);
  fflush(NULL);
  _exit(status); // what else the parent holds is not this process's to give back
}

// Starts `n` processes, the ranks of a new id.
static UNUSED_OK void start_rank_processes(ranks_set *r, int n, int (*body)(const ncclUniqueId *id, int rank, int n))
{
  rank_life life = {.n = n, .body = body};
  assert_int_equal(tt_bootstrap_id(&life.id), ncclSuccess);
  ranks_start(r, &(ranks_job){.n = n, .seconds = 3 * LONG_S, .fn = live_rank, .arg = &life});
}

// The same as a process; its exit status.
static UNUSED_OK int live_as_process(const ncclUniqueId *id, int rank, int n)
{
  tt_bootstrap *b = NULL;
  if (tt_bootstrap_init(id, 1, n, rank, NULL, &b) != ncclSuccess) {
    return 1;
  }
  wrong = 0;
  whole_life(b, rank, n);
  tt_bootstrap_destroy(b);
  return wrong != 0;
}

// Every player got this code, and both texts are in its message.
static UNUSED_OK void expect_all(player *p, int n, ncclResult_t code, const char *a, const char *b)
{
  for (int i = 0; i < n; i++) {
    if (p[i].res != code || strstr(p[i].text, a) == NULL || strstr(p[i].text, b) == NULL) {
      print_error("rank %d: %d '%s'\n", i, p[i].res, p[i].text);
    }
    assert_int_equal(p[i].res, code);
    assert_non_null(strstr(p[i].text, a));
    assert_non_null(strstr(p[i].text, b));
  }
}

// Parameters may have been read before main, so a time limit needs a second start of the program.
static UNUSED_OK void restart_with_time_limit(char **argv)
{
  char seconds[16];
  snprintf(seconds, sizeof(seconds), "%d", LONG_S);
  if (getenv("NCCL_BOOTSTRAP_TIMEOUT") == NULL) {
    setenv("NCCL_BOOTSTRAP_TIMEOUT", seconds, 1);
    execv("/proc/self/exe", argv);
  }
}

// From here on, for this process's second starts: the short limit.
static UNUSED_OK void shorten_time_limit(void)
{
  char seconds[16];
  snprintf(seconds, sizeof(seconds), "%d", TIMEOUT_S);
  setenv("NCCL_BOOTSTRAP_TIMEOUT", seconds, 1);
}

// Status of what main() does for the argument `tests`, with the short limit or not.
static UNUSED_OK int start_again(const char *tests, bool hurry)
{
  int status = 1;
  pid_t child = fork();
  if (child == 0) {
    if (hurry) {
      shorten_time_limit();
    }
    execl("/proc/self/exe", tests, tests, (char *)NULL);
    _exit(1);
  }
  waitpid(child, &status, 0);
  return status;
}

// Runs what main() does for the argument "missing", with the short limit.
static UNUSED_OK void test_with_short_limit(void **state)
{
  (void)state;
  assert_int_equal(start_again("missing", true), 0);
}
