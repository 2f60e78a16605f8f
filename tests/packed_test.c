// packed_test.c: "Packed": the packed trees of machines as schedules, by the verifier; and operations along them, in
// threads and in processes, with data.
#include "topo/random_rig.h"

#include "comm/comm.h"
#include "comm/tuning.h"
#include "harness.h"
#include "tools/verify.h"
#include "topo/pack.h"

enum { MACHINES = 150, MOST_GPUS = 16, STAGES = 4, LIMIT = 60 };

static const tt_schedule *all[MOST_GPUS * STAGES];

// ---- Schedules ----

// The layout of one machine's GPUs with some of its trees: the first, the last, and what lies between.
static tt_layout *layout_of(const tt_packing *p, int stages)
{
  int names[MOST_GPUS] = {0}, ring[MOST_GPUS], *packed = calloc((size_t)(stages * p->ngpus), sizeof(int));
  tt_layout *l = NULL;
  for (int i = 0; i < p->ngpus; i++) {
    ring[i] = i;
  }
  for (int i = 0; i < stages * p->ngpus; i++) {
    int tree = stages == 1 ? 0 : i / p->ngpus * (p->ntrees - 1) / (stages - 1);
    packed[i] = p->ups[tree * p->ngpus + i % p->ngpus];
  }
  assert_int_equal(tt_layout_create(p->ngpus, names, &l), ncclSuccess);
  tt_channels c = {.count = 1, .rings = ring, .npacked = stages, .packed = packed};
  if (tt_layout_set_channels(l, &c) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  free(packed);
  return l;
}

// Everything that a rank sends goes to a neighbour in the tree.
static void expect_neighbours(const tt_schedule *s, const int *ups, int rank)
{
  for (int i = 0; i < s->nsteps; i++) {
    for (uint32_t k = 0; k < s->steps[i].ndst; k++) {
      const tt_ref *ref = &s->refs[s->steps[i].dst + k];
      assert_true(ref->kind != TT_FIFO || ups[rank] == ref->peer || ups[ref->peer] == rank);
    }
  }
}

static void expect_right(const char *name, const tt_layout *l, tt_func f, int root)
{
  const tt_algorithm *a = &tt_algorithms(NULL)[TT_ALGO_PACKED];
  int n = l->nranks, stages = tt_algorithm_channels(a, l);
  tt_shape shape = {.func = f, .nranks = n, .root = root, .layout = l};
  assert_int_equal(stages, l->channels.npacked);
  for (int i = 0; i < stages * n; i++) {
    tt_schedule *s = NULL;
    shape.channel = i / n;
    shape.rank = i % n;
    assert_int_equal(tt_algorithm_write(a, &shape, &s), ncclSuccess);
    expect_neighbours(s, tt_layout_packed(l, shape.channel), shape.rank);
    all[i] = s;
  }
  for (int k = 0; k < 4; k++) {
    char why[700];
    tt_verify_options o = {
        .func = f, .root = root, .slots = 1 + k / 2, .loops = 1 + k / 2, .in_place = k % 2, .stages = stages};
    if (tt_verify(all, &o, why, sizeof why) != ncclSuccess) {
      fail_msg("%s, %s, %d ranks, root %d: %s", name, tt_func_name(f), n, root, why);
    }
  }
  for (int i = 0; i < stages * n; i++) {
    tt_schedule_free((tt_schedule *)(uintptr_t)all[i]);
  }
}

static void verify_machine(const char *name, tt_topo *t)
{
  tt_packing p = {0};
  if (tt_topo_count(t, TT_NODE_GPU) <= MOST_GPUS) {
    assert_int_equal(tt_pack(t, TT_PACK_TREES, &p), ncclSuccess);
  }
  if (p.ntrees > 0) {
    tt_layout *l = layout_of(&p, TT_MIN(p.ntrees, STAGES));
    expect_right(name, l, TT_FUNC_ALLREDUCE, 0);
    expect_right(name, l, TT_FUNC_BROADCAST, p.ngpus / 2);
    expect_right(name, l, TT_FUNC_REDUCE, p.ngpus - 1);
    tt_layout_destroy(l);
  }
  tt_packing_clear(&p);
  tt_topo_destroy(t);
}

static void verify_file(const char *path)
{
  verify_machine(path, rig_build(rig_read(path), NULL));
}

static void schedules(void **state)
{
  (void)state;
  rig_each_machine(verify_file);
  for (int seed = 0; seed < MACHINES; seed++) {
    char name[32], *text = random_document((uint64_t)seed, (random_size){8, 0, 1});
    snprintf(name, sizeof name, "seed %d", seed);
    verify_machine(name, rig_build(rig_xml(text), NULL));
    free(text);
  }
}

// ---- Operations ----

typedef struct trial {
  const char *file, *algo;
  int n;
  bool nodes; // two machines
  bool packs;
} trial;

static void set_environment(const trial *t, int rank)
{
  setenv("NCCL_TOPO_FILE", t->file, 1);
  if (t->file[0] == 0) {
    unsetenv("NCCL_TOPO_FILE");
  }
  if (t->algo != NULL) {
    setenv("NCCL_ALGO", t->algo, 1);
  }
  if (t->nodes) {
    setenv("NCCL_HOSTID", rank < t->n / 2 ? "node0" : "node1", 1);
  }
}

// Do ranks have links with neighbours in packed trees only?
static void expect_links(ncclComm_t comm)
{
  const tt_channels *c = &comm->layout->channels;
  for (int peer = 0; peer < comm->nranks; peer++) {
    bool linked = peer != comm->rank && comm->port.links[peer] != NULL, near = false;
    for (int k = 0; k < c->npacked && linked; k++) {
      const int *ups = tt_layout_packed(comm->layout, k);
      near |= ups[peer] == comm->rank || ups[comm->rank] == peer;
    }
    CHECK(!linked || near, "ranks %d and %d have a link, and are neighbours in no tree", comm->rank, peer);
  }
}

static void expect_choice(ncclComm_t comm, const trial *t)
{
  tt_choice c;
  int npacked = comm->layout->channels.npacked;
  bool asked = t->algo != NULL && strcmp(t->algo, "Packed") == 0;
  CHECK((npacked > 0) == t->packs, "%d packed trees", npacked);
  for (size_t bytes = 8; bytes <= (size_t)1 << 30; bytes *= 4) {
    OK(tt_tuning_choose(comm, TT_FUNC_ALLREDUCE, bytes, 0, false, &c));
    CHECK((c.algo == TT_ALGO_PACKED) == asked, "%zu bytes: algorithm %d", bytes, c.algo);
  }
  CHECK(!asked || !t->packs || c.channels == npacked, "%d channels of %d trees", c.channels, npacked);
}

static void check_sum(const int32_t *out, size_t count, int n, int rank)
{
  for (size_t i = 0; i < count; i++) {
    CHECK(out[i] == n * (n - 1) / 2 + n * (int32_t)(i % 1000), "rank %d: element %zu of %zu is %d", rank, i, count,
          out[i]);
  }
}

static void run_operations(ncclComm_t comm, cudaStream_t stream)
{
  size_t most = ((size_t)1 << 20) / SLOWER;
  int n = comm->nranks, rank = comm->rank, root = n / 2;
  int32_t *in = calloc(most, sizeof *in), *out = calloc(most, sizeof *out);
  for (size_t count = 1; count <= most; count = count * 37 + 2) {
    for (size_t i = 0; i < count; i++) {
      in[i] = rank + (int32_t)(i % 1000);
    }
    OK(ncclAllReduce(in, out, count, ncclInt32, ncclSum, comm, stream));
    OK(tuttiStreamSynchronize(stream));
    check_sum(out, count, n, rank);
    OK(ncclReduce(in, in, count, ncclInt32, ncclSum, root, comm, stream));
    OK(tuttiStreamSynchronize(stream));
    if (rank == root) {
      check_sum(in, count, n, rank);
    }
    memset(out, 0, count * sizeof *out);
    OK(ncclBroadcast(in, out, count, ncclInt32, root, comm, stream));
    OK(tuttiStreamSynchronize(stream));
    check_sum(out, count, n, rank);
  }
  free(in);
  free(out);
}

static void process_body(int rank, void *arg)
{
  const trial *t = arg;
  set_environment(t, rank);
  ncclComm_t comm = NULL;
  ncclUniqueId id = shared_id(0, rank);
  tuttiSetDevice(t->nodes ? rank % (t->n / 2) : rank);
  OK(ncclCommInitRank(&comm, t->n, id, rank));
  expect_choice(comm, t);
  run_operations(comm, NULL);
  if (t->packs) {
    expect_links(comm);
  }
  OK(ncclCommDestroy(comm));
}

static void thread_of_rank(int rank, void *arg)
{
  world *w = arg;
  OK(tuttiSetDevice(rank));
  run_operations(w->comm[rank], w->stream[rank]);
}

static void threads_body(int rank, void *arg)
{
  const trial *t = arg;
  world w;
  set_environment(t, rank);
  world_open(&w, t->n);
  expect_choice(w.comm[0], t);
  run_threads(t->n, thread_of_rank, &w);
  expect_links(w.comm[t->n - 1]);
  world_close(&w);
}

#define KNOWN(name) RIG_MACHINES "/known/" name "/input.xml"

static void along_trees(void **state)
{
  (void)state;
  static const struct {
    const char *file;
    int n;
  } machines[] = {{KNOWN("dgx1v_8xV100_4nic"), 8},
                  {KNOWN("fuzz_00"), 6},
                  {KNOWN("hgx_h100_8gpu_nvswitch_8nic"), 8},
                  {KNOWN("rtx3090_4gpu_2pairs_sm86"), 4},
                  {RIG_MACHINES "/amd/topo_8p6l.xml", 8}};
  for (size_t i = 0; i < TT_COUNT(machines); i++) {
    trial t = {.file = machines[i].file, .algo = "Packed", .n = machines[i].n, .packs = true};
    PROCESSES(1, LIMIT, threads_body, &t);
    if (i % 2 == 0) {
      PROCESSES(t.n, LIMIT, process_body, &t);
    }
  }
}

// Only where it is asked for, on one machine that is described. Elsewhere "Packed" does what "Tree" does.
static void not_elsewhere(void **state)
{
  (void)state;
  const char *file = KNOWN("dgx1v_8xV100_4nic");
  PROCESSES(4, LIMIT, process_body, (&(trial){.file = file, .n = 4}));
  PROCESSES(4, LIMIT, process_body, (&(trial){.file = file, .n = 4, .algo = "Ring"}));
  PROCESSES(4, LIMIT, process_body, (&(trial){.file = file, .n = 4, .algo = "Packed", .nodes = true}));
  PROCESSES(4, LIMIT, process_body, // its groups meet over the network
            (&(trial){.file = KNOWN("pcie_4gpu_2socket_sw"), .n = 4, .algo = "Packed"}));
  PROCESSES(3, LIMIT, process_body, (&(trial){.file = "", .n = 3, .algo = "Packed"}));
  // Others may be chosen, too: then they are.
  PROCESSES(4, LIMIT, process_body, (&(trial){.file = file, .n = 4, .algo = "Packed,Ring", .packs = true}));
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(schedules),
      cmocka_unit_test(along_trees),
      cmocka_unit_test(not_elsewhere),
  };
  return RUN_TESTS("packed", tests, argc, argv);
}
