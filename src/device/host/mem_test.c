// mem_test.c: shareable allocations, and what the receiver of tokens maps of them.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/result.h"
#include "device/host/handover.h"
#include "device/host/mem.h"
#include "os/shm.h"

enum { PAGE = 4096 };

static char *get(size_t size)
{
  void *p = NULL;
  assert_int_equal(tt_mem_alloc(size, &p), ncclSuccess);
  return p;
}

// Handle of the memory that holds all of it, or 0.
static uint32_t whole(const void *p, size_t size)
{
  tt_mappable m = tt_mem_find(p, size);
  size_t at = (uintptr_t)p - m.from;
  return at < m.size && size <= m.size - at ? m.handle : 0;
}

static void put(void *p)
{
  assert_int_equal(tt_mem_free(p), ncclSuccess);
}

static void test_allocations_are_found_by_any_address(void **state)
{
  uint64_t other = 99;
  (void)state;
  assert_int_equal(whole(&other, 8), 0);
  char *a = get(10000), *b = get(1);
  uint32_t sa = whole(a, 1), sb = whole(b, 1);
  assert_true(sa != 0 && sb != 0 && sa != sb);
  assert_int_equal((uintptr_t)a % PAGE, 0);
  for (size_t i = 0; i < 10000; i++) {
    assert_int_equal(a[i], 0);
    a[i] = (char)i;
  }
  assert_int_equal(whole(a + 777, 100), sa);
  assert_int_equal(whole(a, 12288), sa); // the last page belongs to it
  assert_int_equal(whole(a, 12289), 0);
  assert_int_equal(whole(a + 12287, 2), 0);
  assert_int_equal(whole(a + 1, SIZE_MAX), 0);
  assert_int_equal(whole(&other, 1), 0);
  assert_int_equal(whole(NULL, 1), 0);
  put(a);
  assert_int_equal(whole(a, 1), 0);
  assert_int_equal(whole(b, 1), sb);
  put(b);
}

static void test_wrong_frees(void **state)
{
  int local;
  (void)state;
  char *a = get(100);
  assert_int_equal(tt_mem_free(a + 1), ncclInvalidArgument);
  assert_int_equal(tt_mem_free(&local), ncclInvalidArgument);
  assert_int_equal(tt_mem_free(NULL), ncclInvalidArgument);
  a[0] = 1; // still there
  put(a);
  assert_int_equal(tt_mem_free(a), ncclInvalidArgument);
  assert_non_null(strstr(tt_last_error(), "has been freed"));
}

static int open_descriptors(void)
{
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  assert_non_null(d);
  while (readdir(d) != NULL) {
    n++;
  }
  closedir(d);
  return n;
}

static void test_a_failed_allocation_leaves_nothing(void **state)
{
  struct rlimit old, few;
  void *p = &old;
  (void)state;
  int before = open_descriptors();
  tt_alloc_fail_at(1);
  assert_int_equal(tt_mem_alloc(100, &p), ncclSystemError);
  tt_alloc_fail_at(0);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  few = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  ncclResult_t res = tt_mem_alloc(100, &p);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
  assert_int_equal(res, ncclSystemError);
  assert_int_equal(tt_mem_alloc((size_t)1 << 62, &p), ncclSystemError);
  assert_ptr_equal(p, &old);
  assert_int_equal(open_descriptors(), before);
}

// In the child of test_a_fork: a number for what is wrong.
static int wrong_in_child(char *a, size_t size)
{
  if (a[5] != 7 || whole(a, 1) != 0 || tt_mem_descriptor(a) != -1) {
    return 1;
  }
  memset(a, 1, size);
  void *own; // of the child itself: as in any process
  if (tt_mem_alloc(PAGE, &own) != ncclSuccess || whole(own, 1) == 0 || tt_mem_free(own) != ncclSuccess) {
    return 2;
  }
  return tt_mem_free(a) == ncclSuccess && tt_mem_free(a) == ncclInvalidArgument ? 0 : 3;
}

// The parent's memory is not written by the child; the child goes on with what was there, and may free it.
static void test_a_fork(void **state)
{
  enum { SIZE = 3 * PAGE };
  (void)state;
  char *a = get(SIZE);
  memset(a, 7, SIZE);
  pid_t child = fork();
  if (child == 0) {
    _exit(wrong_in_child(a, SIZE));
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  for (size_t i = 0; i < SIZE; i++) {
    assert_int_equal(a[i], 7);
  }
  assert_true(whole(a, SIZE) != 0);
  put(a);
}

static void *hammer(void *arg)
{
  for (int i = 0; i < 200; i++) {
    char *a = get(1 + (size_t)i * 100);
    assert_true(whole(a + i, 1) != 0);
    a[i] = 1;
    put(a);
  }
  return arg;
}

static void test_threads_allocate_side_by_side(void **state)
{
  pthread_t t[4];
  (void)state;
  for (int i = 0; i < 4; i++) {
    assert_int_equal(pthread_create(&t[i], NULL, hammer, NULL), 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(t[i], NULL);
  }
}

// ---- Tokens from rank 0 to rank 1, both played by this process ----

enum { POOL = 14, STEPS = 10000 };

typedef struct play {
  tt_link receiver;
  tt_handover handover;
  char *pool[POOL];
  size_t size[POOL];
  uint64_t stamp[POOL]; // stands at the start of the allocation
  unsigned long named, hits;
} play;

static play p;

static unsigned rnd(unsigned below)
{
  static uint64_t x = 88172645463325252ull;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return (unsigned)((x >> 32) % below);
}

static void open_play(void)
{
  memset(&p, 0, sizeof p);
  p.receiver =
      (tt_link){.rank = 1, .peer = 0, .access = TT_ACCESS_COPY, .proc = tt_proc_self(), .handover = &p.handover};
}

static void renew(int i)
{
  static uint64_t stamps;
  if (p.pool[i] != NULL) {
    put(p.pool[i]);
  }
  p.size[i] = 1 + rnd(5 * PAGE);
  p.pool[i] = get(p.size[i] + 16);
  p.stamp[i] = ++stamps;
  memcpy(p.pool[i], &p.stamp[i], 8);
}

static void close_play(void)
{
  tt_mem_forget(&p.receiver);
  for (int i = 0; i < POOL; i++) {
    if (p.pool[i] != NULL) {
      put(p.pool[i]);
    }
  }
}

// Has the receiver mapped allocation i?
static bool knows(int i)
{
  for (int k = 0; k < TT_LINK_MAPS; k++) {
    const tt_map *m = &p.receiver.handover->mapped.map[k];
    if (m->base != NULL && m->remote == (uintptr_t)p.pool[i]) {
      return true;
    }
  }
  return false;
}

// Is what the receiver sees allocation i, at `offset`?
static void check_sees(const char *seen, int i, size_t offset)
{
  uint64_t stamp;
  assert_non_null(seen);
  memcpy(&stamp, seen - offset, 8);
  assert_int_equal(stamp, p.stamp[i]);
  assert_true(seen != p.pool[i] + offset); // a mapping of its own
}

// What offer.c does with a token.
static void receive(const tt_desc *d)
{
  p.receiver.handover->in_remote = d->in;
  p.receiver.handover->out_remote = d->out;
  tt_mem_import(&p.receiver, d);
}

// One token: input in allocation `in`, output in allocation `out` (-1: in ordinary memory).
static void token(int in, int out)
{
  char ordinary[2];
  size_t in_at = in < 0 ? 0 : rnd((unsigned)p.size[in]), out_at = out < 0 ? 0 : rnd((unsigned)p.size[out]);
  char *from = in < 0 ? ordinary : p.pool[in] + in_at, *to = out < 0 ? ordinary + 1 : p.pool[out] + out_at;
  tt_desc d = {.in = (uintptr_t)from,
               .out = (uintptr_t)to,
               .in_mem = whole(from, 1),
               .out_mem = whole(to, 1),
               .freed = tt_mem_freed()};
  assert_int_equal(d.in_mem != 0, in >= 0);
  p.hits += in >= 0 && p.receiver.handover->mapped.freed == d.freed && knows(in);
  p.named += in >= 0;
  receive(&d);
  if (in >= 0) {
    check_sees(tt_handover_place(p.receiver.handover, false, 0, 1), in, in_at);
  } else {
    assert_null(tt_handover_place(p.receiver.handover, false, 0, 1));
  }
  if (out >= 0) {
    check_sees(tt_handover_place(p.receiver.handover, true, 0, 1), out, out_at);
  } else {
    assert_null(tt_handover_place(p.receiver.handover, true, 0, 1));
  }
}

// One allocation after the other until the list is full and beyond, two per token: the output never throws out the
// input.
static void test_the_oldest_goes_first_but_not_the_other_of_the_pair(void **state)
{
  (void)state;
  open_play();
  for (int i = 0; i < POOL; i++) {
    renew(i);
  }
  for (int i = 0; i < TT_LINK_MAPS; i++) {
    token(i, -1);
  }
  token(TT_LINK_MAPS, -1); // throws 0 out
  token(1, 0);             // 1 is next to go, but this token uses it: 2 goes
  assert_true(knows(1));
  assert_false(knows(2));
  token(5, 5);
  close_play();
}

static void test_what_is_mapped_is_what_the_token_names(void **state)
{
  (void)state;
  open_play();
  int before = open_descriptors();
  for (int i = 0; i < STEPS; i++) {
    int in = (int)rnd(POOL + 2) - 2, out = (int)rnd(POOL + 2) - 2;
    if (rnd(25) == 0 || i < POOL) { // a free, or two
      renew(i < POOL ? i : (int)rnd(POOL));
    }
    in = in < 0 || p.pool[in] == NULL ? -1 : in;
    out = out < 0 || p.pool[out] == NULL ? -1 : out;
    token(in, rnd(6) == 0 ? in : out);
  }
  assert_true(p.hits > STEPS / 10 && p.hits < p.named);
  assert_int_equal(open_descriptors(), before + POOL);
  close_play();
}

// What was freed and made again at the same address is another allocation.
static void test_a_new_allocation_at_the_old_address(void **state)
{
  (void)state;
  open_play();
  int same = 0;
  for (int i = 0; i < 20; i++) {
    char *old = p.pool[0];
    renew(0);
    same += p.pool[0] == old;
    token(0, 0);
  }
  assert_true(same > 0); // otherwise this test shows nothing
  close_play();
}

// A handle whose descriptor is closed, another file, or another process's allocation: the address has to do. Nothing is
// mapped, or left open.
static void test_handles_that_lead_elsewhere(void **state)
{
  (void)state;
  open_play();
  renew(0);
  int fd = -1, before = open_descriptors();
  assert_int_equal(tt_shm_create("tutti-comm", 1 << 20, &fd), ncclSuccess);
  tt_desc d = {.in = (uintptr_t)p.pool[0],
               .out = (uintptr_t)p.pool[0],
               .in_mem = (uint32_t)fd + 1,
               .out_mem = 9999,
               .freed = tt_mem_freed()};
  receive(&d);
  assert_null(tt_handover_place(p.receiver.handover, false, 0, 1));
  assert_null(tt_handover_place(p.receiver.handover, true, 0, 1));
  d.in_mem = d.out_mem = whole(p.pool[0], 1);
  d.out += (size_t)1 << 30;
  receive(&d);
  check_sees(tt_handover_place(p.receiver.handover, false, 0, 1), 0, 0);
  assert_null(tt_handover_place(p.receiver.handover, true, 0, 1)); // beyond its end
  tt_mem_forget(&p.receiver);
  p.receiver.proc.cookie ^= 1; // the process that had this number is gone
  receive(&d);
  assert_null(tt_handover_place(p.receiver.handover, false, 0, 1));
  tt_fd_close(fd);
  assert_int_equal(open_descriptors(), before);
  close_play();
}

// What cannot be opened costs one attempt, not one per token: the limit is lifted again, and it is still read by
// address until something is freed.
static void test_a_failed_attempt_is_not_repeated(void **state)
{
  struct rlimit old, few;
  (void)state;
  open_play();
  renew(0);
  tt_desc d = {.in = (uintptr_t)p.pool[0], .in_mem = whole(p.pool[0], 1), .freed = tt_mem_freed()};
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  few = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  receive(&d);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
  assert_null(tt_handover_place(p.receiver.handover, false, 0, 1));
  receive(&d);
  assert_null(tt_handover_place(p.receiver.handover, false, 0, 1));
  put(get(1));
  d.freed = tt_mem_freed();
  receive(&d);
  check_sees(tt_handover_place(p.receiver.handover, false, 0, 1), 0, 0);
  close_play();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_allocations_are_found_by_any_address),
      cmocka_unit_test(test_wrong_frees),
      cmocka_unit_test(test_a_failed_allocation_leaves_nothing),
      cmocka_unit_test(test_a_fork),
      cmocka_unit_test(test_threads_allocate_side_by_side),
      cmocka_unit_test(test_the_oldest_goes_first_but_not_the_other_of_the_pair),
      cmocka_unit_test(test_what_is_mapped_is_what_the_token_names),
      cmocka_unit_test(test_a_new_allocation_at_the_old_address),
      cmocka_unit_test(test_handles_that_lead_elsewhere),
      cmocka_unit_test(test_a_failed_attempt_is_not_repeated),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
