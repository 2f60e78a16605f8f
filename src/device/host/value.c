// value.c: see value.h.
#include "device/host/value.h"

#include <pthread.h>

#include "base/result.h"
#include "base/util.h"
#include "device/host/stream.h"
#include "os/bell.h"
#include "os/clock.h"
#include "os/thread.h"

#define LOOK_LEAST_NS 50000ull   // between two looks of the watcher at first
#define LOOK_MOST_NS 10000000ull // and at most
#define LOOK_PART 8              // in between: this part of the time since something happened
#define IDLE_NS 10000000000ull   // how long the watcher waits for its next wait before it ends

typedef struct wait_entry {
  tt_work work;
  tt_value v;
  tuttiValueCondition_t condition;
  int device;
  _Atomic bool over;      // the condition has held (release); set by the watcher
  _Atomic bool abandoned; // ends as failed
  bool blocked;           // the stream's next entry: the watcher looks. Under `lock`; says in which list it is
  bool asked;             // the same; of the thread that holds the run flag
  unsigned age;           // of the lists
  struct wait_entry *before, *next; // under `lock`
} wait_entry;

// All waits that exist, and the thread that looks at the blocked ones. All under `lock`, but for the bell.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wait_entry *lists[2]; // those that are not blocked, those that are: the watcher looks at no others
static unsigned age;         // a forked child's lists are others
static bool watching;        // there is a thread
static uint64_t changed;     // when a wait last blocked or was over, tt_now_ns
static tt_bell watcher_bell;

static uint64_t value_load(const tt_value *v)
{
  return v->bytes == 8 ? atomic_load_explicit((_Atomic uint64_t *)v->at, memory_order_acquire)
                       : atomic_load_explicit((_Atomic uint32_t *)v->at, memory_order_acquire);
}

static bool value_holds(const wait_entry *w)
{
  unsigned shift = 64 - 8 * w->v.bytes; // the word's upper end becomes that of 64 bits
  uint64_t word = value_load(&w->v) << shift, value = w->v.value << shift;
  switch (w->condition) {
  case tuttiValueAtLeast: return (int64_t)(word - value) >= 0;
  case tuttiValueEqual: return word == value;
  case tuttiValueAnd: return (word & value) != 0;
  default: return (word | value) >> shift != UINT64_MAX >> shift;
  }
}

// Caller holds `lock`.
static void list_wait(wait_entry *w, bool blocked)
{
  wait_entry **list = &lists[blocked];
  w->blocked = blocked;
  w->before = NULL;
  w->next = *list;
  if (*list != NULL) {
    (*list)->before = w;
  }
  *list = w;
}

// Caller holds `lock`. Not of a list of before a fork.
static void unlist_wait(wait_entry *w)
{
  *(w->before != NULL ? &w->before->next : &lists[w->blocked]) = w->next;
  if (w->next != NULL) {
    w->next->before = w->before;
  }
}

static void set_blocked(wait_entry *w, bool blocked)
{
  if (w->age == age && w->blocked != blocked) {
    unlist_wait(w);
    list_wait(w, blocked);
  }
}

// ---- The watcher ----

// Looks at all blocked waits. Returns whether there are any; *found: some are over. Caller holds `lock`.
static bool value_look(bool *found)
{
  bool any = lists[true] != NULL;
  for (wait_entry *w = lists[true], *next; w != NULL; w = next) {
    next = w->next;
    if (value_holds(w)) {
      set_blocked(w, false);
      atomic_store_explicit(&w->over, true, memory_order_release);
      *found = true;
    }
  }
  return any;
}

// One look. Returns how long to sleep, 0: the thread ends.
static uint64_t value_watch(void)
{
  bool found = false;
  pthread_mutex_lock(&lock);
  bool any = value_look(&found);
  uint64_t now = tt_now_ns();
  changed = found ? now : changed;
  uint64_t since = now - TT_MIN(changed, now);
  watching = any || since < IDLE_NS;
  bool stays = watching;
  pthread_mutex_unlock(&lock);
  if (found) {
    tt_bell_fence();
    tt_bell_ring(&tt_process_bell);
  }
  return !stays ? 0 : !any ? IDLE_NS : TT_CLAMP(since / LOOK_PART, LOOK_LEAST_NS, LOOK_MOST_NS);
}

static void *watcher(void *arg)
{
  (void)arg;
  for (uint64_t ns = 1; ns != 0;) {
    tt_bell *bell = &watcher_bell;
    uint32_t ticket = tt_bell_announce(bell);
    ns = value_watch();
    if (ns != 0) {
      tt_bell_sleep(&bell, &ticket, 1, ns);
    }
    tt_bell_leave(bell);
  }
  return NULL;
}

// Has the watcher look at the wait from now on.
static ncclResult_t value_hand_to_watcher(wait_entry *w)
{
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&lock);
  set_blocked(w, true);
  changed = tt_now_ns();
  if (!watching) {
    res = tt_thread_start_detached("tutti values", watcher, NULL);
    watching = res == ncclSuccess;
  }
  pthread_mutex_unlock(&lock);
  tt_bell_fence();
  tt_bell_ring(&watcher_bell);
  return res;
}

// ---- Waits ----

static tt_run value_look_once(wait_entry *w, ncclResult_t *result)
{
  if (atomic_load_explicit(&w->over, memory_order_acquire) || value_holds(w)) {
    return TT_RUN_DONE;
  }
  if (atomic_load(&w->abandoned)) {
    *result = tt_fail(ncclInvalidUsage, "a stream of device %d waited for a value at %p when the device was reset",
                      w->device, w->v.at);
    return TT_RUN_FAILED;
  }
  if (!w->asked) {
    w->asked = true;
    *result = value_hand_to_watcher(w);
    return *result == ncclSuccess ? TT_RUN_BLOCKED : TT_RUN_FAILED;
  }
  return TT_RUN_BLOCKED;
}

static tt_run value_run_wait(tt_work *work, size_t *budget, ncclResult_t *result)
{
  wait_entry *w = (wait_entry *)work;
  (void)budget;
  tt_run run = value_look_once(w, result);
  if (run != TT_RUN_BLOCKED &&
      w->asked) { // the entry counts as complete before wait_done: from then on the program may free the word
    pthread_mutex_lock(&lock);
    set_blocked(w, false);
    pthread_mutex_unlock(&lock);
  }
  return run;
}

static void wait_done(tt_work *work)
{
  wait_entry *w = (wait_entry *)work;
  pthread_mutex_lock(&lock);
  if (w->age == age) {
    unlist_wait(w);
  }
  pthread_mutex_unlock(&lock);
  tt_free(w);
}

static tt_work *wait_again(const tt_work *work, int device)
{
  const wait_entry *w = (const wait_entry *)work;
  return tt_value_wait(&w->v, w->condition, device);
}

static const tt_work_ops wait_ops = {
    .name = "value wait", .run = value_run_wait, .done = wait_done, .kind = tuttiNodeValue, .again = wait_again};

tt_work *tt_value_wait(const tt_value *v, tuttiValueCondition_t condition, int device)
{
  wait_entry *w = tt_calloc(1, sizeof *w);
  if (w == NULL) {
    return NULL;
  }
  *w = (wait_entry){.work = {.ops = &wait_ops}, .v = *v, .condition = condition, .device = device};
  pthread_mutex_lock(&lock);
  w->age = age;
  list_wait(w, false);
  pthread_mutex_unlock(&lock);
  return &w->work;
}

void tt_value_abandon(int device)
{
  pthread_mutex_lock(&lock);
  for (int i = 0; i < 2; i++) {
    for (wait_entry *w = lists[i]; w != NULL; w = w->next) {
      if (w->device == device) {
        atomic_store(&w->abandoned, true);
      }
    }
  }
  pthread_mutex_unlock(&lock);
  tt_bell_fence();
  tt_bell_ring(&tt_process_bell);
}

void tt_value_forget(void)
{
  pthread_mutex_init(&lock, NULL);
  lists[0] = lists[1] = NULL;
  age++;
  watching = false;
  watcher_bell = (tt_bell){0};
}

// ---- Writes ----

typedef struct write_entry {
  tt_work work;
  tt_value v;
} write_entry;

static tt_run run_write(tt_work *work, size_t *budget, ncclResult_t *result)
{
  const tt_value *v = &((write_entry *)work)->v;
  (void)budget, (void)result;
  if (v->bytes == 8) {
    atomic_store_explicit((_Atomic uint64_t *)v->at, v->value, memory_order_release);
  } else {
    atomic_store_explicit((_Atomic uint32_t *)v->at, (uint32_t)v->value, memory_order_release);
  }
  return TT_RUN_DONE;
}

static void write_done(tt_work *work)
{
  tt_free(work);
}

static tt_work *write_again(const tt_work *work, int device)
{
  (void)device;
  return tt_value_write(&((const write_entry *)work)->v);
}

static const tt_work_ops write_ops = {
    .name = "value write", .run = run_write, .done = write_done, .kind = tuttiNodeValue, .again = write_again};

tt_work *tt_value_write(const tt_value *v)
{
  write_entry *w = tt_calloc(1, sizeof *w);
  if (w == NULL) {
    return NULL;
  }
  *w = (write_entry){.work = {.ops = &write_ops}, .v = *v};
  return &w->work;
}
