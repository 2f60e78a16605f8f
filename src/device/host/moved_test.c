// moved_test.c: ordinary memory that is moved to where peers map it, and back: its bytes stay, what is not this
// library's is left alone, nothing is left behind.
#include "device/host/work_rig.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "device/host/heap.h"
#include "device/host/mem.h"
#include "device/host/moved.h"
#include "os/map.h"
#include "os/shm.h"

enum { PAGE = 4096, PAGES = 64, SIZE = PAGES * PAGE };

static char *map_pages(int flags, int fd)
{
  char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);
  assert_true(p != MAP_FAILED);
  for (int i = 0; i < SIZE; i++) {
    p[i] = (char)(i * 7 + i / PAGE);
  }
  return p;
}

static char *ordinary(void)
{
  return map_pages(MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static void check_bytes(const char *p, int from, int to)
{
  for (int i = from; i < to; i++) {
    assert_int_equal(p[i], (char)(i * 7 + i / PAGE));
  }
}

static tt_moved *take(void *p, size_t size)
{
  size_t bytes = 0;
  tt_moved *m = tt_moved_take(p, size, true, &bytes);
  assert_int_equal(m != NULL, bytes > 0);
  return m;
}

static int descriptors(void)
{
  int n = 0;
  for (int fd = 0; fd < 1000; fd++) {
    n += fcntl(fd, F_GETFD) >= 0;
  }
  return n;
}

// What a peer sees at p, which can be mapped: through the descriptor.
static char seen_at(const char *p)
{
  tt_mappable m = tt_mem_find(p, 1);
  char c = 0;
  assert_true(m.handle != 0);
  assert_true(tt_shm_get((int)m.handle - 1, (uintptr_t)p - m.from, &c, 1));
  return c;
}

static void test_whole_pages_move_and_come_back(void **state)
{
  (void)state;
  char *p = ordinary();
  int before = descriptors();
  for (int round = 0; round < 3; round++) {
    size_t bytes = 0;
    tt_moved *m = tt_moved_take(p + 16, SIZE - 32, true, &bytes);
    assert_non_null(m);
    assert_int_equal(bytes, SIZE - 2 * PAGE);
    check_bytes(p, 0, SIZE);
    tt_mappable found = tt_mem_find(p, SIZE);
    assert_int_equal(found.from, (uintptr_t)p + PAGE);
    assert_int_equal(found.size, SIZE - 2 * PAGE);
    assert_int_equal(tt_mem_find(p, PAGE).handle, 0); // its first page is not ours
    assert_true(tt_map_is_ordinary(p, PAGE));
    p[PAGE + 5] = (char)round;
    assert_int_equal(seen_at(p + PAGE + 5), round);
    uint32_t freed = tt_mem_freed();
    tt_moved_give(m);
    assert_int_not_equal(tt_mem_freed(), freed); // peers let go of it
    assert_int_equal(p[PAGE + 5], round);
    p[PAGE + 5] = (char)((PAGE + 5) * 7 + 1);
    check_bytes(p, 0, SIZE);
    assert_int_equal(tt_mem_find(p, SIZE).handle, 0);
    assert_true(tt_map_is_ordinary(p, SIZE));
    assert_int_equal(descriptors(), before);
  }
  tt_moved_give(NULL);
  munmap(p, SIZE);
}

static void test_memory_of_malloc(void **state)
{
  (void)state;
  for (size_t size = 20000; size < 10000000; size *= 7) {
    unsigned char *p = malloc(size);
    memset(p, 77, size);
    tt_moved *m = take(p, size);
    assert_non_null(m);
    for (size_t i = 0; i < size; i++) {
      assert_int_equal(p[i], 77);
    }
    tt_moved_give(m);
    assert_int_equal(p[size - 1], 77);
    free(p);
  }
}

// Other memory stays as it is.
static void test_what_does_not_move(void **state)
{
  (void)state;
  static const char path[] = "/proc/self/exe";
  int file = open(path, O_RDONLY | O_CLOEXEC), fd = -1;
  assert_int_equal(tt_shm_create("test", SIZE, &fd), ncclSuccess);
  char *on_stack = (char *)TT_ROUND_UP((uintptr_t)__builtin_frame_address(0) - PAGE, PAGE); // not a sanitizer's
  char *shared = map_pages(MAP_SHARED | MAP_ANONYMOUS, -1), *of_file = map_pages(MAP_PRIVATE, file),
       *of_shm = map_pages(MAP_SHARED, fd), *fixed = ordinary(), *hole = ordinary(), *p = ordinary();
  int before = descriptors();
  assert_int_equal(mprotect(fixed + PAGE, PAGE, PROT_READ), 0);
  munmap(hole + 5 * PAGE, PAGE);
  assert_null(take(shared, SIZE));
  assert_null(take(of_file, SIZE));
  assert_null(take(of_shm, SIZE));
  assert_null(take(fixed, SIZE));
  assert_null(take(hole, SIZE));
  assert_null(take(on_stack, PAGE));
  assert_null(take(p + 1, 2 * PAGE - 2)); // no whole page
  size_t bytes = 1;
  assert_null(tt_moved_take(p, SIZE, false, &bytes)); // not wanted
  assert_int_equal(bytes, 0);
  assert_int_equal(descriptors(), before);
  check_bytes(of_file, 0, SIZE);
  check_bytes(fixed, 0, SIZE);
  munmap(shared, SIZE), munmap(of_file, SIZE), munmap(of_shm, SIZE), munmap(fixed, SIZE), munmap(hole, SIZE);
  munmap(p, SIZE);
  tt_fd_close(fd);
  tt_fd_close(file);
}

static void test_registrations_overlap(void **state)
{
  (void)state;
  char *p = ordinary();
  tt_moved *a = take(p + 4 * PAGE, 20 * PAGE), *b = take(p + 4 * PAGE, 20 * PAGE), *c = take(p + 5 * PAGE, PAGE);
  assert_true(a != NULL && a == b && a == c);
  assert_null(take(p, 8 * PAGE)); // partly: what has moved can be mapped, the rest not
  tt_moved_give(a);
  tt_moved_give(c);
  assert_int_not_equal(tt_mem_find(p + 4 * PAGE, PAGE).handle, 0);
  tt_moved_give(b);
  assert_int_equal(tt_mem_find(p, SIZE).handle, 0);
  check_bytes(p, 0, SIZE);
  munmap(p, SIZE);
}

// The parent's memory is not written by the child, and the child goes on with what was there.
static void test_a_fork(void **state)
{
  (void)state;
  char *p = ordinary();
  tt_moved *m = take(p, SIZE);
  assert_non_null(m);
  pid_t child = fork();
  if (child == 0) {
    bool same = p[7] == 49 && tt_mem_find(p, SIZE).handle == 0;
    memset(p, 1, SIZE);
    _exit(same ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  check_bytes(p, 0, SIZE);
  assert_int_equal(seen_at(p + 7), 49);
  tt_moved_give(m);
  check_bytes(p, 0, SIZE);
  munmap(p, SIZE);
}

// Memory that the program has unmapped too early: what has come there since is not touched, and may be moved itself.
static void test_memory_that_has_gone(void **state)
{
  (void)state;
  int before = descriptors();
  char *p = ordinary();
  tt_moved *old = take(p, SIZE);
  assert_int_equal(munmap(p, SIZE), 0);
  assert_ptr_equal(mmap(p, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
  memset(p, 3, SIZE);
  tt_moved *now = take(p, SIZE);
  assert_true(now != NULL && now != old);
  tt_moved_give(old);
  assert_int_equal(seen_at(p + 9), 3);
  tt_moved_give(now);
  tt_moved *again = take(p, SIZE);
  munmap(p, SIZE);
  assert_ptr_equal(mmap(p, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
  tt_moved_give(again);
  assert_int_equal(p[0], 0);
  munmap(p, SIZE);
  assert_int_equal(descriptors(), before);
}

static void test_no_descriptor_is_free(void **state)
{
  struct rlimit old, few;
  (void)state;
  char *p = ordinary();
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  few = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  tt_moved *m = take(p, SIZE);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
  assert_null(m);
  check_bytes(p, 0, SIZE);
  m = take(p, SIZE);
  assert_non_null(m);
  tt_moved_give(m);
  munmap(p, SIZE);
}

// Device memory is shared as a whole, until it is freed.
static void test_memory_of_the_heap(void **state)
{
  char *p, *base;
  size_t size, bytes;
  (void)state;
  assert_int_equal(tt_heap_alloc(3 * PAGE + 5, tuttiMemoryDevice, 0, 0, (void **)&p), ncclSuccess);
  p[3 * PAGE + 4] = 9;
  assert_true(tt_heap_allocation(p + 100, (void **)&base, &size));
  assert_true(base == p && size == 3 * PAGE + 5);
  assert_int_equal(tt_mem_find(p, 1).handle, 0);
  assert_null(tt_moved_take(p + PAGE, PAGE, false, &bytes));
  assert_int_equal(tt_mem_find(p, 1).size, 4 * PAGE);
  assert_int_equal(seen_at(p + 3 * PAGE + 4), 9);
  assert_int_equal(tt_heap_free(p), ncclSuccess);
  assert_int_equal(tt_mem_find(p, 1).handle, 0);
}

static void *read_on(void *arg)
{
  volatile const char *p = arg;
  for (int i = 0; !atomic_load((_Atomic int *)(void *)((char *)arg + SIZE)); i = (i + 61) % SIZE) {
    if (p[i] != (char)(i * 7 + i / PAGE)) {
      return (void *)p;
    }
  }
  return NULL;
}

// Readers find the same bytes at every moment.
static void test_others_read_meanwhile(void **state)
{
  (void)state;
  char *p = mmap(NULL, SIZE + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < SIZE; i++) {
    p[i] = (char)(i * 7 + i / PAGE);
  }
  pthread_t id;
  void *wrong;
  assert_int_equal(pthread_create(&id, NULL, read_on, p), 0);
  for (int i = 0; i < 300; i++) {
    tt_moved *m = take(p, SIZE);
    assert_non_null(m);
    tt_moved_give(m);
  }
  atomic_store((_Atomic int *)(void *)(p + SIZE), 1);
  assert_int_equal(pthread_join(id, &wrong), 0);
  assert_null(wrong);
  munmap(p, SIZE + PAGE);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_whole_pages_move_and_come_back),
      cmocka_unit_test(test_memory_of_malloc),
      cmocka_unit_test(test_what_does_not_move),
      cmocka_unit_test(test_registrations_overlap),
      cmocka_unit_test(test_a_fork),
      cmocka_unit_test(test_memory_that_has_gone),
      cmocka_unit_test(test_no_descriptor_is_free),
      cmocka_unit_test(test_memory_of_the_heap),
      cmocka_unit_test(test_others_read_meanwhile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
