// Collectives over several channels of any ring orders and trees, between threads and processes, through shared memory
// and the network: the right bits, and as many channels as the size deserves. The channels are given to the layouts by
// hand, the same on every rank.
#include "reference.h"

#include "coll/channels_rig.h"
#include "comm/comm.h"
#include "comm/decide.h"
#include "comm/task.h"

enum { CHANNELS = 5 };

// What one run tries.
typedef struct trial {
  int n;
  const char *algo, *proto, *more[3]; // settings; algo without NCCL_ALGO=
  unsigned thin;                      // of the samples, one in so many
} trial;

static const int funcs[] = {ALLREDUCE, REDUCESCATTER, ALLGATHER, BROADCAST, REDUCE};
static const size_t counts[] = {1, 1000, 100003, 700001};

// Before the first operation nothing depends on the layout's channels yet.
static void give_channels(ncclComm_t comm, int n)
{
  OK(set_random_channels(comm->layout, (uint64_t)n * 7919, CHANNELS));
}

static bool knows(const trial *t, int func)
{
  return strcmp(t->algo, "Tree") != 0 || func == ALLREDUCE || func == BROADCAST || func == REDUCE;
}

static bool next_sample(const trial *t, unsigned *at, sample *s)
{
  static const int types[] = {ncclInt32, ncclHalf, ncclUint8};
  for (unsigned i = *at;; i++) {
    unsigned rest = i;
    *s = (sample){.n = t->n, .in_place = rest % 2 != 0};
    s->func = funcs[(rest /= 2) % 5];
    s->count = counts[(rest /= 5) % 4];
    s->op = (rest /= 4) % 3 == 2 && reduces(s->func) ? PREMUL_HOST : ncclSum;
    s->type = types[rest % 3];
    s->root = (int)(mix(i) % (unsigned)t->n);
    s->count /= (unsigned)in_blocks(s) * (unsigned)out_blocks(s) > 1 && s->count > 1000 ? (size_t)s->n : 1;
    if (rest >= 3) {
      return false;
    }
    if (knows(t, s->func) && mix(i * 31) % (t->thin * (s->count > 1000 ? SLOWER : 1)) == 0) {
      *at = i + 1;
      return true;
    }
  }
}

// The last operation ran over as many channels as it should: one when it is small, several when it is large.
static void check_channels(const trial *t, const sample *s, ncclComm_t comm)
{
  static const tt_func lib_func[] = {TT_FUNC_ALLREDUCE, TT_FUNC_REDUCESCATTER, TT_FUNC_REDUCE, TT_FUNC_BROADCAST,
                                     TT_FUNC_ALLGATHER};
  bool rooted = s->func == REDUCE || s->func == BROADCAST;
  tt_task like = {.func = lib_func[s->func], .count = s->count, .type = (ncclDataType_t)s->type};
  like.op = reduces(s->func) ? (ncclRedOp_t)s->op : ncclSum;
  like.root = rooted ? s->root : 0;
  like.kind = tt_task_kind(like.func, like.type, like.op, like.root);
  tt_comm_recall(comm, &like);
  const tt_decision *d = like.decision;
  size_t bytes = s->count * (size_t)formats[s->type].size * in_blocks(s) * out_blocks(s);
  bool lockstep = strcmp(t->algo, "Ring") == 0 && s->func != BROADCAST && s->func != REDUCE;
  CHECK(d != NULL && d->made && d->choice.channels >= 1 && d->choice.channels <= CHANNELS, "%d channels",
        d->choice.channels);
  CHECK(bytes >= 128 << 10 || d->choice.channels == 1, "%zu bytes over %d channels", bytes, d->choice.channels);
  CHECK(bytes < 1 << 20 || !lockstep || t->n == 1 || d->choice.channels > 1, "%s of %zu bytes over one channel",
        func_name[s->func], bytes);
}

static void set_environment(const trial *t, int rank)
{
  static char algo[64], proto[64], host[64];
  snprintf(algo, sizeof algo, "NCCL_ALGO=%s", t->algo);
  snprintf(proto, sizeof proto, "NCCL_PROTO=%s", t->proto);
  putenv(algo);
  putenv(proto);
  for (int i = 0; i < 3 && t->more[i] != NULL; i++) {
    if (strcmp(t->more[i], "nodes") == 0) { // ranks dealt out to two
      snprintf(host, sizeof host, "NCCL_HOSTID=node%d", rank % 2);
      putenv(host);
    } else {
      putenv((char *)(uintptr_t)t->more[i]);
    }
  }
}

// --- All ranks in one process

static void threads_body(int rank, void *arg)
{
  const trial *t = arg;
  world w;
  sample s;
  set_environment(t, rank);
  world_open(&w, t->n);
  for (int i = 0; i < t->n; i++) {
    give_channels(w.comm[i], t->n);
  }
  for (unsigned at = 0; next_sample(t, &at, &s);) {
    part p[MAX_RANKS];
    for (int i = 0; i < t->n; i++) {
      p[i] = (part){.rank = i, .comm = w.comm[i], .stream = w.stream[i]};
      prepare(&s, &p[i]);
      call(&s, &p[i]);
      check_channels(t, &s, w.comm[i]);
    }
    world_wait(&w);
    for (int i = 0; i < t->n; i++) {
      verify(&s, &p[i]);
    }
  }
  world_close(&w);
}

static void between_threads(void **state)
{
  (void)state;
  for (int n = 1; n <= 8; n += n < 5 ? 1 : 3) {
    PROCESSES(1, 60, threads_body, &((trial){.n = n, .algo = "Ring", .proto = "Simple", .thin = 2}));
    PROCESSES(1, 60, threads_body, &((trial){.n = n, .algo = "Tree", .proto = "Simple", .thin = 2}));
    PROCESSES(1, 60, threads_body, &((trial){.n = n, .algo = "Ring", .proto = "LL", .thin = 4}));
  }
}

// Sends from and receives into the users' buffers; with helper threads, by way of the slots.
static void over_sockets(void **state)
{
  (void)state;
  for (int n = 2; n <= 5; n++) {
    for (int k = 0; k < 4; k++) {
      trial t = {.n = n,
                 .algo = k % 2 == 0 ? "Ring" : "Tree",
                 .proto = "Simple",
                 .more = {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", k < 2 ? NULL : "NCCL_SOCKET_NTHREADS=2"},
                 .thin = k < 2 ? 2 : 6};
      PROCESSES(1, 60, threads_body, &t);
    }
  }
}

// --- Ranks as processes

static void process_body(int rank, void *arg)
{
  const trial *t = arg;
  sample s;
  set_environment(t, rank);
  part p = {.rank = rank, .comm = join_processes(0, t->n, rank)};
  give_channels(p.comm, t->n);
  OK(tuttiStreamCreate(&p.stream, TUTTI_STREAM_NON_BLOCKING));
  for (unsigned at = 0; next_sample(t, &at, &s);) {
    prepare(&s, &p);
    call(&s, &p);
    check_channels(t, &s, p.comm);
    OK(tuttiStreamSynchronize(p.stream));
    verify(&s, &p);
  }
  OK(tuttiStreamDestroy(p.stream));
  OK(ncclCommDestroy(p.comm));
}

static void between_processes(void **state)
{
  (void)state;
  for (int n = 2; n <= 5; n += 3) {
    PROCESSES(n, 60, process_body, &((trial){.n = n, .algo = "Ring", .proto = "Simple", .thin = 2}));
    PROCESSES(n, 60, process_body, &((trial){.n = n, .algo = "Tree", .proto = "Simple", .thin = 2}));
  }
}

// Some neighbours share memory, others do not, and in each channel they are others.
static void on_two_nodes(void **state)
{
  (void)state;
  for (int n = 3; n <= 6; n++) {
    PROCESSES(n, 60, process_body, &((trial){.n = n, .algo = "Ring", .proto = "Simple", .more = {"nodes"}, .thin = 2}));
    PROCESSES(n, 60, process_body, &((trial){.n = n, .algo = "Tree", .proto = "Simple", .more = {"nodes"}, .thin = 2}));
  }
}

// --- Several operations at once, and peers that are elsewhere

// Operations of all sizes one after the other without a wait: each has its connections to itself.
static void row_body(int rank, void *arg)
{
  const trial *t = arg;
  float *x[MAX_RANKS];
  size_t count = counts[3];
  world w;
  set_environment(t, rank);
  world_open(&w, t->n);
  for (int i = 0; i < t->n; i++) {
    give_channels(w.comm[i], t->n);
    x[i] = malloc(count * sizeof(float));
    for (size_t k = 0; k < count; k++) {
      x[i][k] = 1;
    }
  }
  for (int k = 0; k < 6; k++) {
    for (int i = 0; i < t->n; i++) {
      OK(ncclAllReduce(x[i], x[i], count, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
      OK(ncclAllReduce(x[i], x[i], 10, ncclFloat, ncclMax, w.comm[i], w.stream[i]));
      OK(ncclBroadcast(x[i], x[i], count - (size_t)k, ncclFloat, k % t->n, w.comm[i], w.stream[i]));
    }
  }
  world_wait(&w);
  float want = 1;
  for (int k = 0; k < 6; k++) {
    want *= (float)t->n;
  }
  for (int i = 0; i < t->n; i++) {
    for (size_t k = 0; k < count; k++) {
      CHECK(x[i][k] == want, "rank %d, element %zu: %g, not %g", i, k, (double)x[i][k], (double)want);
    }
    free(x[i]);
  }
  world_close(&w);
}

static void operations_in_a_row(void **state)
{
  (void)state;
  for (int k = 0; k < 4; k++) {
    trial t = {.n = 3 + k, .algo = k % 2 == 0 ? "Ring" : "Tree", .proto = "Simple"};
    PROCESSES(1, 60, row_body, &t);
    t.more[0] = "NCCL_P2P_DISABLE=1";
    t.more[1] = "NCCL_SHM_DISABLE=1";
    PROCESSES(1, 60, row_body, &t);
  }
}

// A rank that calls with another count: both sides are named, whatever channel they are in.
static void mismatch_body(int rank, void *arg)
{
  const trial *t = arg;
  size_t count = counts[3];
  float *x[MAX_RANKS];
  int failed = 0;
  world w;
  set_environment(t, rank);
  world_open(&w, t->n);
  for (int i = 0; i < t->n; i++) {
    give_channels(w.comm[i], t->n);
    x[i] = calloc(count, sizeof(float));
    OK(ncclAllReduce(x[i], x[i], i == 1 ? count / 9 : count, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
  }
  for (int i = 0; i < t->n; i++) {
    failed += tuttiStreamSynchronize(w.stream[i]) != ncclSuccess;
  }
  CHECK(failed == t->n, "%d of %d ranks have noticed", failed, t->n);
  for (int i = 0; i < t->n; i++) {
    OK(ncclCommAbort(w.comm[i]));
    OK(tuttiStreamDestroy(w.stream[i]));
    free(x[i]);
  }
}

static void mismatched_calls(void **state)
{
  (void)state;
  PROCESSES(1, 60, mismatch_body, &((trial){.n = 4, .algo = "Ring", .proto = "Simple"}));
  PROCESSES(1, 60, mismatch_body, &((trial){.n = 4, .algo = "Tree", .proto = "Simple"}));
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(between_threads), cmocka_unit_test(over_sockets),        cmocka_unit_test(between_processes),
      cmocka_unit_test(on_two_nodes),    cmocka_unit_test(operations_in_a_row), cmocka_unit_test(mismatched_calls),
  };
  return RUN_TESTS("channels", tests, argc, argv);
}
