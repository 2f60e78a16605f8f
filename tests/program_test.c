// Small calls, whose programs are run inside the call that launches them: the right bits whenever the others come, in
// the stream's order; and every reason to take the usual way.
#include "programs.h"
#include "reference.h"

#include "comm/task.h"

enum { REPEATS = 6, LATE_US = 60 };

static const size_t counts[] = {1, 2, 17, 124, 496, 497, 1500};
enum { NCOUNTS = sizeof counts / sizeof counts[0] };

// The library's number of a function here; a ring's send is first in its group.
static const tt_func lib_func[FUNCS] = {TT_FUNC_ALLREDUCE, TT_FUNC_REDUCESCATTER, TT_FUNC_REDUCE,
                                        TT_FUNC_BROADCAST, TT_FUNC_ALLGATHER,     TT_FUNC_ALLTOALL,
                                        TT_FUNC_GATHER,    TT_FUNC_SCATTER,       TT_FUNC_SEND};

static bool has_program(ncclComm_t comm, tt_func f)
{
  return programs_of(comm, f) > 0;
}

// Sample number `i` of those for n ranks; false at the end. Every third is in place.
static bool next_sample(int n, uint32_t i, sample *s)
{
  static const int types[] = {ncclFloat, ncclInt8, ncclHalf, ncclInt64};
  uint32_t h = mix(i * 64 + (uint32_t)n);
  *s = (sample){.n = n,
                .func = (int)(i % FUNCS),
                .count = counts[i / FUNCS % NCOUNTS],
                .type = types[h % 4],
                .root = (int)(h >> 8) % n};
  s->in_place = h % 3 == 0 && s->func != RING;
  s->op = reduces(s->func) ? (int)(h >> 16) % ncclNumOps : 0;
  s->in_offset = (int)(h >> 20) % 16;
  s->out_offset = (int)(h >> 24) % 16;
  return i < FUNCS * NCOUNTS;
}

static void maybe_late(uint32_t h)
{
  if (h % 3 == 0) {
    sleep_ms((h >> 8) % LATE_US / 1000.0);
  }
}

// One rank's calls of a sample; in every second of them nobody waits before the next is made.
static void repeat(const sample *s, part *p)
{
  part kept[REPEATS];
  for (int k = 0; k < REPEATS; k++) {
    kept[k] = *p;
    prepare(s, &kept[k]);
  }
  for (int k = 0; k < REPEATS; k++) {
    maybe_late(mix((uint32_t)(s->count * 64 + (size_t)p->rank) * REPEATS + (uint32_t)k));
    OK(s->func == RING ? ncclGroupStart() : ncclSuccess);
    call(s, &kept[k]);
    OK(s->func == RING ? ncclGroupEnd() : ncclSuccess);
    OK(k % 2 == 0 ? tuttiStreamSynchronize(p->stream) : ncclSuccess);
  }
  OK(tuttiStreamSynchronize(p->stream));
  for (int k = 0; k < REPEATS; k++) {
    verify(s, &kept[k]);
  }
}

static void all_samples(part *p, int n)
{
  sample s;
  int ready = 0;
  for (uint32_t i = 0; next_sample(n, i, &s); i++) {
    if (i % SLOWER == 0) {
      repeat(&s, p);
      ready += has_program(p->comm, lib_func[s.func]);
    }
  }
  CHECK(over_network() || (n > 8 && !p->comm->machine.crowded) || ready > FUNCS * NCOUNTS / SLOWER / 2,
        "%d ranks: only %d samples have programs", n, ready);
  CHECK(!over_network() || n == 1 || ready == 0, "%d ranks: %d samples have programs over the network", n, ready);
}

static void thread_rank(int rank, void *arg)
{
  const world *w = arg;
  part p = {.rank = rank, .comm = w->comm[rank], .stream = w->stream[rank]};
  all_samples(&p, w->n);
}

static void threads_body(int rank, void *arg)
{
  world w;
  (void)rank;
  world_open(&w, *(const int *)arg);
  run_threads(w.n, thread_rank, &w);
  world_close(&w);
}

static void process_rank(int rank, void *arg)
{
  int n = *(const int *)arg;
  part p = {.rank = rank, .comm = join_processes(0, n, rank)};
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  all_samples(&p, n);
  OK(tuttiStreamDestroy(p.stream));
  OK(ncclCommDestroy(p.comm));
}

static void ranks_come_when_they_will(void **state)
{
  (void)state;
  static int numbers[] = {1, 2, 3, 5, 16};
  for (int i = 0; i < 5; i++) {
    PROCESSES(1, 60, threads_body, &numbers[i]);
    PROCESSES(numbers[i], 60, process_rank, &numbers[i]);
  }
}

// --- One thread for all ranks

static void together_body(int rank, void *arg)
{
  sample s;
  world w;
  (void)rank;
  world_open(&w, *(const int *)arg);
  for (uint32_t i = 0; next_sample(w.n, i, &s); i++) {
    part p[MAX_RANKS];
    for (int k = 0; k < REPEATS; k++) {
      OK(ncclGroupStart());
      for (int r = 0; r < w.n; r++) {
        p[r] = (part){.rank = r, .comm = w.comm[r], .stream = w.stream[r]};
        prepare(&s, &p[r]);
        call(&s, &p[r]);
      }
      OK(ncclGroupEnd());
      world_wait(&w);
      for (int r = 0; r < w.n; r++) {
        verify(&s, &p[r]);
      }
    }
  }
  world_close(&w);
}

static void one_thread_for_all(void **state)
{
  (void)state;
  static int numbers[] = {1, 2, 3, 8};
  for (int i = 0; i < 4; i++) {
    PROCESSES(1, 60, together_body, &numbers[i]);
  }
}

// --- The stream's order

static float input, output[4];

static void set_input(void *arg)
{
  sleep_ms(5);
  input = *(const float *)arg;
}

// What is queued before on the stream, or on another that it waits for, happens before.
static void order_body(int rank, void *arg)
{
  static float values[] = {1, 2, 3, 4};
  world w;
  cudaStream_t other;
  (void)rank, (void)arg;
  world_open(&w, 1);
  OK(tuttiStreamCreate(&other, TUTTI_STREAM_NON_BLOCKING));
  for (int k = 0; k < 4; k++) {
    OK(ncclAllReduce(&input, &output[k], 1, ncclFloat, ncclSum, w.comm[0], w.stream[0]));
  }
  CHECK(over_network() || has_program(w.comm[0], TT_FUNC_ALLREDUCE), "a call that was made four times has no program");
  for (int k = 0; k < 4; k++) { // the same stream, and another one: a communicator's operations keep their order
    OK(tuttiLaunchHostFunc(w.stream[0], set_input, &values[k]));
    OK(ncclAllReduce(&input, &output[k], 1, ncclFloat, ncclSum, w.comm[0], w.stream[0]));
    OK(ncclAllReduce(&output[k], &output[(k + 1) % 4], 1, ncclFloat, ncclSum, w.comm[0], other));
    OK(tuttiStreamSynchronize(other));
    CHECK(output[k] == values[k] && output[(k + 1) % 4] == values[k], "round %d: %g and %g, not %g", k,
          (double)output[k], (double)output[(k + 1) % 4], (double)values[k]);
  }
  OK(tuttiStreamDestroy(other));
  world_close(&w);
}

static void streams_keep_their_order(void **state)
{
  (void)state;
  PROCESSES(1, 20, order_body, NULL);
}

// --- Messages

enum { MESSAGES = 40 }; // more than a FIFO has room for, with those that are taken late

// Messages of a pair keep their order, whichever rank is late; several of a group, too.
static void messages_rank(int rank, void *arg)
{
  const world *w = arg;
  int got[MESSAGES][3], sent[MESSAGES][3];
  for (int k = 0; k < MESSAGES; k++) {
    maybe_late(mix((uint32_t)(2 * k + rank)));
    OK(ncclGroupStart());
    for (int m = 0; m < 3; m++) {
      sent[k][m] = 1000 * rank + 3 * k + m;
      OK(ncclSend(&sent[k][m], 1, ncclInt, 1 - rank, w->comm[rank], w->stream[rank]));
      OK(ncclRecv(&got[k][m], 1, ncclInt, 1 - rank, w->comm[rank], w->stream[rank]));
    }
    OK(ncclGroupEnd());
  }
  OK(tuttiStreamSynchronize(w->stream[rank]));
  for (int k = 0; k < 3 * MESSAGES; k++) {
    CHECK(got[k / 3][k % 3] == 1000 * (1 - rank) + k, "rank %d: message %d is %d", rank, k, got[k / 3][k % 3]);
  }
}

// One side alone sends, until there is no room, before the other begins.
static void one_way_rank(int rank, void *arg)
{
  const world *w = arg;
  static int sent[10 * MESSAGES], got[10 * MESSAGES];
  for (int k = 0; k < 10 * MESSAGES; k++) {
    sleep_ms(rank == 1 && k == 10 ? 20 : 0);
    if (rank == 0) {
      sent[k] = k;
      OK(ncclSend(&sent[k], 1, ncclInt, 1, w->comm[0], w->stream[0]));
    } else {
      OK(ncclRecv(&got[k], 1, ncclInt, 0, w->comm[1], w->stream[1]));
    }
  }
  OK(tuttiStreamSynchronize(w->stream[rank]));
  for (int k = 0; k < 10 * MESSAGES && rank == 1; k++) {
    CHECK(got[k] == k, "message %d is %d", k, got[k]);
  }
}

// A rank that sleeps is woken by each group, of few messages and of many, though it tells its peers once: rank 1 is
// asleep when the messages come, and rank 0 waits for the answer. Without a word both would sleep until they look for
// each other's lives, and they never do here.
static void answers_rank(int rank, void *arg)
{
  enum { ROUNDS = 24, MOST = 12 };
  ncclComm_t comm = join_processes(0, 2, rank);
  cudaStream_t stream;
  (void)arg;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  int sent[MOST] = {0}, got[MOST] = {0};
  for (int k = 0; k < ROUNDS; k++) {
    int n = 1 + k % MOST;
    sent[n - 1] = k;
    sleep_ms(rank == 0 ? 3 : 0);
    OK(ncclGroupStart());
    for (int m = 0; m < n; m++) {
      OK(rank == 0 ? ncclSend(&sent[m], 1, ncclInt, 1, comm, stream) : ncclRecv(&got[m], 1, ncclInt, 0, comm, stream));
    }
    OK(rank == 0 ? ncclRecv(&got[0], 1, ncclInt, 1, comm, stream) : ncclSuccess);
    OK(ncclGroupEnd());
    OK(tuttiStreamSynchronize(stream));
    sleep_ms(rank == 1 ? 1 : 0); // rank 0 is asleep, too
    OK(rank == 1 ? ncclSend(&got[n - 1], 1, ncclInt, 0, comm, stream) : ncclSuccess);
    CHECK(rank == 1 || got[0] == k, "round %d: the answer is %d", k, got[0]);
  }
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommDestroy(comm));
}

// A group whose later message has no stream sends none of them.
static void wrong_stream_body(int rank, void *arg)
{
  world w;
  int sent[2] = {0}, got = 0;
  (void)rank, (void)arg;
  world_open(&w, 2);
  for (int k = 0; k < 4; k++) {
    sent[0] = k;
    OK(ncclSend(&sent[0], 1, ncclInt, 1, w.comm[0], w.stream[0]));
    OK(ncclRecv(&got, 1, ncclInt, 0, w.comm[1], w.stream[1]));
    world_wait(&w);
    CHECK(got == k, "message %d is %d", k, got);
  }
  OK(ncclGroupStart());
  OK(ncclSend(&sent[0], 1, ncclInt, 1, w.comm[0], w.stream[0]));
  OK(ncclSend(&sent[1], 1, ncclInt, 1, w.comm[0], (cudaStream_t)(uintptr_t)&w));
  REFUSED(ncclGroupEnd(), ncclInvalidArgument, "stream");
  sent[1] = 77;
  OK(ncclSend(&sent[1], 1, ncclInt, 1, w.comm[0], w.stream[0]));
  OK(ncclRecv(&got, 1, ncclInt, 0, w.comm[1], w.stream[1]));
  world_wait(&w);
  CHECK(got == 77, "a message of the refused group has come: %d", got);
  world_close(&w);
}

static void messages_body(int rank, void *arg)
{
  world w;
  (void)rank, (void)arg;
  world_open(&w, 2);
  run_threads(2, messages_rank, &w);
  CHECK(over_network() || (has_program(w.comm[0], TT_FUNC_SEND) && has_program(w.comm[0], TT_FUNC_RECV)),
        "messages have no programs");
  run_threads(2, one_way_rank, &w);
  world_close(&w);
}

static void messages_keep_their_order(void **state)
{
  (void)state;
  PROCESSES(1, 30, messages_body, NULL);
  setenv("NCCL_PEER_CHECK_MS", "3600000", 1); // longer than the test may take
  PROCESSES(2, 30, answers_rank, NULL);
  unsetenv("NCCL_PEER_CHECK_MS");
  PROCESSES(1, 30, wrong_stream_body, NULL);
}

// --- What must not be taken for a repetition

static void others_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  float x[4] = {1, 2, 3, 4}, y[4] = {0};
  world_open(&w, 1);
  ncclComm_t c = w.comm[0];
  cudaStream_t s = w.stream[0];
  for (int k = 0; k < 4; k++) {
    OK(ncclAllReduce(x, y, 2, ncclFloat, ncclSum, c, s));
  }
  REFUSED(ncclAllReduce(NULL, y, 2, ncclFloat, ncclSum, c, s), ncclInvalidArgument, "ncclAllReduce", "sendbuff");
  REFUSED(ncclAllReduce(x, NULL, 2, ncclFloat, ncclSum, c, s), ncclInvalidArgument, "ncclAllReduce", "recvbuff");
  REFUSED(ncclAllReduce(x, y, 2, ncclFloat, ncclSum, c, (cudaStream_t)(uintptr_t)x), ncclInvalidArgument, "stream");
  REFUSED(ncclAllReduce(x, y, 2, ncclFloat, ncclSum, NULL, s), ncclInvalidArgument, "ncclAllReduce");
  REFUSED(ncclAllReduce(x, y, 2, (ncclDataType_t)99, ncclSum, c, s), ncclInvalidArgument, "datatype");
  REFUSED(ncclAllReduce(x, y, 2, ncclFloat, (ncclRedOp_t)77, c, s), ncclInvalidArgument, "op");
  OK(ncclAllReduce(x, y, 4, ncclFloat, ncclSum, c, s));
  OK(ncclAllReduce(x + 2, y, 1, ncclDouble, ncclSum, c, s));
  OK(tuttiStreamSynchronize(s));
  CHECK(memcmp(x + 2, y, 8) == 0 && y[2] == 3 && y[3] == 4, "another count or type: %g %g %g %g", (double)y[0],
        (double)y[1], (double)y[2], (double)y[3]);
  // The input of an all-to-all in place is overwritten while it is read.
  for (int k = 0; k < 4; k++) {
    OK(ncclAlltoAll(k < 3 ? x : y, y, 4, ncclFloat, c, s));
  }
  OK(tuttiStreamSynchronize(s));
  CHECK(memcmp(x, y, sizeof x) == 0, "all-to-all: %g", (double)y[0]);
  // A communicator that has gone before its group ends.
  OK(ncclGroupStart());
  OK(ncclAllReduce(x, y, 1, ncclDouble, ncclSum, c, s));
  OK(ncclCommAbort(c));
  REFUSED(ncclGroupEnd(), ncclInvalidArgument, "ncclGroupEnd", "destroyed");
  OK(tuttiStreamDestroy(s));
}

// Two ranks agree four times, then one of them asks for another count: an error that names both, no wrong sum.
static void disagree_rank(int rank, void *arg)
{
  const world *w = arg;
  float x[2] = {1, 1}, y[2];
  ncclResult_t async = ncclSuccess;
  for (int k = 0; k < 4; k++) {
    OK(ncclAllReduce(x, y, 1, ncclFloat, ncclSum, w->comm[rank], w->stream[rank]));
    OK(tuttiStreamSynchronize(w->stream[rank]));
  }
  ncclResult_t res = ncclAllReduce(x, y, rank == 0 ? 1 : 2, ncclFloat, ncclSum, w->comm[rank], w->stream[rank]);
  CHECK(res == ncclSuccess || res == ncclInvalidUsage || res == ncclRemoteError, "rank %d: the launch gives %d", rank,
        (int)res);
  for (double end = seconds_now() + GENEROUS(10); async == ncclSuccess && seconds_now() < end;) {
    OK(ncclCommGetAsyncError(w->comm[rank], &async));
    sleep_ms(1);
  }
  CHECK(async == ncclInvalidUsage || async == ncclRemoteError, "rank %d: state %d", rank, (int)async);
  OK(ncclCommAbort(w->comm[rank]));
}

static void disagree_body(int rank, void *arg)
{
  world w;
  (void)rank, (void)arg;
  world_open(&w, 2);
  run_threads(2, disagree_rank, &w);
}

static void others_are_no_repetition(void **state)
{
  (void)state;
  PROCESSES(1, 20, others_body, NULL);
  PROCESSES(1, 30, disagree_body, NULL);
}

// --- Time and again another call

// The same call is forgotten for others and learned again, on two communicators at once.
static void changing_body(int rank, void *arg)
{
  int n = *(const int *)arg;
  part p = {.rank = rank, .comm = join_processes(0, n, rank)};
  ncclComm_t dup = NULL;
  OK(ncclCommSplit(p.comm, 0, n - rank, &dup, NULL));
  int turned = 0;
  OK(ncclCommUserRank(dup, &turned));
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  for (uint32_t k = 0; k < 400 / SLOWER; k++) {
    sample s;
    next_sample(n, mix(k / 5) % (FUNCS * NCOUNTS), &s);
    part q = k % 2 == 0 ? p : (part){.rank = turned, .comm = dup, .stream = p.stream};
    prepare(&s, &q);
    OK(ncclGroupStart());
    call(&s, &q);
    OK(ncclGroupEnd());
    OK(tuttiStreamSynchronize(q.stream));
    verify(&s, &q);
  }
  OK(tuttiStreamDestroy(p.stream));
  OK(ncclCommDestroy(dup));
  OK(ncclCommDestroy(p.comm));
}

// Lengths, operations and roots in turn: each has its own program. Then so many others that all are forgotten, with the
// right bits as well.
static void kinds_body(int rank, void *arg)
{
  enum { LENGTHS = 5, SUMS = 3, OTHERS = 2 * TT_DECISION_SETS * TT_DECISION_WAYS };
  int n = *(const int *)arg, kinds = LENGTHS * SUMS;
  part p = {.rank = rank, .comm = join_processes(0, n, rank)};
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  for (int k = 0; k < 5 * kinds + OTHERS; k++) {
    bool other = k >= 5 * kinds;
    sample s = {.n = n,
                .func = ALLREDUCE,
                .count = other ? (size_t)(k - 4 * kinds) : 1 + (size_t)(k % LENGTHS),
                .type = ncclInt64,
                .op = other ? 0 : k % SUMS};
    if (k % 2 == 1 && !other) { // a root beside
      sample b = {.n = n, .func = BROADCAST, .count = s.count, .type = ncclFloat, .root = k / 2 % n};
      part q = p;
      prepare(&b, &q);
      call(&b, &q);
      OK(tuttiStreamSynchronize(p.stream));
      verify(&b, &q);
    }
    part q = p;
    prepare(&s, &q);
    call(&s, &q);
    OK(tuttiStreamSynchronize(p.stream));
    verify(&s, &q);
    if (k == 5 * kinds - 1 && !over_network()) {
      CHECK(programs_of(p.comm, TT_FUNC_ALLREDUCE) == kinds, "%d of %d kinds have programs",
            programs_of(p.comm, TT_FUNC_ALLREDUCE), kinds);
      CHECK(programs_of(p.comm, TT_FUNC_BROADCAST) >= n, "%d kinds of broadcast have programs",
            programs_of(p.comm, TT_FUNC_BROADCAST));
    }
  }
  OK(tuttiStreamDestroy(p.stream));
  OK(ncclCommDestroy(p.comm));
}

// Kinds of one set, each called once: none is forgotten while the set has room.
static void set_body(int rank, void *arg)
{
  part p = {.rank = rank, .comm = join_processes(0, 1, rank)};
  sample s = {.n = 1, .func = ALLREDUCE, .type = ncclInt64};
  uint64_t kind = tt_task_kind(TT_FUNC_ALLREDUCE, ncclInt64, ncclSum, 0);
  unsigned set = tt_decision_set(1, kind);
  int calls = 0;
  (void)arg;
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  for (s.count = 1; calls < TT_DECISION_WAYS; s.count++) {
    if (tt_decision_set(s.count, kind) == set) {
      part q = p;
      prepare(&s, &q);
      call(&s, &q);
      OK(tuttiStreamSynchronize(p.stream));
      verify(&s, &q);
      calls++;
      int made = 0, compiled = 0;
      for (int way = 0; way < TT_DECISION_WAYS; way++) {
        made += p.comm->decisions.sets[set][way].made;
        compiled += p.comm->decisions.sets[set][way].program != NULL;
      }
      CHECK(compiled == calls, "%d of %d kinds have programs after one call each", compiled, calls);
      CHECK(made == calls, "%d of %d kinds are remembered", made, calls);
    }
  }
  OK(tuttiStreamDestroy(p.stream));
  OK(ncclCommDestroy(p.comm));
}

static void a_set_is_filled_before_any_is_forgotten(void **state)
{
  (void)state;
  PROCESSES(1, 60, set_body, NULL);
}

// More kinds than are remembered, queued while the other rank is late: plans run programs whose decisions have gone.
static void queued_rank(int rank, void *arg)
{
  enum { KINDS = 3 * TT_DECISION_SETS * TT_DECISION_WAYS / SLOWER };
  static int64_t in[KINDS], out[KINDS][KINDS];
  ncclComm_t comm = join_processes(0, 2, rank);
  cudaStream_t stream;
  (void)arg;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  for (int i = 0; i < KINDS; i++) {
    in[i] = 1000 * rank + i;
  }
  sleep_ms(rank == 1 ? 20 : 0);
  for (size_t k = 0; k < KINDS; k++) {
    OK(ncclAllReduce(in, out[k], k + 1, ncclInt64, ncclSum, comm, stream));
  }
  OK(tuttiStreamSynchronize(stream));
  for (int k = 0; k < KINDS; k++) {
    for (int i = 0; i <= k; i++) {
      CHECK(out[k][i] == 1000 + 2 * i, "rank %d, %d elements: number %d is %lld", rank, k + 1, i, (long long)out[k][i]);
    }
  }
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommDestroy(comm));
}

static void queued_calls_keep_their_programs(void **state)
{
  (void)state;
  PROCESSES(2, 60, queued_rank, NULL);
}

// Messages of several lengths to every other rank in one group; each is woken by those that are meant for it, and
// answers.
static void fan_rank(int rank, void *arg)
{
  enum { RANKS = 4, ROUNDS = 12, MOST = 3 };
  ncclComm_t comm = join_processes(0, RANKS, rank);
  cudaStream_t stream;
  int sent[RANKS][MOST] = {{0}}, got[RANKS][MOST] = {{0}};
  (void)arg;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  for (int k = 0; k < ROUNDS; k++) {
    sleep_ms(rank == 0 ? 3 : 0);
    OK(ncclGroupStart());
    for (int peer = rank == 0 ? 1 : 0; peer < (rank == 0 ? RANKS : 1); peer++) {
      size_t count = 1 + (size_t)(peer + rank) % MOST;
      sent[peer][count - 1] = 100 * k + rank;
      OK(rank == 0 ? ncclSend(sent[peer], count, ncclInt, peer, comm, stream)
                   : ncclRecv(got[peer], count, ncclInt, peer, comm, stream));
      OK(rank == 0 ? ncclRecv(got[peer], 1, ncclInt, peer, comm, stream) : ncclSuccess);
    }
    OK(ncclGroupEnd());
    OK(rank == 0 ? ncclSuccess : tuttiStreamSynchronize(stream));
    sleep_ms(rank > 0 ? 1 : 0);
    sent[0][0] = 100 * k + rank;
    OK(rank > 0 ? ncclSend(sent[0], 1, ncclInt, 0, comm, stream) : ncclSuccess);
    OK(tuttiStreamSynchronize(stream));
    for (int peer = 1; peer < RANKS && rank == 0; peer++) {
      CHECK(got[peer][0] == 100 * k + peer, "round %d: rank %d answers %d", k, peer, got[peer][0]);
    }
    CHECK(rank == 0 || got[0][rank % MOST] == 100 * k, "round %d: rank %d got %d", k, rank, got[0][rank % MOST]);
  }
  CHECK(over_network() || programs_of(comm, TT_FUNC_SEND) == (rank == 0 ? RANKS - 1 : 1),
        "rank %d: %d kinds of send have programs", rank, programs_of(comm, TT_FUNC_SEND));
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommDestroy(comm));
}

static void several_kinds_have_programs(void **state)
{
  (void)state;
  static int numbers[] = {1, 2, 3};
  for (int i = 0; i < 3; i++) {
    PROCESSES(numbers[i], 60, kinds_body, &numbers[i]);
  }
  setenv("NCCL_PEER_CHECK_MS", "3600000", 1); // longer than the test may take
  PROCESSES(4, 60, fan_rank, NULL);
  unsetenv("NCCL_PEER_CHECK_MS");
}

static void calls_change(void **state)
{
  (void)state;
  static int numbers[] = {1, 2, 3, 7};
  for (int i = 0; i < 4; i++) {
    PROCESSES(numbers[i], 60, changing_body, &numbers[i]);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_come_when_they_will),
      cmocka_unit_test(one_thread_for_all),
      cmocka_unit_test(streams_keep_their_order),
      cmocka_unit_test(messages_keep_their_order),
      cmocka_unit_test(others_are_no_repetition),
      cmocka_unit_test(queued_calls_keep_their_programs),
      cmocka_unit_test(several_kinds_have_programs),
      cmocka_unit_test(a_set_is_filled_before_any_is_forgotten),
      cmocka_unit_test(calls_change),
  };
  return RUN_TESTS("program", tests, argc, argv);
}
