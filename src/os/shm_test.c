// shm_test.c: shared memory that is shared, sparse, sealed, nameless, and closed on exec.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/result.h"
#include "os/shm.h"

#define SIZE 100000 // not a multiple of a page

static void test_zeroed_and_shared(void **state)
{
  (void)state;
  int fd = -1;
  void *a = NULL, *b = NULL;
  assert_int_equal(tt_shm_create("shm_test", SIZE, &fd), ncclSuccess);
  assert_int_equal(tt_shm_size(fd), SIZE);
  assert_int_equal(tt_shm_map(fd, SIZE, &a), ncclSuccess);
  assert_int_equal(tt_shm_map(fd, SIZE, &b), ncclSuccess);
  assert_ptr_not_equal(a, b);
  for (int i = 0; i < SIZE; i++) {
    assert_int_equal(((char *)a)[i], 0);
  }
  memset(a, 0x3c, SIZE);
  assert_memory_equal(a, b, SIZE);
  tt_fd_close(fd); // the mappings keep it alive
  ((char *)b)[SIZE - 1] = 1;
  assert_int_equal(((char *)a)[SIZE - 1], 1);
  tt_shm_unmap(a, SIZE);
  tt_shm_unmap(b, SIZE);
}

static void test_between_processes(void **state)
{
  (void)state;
  int fd = -1, status = -1;
  void *at = NULL;
  assert_int_equal(tt_shm_create("shm_test", SIZE, &fd), ncclSuccess);
  pid_t pid = fork();
  if (pid == 0) {
    if (tt_shm_map(fd, SIZE, &at) != ncclSuccess) {
      _exit(1);
    }
    strcpy(at, "hello");
    _exit(0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(tt_shm_map(fd, SIZE, &at), ncclSuccess);
  assert_string_equal(at, "hello");
  tt_shm_unmap(at, SIZE);
  tt_fd_close(fd);
}

static void test_sealed(void **state)
{
  (void)state;
  int fd = -1;
  assert_int_equal(tt_shm_create("shm_test", SIZE, &fd), ncclSuccess);
  assert_int_not_equal(ftruncate(fd, SIZE / 2), 0); // a peer cannot pull memory away from under us
  assert_int_equal(tt_shm_size(fd), SIZE);
  assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  tt_fd_close(fd);
}

static void test_sparse(void **state)
{
  (void)state;
  int fd = -1;
  void *at = NULL;
  struct stat st;
  size_t size = (size_t)1 << 33; // more than many a machine has
  assert_int_equal(tt_shm_create("shm_test", size, &fd), ncclSuccess);
  assert_int_equal(tt_shm_size(fd), size);
  assert_int_equal(tt_shm_map(fd, size, &at), ncclSuccess);
  ((char *)at)[size - 1] = 7;
  assert_int_equal(fstat(fd, &st), 0);
  assert_true(st.st_blocks * 512 < (blkcnt_t)64 << 20); // one page, or one huge page
  tt_shm_unmap(at, size);
  tt_fd_close(fd);
}

static void test_private(void **state)
{
  (void)state;
  void *at = NULL;
  assert_int_equal(tt_shm_map(-1, SIZE, &at), ncclSuccess);
  memset(at, 1, SIZE);
  tt_shm_unmap(at, SIZE);
}

static void test_errors(void **state)
{
  (void)state;
  int fd = -5;
  void *at = &fd;
  assert_int_equal(tt_shm_map(-1, (size_t)1 << 62, &at), ncclSystemError);
  assert_ptr_equal(at, &fd); // outputs are written on success only
  assert_int_equal(tt_shm_map(-1, 0, &at), ncclSystemError);
  assert_int_equal(tt_shm_create("shm_test", (size_t)-1, &fd), ncclSystemError);
  assert_int_equal(fd, -5);
  assert_int_equal(tt_shm_size(-1), 0);
  int p[2];
  assert_int_equal(pipe(p), 0);
  assert_int_equal(tt_shm_size(p[0]), 0);
  tt_fd_close(p[0]);
  tt_fd_close(p[1]);
  tt_fd_close(-1);
  tt_shm_unmap(NULL, SIZE);
}

// In a child, since a limit cannot be raised again by everybody.
static void test_no_descriptor(void **state)
{
  (void)state;
  int status = -1;
  pid_t pid = fork();
  if (pid == 0) {
    struct rlimit none = {0, 0};
    int fd = -5;
    setrlimit(RLIMIT_NOFILE, &none);
    _exit(tt_shm_create("shm_test", SIZE, &fd) == ncclSystemError && fd == -5 ? 0 : 1);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

// The limit of a file's size ends nobody: there is a text.
static void test_file_limit(void **state)
{
  (void)state;
  int status = -1;
  pid_t pid = fork();
  if (pid == 0) {
    struct rlimit little = {4096, 4096};
    int fd = -5;
    setrlimit(RLIMIT_FSIZE, &little);
    ncclResult_t res = tt_shm_create("shm_test", 1 << 20, &fd);
    _exit(res == ncclSystemError && fd == -5 && strstr(tt_last_error(), "ulimit -f") != NULL ? 0 : 1);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_zeroed_and_shared),
      cmocka_unit_test(test_between_processes),
      cmocka_unit_test(test_sealed),
      cmocka_unit_test(test_sparse),
      cmocka_unit_test(test_private),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_no_descriptor),
      cmocka_unit_test(test_file_limit),
  };
  return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
