// ipc_test.c: memory and events between processes: a child opens what its parent made, and the other way round.
#include "device/host/work_rig.h"

#include <stdio.h>
#include <sys/wait.h>

#include "base/result.h"
#include "device/host/event.h"
#include "device/host/ipc.h"
#include "device/host/mem.h"
#include "device/host/ops.h"

// What the two processes tell each other.
static int down[2], up[2];

static void tell(int fd, const void *p, size_t size)
{
  if (write(fd, p, size) != (ssize_t)size) {
    _exit(90);
  }
}

static void hear(int fd, void *p, size_t size)
{
  for (size_t got = 0; got < size;) {
    ssize_t n = read(fd, (char *)p + got, size - got);
    if (n <= 0) {
      _exit(91);
    }
    got += (size_t)n;
  }
}

#define WANT(cond)              \
  do {                          \
    if (!(cond)) {              \
      _exit(__LINE__ % 89 + 1); \
    }                           \
  } while (0)

static pid_t start(void (*fn)(void), int mine[2], int other[2])
{
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    close(mine[0]);
    close(other[1]);
    alarm(60 * SLOWER);
    fn();
    _exit(0);
  }
  return pid;
}

// Runs both functions, each in a process of its own: this one has no threads, and never starts any.
static void two_processes(void (*child)(void), void (*parent)(void))
{
  int status[2];
  assert_int_equal(pipe(down), 0);
  assert_int_equal(pipe(up), 0);
  pid_t first = start(child, up, down), second = start(parent, down, up);
  for (int i = 0; i < 2; i++) {
    close(down[i]);
    close(up[i]);
  }
  assert_int_equal(waitpid(first, &status[0], 0), first);
  assert_int_equal(waitpid(second, &status[1], 0), second);
  assert_int_equal(status[0], 0);
  assert_int_equal(status[1], 0);
}

static void child_memory(void)
{
  tuttiIpcMemHandle_t h;
  char *p, *again, go;
  tt_block b;
  for (int round = 0; round < 2; round++) { // memory of the heap, and of ncclMemAlloc
    hear(down[0], &h, sizeof h);
    WANT(tt_ipc_open(&h, (void **)&p) == ncclSuccess);
    WANT(tt_ipc_open(&h, (void **)&again) == ncclSuccess && again == p);
    WANT(strcmp(p + 5000, "from the parent") == 0);
    WANT(tt_heap_find(p + 5000, &b) && b.base == p && b.device == 3 * (1 - round) && b.kind == tuttiMemoryDevice);
    WANT(tt_heap_free(p) == ncclInvalidArgument);
    WANT(tt_ipc_export(p, &h) == ncclInvalidArgument); // only its owner gives it out
    strcpy(p + 6000, "from the child");
    WANT(tt_ipc_close(p) == ncclSuccess);
    tell(up[1], "x", 1);
    hear(down[0], &go, 1); // the parent has freed it
    WANT(strcmp(p + 5000, "from the parent") == 0);
    WANT(tt_ipc_close(p) == ncclSuccess);
    WANT(tt_ipc_close(p) == ncclInvalidArgument);
    WANT(!tt_heap_find(p, &b));
    WANT(tt_ipc_open(&h, (void **)&p) == ncclInvalidArgument); // gone
    tell(up[1], "x", 1);
  }
}

static void parent_memory(void)
{
  tuttiIpcMemHandle_t h, twice;
  char *p, x;
  for (int round = 0; round < 2; round++) {
    assert_int_equal(round == 0 ? tt_heap_alloc(10000, tuttiMemoryDevice, 3, 0, (void **)&p)
                                : tt_mem_alloc(10000, (void **)&p),
                     ncclSuccess);
    strcpy(p + 5000, "from the parent");
    WANT((tt_ipc_export(p + 7000, &h)) == (ncclSuccess));
    WANT((tt_ipc_export(p, &twice)) == (ncclSuccess));
    WANT(memcmp(&h, &twice, sizeof h) == 0);
    void *mine;
    WANT((tt_ipc_open(&h, &mine)) == (ncclInvalidUsage));
    tell(down[1], &h, sizeof h);
    hear(up[0], &x, 1);
    WANT(strcmp(p + 6000, "from the child") == 0);
    WANT((round == 0 ? tt_heap_free(p) : tt_mem_free(p)) == (ncclSuccess));
    tell(down[1], "x", 1);
    hear(up[0], &x, 1);
  }
}

static void test_memory(void **state)
{
  (void)state;
  two_processes(child_memory, parent_memory);
}

static void test_wrong_handles(void **state)
{
  tuttiIpcMemHandle_t h;
  tuttiIpcEventHandle_t e;
  tt_event *event;
  void *p;
  char local;
  (void)state;
  memset(&h, 0, sizeof h);
  memset(&e, 0x5a, sizeof e);
  assert_int_equal(tt_ipc_open(&h, &p), ncclInvalidArgument);
  assert_int_equal(tt_event_create_shared(&e, &event), ncclInvalidArgument);
  assert_int_equal(tt_ipc_export(&local, &h), ncclInvalidArgument);
  assert_int_equal(tt_heap_alloc(100, tuttiMemoryHost, 0, 0, &p), ncclSuccess);
  assert_int_equal(tt_ipc_export(p, &h), ncclInvalidArgument); // not device memory
  assert_int_equal(tt_heap_free(p), ncclSuccess);
  assert_int_equal(tt_heap_alloc(100, tuttiMemoryDevice, 0, 0, &p), ncclSuccess);
  assert_int_equal(tt_ipc_export(p, &h), ncclSuccess);
  assert_int_equal(tt_heap_free(p), ncclSuccess);
  for (size_t i = 0; i < sizeof h; i++) { // whatever was changed: an error, and no more
    tuttiIpcMemHandle_t changed = h;
    changed.reserved[i] = (char)(changed.reserved[i] ^ 0x41);
    assert_int_not_equal(tt_ipc_open(&changed, &p), ncclSuccess);
  }
}

// The child records behind a gate and opens it when told; the parent's streams and threads wait.
static void child_records(void)
{
  tuttiIpcEventHandle_t h;
  tt_event *e, *own;
  _Atomic int gate = 0;
  static dummy t;
  char x;
  hear(down[0], &h, sizeof h);
  WANT(tt_event_create_shared(&h, &e) == ncclSuccess);
  WANT(tt_event_complete(e));
  tt_stream *s = dummy_stream();
  tt_stream_push(s, &dummy_init(&t, &gate, NULL)->work);
  tt_stream_push(s, tt_event_record_work(e));
  WANT(tt_event_create_shared(NULL, &own) == ncclSuccess); // a child has slots of its own
  WANT(own->slot != e->slot);
  tell(up[1], "x", 1);
  hear(down[0], &x, 1);
  dummy_open(&gate, NULL);
  WANT(tt_stream_wait(s) == ncclSuccess);
  tt_event_destroy(e);
  tt_event_destroy(own);
  tell(up[1], "x", 1);
  hear(down[0], &x, 1);
}

static void parent_waits(void)
{
  tuttiIpcEventHandle_t h;
  tt_event *e, *opened;
  static dummy t;
  char x;
  WANT((tt_event_create_shared(NULL, &e)) == (ncclSuccess));
  WANT((tt_ipc_slot_export(e->slot, &h)) == (ncclSuccess));
  WANT((tt_event_create_shared(&h, &opened)) == (ncclInvalidUsage));
  tell(down[1], &h, sizeof h);
  hear(up[0], &x, 1);
  WANT(!(tt_event_complete(e)));
  WANT((tt_event_check(e)) == (ncclSuccess));
  tt_stream *s = dummy_stream();
  tt_stream_push(s, tt_event_wait_work(e));
  tt_stream_push(s, &dummy_init(&t, NULL, NULL)->work);
  tt_stream_help(NULL, 1 << 20);
  WANT((atomic_load(&t.done)) == (0));
  tell(down[1], "x", 1);
  WANT((tt_stream_wait(s)) == (ncclSuccess));
  WANT(dummy_becomes(&t.done, 1, DUMMY_LONG_S));
  WANT(tt_event_complete(e));
  hear(up[0], &x, 1);
  tell(down[1], "x", 1);
  tt_event_destroy(e);
  tt_stream_destroy(s);
}

static void test_a_record_in_another_process(void **state)
{
  (void)state;
  two_processes(child_records, parent_waits);
}

// The child waits for what its parent records, for its parent's end of the event, and opens what is gone.
static void child_waits(void)
{
  tuttiIpcEventHandle_t h;
  tt_event *e;
  static dummy t;
  char x;
  hear(down[0], &h, sizeof h);
  WANT(tt_event_create_shared(&h, &e) == ncclSuccess);
  WANT(tt_ipc_slot_export(e->slot, &h) == ncclInvalidArgument);
  tt_stream *s = dummy_stream();
  tt_stream_push(s, tt_event_wait_work(e));
  tt_stream_push(s, &dummy_init(&t, NULL, NULL)->work);
  WANT(!tt_event_complete(e));
  tell(up[1], "x", 1);
  WANT(tt_stream_wait(s) == ncclSuccess && dummy_becomes(&t.done, 1, DUMMY_LONG_S));
  tell(up[1], "x", 1);
  hear(down[0], &x, 1); // the parent has recorded again, which will never be reached, and ...
  tt_stream_push(s, tt_event_wait_work(e));
  tell(up[1], "x", 1);
  WANT(tt_stream_wait(s) == ncclRemoteError); // ... destroys the event
  WANT(tt_event_check(e) == ncclRemoteError);
  tt_event_destroy(e);
  WANT(tt_event_create_shared(&h, &e) == ncclInvalidArgument);
}

static void parent_records(void)
{
  tuttiIpcEventHandle_t h;
  tt_event *e;
  _Atomic int gate = 0;
  static dummy t;
  char x;
  WANT((tt_event_create_shared(NULL, &e)) == (ncclSuccess));
  WANT((tt_ipc_slot_export(e->slot, &h)) == (ncclSuccess));
  tt_stream *s = dummy_stream();
  tt_stream_push(s, &dummy_init(&t, &gate, NULL)->work);
  tt_stream_push(s, tt_event_record_work(e));
  tell(down[1], &h, sizeof h);
  hear(up[0], &x, 1);
  dummy_open(&gate, NULL);
  WANT((tt_stream_wait(s)) == (ncclSuccess));
  hear(up[0], &x, 1);
  tt_work *never = tt_event_record_work(e);
  tell(down[1], "x", 1);
  hear(up[0], &x, 1);
  never->ops->done(never);
  tt_event_destroy(e);
  tt_stream_destroy(s);
}

static void test_a_wait_in_another_process(void **state)
{
  (void)state;
  two_processes(child_waits, parent_records);
}

static void child_dies(void)
{
  tuttiIpcEventHandle_t h;
  tt_event *e;
  char x;
  hear(down[0], &h, sizeof h);
  WANT(tt_event_create_shared(&h, &e) == ncclSuccess);
  WANT(tt_event_record_work(e) != NULL); // counted, never reached
  tell(up[1], "x", 1);
  hear(down[0], &x, 1);
}

static void parent_is_told(void)
{
  tuttiIpcEventHandle_t h;
  tt_event *e;
  char x;
  WANT((tt_event_create_shared(NULL, &e)) == (ncclSuccess));
  WANT((tt_ipc_slot_export(e->slot, &h)) == (ncclSuccess));
  tell(down[1], &h, sizeof h);
  hear(up[0], &x, 1);
  tt_stream *s = dummy_stream();
  tt_stream_push(s, tt_event_wait_work(e));
  tell(down[1], "x", 1); // ends
  WANT((tt_stream_wait(s)) == (ncclRemoteError));
  WANT((tt_event_check(e)) == (ncclRemoteError));
  tt_event_destroy(e);
  tt_stream_destroy(s);
}

static void test_a_dead_recorder(void **state)
{
  (void)state;
  two_processes(child_dies, parent_is_told);
}

// Slots are used again, and there is always one more.
static void test_many_events(void **state)
{
  enum { N = 600 };
  static tt_event *e[N];
  (void)state;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < N; i++) {
      assert_int_equal(tt_event_create_shared(NULL, &e[i]), ncclSuccess);
      assert_true(tt_event_complete(e[i]));
      assert_false(tt_event_recorded(e[i]));
      tt_work *w = tt_event_record_work(e[i]);
      assert_false(tt_event_complete(e[i]));
      w->ops->done(w);
      assert_true(i == 0 || e[i]->slot != e[i - 1]->slot);
    }
    for (int i = 0; i < N; i++) {
      tt_event_destroy(e[i]);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_wrong_handles),
      cmocka_unit_test(test_a_record_in_another_process),
      cmocka_unit_test(test_a_wait_in_another_process),
      cmocka_unit_test(test_a_dead_recorder),
      cmocka_unit_test(test_many_events),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
