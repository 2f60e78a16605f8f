// mem_test.c: shareable allocations, and the lists that sender and receiver of tokens keep by the same rule.
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

#include "base/result.h"
#include "device/host/mem.h"
#include "os/shm.h"

enum { PAGE = 4096 };

static char *get(size_t size)
{
  void *p = NULL;
  assert_int_equal(tt_mem_alloc(size, &p), ncclSuccess);
  return p;
}

static void put(void *p)
{
  assert_int_equal(tt_mem_free(p), ncclSuccess);
}

static void test_allocations_are_found_by_any_address(void **state)
{
  uint64_t off = 99;
  (void)state;
  assert_int_equal(tt_mem_find(&off, 8, &off), 0);
  char *a = get(10000), *b = get(1);
  uint32_t sa = tt_mem_find(a, 1, &off), sb = tt_mem_find(b, 1, &off);
  assert_true(sa != 0 && sb != 0 && sa != sb);
  assert_int_equal((uintptr_t)a % PAGE, 0);
  for (size_t i = 0; i < 10000; i++) {
    assert_int_equal(a[i], 0);
    a[i] = (char)i;
  }
  assert_int_equal(tt_mem_find(a + 777, 100, &off), sa);
  assert_int_equal(off, 777);
  assert_int_equal(tt_mem_find(a, 12288, &off), sa); // the last page belongs to it
  assert_int_equal(tt_mem_find(a, 12289, &off), 0);
  assert_int_equal(tt_mem_find(a + 12287, 2, &off), 0);
  assert_int_equal(tt_mem_find(a + 1, SIZE_MAX, &off), 0);
  assert_int_equal(tt_mem_find(&off, 1, &off), 0);
  assert_int_equal(tt_mem_find(NULL, 1, &off), 0);
  put(a);
  assert_int_equal(tt_mem_find(a, 1, &off), 0);
  assert_int_equal(tt_mem_find(b, 1, &off), sb);
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

static void *hammer(void *arg)
{
  for (int i = 0; i < 200; i++) {
    uint64_t off;
    char *a = get(1 + (size_t)i * 100);
    assert_true(tt_mem_find(a + i, 1, &off) != 0);
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
  char mailbox[TT_FDBOX_NAME];
  tt_link sender, receiver;
  char *pool[POOL];
  size_t size[POOL];
  uint64_t stamp[POOL]; // stands at the start of the allocation
  unsigned long shared, hits;
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
  assert_int_equal(tt_fdbox_open(p.mailbox), ncclSuccess);
  p.sender = (tt_link){.rank = 0, .peer = 1, .access = TT_ACCESS_COPY, .mailbox = p.mailbox, .proc = tt_proc_self()};
  p.receiver = (tt_link){.rank = 1, .peer = 0, .access = TT_ACCESS_COPY, .mailbox = p.mailbox, .proc = tt_proc_self()};
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
  tt_mem_forget(&p.sender);
  tt_mem_forget(&p.receiver);
  for (int i = 0; i < POOL; i++) {
    if (p.pool[i] != NULL) {
      put(p.pool[i]);
    }
  }
  tt_fdbox_close();
}

static bool knows(const tt_maplist *l, uint32_t serial)
{
  for (int i = 0; i < TT_LINK_MAPS; i++) {
    if (l->map[i].serial == serial) {
      return true;
    }
  }
  return false;
}

// Both lists name the same allocations at the same places, and the receiver has all of them mapped.
static void check_lists(void)
{
  const tt_maplist *a = &p.sender.shared, *b = &p.receiver.mapped;
  assert_int_equal(a->next, b->next);
  assert_int_equal(a->freed, b->freed);
  for (int i = 0; i < TT_LINK_MAPS; i++) {
    assert_int_equal(a->map[i].serial, b->map[i].serial);
    assert_int_equal(b->map[i].base != NULL, b->map[i].serial != 0);
    assert_null(a->map[i].base);
  }
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

// One token: input in allocation `in`, output in allocation `out` (-1: in ordinary memory).
static void token(int in, int out)
{
  static const volatile uint32_t no_abort;
  char ordinary[2];
  tt_call call = {.in = ordinary, .out = ordinary + 1};
  size_t in_at = in < 0 ? 0 : rnd((unsigned)p.size[in]), out_at = out < 0 ? 0 : rnd((unsigned)p.size[out]);
  if (in >= 0) {
    call.in = p.pool[in] + in_at;
    call.in_mem = tt_mem_find(call.in, 1, &call.in_off);
    assert_int_equal(call.in_off, in_at);
  }
  if (out >= 0) {
    call.out = p.pool[out] + out_at;
    call.out_mem = tt_mem_find(call.out, 1, &call.out_off);
  }
  p.hits += call.in_mem != 0 && knows(&p.sender.shared, call.in_mem);
  p.shared += call.in_mem != 0;
  tt_desc d = {.in = (uintptr_t)call.in, .out = (uintptr_t)call.out};
  assert_int_equal(tt_mem_export(&p.sender, &call, &d), ncclSuccess);
  assert_int_equal(d.in_mem, call.in_mem);
  assert_int_equal(d.out_mem, call.out_mem);
  assert_int_equal(tt_mem_import(&p.receiver, &d, &no_abort), ncclSuccess);
  if (in >= 0) {
    check_sees(p.receiver.in, in, in_at);
  } else {
    assert_null(p.receiver.in);
    assert_int_equal(d.in, (uintptr_t)call.in);
  }
  if (out >= 0) {
    check_sees(p.receiver.out, out, out_at);
  } else {
    assert_null(p.receiver.out);
  }
  check_lists();
}

// One allocation after the other until the list is full and beyond, two per token: the output never throws out the input.
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
  uint64_t off;
  assert_true(knows(&p.receiver.mapped, tt_mem_find(p.pool[1], 1, &off)));
  assert_false(knows(&p.receiver.mapped, tt_mem_find(p.pool[2], 1, &off)));
  token(5, 5);
  close_play();
}

static void test_lists_stay_in_step(void **state)
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
  assert_true(p.hits > STEPS / 10 && p.hits < p.shared);
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

// An allocation that is gone between the launch and the token travels by address.
static void test_a_vanished_allocation_is_not_exported(void **state)
{
  (void)state;
  open_play();
  char *a = get(100);
  tt_call call = {.in = a, .out = a};
  call.in_mem = tt_mem_find(a, 100, &call.in_off);
  put(a);
  tt_desc d = {.in = 1, .out = 2};
  assert_int_equal(tt_mem_export(&p.sender, &call, &d), ncclSuccess);
  assert_int_equal(d.in_mem, 0);
  assert_int_equal(d.in, 1);
  close_play();
}

// A peer whose mailbox is gone: by address too; and a descriptor that never comes ends with the abort flag.
static void test_peers_that_are_gone(void **state)
{
  volatile uint32_t abort_flag = 1;
  (void)state;
  open_play();
  renew(0);
  p.sender.mailbox = "tutti-nobody-is-here";
  tt_call call = {.in = p.pool[0], .out = p.pool[0]};
  call.in_mem = tt_mem_find(call.in, 1, &call.in_off);
  tt_desc d = {.in = 1};
  assert_int_equal(tt_mem_export(&p.sender, &call, &d), ncclSuccess);
  assert_int_equal(d.in_mem, 0);
  assert_false(knows(&p.sender.shared, call.in_mem));
  p.sender.mailbox = p.mailbox;
  assert_int_equal(tt_mem_export(&p.sender, &call, &d), ncclSuccess);
  assert_int_equal(d.in_mem, 0); // not tried again
  renew(1);
  tt_call next = {.in = p.pool[1]};
  next.in_mem = tt_mem_find(next.in, 1, &next.in_off);
  assert_int_equal(tt_mem_export(&p.sender, &next, &d), ncclSuccess);
  assert_int_equal(d.in_mem, next.in_mem); // another allocation is
  assert_int_equal(tt_mem_import(&p.receiver, &d, &(volatile uint32_t){0}), ncclSuccess);
  d.in_mem = call.in_mem;
  assert_int_not_equal(tt_mem_import(&p.receiver, &d, &abort_flag), ncclSuccess);
  assert_false(knows(&p.receiver.mapped, call.in_mem));
  close_play();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_allocations_are_found_by_any_address),
      cmocka_unit_test(test_wrong_frees),
      cmocka_unit_test(test_a_failed_allocation_leaves_nothing),
      cmocka_unit_test(test_threads_allocate_side_by_side),
      cmocka_unit_test(test_the_oldest_goes_first_but_not_the_other_of_the_pair),
      cmocka_unit_test(test_lists_stay_in_step),
      cmocka_unit_test(test_a_new_allocation_at_the_old_address),
      cmocka_unit_test(test_a_vanished_allocation_is_not_exported),
      cmocka_unit_test(test_peers_that_are_gone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
