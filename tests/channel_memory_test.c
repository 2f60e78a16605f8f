// channel_memory_test.c: what a communicator keeps is bounded: schedules of channels that have the same order are there
// once, whatever the number of channels; calls of ever other sizes, types and roots make no more plans and schedules.
#include "harness.h"

#include "base/util.h"
#include "comm/comm.h"
#include "comm/schedules.h"
#include "comm/topology.h"

#define MACHINE_FILE "tests/topologies/known/hgx_h100_8gpu_nvswitch_8nic/input.xml"

enum { RANKS = 16, GPUS = 8, CHANNELS = 32, LIMIT = 100 };

// One large sum, so large that each channel has a part of it, and of the other collectives one each.
static void every_collective(ncclComm_t comm, char *in, char *out, size_t bytes)
{
  size_t n = bytes / sizeof(int32_t), part = n / RANKS;
  OK(ncclAllReduce(in, out, n, ncclInt32, ncclSum, comm, NULL));
  OK(ncclAllGather(in, out, part, ncclInt32, comm, NULL));
  OK(ncclReduceScatter(in, out, part, ncclInt32, ncclSum, comm, NULL));
  OK(ncclBroadcast(in, out, n, ncclInt32, 3, comm, NULL));
  OK(ncclReduce(in, out, n, ncclInt32, ncclSum, 5, comm, NULL));
  OK(ncclAlltoAll(in, out, part, ncclInt32, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
}

// Different orders among the rings of the first channels.
static int different_rings(const tt_topology *t, int channels)
{
  int count = 0, n = t->connect->nranks, all = 0, *orders = NULL;
  OK(tt_topology_rings(t, &all, &orders));
  for (int i = 0; i < channels; i++) {
    bool seen = false;
    for (int j = 0; j < i; j++) {
      seen |= memcmp(orders + i * n, orders + j * n, (size_t)n * sizeof(int)) == 0;
    }
    count += !seen;
  }
  tt_free(orders);
  return count;
}

// What is there of a function: channels, schedules that are not lent.
static void count_of(ncclComm_t comm, tt_func func, int *channels, int *own)
{
  *channels = *own = 0;
  for (unsigned i = 0; i < comm->schedules.room; i++) {
    for (const tt_cached *c = comm->schedules.buckets[i]; c != NULL; c = c->next) {
      *channels += c->func == func;
      *own += c->func == func && !c->lent;
    }
  }
}

static void one_rank(int rank, void *arg)
{
  const char *const *hosts = arg;
  char host[16];
  size_t most = (size_t)CHANNELS * RANKS * 4096;
  snprintf(host, sizeof host, "node%d", rank * atoi(*hosts) / RANKS);
  OK(setenv("NCCL_HOSTID", host, 1) == 0 ? ncclSuccess : ncclSystemError);
  setenv("NCCL_TOPO_FILE", MACHINE_FILE, 1);
  setenv("NCCL_MIN_NCHANNELS", "32", 1);
  setenv("NCCL_BUFFSIZE", "32768", 1);
  setenv("NCCL_ALGO", "Ring", 1);
  setenv("NCCL_PROTO", "Simple", 1); // whose slots NCCL_BUFFSIZE makes small
  OK(tuttiSetDevice(rank % GPUS));
  ncclComm_t comm = join_processes(0, RANKS, rank);
  char *in = calloc(1, most), *out = calloc(1, most);
  for (size_t i = 0; i < most / sizeof(int32_t); i++) {
    ((int32_t *)(void *)in)[i] = rank + (int32_t)(i % 1001);
  }
  OK(ncclAllReduce(in, out, most / sizeof(int32_t), ncclInt32, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  for (size_t i = 0; i < most / sizeof(int32_t); i++) {
    int32_t want = RANKS * (RANKS - 1) / 2 + RANKS * (int32_t)(i % 1001);
    CHECK(((int32_t *)(void *)out)[i] == want, "element %zu is %d, not %d", i, ((int32_t *)(void *)out)[i], want);
  }
  int channels = 0, own = 0;
  count_of(comm, TT_FUNC_ALLREDUCE, &channels, &own);
  int want = different_rings(comm->topology, channels);
  CHECK(channels == CHANNELS && own >= 1 && own <= want && 2 * want <= channels,
        "%d schedules of %d channels with %d orders", own, channels, want);
  every_collective(comm, in, out, most);
  free(in);
  free(out);
  OK(ncclCommDestroy(comm));
}

static void shared_between_channels(void **state)
{
  (void)state;
  const char *hosts[] = {"1", "2"};
  for (size_t i = 0; i < TT_COUNT(hosts); i++) {
    PROCESSES(RANKS, LIMIT, one_rank, &hosts[i]);
  }
}

// ---- Calls that differ

typedef struct kept {
  int schedules, plans;
} kept;

static kept kept_by(ncclComm_t comm)
{
  kept k = {0};
  for (unsigned i = 0; i < comm->schedules.room; i++) {
    for (const tt_cached *c = comm->schedules.buckets[i]; c != NULL; c = c->next) {
      k.schedules++;
    }
  }
  for (const tt_plan *p = comm->plans.spare; p != NULL; p = p->next) {
    k.plans++;
  }
  for (const tt_plan *p = atomic_load(&comm->plans.returned); p != NULL; p = p->next) {
    k.plans++;
  }
  return k;
}

static ncclResult_t call_of(int number, const char *in, char *out, size_t count, const world *w, int i)
{
  ncclDataType_t type = number % 2 == 0 ? ncclInt32 : ncclInt8;
  int root = (number / 8) % w->n;
  switch (number % 8) {
  case 0: return ncclAllGather(in, out, count, type, w->comm[i], w->stream[i]);
  case 1: return ncclReduceScatter(in, out, count, type, ncclMax, w->comm[i], w->stream[i]);
  case 2: return ncclBroadcast(in, out, count, type, root, w->comm[i], w->stream[i]);
  case 3: return ncclReduce(in, out, count, type, ncclSum, root, w->comm[i], w->stream[i]);
  case 4: return ncclAlltoAll(in, out, count, type, w->comm[i], w->stream[i]);
  case 5:
    return i == 0 ? ncclSend(in, count, type, 1, w->comm[i], w->stream[i])
                  : ncclRecv(out, count, type, 0, w->comm[i], w->stream[i]);
  default: return ncclAllReduce(in, out, count, type, number % 3 == 0 ? ncclSum : ncclMin, w->comm[i], w->stream[i]);
  }
}

enum { PAIR = 2, CALLS = 400, MOST_BYTES = 1 << 18 };

// As many calls as there are numbers, none like the one before; `salt` makes the sizes others than in another sweep.
static void sweep(const world *w, char *const *in, char *const *out, size_t salt)
{
  for (int number = 0; number < CALLS; number++) {
    size_t count = 1 + ((size_t)number * 7919 + salt) * (number % 5 == 0 ? 1 : 31) % (MOST_BYTES / 4 / PAIR);
    OK(ncclGroupStart());
    for (int i = 0; i < w->n; i++) {
      OK(call_of(number, in[i], out[i], count, w, i));
    }
    OK(ncclGroupEnd());
    world_wait(w);
  }
}

static void sweeps_body(int rank, void *arg)
{
  world w;
  char *in[PAIR], *out[PAIR];
  (void)rank, (void)arg;
  world_open(&w, PAIR);
  for (int i = 0; i < PAIR; i++) {
    in[i] = calloc(1, MOST_BYTES);
    out[i] = calloc(1, MOST_BYTES);
  }
  sweep(&w, in, out, 0);
  kept first = kept_by(w.comm[0]);
  CHECK(first.schedules >= 6 && first.schedules <= TT_NFUNCS * 32 * PAIR, "%d schedules", first.schedules);
  for (size_t salt = 1; salt <= 5; salt++) {
    sweep(&w, in, out, 1009 * salt);
    kept now = kept_by(w.comm[0]);
    CHECK(now.schedules <= first.schedules + 4, "%d schedules after sweep %zu, %d after the first", now.schedules, salt,
          first.schedules);
    CHECK(now.plans <= 2, "%d plans after sweep %zu, with one call under way at a time", now.plans, salt);
  }
  for (int i = 0; i < PAIR; i++) {
    free(in[i]);
    free(out[i]);
  }
  world_close(&w);
}

static void different_calls_keep_no_more(void **state)
{
  (void)state;
  PROCESSES(1, LIMIT, sweeps_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(shared_between_channels),
                                     cmocka_unit_test(different_calls_keep_no_more)};
  return RUN_TESTS("channel_memory", tests, argc, argv);
}
