// heap_test.c: what is known of memory, and turning it into shared memory in place.
#include "device/host/work_rig.h"

#include <fcntl.h>

#include "base/result.h"
#include "device/host/heap.h"
#include "device/host/mem.h"
#include "os/shm.h"

static void test_blocks_are_found_by_any_address_in_them(void **state)
{
  enum { N = 300 }; // the table grows
  char *p[N];
  tt_block b;
  (void)state;
  for (int i = 0; i < N; i++) {
    assert_int_equal(
        tt_heap_alloc((size_t)i * 100, i % 2 ? tuttiMemoryHost : tuttiMemoryDevice, i, (unsigned)i + 1, (void **)&p[i]),
        ncclSuccess);
    assert_int_equal((uintptr_t)p[i] % 4096, 0);
  }
  for (int i = 0; i < N; i++) {
    size_t size = i == 0 ? 1 : (size_t)i * 100;
    assert_true(tt_heap_find(p[i] + size - 1, &b));
    assert_ptr_equal(b.base, p[i]);
    assert_int_equal(b.size, size);
    assert_int_equal(b.device, i);
    assert_int_equal(b.flags, i + 1);
    assert_int_equal(b.kind, i % 2 ? tuttiMemoryHost : tuttiMemoryDevice);
    assert_false(tt_heap_find(p[i] + size, &b) && b.base == p[i]);
  }
  for (int i = 0; i < N; i++) {
    int k = i * 7 % N;
    assert_int_equal(tt_heap_free(p[k]), ncclSuccess);
    assert_false(tt_heap_find(p[k], &b));
  }
  assert_false(tt_heap_find(NULL, &b));
  assert_false(tt_heap_find(&b, &b));
}

static void test_wrong_frees(void **state)
{
  char *p;
  (void)state;
  assert_int_equal(tt_heap_alloc(100, tuttiMemoryDevice, 0, 0, (void **)&p), ncclSuccess);
  assert_int_equal(tt_heap_free(p + 1), ncclInvalidArgument);
  assert_int_equal(tt_heap_free(&p), ncclInvalidArgument);
  assert_int_equal(tt_heap_free(NULL), ncclInvalidArgument);
  assert_int_equal(tt_heap_free(p), ncclSuccess);
  assert_int_equal(tt_heap_free(p), ncclInvalidArgument);
  assert_int_equal(tt_heap_alloc(SIZE_MAX - 10, tuttiMemoryDevice, 0, 0, (void **)&p), ncclSystemError);
  assert_int_equal(tt_heap_alloc((size_t)1 << 60, tuttiMemoryDevice, 0, 0, (void **)&p), ncclSystemError);
}

static void test_registered_memory(void **state)
{
  char mine[1000];
  tt_block b, r = {.base = mine + 100, .size = 100, .kind = tuttiMemoryHost, .owner = TT_BLOCK_REGISTERED, .fd = -1};
  (void)state;
  assert_int_equal(tt_heap_note(&r), ncclSuccess);
  assert_true(tt_heap_find(mine + 199, &b));
  assert_false(tt_heap_find(mine + 99, &b));
  assert_false(tt_heap_find(mine + 200, &b));
  assert_int_equal(tt_heap_note(&r), ncclInvalidArgument);
  for (int shift = -99; shift < 100; shift += 33) { // any overlap
    r.base = mine + 100 + shift;
    assert_int_equal(tt_heap_note(&r), ncclInvalidArgument);
  }
  r.base = mine + 200;
  assert_int_equal(tt_heap_note(&r), ncclSuccess); // beside it
  assert_int_equal(tt_heap_free(mine + 100), ncclInvalidArgument);
  assert_false(tt_heap_forget(mine + 101, TT_BLOCK_REGISTERED));
  assert_false(tt_heap_forget(mine + 100, TT_BLOCK_NCCL));
  assert_true(tt_heap_forget(mine + 100, TT_BLOCK_REGISTERED));
  assert_true(tt_heap_forget(mine + 200, TT_BLOCK_REGISTERED));
  assert_false(tt_heap_forget(mine + 200, TT_BLOCK_REGISTERED));
}

// The program unmapped what it had registered, and the kernel gives the addresses to somebody else.
static void test_stale_registrations_give_way(void **state)
{
  char *p;
  tt_block b;
  (void)state;
  assert_int_equal(tt_heap_alloc(4096, tuttiMemoryDevice, 0, 0, (void **)&p), ncclSuccess);
  assert_int_equal(tt_heap_free(p), ncclSuccess);
  tt_block stale = {.base = p + 100, .size = 1000, .kind = tuttiMemoryHost, .owner = TT_BLOCK_REGISTERED, .fd = -1},
           fresh = stale;
  assert_int_equal(tt_heap_note(&stale), ncclSuccess);
  stale.base = p + 2000;
  assert_int_equal(tt_heap_note(&stale), ncclSuccess);
  fresh.base = p;
  fresh.size = 4096;
  fresh.owner = TT_BLOCK_NCCL;
  assert_int_equal(tt_heap_note(&fresh), ncclSuccess);
  assert_true(tt_heap_find(p + 100, &b));
  assert_ptr_equal(b.base, p);
  assert_false(tt_heap_forget(p + 2000, TT_BLOCK_REGISTERED));
  assert_true(tt_heap_forget(p, TT_BLOCK_NCCL));
}

static void test_memory_of_nccl_is_known(void **state)
{
  char *p;
  tt_block b;
  (void)state;
  assert_int_equal(tt_mem_alloc(5000, (void **)&p), ncclSuccess);
  assert_true(tt_heap_find(p + 4999, &b));
  assert_int_equal(b.owner, TT_BLOCK_NCCL);
  assert_int_equal(b.kind, tuttiMemoryDevice);
  assert_true(tt_mem_descriptor(p) >= 0);
  assert_int_equal(tt_mem_descriptor(p + 1), -1);
  assert_int_equal(tt_heap_free(p), ncclInvalidArgument);
  assert_int_equal(tt_heap_share(p, &b), ncclInvalidArgument);
  assert_int_equal(tt_mem_free(p), ncclSuccess);
  assert_false(tt_heap_find(p, &b));
}

static void test_sharing_keeps_place_and_contents(void **state)
{
  enum { SIZE = 50000 };
  char *p, *q;
  void *map = NULL;
  tt_block b, again;
  (void)state;
  assert_int_equal(tt_heap_alloc(SIZE, tuttiMemoryDevice, 3, 0, (void **)&p), ncclSuccess);
  memset(p + 20000, 'x', 1000); // the other pages stay untouched
  p[SIZE - 1] = 'e';
  assert_int_equal(tt_heap_share(p + 10, &b), ncclSuccess);
  assert_true(b.fd >= 0);
  assert_ptr_equal(b.base, p);
  assert_int_equal(tt_heap_share(p, &again), ncclSuccess);
  assert_int_equal(again.fd, b.fd);
  assert_int_equal(p[20500], 'x');
  assert_int_equal(p[0], 0);
  assert_int_equal(tt_shm_map(b.fd, SIZE, &map), ncclSuccess);
  q = map;
  assert_int_equal(q[20999], 'x');
  assert_int_equal(q[21000], 0);
  assert_int_equal(q[SIZE - 1], 'e');
  p[0] = 'p';
  q[1] = 'q';
  assert_int_equal(q[0], 'p');
  assert_int_equal(p[1], 'q');
  assert_int_equal(tt_heap_free(p), ncclSuccess);
  assert_int_equal(fcntl(b.fd, F_GETFD), -1); // closed
  assert_int_equal(q[0], 'p');                // a process that has it mapped keeps it
  tt_shm_unmap(map, SIZE);
  assert_int_equal(tt_heap_share(&b, &b), ncclInvalidArgument);
}

static void test_no_memory(void **state)
{
  char *p[80];
  (void)state;
  for (int i = 0; i < 80; i++) { // sooner or later the table is full and must grow
    assert_int_equal(tt_heap_alloc(1, tuttiMemoryDevice, 0, 0, (void **)&p[i]), ncclSuccess);
  }
  void *one = NULL;
  int failed = 0;
  char *more[1000];
  int n = 0;
  while (!failed && n < 1000) {
    tt_alloc_fail_at(1);
    failed = tt_heap_alloc(1, tuttiMemoryDevice, 0, 0, &one) == ncclSystemError;
    if (!failed) {
      more[n++] = one;
    }
  }
  tt_alloc_fail_at(0);
  assert_true(failed);
  assert_int_equal(tt_heap_alloc(1, tuttiMemoryDevice, 0, 0, &one), ncclSuccess);
  assert_int_equal(tt_heap_free(one), ncclSuccess);
  for (int i = 0; i < n; i++) {
    assert_int_equal(tt_heap_free(more[i]), ncclSuccess);
  }
  for (int i = 0; i < 80; i++) {
    assert_int_equal(tt_heap_free(p[i]), ncclSuccess);
  }
}

static void *churn(void *arg)
{
  (void)arg;
  for (int i = 0; i < 2000 / SLOWER; i++) {
    char *p[8];
    tt_block b;
    for (int k = 0; k < 8; k++) {
      if (tt_heap_alloc(5000, tuttiMemoryDevice, k, 0, (void **)&p[k]) != ncclSuccess ||
          !tt_heap_find(p[k] + 4999, &b) || b.device != k) {
        return "not found";
      }
      p[k][4999] = 1;
    }
    for (int k = 0; k < 8; k++) {
      if (tt_heap_free(p[k ^ 5]) != ncclSuccess) {
        return "not freed";
      }
    }
  }
  return NULL;
}

static void test_threads(void **state)
{
  pthread_t t[4];
  (void)state;
  for (int i = 0; i < 4; i++) {
    assert_int_equal(pthread_create(&t[i], NULL, churn, NULL), 0);
  }
  for (int i = 0; i < 4; i++) {
    void *why;
    pthread_join(t[i], &why);
    assert_null(why);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_blocks_are_found_by_any_address_in_them),
      cmocka_unit_test(test_wrong_frees),
      cmocka_unit_test(test_registered_memory),
      cmocka_unit_test(test_stale_registrations_give_way),
      cmocka_unit_test(test_memory_of_nccl_is_known),
      cmocka_unit_test(test_sharing_keeps_place_and_contents),
      cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
