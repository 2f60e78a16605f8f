// small_calls_test.c: warm small calls make no system call and allocate nothing. bench/counts.sh counts their
// instructions.
//
// System calls are seen by the kernel's own means for it (PR_SET_SYSCALL_USER_DISPATCH): while the selector says so, a
// call of the thread becomes SIGSYS. Allocations are counted by standing before the C library's. Counted is the calling
// thread alone: one thread issues for all ranks, so nothing has to be waited for. The library's worker may look after a
// stream for a moment, whereupon the thread does wait: of several rounds one has to be clean, and what is on the way of
// a call is in every round.
#define _GNU_SOURCE
#include "harness.h"

#include <limits.h>
#include <malloc.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { WARM_CALLS = 100, CALLS = 1000, ROUNDS = 20 };

#ifndef PR_SET_SYSCALL_USER_DISPATCH // Linux 5.11
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF 0
#define PR_SYS_DISPATCH_ON 1
#endif
enum { LET_PASS, STOP }; // the selector's values

typedef struct counters {
  int calls, last_call; // system calls; the number of the last one
  int allocations;
} counters;

static _Thread_local volatile char selector = LET_PASS;
static _Thread_local volatile bool counting;
static _Thread_local counters seen;

// --- allocations

#if defined(__GLIBC__) && SLOWER == 1
#define COUNTS_ALLOCATIONS 1
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *p);

static inline void note(void)
{
  seen.allocations += counting;
}

void *malloc(size_t size)
{
  note();
  return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
  note();
  return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
  note();
  return __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size)
{
  note();
  return __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
  note();
  return __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
  note();
  void *got = __libc_memalign(align, size);
  *p = got != NULL ? got : *p;
  return got == NULL ? ENOMEM : 0;
}

void free(void *p)
{
  note();
  __libc_free(p);
}
#else
#define COUNTS_ALLOCATIONS 0
#endif

// --- system calls

#if defined(__x86_64__) && SLOWER == 1
// The call is counted, and made after all: the instruction (two bytes) once more, with nobody in its way.
static void stopped(int signal, siginfo_t *info, void *context)
{
  (void)signal;
  selector = LET_PASS;
  seen.calls++;
  seen.last_call = info->si_syscall;
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] -= 2;
}

// False: this kernel cannot.
static bool watch_system_calls(void)
{
  struct sigaction act = {.sa_sigaction = stopped, .sa_flags = SA_SIGINFO};
  return sigaction(SIGSYS, &act, NULL) == 0 &&
         prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector) == 0;
}
#else
static bool watch_system_calls(void)
{
  return false;
}
#endif

static inline void count_from_here(bool system_calls)
{
  counting = true;
  selector = system_calls ? STOP : LET_PASS;
}

static inline void count_to_here(void)
{
  selector = LET_PASS;
  counting = false;
}

// --- calls

typedef struct buffers {
  float in[2][4], out[2][4];
} buffers;

typedef ncclResult_t call_fn(const world *w, buffers *b, int r);

static ncclResult_t all_reduce(const world *w, buffers *b, int r)
{
  return ncclAllReduce(b->in[r], b->out[r], 2, ncclFloat32, ncclSum, w->comm[r], w->stream[r]);
}

static ncclResult_t broadcast(const world *w, buffers *b, int r)
{
  return ncclBroadcast(b->in[r], b->out[r], 2, ncclFloat32, 0, w->comm[r], w->stream[r]);
}

static ncclResult_t all_gather(const world *w, buffers *b, int r)
{
  return ncclAllGather(b->in[r], b->out[r], 2, ncclFloat32, w->comm[r], w->stream[r]);
}

static ncclResult_t send_recv(const world *w, buffers *b, int r)
{
  OK(ncclGroupStart());
  OK(ncclSend(b->in[r], 2, ncclFloat32, (r + 1) % w->n, w->comm[r], w->stream[r]));
  OK(ncclRecv(b->out[r], 2, ncclFloat32, (r + w->n - 1) % w->n, w->comm[r], w->stream[r]));
  return ncclGroupEnd();
}

static const struct {
  const char *name;
  call_fn *fn;
} kinds[] = {
    {"all-reduce", all_reduce}, {"broadcast", broadcast}, {"all-gather", all_gather}, {"send/recv", send_recv}};
enum { KINDS = sizeof kinds / sizeof *kinds };

// Every rank's call, and every rank waits.
static void call_once(call_fn *fn, const world *w, buffers *b)
{
  OK(ncclGroupStart());
  for (int r = 0; r < w->n; r++) {
    OK(fn(w, b, r));
  }
  OK(ncclGroupEnd());
  world_wait(w);
}

static counters one_round(call_fn *fn, const world *w, buffers *b, bool system_calls)
{
  seen = (counters){0};
  for (int i = 0; i < CALLS; i++) {
    count_from_here(system_calls);
    call_once(fn, w, b);
    count_to_here();
  }
  return seen;
}

// Of the rounds, the one with the least.
static counters count(call_fn *fn, const world *w, bool system_calls)
{
  static buffers b = {.in = {{1, 2, 3, 4}, {5, 6, 7, 8}}};
  for (int i = 0; i < WARM_CALLS; i++) {
    call_once(fn, w, &b);
  }
  counters least = one_round(fn, w, &b, system_calls);
  for (int i = 1; i < ROUNDS && least.calls + least.allocations > 0; i++) {
    counters c = one_round(fn, w, &b, system_calls);
    least = c.calls + c.allocations < least.calls + least.allocations ? c : least;
  }
  return least;
}

static void count_kinds(int rank, void *arg)
{
  (void)rank;
  world w;
  world_open(&w, *(int *)arg);
  bool watched = watch_system_calls();
  for (int k = 0; k < KINDS; k++) {
    counters c = count(kinds[k].fn, &w, watched);
    CHECK(c.calls == 0, "%d ranks, %s: %d system calls in %d warm calls, the last one is number %d", w.n, kinds[k].name,
          c.calls, CALLS, c.last_call);
    CHECK(c.allocations == 0, "%d ranks, %s: %d allocations in %d warm calls", w.n, kinds[k].name, c.allocations,
          CALLS);
  }
  world_close(&w);
}

// What counts does count: one call of each kind.
static void count_known(int rank, void *arg)
{
  (void)rank, (void)arg;
  bool watched = watch_system_calls();
  void *volatile p = NULL;
  long id = 0;
  count_from_here(watched);
  if (watched) {
    id = syscall(SYS_getppid);
  }
  p = malloc(10);
  free(p);
  count_to_here();
  if (watched) {
    CHECK(seen.calls == 1 && seen.last_call == SYS_getppid, "%d system calls, the last one %d", seen.calls,
          seen.last_call);
    CHECK(id == getppid(), "the call that was counted gave %ld", id);
  } else {
    printf("system calls are not counted: this kernel or processor has no PR_SET_SYSCALL_USER_DISPATCH\n");
  }
  CHECK(seen.allocations == 2, "%d allocations", seen.allocations);
}

static void counters_count(void **state)
{
  (void)state;
  if (!COUNTS_ALLOCATIONS) {
    skip(); // a sanitizer has malloc and its calls to itself
  }
  PROCESSES(1, 20, count_known, NULL);
}

static void one_rank(void **state)
{
  (void)state;
  if (!COUNTS_ALLOCATIONS) {
    skip();
  }
  PROCESSES(1, 60, count_kinds, &(int){1});
}

static void two_ranks(void **state)
{
  (void)state;
  if (!COUNTS_ALLOCATIONS) {
    skip();
  }
  PROCESSES(1, 60, count_kinds, &(int){2});
}

// --- ranks that wait: only what they allocate is counted. Waiting may need one more plan, once.

enum { WAITING_ROUNDS = 5 };

// The least of the rounds.
static int count_allocations(call_fn *fn, const world *w, int rank)
{
  static buffers b = {.in = {{1, 2, 3, 4}, {5, 6, 7, 8}}};
  int least = INT_MAX;
  for (int i = 0; i < WAITING_ROUNDS; i++) {
    seen = (counters){0};
    for (int k = 0; k < CALLS; k++) {
      count_from_here(false);
      OK(fn(w, &b, rank));
      OK(tuttiStreamSynchronize(w->stream[rank]));
      count_to_here();
    }
    least = seen.allocations < least ? seen.allocations : least;
  }
  return least;
}

static void count_waiting(int rank, void *arg)
{
  (void)arg;
  world w = {.n = 2};
  w.comm[rank] = join_processes(0, 2, rank);
  OK(tuttiStreamCreate(&w.stream[rank], TUTTI_STREAM_NON_BLOCKING));
  for (int k = 0; k < KINDS; k++) {
    int n = count_allocations(kinds[k].fn, &w, rank);
    CHECK(n == 0, "rank %d of 2 processes, %s: %d allocations in %d warm calls", rank, kinds[k].name, n, CALLS);
  }
  OK(ncclCommDestroy(w.comm[rank]));
  OK(tuttiStreamDestroy(w.stream[rank]));
}

static void two_processes(void **state)
{
  (void)state;
  if (!COUNTS_ALLOCATIONS) {
    skip();
  }
  PROCESSES(2, 60, count_waiting, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(counters_count), cmocka_unit_test(one_rank),
                                     cmocka_unit_test(two_ranks), cmocka_unit_test(two_processes)};
  return RUN_TESTS("small calls", tests, argc, argv);
}
