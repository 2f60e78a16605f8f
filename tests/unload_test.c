// A program that opens the library, uses it and closes it: threads that nobody waits for, and the application's own
// that end later, find their code in place.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl.h"

enum { RANKS = 2, ROUNDS = 20, SECONDS = 100 };

#define CHECK(cond)                                                             \
  do {                                                                          \
    if (!(cond)) {                                                              \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #cond, dlerror()); \
      _exit(1);                                                                 \
    }                                                                           \
  } while (0)

// In a process of its own: a library that stays does so for all that come later.
static void in_child(void (*fn)(void))
{
  int status = 0;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    alarm(SECONDS);
    fn();
    exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

// Nothing of the library is in this program: its functions are looked up.
typedef struct library {
  void *handle;
  ncclResult_t (*init_all)(ncclComm_t *, int, const int *);
  ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
  ncclResult_t (*group_start)(void);
  ncclResult_t (*group_end)(void);
  ncclResult_t (*destroy)(ncclComm_t);
} library;

static const char *path_of(const char *file)
{
  static char path[PATH_MAX];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/lib/%s", build != NULL ? build : "build", file);
  return path;
}

static void *look_up(void *handle, const char *name)
{
  void *f = dlsym(handle, name);
  CHECK(f != NULL);
  return f;
}

static library open_library(void)
{
  void *h = dlopen(path_of("libnccl.so.2"), RTLD_NOW | RTLD_LOCAL);
  CHECK(h != NULL);
  library l = {.handle = h};
  *(void **)&l.init_all = look_up(h, "ncclCommInitAll");
  *(void **)&l.all_reduce = look_up(h, "ncclAllReduce");
  *(void **)&l.group_start = look_up(h, "ncclGroupStart");
  *(void **)&l.group_end = look_up(h, "ncclGroupEnd");
  *(void **)&l.destroy = look_up(h, "ncclCommDestroy");
  return l;
}

static bool is_loaded(void)
{
  void *h = dlopen(path_of("libnccl.so.2"), RTLD_NOW | RTLD_NOLOAD);
  if (h != NULL) {
    dlclose(h);
  }
  return h != NULL;
}

// No thread has begun: nothing keeps it.
static void unused(void)
{
  library l = open_library();
  CHECK(dlclose(l.handle) == 0);
  CHECK(!is_loaded());
}

typedef struct user {
  library l;
  ncclComm_t comm;
  sem_t used, closed;
  ncclResult_t res;
} user;

static void *use(void *arg)
{
  user *u = arg;
  float x[4] = {0};
  u->res = u->l.group_start();
  u->res = u->res == ncclSuccess ? u->l.all_reduce(x, x, 4, ncclFloat, ncclSum, u->comm, NULL) : u->res;
  ncclResult_t end = u->l.group_end();
  u->res = u->res == ncclSuccess ? end : u->res;
  sem_post(&u->used);
  sem_wait(&u->closed);
  return NULL;
}

// What the library has of a thread is freed when the thread ends.
static void a_thread_that_ends_later(void)
{
  pthread_t thread;
  user u = {.l = open_library()};
  sem_init(&u.used, 0, 0);
  sem_init(&u.closed, 0, 0);
  CHECK(u.l.init_all(&u.comm, 1, NULL) == ncclSuccess);
  CHECK(pthread_create(&thread, NULL, use, &u) == 0);
  sem_wait(&u.used);
  CHECK(u.res == ncclSuccess);
  CHECK(u.l.destroy(u.comm) == ncclSuccess);
  CHECK(dlclose(u.l.handle) == 0);
  sem_post(&u.closed);
  CHECK(pthread_join(thread, NULL) == 0);
  sem_destroy(&u.used);
  sem_destroy(&u.closed);
}

// The proxies' thread sleeps for as long as the process lives, and wakes up after the library has been closed.
static void over_the_network(void)
{
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
  for (int i = 0; i < ROUNDS; i++) {
    ncclComm_t comm[RANKS];
    library l = open_library();
    CHECK(l.init_all(comm, RANKS, NULL) == ncclSuccess);
    for (int k = 0; k < RANKS; k++) {
      CHECK(l.destroy(comm[k]) == ncclSuccess);
    }
    CHECK(dlclose(l.handle) == 0);
    CHECK(is_loaded());
  }
}

static void test_unused(void **state)
{
  (void)state;
  in_child(unused);
}

static void test_a_thread_that_ends_later(void **state)
{
  (void)state;
  in_child(a_thread_that_ends_later);
}

static void test_over_the_network(void **state)
{
  (void)state;
  in_child(over_the_network);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_unused),
      cmocka_unit_test(test_a_thread_that_ends_later),
      cmocka_unit_test(test_over_the_network),
  };
  return cmocka_run_group_tests_name("the library is closed while threads are left", tests, NULL, NULL);
}
