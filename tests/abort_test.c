// ncclCommAbort from another thread at any moment: in the middle of small calls, of groups, of questions, of a split,
// of a finalize, of a revocation or a shrink. Nothing that the call still uses is freed under it, whether the kernel
// helps with the fence (os/barrier.h) or not.
#include "harness.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "comm/comm.h"

enum { MOST = 2, FLOATS = 2048, ROUNDS = 1000, ENOUGH_S = 20, STOPS_AFTER = 32 };

// What a rank's thread does again and again until it fails.
enum { SMALL, VARIED, GROUPED, MESSAGES, CREATES, WAITS, ASKS, STOPS, KINDS };

typedef struct storm {
  int n, kind;
  world w;
  _Atomic int round;   // that the threads are to play, from 1 on; -1: no more
  _Atomic int stopped; // threads that have had an error
  _Atomic int calls;   // that succeeded in this round
} storm;

static float in[MOST][FLOATS], out[MOST][FLOATS];

static unsigned next_random(unsigned *seed)
{
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

// A send to oneself and its receive, and a sum.
static ncclResult_t messages(ncclComm_t comm, cudaStream_t stream, int rank)
{
  ncclResult_t a = ncclGroupStart(), b = ncclSend(in[rank], 16, ncclFloat, rank, comm, stream);
  ncclResult_t c = ncclRecv(out[rank], 16, ncclFloat, rank, comm, stream), d = ncclGroupEnd();
  return a != ncclSuccess ? a : b != ncclSuccess ? b : c != ncclSuccess ? c : d;
}

static ncclResult_t grouped(ncclComm_t comm, cudaStream_t stream, int rank, size_t count)
{
  ncclResult_t a = ncclGroupStart(), b = ncclAllReduce(in[rank], out[rank], count, ncclFloat, ncclSum, comm, stream);
  ncclResult_t c = ncclAllReduce(in[rank], out[rank], count, ncclFloat, ncclMax, comm, stream), d = ncclGroupEnd();
  return a != ncclSuccess ? a : b != ncclSuccess ? b : c != ncclSuccess ? c : d;
}

// What a communicator keeps lists of.
static ncclResult_t creates(ncclComm_t comm, cudaStream_t stream, int rank)
{
  ncclRedOp_t op;
  void *handle;
  float two = 2;
  ncclResult_t res = ncclRedOpCreatePreMulSum(&op, &two, ncclFloat, ncclScalarHostImmediate, comm);
  res = res == ncclSuccess ? ncclAllReduce(in[rank], out[rank], 16, ncclFloat, op, comm, stream) : res;
  res = res == ncclSuccess ? ncclRedOpDestroy(op, comm) : res;
  res = res == ncclSuccess ? ncclCommRegister(comm, in[rank], sizeof in[rank], &handle) : res;
  return res == ncclSuccess ? ncclCommDeregister(comm, handle) : res;
}

static ncclResult_t asks_json(ncclComm_t comm, ncclResult_t (*ask)(ncclComm_t comm, char **json))
{
  char *json = NULL;
  ncclResult_t res = ask(comm, &json);
  free(json);
  return res;
}

static ncclResult_t asks(ncclComm_t comm, unsigned number)
{
  tuttiProxyState_t states[4];
  ncclResult_t state = ncclSuccess, res;
  int n;
  switch (number % 8) {
  case 0: return asks_json(comm, tuttiCommDiagnose);
  case 1: return asks_json(comm, tuttiCommFlightRecorder);
  case 2: return tuttiCommProxyStates(comm, states, 4, &n);
  default: res = ncclCommGetAsyncError(comm, &state); return res != ncclSuccess ? res : state;
  }
}

// Calls, then stops the communicator itself, once.
static ncclResult_t stops(ncclComm_t comm, cudaStream_t stream, int rank, unsigned number)
{
  ncclComm_t child = NULL;
  int first = 0;
  if (number < STOPS_AFTER) {
    return ncclAllReduce(in[rank], out[rank], 2, ncclFloat, ncclSum, comm, stream);
  }
  if (rank == 0) {
    return ncclCommRevoke(comm, 0);
  }
  ncclResult_t res = ncclCommShrink(comm, &first, 1, &child, NULL, NCCL_SHRINK_ABORT);
  if (res == ncclSuccess) {
    OK(ncclCommAbort(child));
  }
  return res != ncclSuccess ? res : ncclInternalError;
}

static ncclResult_t one_call(const storm *s, int rank, unsigned number)
{
  ncclComm_t comm = s->w.comm[rank];
  cudaStream_t stream = s->w.stream[rank];
  size_t count = s->kind == VARIED ? 1 + number * 37 % FLOATS : 2;
  switch (s->kind) {
  case GROUPED: return grouped(comm, stream, rank, 1 + number / 4 % 3);
  case MESSAGES: return messages(comm, stream, rank);
  case CREATES: return creates(comm, stream, rank);
  case ASKS: return asks(comm, number);
  case STOPS: return stops(comm, stream, rank, number);
  default: return ncclAllReduce(in[rank], out[rank], count, ncclFloat, ncclSum, comm, stream);
  }
}

static void play(int rank, void *arg)
{
  storm *s = arg;
  for (int round = 1;; round++) {
    int now;
    while ((now = atomic_load(&s->round)) >= 0 && now < round) {
      sched_yield();
    }
    if (now < 0) {
      return;
    }
    ncclResult_t res = ncclSuccess;
    for (unsigned i = 0; res == ncclSuccess; i++) {
      res = one_call(s, rank, i);
      atomic_fetch_add(&s->calls, res == ncclSuccess);
      if (i % (s->kind == WAITS ? 16 : 64) == 15) {
        (void)tuttiStreamSynchronize(s->w.stream[rank]); // the abort may have ended it
      }
    }
    CHECK(res == ncclInternalError || res == ncclInvalidArgument || res == ncclRemoteError, "round %d, kind %d: %s",
          round, s->kind, ncclGetErrorString(res));
    atomic_fetch_add(&s->stopped, 1);
  }
}

// All ranks are aborted, one after the other, while their threads call.
static void storm_round(storm *s, int round, unsigned *seed)
{
  s->kind = round % KINDS;
  OK(ncclCommInitAll(s->w.comm, s->n, NULL));
  atomic_store(&s->calls, 0);
  atomic_store(&s->stopped, 0);
  atomic_store(&s->round, round);
  int after = (int)(next_random(seed) % (s->kind == STOPS ? STOPS_AFTER : 100)),
      first = (int)(next_random(seed) % (unsigned)s->n);
  while (atomic_load(&s->calls) < after) {
    sched_yield();
  }
  for (unsigned i = next_random(seed) % 1000; i > 0; i--) {
    __asm__ __volatile__("");
  }
  for (int k = 0; k < s->n; k++) {
    OK(ncclCommAbort(s->w.comm[(first + k) % s->n]));
  }
  while (atomic_load(&s->stopped) < s->n) {
    sched_yield();
  }
  for (int i = 0; i < s->n; i++) {
    (void)tuttiStreamSynchronize(s->w.stream[i]); // its error is taken
  }
}

static void storm_of(int n, int rounds)
{
  static storm s;
  thread_call calls[MOST];
  unsigned seed = 7;
  s = (storm){.n = n, .w = {.n = n}};
  for (int i = 0; i < n; i++) {
    OK(tuttiStreamCreate(&s.w.stream[i], TUTTI_STREAM_DEFAULT));
    calls[i] = (thread_call){.fn = play, .arg = &s, .rank = i};
    CHECK(pthread_create(&calls[i].id, NULL, thread_main, &calls[i]) == 0, "no thread %d", i);
  }
  double start = seconds_now();
  for (int round = 1; round <= rounds && (round <= 24 || seconds_now() - start < ENOUGH_S);
       round++) { // a busy machine plays fewer
    storm_round(&s, round, &seed);
  }
  atomic_store(&s.round, -1);
  for (int i = 0; i < n; i++) {
    pthread_join(calls[i].id, NULL);
    OK(tuttiStreamDestroy(s.w.stream[i]));
  }
}

// membarrier is refused in this thread and those that it starts: 0, or that cannot be had here.
static int refuse_membarrier(void)
{
  struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    fprintf(stderr, "abort_test: no seccomp here: %s\n", strerror(errno));
    return -1;
  }
  return 0;
}

enum { HELPED, REFUSED_FIRST, REFUSED_LATER };

static void storm_body(int rank, void *arg)
{
  int how = *(int *)arg;
  (void)rank;
  bool refused = how == REFUSED_FIRST && refuse_membarrier() == 0;
  storm_of(1, how == REFUSED_LATER ? 12 : ROUNDS / SLOWER);
  storm_of(2, how == REFUSED_LATER ? 12 : ROUNDS / 4 / SLOWER);
  CHECK(!refused || atomic_load(&tt_barrier_refused), "membarrier is refused, and nobody knows");
  if (how == REFUSED_LATER && !atomic_load(&tt_barrier_refused) && refuse_membarrier() == 0) {
    storm_of(2, 60);
    CHECK(atomic_load(&tt_barrier_refused), "membarrier is refused later, and nobody knows");
  }
}

static void storms(void **state)
{
  (void)state;
  for (int how = HELPED; how <= REFUSED_LATER; how++) {
    PROCESSES(1, 100, storm_body, &how);
  }
}

// ---- One call, one abort

typedef struct single {
  ncclComm_t comm;
  _Atomic bool returned;
  ncclResult_t result;
} single;

static void *aborts(void *p)
{
  single *s = p;
  s->result = ncclCommAbort(s->comm);
  atomic_store(&s->returned, true);
  return NULL;
}

// The abort makes the handle a dead one, and waits for the call that is inside. From inside it is refused.
static void inside_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  single s = {.result = ncclSystemError};
  pthread_t thread;
  float x = 1;
  OK(ncclCommInitAll(&s.comm, 1, NULL));
  OK(tt_comm_look(s.comm, "inside_body"));
  REFUSED(ncclCommAbort(s.comm), ncclInvalidUsage, "ncclCommAbort on rank 0", "inside another call");
  tt_comm_look_away(s.comm);
  OK(tt_comm_begin(s.comm, "inside_body", true));
  REFUSED(ncclCommAbort(s.comm), ncclInvalidUsage, "ncclCommAbort on rank 0", "inside another call");
  CHECK(pthread_create(&thread, NULL, aborts, &s) == 0, "no thread");
  while (tt_comm_lives(s.comm)) {
    sched_yield();
  }
  sleep_ms(30); // were nobody waited for, it would be over
  CHECK(!atomic_load(&s.returned), "the abort has not waited for the call");
  CHECK(s.comm->nranks == 1 && s.comm->peers != NULL && s.comm->port.links != NULL, "freed under the call");
  tt_comm_leave(s.comm);
  pthread_join(thread, NULL);
  OK(s.result);
  REFUSED(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, s.comm, NULL), ncclInvalidArgument, "ncclAllReduce",
          "destroyed");
}

static void waits_for_the_call(void **state)
{
  (void)state;
  PROCESSES(1, 20, inside_body, NULL);
}

static void *finalizes(void *p)
{
  single *s = p;
  s->result = ncclCommFinalize(s->comm);
  return NULL;
}

// A finalize waits for an operation that the peer never joins, alone on its stream or behind another communicator's:
// the abort ends both.
static void finalize_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int behind = 0; behind < 2; behind++) {
    ncclComm_t comm[2], other[2];
    cudaStream_t stream;
    pthread_t thread;
    OK(ncclCommInitAll(comm, 2, NULL));
    OK(ncclCommInitAll(other, 2, NULL));
    OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
    if (behind) {
      OK(ncclAllReduce(in[0], out[0], 16, ncclFloat, ncclSum, other[0], stream));
    }
    OK(ncclAllReduce(in[1], out[1], 16, ncclFloat, ncclSum, comm[0], stream));
    single s = {.comm = comm[0]};
    CHECK(pthread_create(&thread, NULL, finalizes, &s) == 0, "no thread");
    while ((atomic_load(&comm[0]->plans.recycled) & TT_FLUSHING) == 0) {
      sched_yield();
    }
    OK(ncclCommAbort(comm[0]));
    pthread_join(thread, NULL);
    CHECK(s.result == ncclInternalError, "the finalize gave %d", (int)s.result);
    OK(ncclCommAbort(other[0]));
    (void)tuttiStreamSynchronize(stream);
    OK(ncclCommAbort(comm[1]));
    OK(ncclCommAbort(other[1]));
    OK(tuttiStreamDestroy(stream));
  }
}

static void ends_a_finalize(void **state)
{
  (void)state;
  PROCESSES(1, 20, finalize_body, NULL);
}

static void *finalizes_in_group(void *p)
{
  single *s = p;
  OK(ncclGroupStart());
  (void)ncclCommFinalize(s->comm);
  s->result = ncclGroupEnd();
  return NULL;
}

// A non-blocking finalize joins the thread of the creation, and starts its own: the abort joins what it finds, once.
static void later_body(int rank, void *arg)
{
  unsigned seed = 3;
  (void)rank, (void)arg;
  for (int round = 0; round < 400 / SLOWER; round++) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state = ncclInProgress;
    ncclUniqueId id;
    pthread_t thread;
    single s = {.result = ncclSuccess};
    config.blocking = 0;
    OK(ncclGetUniqueId(&id));
    GIVES(ncclCommInitRankConfig(&s.comm, 1, id, 0, &config), ncclInProgress);
    while (state == ncclInProgress) {
      OK(ncclCommGetAsyncError(s.comm, &state));
    }
    OK(state);
    CHECK(pthread_create(&thread, NULL, round % 2 == 0 ? finalizes : finalizes_in_group, &s) == 0, "no thread");
    for (double end = seconds_now() + next_random(&seed) % 100 * 1e-6; seconds_now() < end;) {
    }
    OK(ncclCommAbort(s.comm));
    pthread_join(thread, NULL);
    CHECK(s.result == ncclInProgress || s.result == ncclInvalidArgument || s.result == ncclInternalError,
          "round %d: the finalize gave %d", round, (int)s.result);
  }
}

static void ends_a_finalize_that_goes_on_later(void **state)
{
  (void)state;
  PROCESSES(1, 60, later_body, NULL);
}

static single interrupted;
static _Atomic int handled;
static ncclResult_t from_handler;

// Where the signal comes before the wait has begun, the abort is in order.
static void abort_in_handler(int number)
{
  (void)number;
  from_handler = ncclCommAbort(interrupted.comm);
  atomic_store(&handled, 1);
}

// Aborts from another thread what the handler could not.
static void *signals_waiter(void *waiter)
{
  while (atomic_load(&handled) == 0) {
    sched_yield();
  }
  sleep_ms(20); // the waiter is asleep by then, or about to be
  atomic_store(&handled, 0);
  pthread_kill(*(pthread_t *)waiter, SIGUSR1);
  while (atomic_load(&handled) == 0) {
    sched_yield();
  }
  if (from_handler != ncclSuccess) {
    OK(ncclCommAbort(interrupted.comm));
  }
  return NULL;
}

// A signal handler that interrupts a wait cannot end it: the thread would wait for itself. It is told so at once, and
// the wait goes on.
static void handler_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  pthread_t self = pthread_self(), thread;
  int refused = 0;
  CHECK(signal(SIGUSR1, abort_in_handler) != SIG_ERR, "no handler");
  for (int i = 0; i < 10; i++) {
    ncclComm_t comm[2];
    OK(ncclCommInitAll(comm, 2, NULL));
    OK(tuttiSetDevice(0));
    interrupted.comm = comm[0];
    atomic_store(&handled, 0);
    CHECK(pthread_create(&thread, NULL, signals_waiter, &self) == 0, "no thread");
    OK(ncclAllReduce(in[0], out[0], 16, ncclFloat, ncclSum, comm[0], NULL));
    atomic_store(&handled, 1);
    CHECK(tuttiStreamSynchronize(NULL) != ncclSuccess, "the aborted operation was good");
    pthread_join(thread, NULL);
    CHECK(from_handler == ncclSuccess || from_handler == ncclInvalidUsage, "the handler's abort gave %d",
          (int)from_handler);
    refused += from_handler == ncclInvalidUsage;
    OK(ncclCommAbort(comm[1]));
  }
  CHECK(refused > 0, "no signal came into a wait");
}

static void refuses_a_handler_in_a_wait(void **state)
{
  (void)state;
  PROCESSES(1, 20, handler_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(waits_for_the_call),
      cmocka_unit_test(ends_a_finalize),
      cmocka_unit_test(ends_a_finalize_that_goes_on_later),
      cmocka_unit_test(refuses_a_handler_in_a_wait),
      cmocka_unit_test(storms),
  };
  return RUN_TESTS("abort", tests, argc, argv);
}
