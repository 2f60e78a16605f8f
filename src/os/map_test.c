// map_test.c: the identity of pages.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>

#include "base/result.h"
#include "os/map.h"
#include "os/shm.h"

static void test_identity(void **state)
{
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  int fd[2] = {-1, -1};
  void *at = NULL, *twin = NULL;
  (void)state;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tt_shm_create("map_test", 2 * page, &fd[i]), ncclSuccess);
  }
  assert_int_equal(tt_shm_map(fd[0], 2 * page, &at), ncclSuccess);
  assert_int_equal(tt_shm_map(fd[0], 2 * page, &twin), ncclSuccess);
  char *second = (char *)at + page;
  const uint64_t was = tt_map_identity(at);
  assert_int_not_equal(was, 0);
  assert_int_equal(tt_map_identity((char *)at + page - 1), tt_map_identity(at)); // of the page
  assert_int_equal(tt_map_identity(twin), was);                                  // not of the place
  assert_int_not_equal(tt_map_identity(second), was);
  assert_int_equal(munmap(second, page), 0);
  assert_int_equal(tt_map_identity(second), 0); // nothing is there
  assert_int_equal(tt_map_identity(at), was);
  assert_ptr_equal(mmap(at, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd[1], 0), at);
  assert_int_not_equal(tt_map_identity(at), was); // another object
  assert_int_not_equal(tt_map_identity(at), 0);
  tt_shm_unmap(at, 2 * page);
  tt_shm_unmap(twin, 2 * page);
  for (int i = 0; i < 2; i++) {
    close(fd[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_identity)};
  return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
