// ops_test.c: copies and fills in portions, rows, staged sources; host functions on threads of their own.
#include "device/host/work_rig.h"

#include "device/host/heap.h"
#include "device/host/hostcall.h"
#include "device/host/ops.h"

enum { SIZE = 3 << 20 };

static unsigned char *pattern(unsigned char *p, size_t size, unsigned seed)
{
  for (size_t i = 0; i < size; i++) {
    p[i] = (unsigned char)(i * 31 + (i >> 8) * 7 + seed);
  }
  return p;
}

// Runs the work, so many bytes at a time, and frees it.
static void run_in_portions(tt_work *w, size_t portion)
{
  tt_run r;
  do {
    size_t budget = portion;
    ncclResult_t res;
    r = w->ops->run(w, &budget, &res);
  } while (r == TT_RUN_MORE);
  assert_int_equal(r, TT_RUN_DONE);
  w->ops->done(w);
}

static void test_a_large_copy_returns_before_it_is_done(void **state)
{
  _Atomic int gate = 0;
  static dummy t;
  (void)state;
  unsigned char *from = pattern(malloc(SIZE), SIZE, 1), *to = calloc(1, SIZE);
  tt_stream *s = dummy_stream();
  size_t budget = 1000;
  ncclResult_t res;
  tt_work *w = tt_host_copy(to, from, SIZE);
  assert_int_equal(w->ops->run(w, &budget, &res), TT_RUN_MORE); // no more than it may
  assert_int_equal(budget, 0);
  assert_int_equal(w->ops->run(w, &budget, &res), TT_RUN_MORE); // and nothing for nothing
  assert_memory_equal(to, from, 1000);
  assert_int_equal(to[1000], 0);
  tt_stream_push(s, &dummy_init(&t, &gate, NULL)->work);
  tt_stream_push(s, w);
  dummy_open(&gate, NULL);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_memory_equal(to, from, SIZE);
  tt_stream_destroy(s);
  free(from);
  free(to);
}

// Whichever way source and destination overlap, in portions of any size, the result is memmove's.
static void test_overlapping_copies(void **state)
{
  enum { N = 1000 };
  unsigned char got[2 * N], want[2 * N];
  (void)state;
  for (int shift = -N; shift <= N; shift += 125) {
    for (size_t portion = 1; portion < 2000; portion = portion * 3 + 1) {
      int from = shift < 0 ? -shift : 0, to = shift < 0 ? 0 : shift;
      memcpy(want, pattern(got, sizeof got, 5), sizeof got);
      memmove(want + to, want + from, N);
      tt_work *w = tt_host_copy(got + to, got + from, N);
      run_in_portions(w, portion);
      assert_memory_equal(got, want, sizeof got);
    }
  }
}

static void test_rows(void **state)
{
  enum { WIDTH = 300, HEIGHT = 500, FROM = 333, TO = 401 };
  (void)state;
  unsigned char *from = pattern(malloc(FROM * HEIGHT), FROM * HEIGHT, 2), *to = malloc(TO * HEIGHT);
  memset(to, 0xee, TO * HEIGHT);
  tt_stream *s = dummy_stream();
  tuttiRows_t r = {.dst = to, .dstPitch = TO, .src = from, .srcPitch = FROM, .width = WIDTH, .height = HEIGHT};
  tt_stream_push(s, tt_host_copy_rows(&r)); // more than one portion of a launch
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  for (int y = 0; y < HEIGHT; y++) {
    assert_memory_equal(to + y * TO, from + y * FROM, WIDTH);
    assert_int_equal(to[y * TO + WIDTH], 0xee);
    assert_int_equal(to[y * TO + TO - 1], 0xee);
  }
  tt_stream_push(s, tt_host_fill_rows(&r, 7, 1));
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  for (int y = 0; y < HEIGHT; y++) {
    for (int x = 0; x < TO; x++) {
      assert_int_equal(to[y * TO + x], x < WIDTH ? 7 : 0xee);
    }
  }
  r.width = 0;
  tt_stream_push(s, tt_host_copy_rows(&r));
  r.width = WIDTH;
  r.height = 0;
  tt_stream_push(s, tt_host_fill_rows(&r, 1, 1));
  tt_stream_push(s, tt_host_copy(NULL, NULL, 0));
  tt_stream_push(s, tt_host_fill(NULL, 0, 0));
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_int_equal(to[0], 7);
  tt_stream_destroy(s);
  free(from);
  free(to);
}

// Elements of two and four bytes are whole wherever a portion ends.
static void test_fills_of_elements(void **state)
{
  enum { COUNT = 30, ROWS = 3 };
  uint32_t got[ROWS][COUNT + 1];
  (void)state;
  for (size_t size = 1; size <= 4; size *= 2) {
    uint32_t value = 0x01020304, four = size == 1 ? 0x04040404 : size == 2 ? 0x03040304 : value;
    for (size_t portion = 1; portion < 400; portion = portion * 2 + 1) {
      memset(got, 0xee, sizeof got);
      tt_work *w = tt_host_fill_rows(
          &(tuttiRows_t){.dst = got, .dstPitch = sizeof got[0], .width = COUNT * 4, .height = ROWS}, value, size);
      run_in_portions(w, portion);
      for (int i = 0; i < ROWS * (COUNT + 1); i++) {
        assert_int_equal(got[i / (COUNT + 1)][i % (COUNT + 1)], i % (COUNT + 1) < COUNT ? four : 0xeeeeeeee);
      }
    }
  }
}

static void test_a_staged_source_may_change(void **state)
{
  _Atomic int gate = 0;
  static dummy t;
  char from[100], to[100] = "", want[100];
  (void)state;
  tt_stream *s = dummy_stream();
  tt_stream_push(s, &dummy_init(&t, &gate, NULL)->work);
  memset(from, 'a', sizeof from);
  memset(want, 'a', sizeof want);
  tt_stream_push(s, tt_host_copy_staged(to, from, sizeof from));
  memset(from, 'b', sizeof from);
  dummy_open(&gate, NULL);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_memory_equal(to, want, sizeof to);
  tt_stream_destroy(s);
}

static void test_release_in_stream_order(void **state)
{
  _Atomic int gate = 0;
  static dummy t;
  void *p;
  tt_block b;
  (void)state;
  tt_stream *s = dummy_stream();
  assert_int_equal(tt_heap_alloc(100, tuttiMemoryDevice, 0, 0, &p), ncclSuccess);
  tt_stream_push(s, &dummy_init(&t, &gate, NULL)->work);
  tt_stream_push(s, tt_host_release(p));
  assert_true(tt_heap_find(p, &b));
  dummy_open(&gate, NULL);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_false(tt_heap_find(p, &b));
  tt_stream_push(s, tt_host_release(p)); // once more
  assert_int_equal(tt_stream_wait(s), ncclInvalidArgument);
  tt_stream_destroy(s);
}

// ---- Host functions ----

typedef struct call {
  _Atomic int *gate;
  _Atomic int called;
  pthread_t by;
} call;

// Stays until the gate is open.
static void stay(void *arg)
{
  call *c = arg;
  c->by = pthread_self();
  if (c->gate != NULL) {
    dummy_becomes(c->gate, 1, DUMMY_LONG_S);
  }
  atomic_fetch_add(&c->called, 1);
}

// The caller does what the function waits for only after the call has returned, and waits for another stream before.
static void test_a_function_may_wait_for_its_caller(void **state)
{
  _Atomic int gate = 0;
  call first = {.gate = &gate}, second = {.gate = NULL};
  static dummy t;
  (void)state;
  tt_stream *a = dummy_stream(), *b = dummy_stream();
  tt_stream_push(a, tt_host_function(stay, &first));
  tt_stream_push(a, &dummy_init(&t, NULL, NULL)->work);
  tt_stream_push(b, tt_host_function(stay, &second));
  assert_int_equal(tt_stream_wait(b), ncclSuccess); // helps stream `a`, but the function holds nobody up
  assert_int_equal(atomic_load(&second.called), 1);
  assert_int_equal(atomic_load(&first.called), 0);
  assert_int_equal(t.runs, 0);
  atomic_store(&gate, 1);
  assert_int_equal(tt_stream_wait(a), ncclSuccess);
  assert_int_equal(atomic_load(&first.called), 1);
  assert_int_equal(t.runs, 1);
  assert_false(pthread_equal(first.by, pthread_self()));
  assert_false(pthread_equal(second.by, pthread_self()));
  tt_stream_destroy(a);
  tt_stream_destroy(b);
}

// More functions that stay than there are threads: those that fit run, the others follow; streams without any go on.
static void test_more_functions_than_threads(void **state)
{
  enum { N = TT_HOSTCALL_THREADS + 20 };
  _Atomic int gate = 0;
  static call calls[N];
  tt_stream *s[N];
  char from = 'x', to = 0;
  (void)state;
  for (int i = 0; i < N; i++) {
    calls[i] = (call){.gate = &gate};
    s[i] = dummy_stream();
    tt_stream_push(s[i], tt_host_function(stay, &calls[i]));
  }
  tt_stream *other = dummy_stream();
  tt_stream_push(other, tt_host_copy(&to, &from, 1));
  assert_int_equal(tt_stream_wait(other), ncclSuccess);
  assert_int_equal(to, 'x');
  atomic_store(&gate, 1);
  for (int i = 0; i < N; i++) {
    assert_int_equal(tt_stream_wait(s[i]), ncclSuccess);
    assert_int_equal(atomic_load(&calls[i].called), 1);
    tt_stream_destroy(s[i]);
  }
  tt_stream_destroy(other);
}

static void count_up(void *arg)
{
  ++*(int *)arg; // no atomic: the functions of one stream follow each other
}

static void test_functions_of_a_stream_follow_each_other(void **state)
{
  int n = 0;
  (void)state;
  tt_stream *s = dummy_stream();
  for (int i = 0; i < 500; i++) {
    tt_stream_push(s, tt_host_function(count_up, &n));
  }
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_int_equal(n, 500);
  tt_stream_destroy(s);
}

// Nobody waits: the worker carries on when the function has returned.
static void test_nobody_waits(void **state)
{
  _Atomic int gate = 0;
  call c = {.gate = &gate};
  static dummy t;
  (void)state;
  tt_stream *s = dummy_stream();
  tt_stream_push(s, tt_host_function(stay, &c));
  tt_stream_push(s, &dummy_init(&t, NULL, NULL)->work);
  atomic_store(&gate, 1);
  assert_true(dummy_becomes(&t.done, 1, DUMMY_LONG_S));
  tt_stream_destroy(s);
}

static void test_no_memory(void **state)
{
  (void)state;
  tuttiRows_t r = {.width = 1, .height = 1};
  for (int i = 0; i < 5; i++) {
    tt_alloc_fail_at(1);
    assert_null(i == 0   ? tt_host_function(count_up, NULL)
                : i == 1 ? tt_host_copy_staged(NULL, NULL, 0)
                : i == 2 ? tt_host_copy_rows(&r)
                : i == 3 ? tt_host_fill(NULL, 0, 0)
                         : tt_host_release(NULL));
  }
  tt_alloc_fail_at(0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_large_copy_returns_before_it_is_done),
      cmocka_unit_test(test_overlapping_copies),
      cmocka_unit_test(test_rows),
      cmocka_unit_test(test_fills_of_elements),
      cmocka_unit_test(test_a_staged_source_may_change),
      cmocka_unit_test(test_release_in_stream_order),
      cmocka_unit_test(test_a_function_may_wait_for_its_caller),
      cmocka_unit_test(test_more_functions_than_threads),
      cmocka_unit_test(test_functions_of_a_stream_follow_each_other),
      cmocka_unit_test(test_nobody_waits),
      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
