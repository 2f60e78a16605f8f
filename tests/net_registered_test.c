// A network that takes only memory it knows: sockets behind a layer that demands a registration around everything that
// is sent and received. The library of this program uses it for every pair of ranks (its own tt_net_open takes the
// place of the one in net/net.c).
#include "buffers.h"

#include <pthread.h>

#include "net/net.h"

enum { BIG = 300000, SLOT = 131072 }; // floats; bytes

// ---- the network

typedef struct registration {
  struct registration *next;
  void *comm;
  char *from, *to;
} registration;

static struct {
  pthread_mutex_t lock;
  registration *list;
  char *watched, *watched_end;   // the user's memory, as far as the test looks at it
  _Atomic long straight, staged; // large messages there, and elsewhere
  _Atomic long refuse;           // no memory of the user's is taken
} strict = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_watched(const char *p)
{
  return p >= strict.watched && p < strict.watched_end;
}

static ncclResult_t reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
  registration *r = malloc(sizeof *r);
  CHECK(type == TT_NET_PTR_HOST && r != NULL, "type %d", type);
  if (atomic_load(&strict.refuse) && is_watched(data)) {
    free(r);
    return ncclSystemError;
  }
  pthread_mutex_lock(&strict.lock);
  *r = (registration){.next = strict.list, .comm = comm, .from = data, .to = (char *)data + size};
  strict.list = r;
  pthread_mutex_unlock(&strict.lock);
  *mhandle = r;
  return ncclSuccess;
}

static ncclResult_t dereg_mr(void *comm, void *mhandle)
{
  pthread_mutex_lock(&strict.lock);
  registration **at = &strict.list;
  while (*at != NULL && *at != mhandle) {
    at = &(*at)->next;
  }
  registration *r = *at;
  CHECK(r != NULL && r->comm == comm, "deregistering %p, which is not registered", mhandle);
  *at = r->next;
  pthread_mutex_unlock(&strict.lock);
  free(r);
  return ncclSuccess;
}

static void demand(void *comm, const char *data, size_t size, const registration *r)
{
  CHECK(r != NULL && r->comm == comm && data >= r->from && data + size <= r->to, "%zu bytes at %p are not registered",
        size, (const void *)data);
  if (size >= 8192 && size <= SLOT) { // more: a header, with room for a whole message
    atomic_fetch_add(is_watched(data) ? &strict.straight : &strict.staged, 1);
  }
}

static ncclResult_t isend(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
  demand(comm, data, size, mhandle);
  return tt_net_socket.isend(comm, data, size, tag, mhandle, phandle, request);
}

static ncclResult_t irecv(void *comm, int n, void **data, const size_t *sizes, const int *tags, void **mhandles,
                          void **phandles, void **request)
{
  CHECK(n == 1, "a receive of %d buffers", n);
  demand(comm, data[0], sizes[0], mhandles[0]);
  return tt_net_socket.irecv(comm, n, data, sizes, tags, mhandles, phandles, request);
}

ncclResult_t tt_net_open(const tt_net_env *env, const char *name, const tt_net_ops **out)
{
  (void)env;
  (void)name;
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  static tt_net_ops ops;
  pthread_mutex_lock(&once);
  if (ops.name == NULL) {
    ops = tt_net_socket;
    ops.name = "Strict";
    ops.reg_mr = reg_mr;
    ops.dereg_mr = dereg_mr;
    ops.isend = isend;
    ops.irecv = irecv;
    ops.has_parts = NULL;
    ops.isend_parts = ops.irecv_parts = NULL;
  }
  pthread_mutex_unlock(&once);
  *out = &ops;
  return ncclSuccess;
}

ncclResult_t tt_net_look(void)
{
  return ncclSuccess;
}

void tt_net_close(const tt_net_ops *net)
{
  (void)net;
}

// Registrations of the user's memory that there are just now.
static int known(void)
{
  int n = 0;
  pthread_mutex_lock(&strict.lock);
  for (const registration *r = strict.list; r != NULL; r = r->next) {
    n += is_watched(r->from);
  }
  pthread_mutex_unlock(&strict.lock);
  return n;
}

// ---- the user

enum { UNKNOWN, REGISTERED, ALLOCATED };

// One piece of memory with every rank's input and output in it.
typedef struct memory {
  int kind, n;
  size_t each; // bytes per rank
  char *base;
  void *handles[MAX_RANKS];
} memory;

static void memory_open(memory *m, const world *w, int kind, size_t each)
{
  *m = (memory){.kind = kind, .n = w->n, .each = each};
  if (kind == ALLOCATED) {
    OK(ncclMemAlloc((void **)&m->base, each * (size_t)w->n));
  } else {
    m->base = malloc(each * (size_t)w->n);
  }
  strict.watched = m->base;
  strict.watched_end = m->base + each * (size_t)w->n;
  atomic_store(&strict.straight, 0);
  atomic_store(&strict.staged, 0);
  for (int i = 0; i < w->n && kind == REGISTERED; i++) {
    OK(ncclCommRegister(w->comm[i], m->base + (size_t)i * each, each, &m->handles[i]));
  }
}

static void memory_close(memory *m, const world *w)
{
  for (int i = 0; i < m->n && m->kind == REGISTERED; i++) {
    OK(ncclCommDeregister(w->comm[i], m->handles[i]));
  }
  if (m->kind == ALLOCATED) {
    OK(ncclMemFree(m->base));
  } else {
    free(m->base);
  }
  CHECK(known() == 0, "%d registrations are left of memory that has gone", known());
}

static float *at(const memory *m, int rank, size_t element)
{
  return (float *)(void *)(m->base + (size_t)rank * m->each) + element;
}

static void fill(float *x, size_t count, float value)
{
  for (size_t i = 0; i < count; i++) {
    x[i] = value;
  }
}

static void check_all(const float *x, size_t count, float value, const char *what, int rank)
{
  for (size_t i = 0; i < count; i++) {
    CHECK(x[i] == value, "%s, rank %d, element %zu: %g, not %g", what, rank, i, (double)x[i], (double)value);
  }
}

// Each rank's input holds its number + 1; outputs follow it.
static void prepare(const memory *m, size_t n)
{
  for (int i = 0; i < m->n; i++) {
    fill(at(m, i, 0), n * BIG, (float)(i + 1));
    fill(at(m, i, n * BIG), n * BIG, -1);
  }
}

static void reduce_and_gather(const world *w, const memory *m)
{
  size_t n = (size_t)w->n;
  prepare(m, n);
  for (int i = 0; i < w->n; i++) {
    OK(ncclAllReduce(at(m, i, 0), at(m, i, n * BIG), n * BIG, ncclFloat, ncclSum, w->comm[i], w->stream[i]));
  }
  for (int i = 0; i < w->n; i++) {
    OK(ncclAllGather(at(m, i, 3), at(m, i, n * BIG), BIG, ncclFloat, w->comm[i], w->stream[i]));
  }
  world_wait((world *)(uintptr_t)w);
  for (int i = 0; i < w->n; i++) {
    for (int k = 0; k < w->n; k++) {
      check_all(at(m, i, (n + (size_t)k) * BIG), BIG, (float)(k + 1), "all-gather", i);
    }
  }
}

static void exchange(const world *w, const memory *m)
{
  size_t n = (size_t)w->n;
  prepare(m, n);
  OK(ncclGroupStart());
  for (int i = 0; i < w->n; i++) {
    for (int k = 0; k < w->n; k++) {
      if (k != i) {
        OK(ncclSend(at(m, i, (size_t)k * BIG), BIG, ncclFloat, k, w->comm[i], w->stream[i]));
        OK(ncclRecv(at(m, i, (n + (size_t)k) * BIG), BIG, ncclFloat, k, w->comm[i], w->stream[i]));
      }
    }
  }
  OK(ncclGroupEnd());
  world_wait((world *)(uintptr_t)w);
  for (int i = 0; i < w->n; i++) {
    for (int k = 0; k < w->n; k++) {
      check_all(at(m, i, (n + (size_t)k) * BIG), BIG, k == i ? -1 : (float)(k + 1), "exchange", i);
    }
  }
}

static void over_the_network(int seconds, void (*fn)(int rank, void *arg), const char *extra)
{
  const char *const env[] = {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", extra, NULL};
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = seconds, .fn = fn, .env = env}), 0);
}

// ---- what goes straight

static bool switched_off(void)
{
  const char *s = getenv("NCCL_LOCAL_REGISTER");
  return s != NULL && s[0] == '0';
}

static void kinds_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int n = 2; n <= 3; n++) {
    world w;
    world_open(&w, n);
    for (int kind = UNKNOWN; kind <= ALLOCATED; kind++) {
      memory m;
      memory_open(&m, &w, kind, 2 * (size_t)n * BIG * sizeof(float));
      for (int round = 0; round < 2; round++) {
        reduce_and_gather(&w, &m);
        exchange(&w, &m);
      }
      bool direct = kind != UNKNOWN && !switched_off();
      CHECK((atomic_load(&strict.straight) > 0) == direct, "kind %d: %ld straight, %ld staged", kind, strict.straight,
            strict.staged);
      CHECK((known() > 0) == direct, "kind %d: %d registrations", kind, known());
      atomic_store(&strict.staged, 0);
      exchange(&w, &m);
      CHECK((atomic_load(&strict.staged) == 0) == direct, "kind %d: %ld are staged", kind, strict.staged);
      memory_close(&m, &w);
    }
    world_close(&w);
    CHECK(strict.list == NULL, "registrations are left");
  }
}

static void straight_if_known(void **state)
{
  (void)state;
  over_the_network(60, kinds_body, NULL);
  over_the_network(60, kinds_body, "NCCL_SOCKET_NTHREADS=2");
}

static void not_at_all_if_switched_off(void **state)
{
  (void)state;
  over_the_network(60, kinds_body, "NCCL_LOCAL_REGISTER=0");
}

static void refusal_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  memory m;
  world_open(&w, 3);
  atomic_store(&strict.refuse, 1);
  memory_open(&m, &w, REGISTERED, 6 * (size_t)BIG * sizeof(float));
  reduce_and_gather(&w, &m);
  exchange(&w, &m);
  CHECK(atomic_load(&strict.straight) == 0, "%ld straight", strict.straight);
  memory_close(&m, &w);
  world_close(&w);
}

static void copied_if_refused(void **state)
{
  (void)state;
  over_the_network(60, refusal_body, NULL);
}

// More messages than the shared memory has room for at once, and each pair with memory of its own.
static void crowd_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  world w;
  memory m;
  world_open(&w, 5);
  memory_open(&m, &w, UNKNOWN, 10 * (size_t)BIG * sizeof(float));
  for (int round = 0; round < 2; round++) {
    exchange(&w, &m);
    prepare(&m, 5);
    for (int i = 0; i < 5; i++) {
      OK(ncclAlltoAll(at(&m, i, 0), at(&m, i, 5 * (size_t)BIG), BIG, ncclFloat, w.comm[i], w.stream[i]));
    }
    world_wait(&w);
    for (int i = 0; i < 5; i++) {
      for (size_t k = 0; k < 5; k++) {
        check_all(at(&m, i, (5 + k) * BIG), BIG, (float)(k + 1), "all-to-all", i);
      }
    }
  }
  memory_close(&m, &w);
  world_close(&w);
}

static void many_peers(void **state)
{
  (void)state;
  over_the_network(60, crowd_body, NULL);
  over_the_network(60, crowd_body, "NCCL_NET_SHARED_BUFFERS=0");
}

// ---- the communicator goes with the memory registered, and in the middle of an operation

typedef struct quitter {
  world w;
  int round;
} quitter;

static void quit(int rank, void *arg)
{
  quitter *q = arg;
  size_t count = 4 * BIG;
  void *handle;
  float *in = malloc(count * sizeof(float)), *out;
  OK(ncclMemAlloc((void **)&out, count * sizeof(float)));
  OK(ncclCommRegister(q->w.comm[rank], in, count * sizeof(float), &handle));
  fill(in, count, 1);
  if (q->round % 2 == 0) {
    OK(ncclGroupStart());
    OK(ncclSend(in, count, ncclFloat, 1 - rank, q->w.comm[rank], q->w.stream[rank]));
    OK(ncclRecv(out, count, ncclFloat, 1 - rank, q->w.comm[rank], q->w.stream[rank]));
    OK(ncclGroupEnd());
  } else {
    OK(ncclAllReduce(in, out, count, ncclFloat, ncclSum, q->w.comm[rank], q->w.stream[rank]));
  }
  if (rank == q->round / 2 % 2) {
    sleep_ms(0.3 * (q->round % 8));
  } else {
    (void)tuttiStreamSynchronize(q->w.stream[rank]); // ends well, or because the other one has aborted
  }
  OK(ncclCommAbort(q->w.comm[rank]));
  free(in);
  OK(ncclMemFree(out));
}

static void quit_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int round = 0; round < 24; round++) {
    quitter q = {.round = round};
    world_open(&q.w, 2);
    run_threads(2, quit, &q);
    for (int i = 0; i < 2; i++) {
      OK(tuttiStreamDestroy(q.w.stream[i]));
    }
  }
  CHECK(strict.list == NULL, "registrations are left");
}

static void buffers_freed_after_an_abort(void **state)
{
  (void)state;
  over_the_network(120, quit_body, NULL);
  over_the_network(120, quit_body, "NCCL_SOCKET_NTHREADS=2");
}

// Ranks in calls of different sizes: both are told, as on any other network.
static void different_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  for (int k = 0; k < 2; k++) {
    world w;
    memory m;
    world_open(&w, 2);
    memory_open(&m, &w, k == 0 ? UNKNOWN : ALLOCATED, 2 * BIG * sizeof(float));
    prepare(&m, 1);
    size_t counts[2] = {k == 0 ? 100 : BIG, k == 0 ? BIG : 3000};
    for (int i = 0; i < 2; i++) {
      OK(ncclAllReduce(at(&m, i, 0), at(&m, i, BIG), counts[i], ncclFloat, ncclSum, w.comm[i], w.stream[i]));
    }
    int told = 0;
    for (int i = 0; i < 2; i++) {
      ncclResult_t res = tuttiStreamSynchronize(w.stream[i]);
      CHECK(res != ncclSuccess, "rank %d is content", i);
      told += res == ncclInvalidUsage;
    }
    CHECK(told > 0, "nobody is told");
    for (int i = 0; i < 2; i++) {
      OK(ncclCommAbort(w.comm[i]));
      OK(tuttiStreamDestroy(w.stream[i]));
    }
    m.kind = m.kind == REGISTERED ? UNKNOWN : m.kind;
    memory_close(&m, &w);
  }
}

static void different_calls(void **state)
{
  (void)state;
  over_the_network(60, different_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(straight_if_known),
      cmocka_unit_test(not_at_all_if_switched_off),
      cmocka_unit_test(copied_if_refused),
      cmocka_unit_test(many_peers),
      cmocka_unit_test(buffers_freed_after_an_abort),
      cmocka_unit_test(different_calls),
  };
  return RUN_TESTS("net_registered", tests, argc, argv);
}
