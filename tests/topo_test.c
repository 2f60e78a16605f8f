// The communicator on a machine that a file describes: the same channels on every rank, those of NCCL's known results;
// bad files fail on every rank; hosts without a file.
#include "folder.h"
#include "harness.h"

#include "base/util.h"
#include "comm/comm.h"
#include "comm/topology.h"

#define KNOWN "tests/topologies/known/"
#define MACHINE "hgx_h100_8gpu_nvswitch_8nic"
#define MACHINE_FILE KNOWN MACHINE "/input.xml"

enum { GPUS = 8, LIMIT = 60 };

static void write_text(const char *path, const char *text, size_t size)
{
  FILE *f = fopen(path, "w");
  CHECK(f != NULL && fwrite(text, 1, size, f) == size && fclose(f) == 0, "cannot write %s", path);
}

// A result of NCCL's for so many of the machine; "" when the build folder is not known.
static const char *known_path(int nodes, const char *what)
{
  static char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/topologies/known/" MACHINE "/%dnodes.%s",
           getenv("TUTTI_BUILD") != NULL ? getenv("TUTTI_BUILD") : "", nodes, what);
  return path;
}

static void same_text(const char *a, const char *b)
{
  char *x = text_of(a), *y = text_of(b);
  CHECK(x[0] != 0 && strcmp(x, y) == 0, "%s (%zu bytes) is not %s (%zu bytes)", a, strlen(x), b, strlen(y));
  free(x);
  free(y);
}

static void say(const char *name, const char *value)
{
  OK(value != NULL && setenv(name, value, 1) == 0 ? ncclSuccess : ncclSystemError);
}

// --- What all ranks must find

// Every ring and tree of a communicator.
static uint64_t fingerprint(const tt_topology *t)
{
  int nchannels = 0, *orders = NULL, n = t->connect->nranks;
  OK(tt_topology_rings(t, &nchannels, &orders));
  uint64_t h = tt_hash(orders, (size_t)nchannels * (size_t)n * sizeof(int), (uint64_t)nchannels);
  for (int i = 0; i < nchannels * n; i++) {
    tt_tree_place p = tt_connect_tree(t->connect, i / n, i % n);
    h = tt_hash(&p, sizeof p, h);
  }
  for (int ch = 0; ch < nchannels; ch++) { // each rank once, and from rank 0
    uint64_t seen = 0;
    for (int i = 0; i < n; i++) {
      seen |= 1ull << orders[ch * n + i];
    }
    CHECK(seen == (n == 64 ? ~0ull : (1ull << n) - 1) && orders[ch * n] == 0, "channel %d is no permutation", ch);
  }
  tt_free(orders);
  h = tt_hash(&t->p2p, sizeof t->p2p, h);
  return tt_hash(t->model.bandwidth, sizeof t->model.bandwidth, h);
}

// All ranks of the run have the same.
static void all_agree(ncclComm_t comm, int base)
{
  int n = comm->nranks;
  atomic_store(&the_board->word[base + comm->rank], fingerprint(comm->topology));
  meet(n);
  for (int r = 0; r < n; r++) {
    CHECK(the_board->word[base + r] == the_board->word[base], "rank %d has other channels than rank 0", r);
  }
}

static void add_up(ncclComm_t comm)
{
  long x = comm->rank + 1, n = comm->nranks;
  OK(ncclAllReduce(&x, &x, 1, ncclInt64, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(x == n * (n + 1) / 2, "rank %d: the sum is %ld", comm->rank, x);
}

static ncclComm_t join(int slot, int n, int rank, int device)
{
  OK(tuttiSetDevice(device));
  return join_processes(slot, n, rank);
}

// --- One machine

static void one_body(int rank, void *arg)
{
  (void)arg;
  say("NCCL_TOPO_FILE", MACHINE_FILE);
  say("NCCL_TOPO_DUMP_FILE", in_folder("topo.xml"));
  say("NCCL_TOPO_DUMP_FILE_RANK", "3"); // not the leader
  say("NCCL_GRAPH_DUMP_FILE", in_folder("graphs.xml"));
  ncclComm_t comm = join(0, GPUS, rank, rank);
  all_agree(comm, 0);
  CHECK(!comm->topology->plain && comm->topology->connect->nchannels == 24 &&
            comm->topology->connect->nvls_channels == 16,
        "%d channels, %d for NVLS", comm->topology->connect->nchannels, comm->topology->connect->nvls_channels);
  add_up(comm);
  OK(ncclCommDestroy(comm));
}

// The dump is a description of the same machine.
static void again_body(int rank, void *arg)
{
  (void)arg;
  say("NCCL_TOPO_FILE", in_folder("topo.xml"));
  say("NCCL_TOPO_DUMP_FILE", in_folder("topo2.xml"));
  say("NCCL_GRAPH_DUMP_FILE", in_folder("graphs2.xml"));
  OK(ncclCommDestroy(join(0, GPUS, rank, rank)));
}

static void one_machine(void **state)
{
  (void)state;
  PROCESSES(GPUS, LIMIT, one_body, NULL);
  PROCESSES(GPUS, LIMIT, again_body, NULL);
  same_text(in_folder("topo.xml"), in_folder("topo2.xml"));
  same_text(in_folder("graphs.xml"), in_folder("graphs2.xml"));
  if (getenv("TUTTI_BUILD") != NULL) {
    same_text(in_folder("graphs.xml"), known_path(1, "graphs.xml"));
  }
}

// --- Two of them

static void node_of(int rank)
{
  char name[16];
  snprintf(name, sizeof name, "node%d", rank / GPUS);
  say("NCCL_HOSTID", name);
}

// The numbers behind a line's ':'. Returns how many.
static int numbers(const char *line, int *out, int max)
{
  int n = 0;
  char *end = NULL;
  for (const char *at = strchr(line, ':') + 1; n < max; at = end) {
    out[n] = (int)strtol(at, &end, 10);
    if (end == at) {
      break;
    }
    n++;
  }
  return n;
}

// The log's rings and trees are those of the known results.
static void compare_log(const char *log, const char *known, int rank, int n)
{
  char *l = text_of(log), *k = text_of(known), *save = NULL, head[32];
  int rings = 0, a[MAX_RANKS], b[MAX_RANKS];
  snprintf(head, sizeof head, "rank %d : ", rank);
  for (char *line = strtok_r(k, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
    if (strncmp(line, "ring ", 5) == 0 && rank == 0) {
      char channel[32];
      snprintf(channel, sizeof channel, "Channel %02d/16 :", rings++);
      const char *mine = strstr(l, channel);
      CHECK(mine != NULL, "no '%s' in the log", channel);
      CHECK(numbers(mine, a, n) == n && numbers(line, b, n) == n && memcmp(a, b, (size_t)n * sizeof(int)) == 0,
            "not as known: %s", line);
    } else if (strncmp(line, head, strlen(head)) == 0) {
      const char *mine = strstr(l, "Trees ");
      const char *trees = line + strlen(head);
      CHECK(mine != NULL && strncmp(mine + 6, trees, strlen(trees)) == 0 &&
                strchr("\n ", mine[6 + strlen(trees)]) != NULL,
            "not as known: %s", line);
      rings += rank != 0;
    }
  }
  CHECK(rings > 0 && strstr(l, "16 coll channels") != NULL, "nothing was compared");
  free(l);
  free(k);
}

static void two_body(int rank, void *arg)
{
  const bool *graphs = arg;
  char log[32];
  snprintf(log, sizeof log, "log%d", rank);
  node_of(rank);
  say("NCCL_TOPO_FILE", MACHINE_FILE);
  say("NCCL_DEBUG", "INFO");
  say("NCCL_DEBUG_SUBSYS", "INIT,GRAPH");
  say("NCCL_DEBUG_FILE", in_folder(log));
  say(*graphs ? "NCCL_GRAPH_FILE" : "NCCL_GRAPH_DUMP_FILE",
      *graphs ? known_path(2, "graphs.xml") : in_folder("graphs.xml"));
  ncclComm_t comm = join(0, 2 * GPUS, rank, rank % GPUS);
  all_agree(comm, 0);
  CHECK(comm->topology->connect->nnodes == 2 && comm->topology->connect->nshapes == 1, "%d nodes of %d kinds",
        comm->topology->connect->nnodes, comm->topology->connect->nshapes);
  if (*graphs) {
    compare_log(in_folder(log), known_path(2, "channels.txt"), rank, 2 * GPUS);
  }
  add_up(comm);
  OK(ncclCommDestroy(comm));
}

static void two_machines(void **state)
{
  (void)state;
  for (int graphs = 0; graphs < 2 && (graphs == 0 || getenv("TUTTI_BUILD") != NULL); graphs++) {
    bool from_file = graphs == 1;
    PROCESSES(2 * GPUS, LIMIT, two_body, &from_file);
  }
  char *text = text_of(in_folder("graphs.xml"));
  assert_non_null(
      strstr(text, "<graph id=\"0\" pattern=\"4\" crossnic=\"2\" nchannels=\"8\" speedintra=\"48\" speedinter=\"48\""));
  free(text);
}

// --- Graph files: what a run wrote, the same run reads

// Machines whose ranks fall into two groups, and several ranks on a GPU, which files tell apart by ranks.
typedef struct graphs_run {
  const char *file;
  int nranks, nnodes, ngpus;
  const char *dumper; // whose group is written
  bool read;          // the second time
} graphs_run;

static void graphs_body(int rank, void *arg)
{
  const graphs_run *g = arg;
  int local = rank % (g->nranks / g->nnodes);
  char host[16];
  snprintf(host, sizeof host, "node%d", rank * g->nnodes / g->nranks);
  say("NCCL_HOSTID", host);
  say("NCCL_TOPO_FILE", g->file);
  say("NCCL_GRAPH_DUMP_FILE_RANK", g->dumper);
  say("NCCL_GRAPH_DUMP_FILE", in_folder(g->read ? "second.xml" : "first.xml"));
  if (g->read) {
    say("NCCL_GRAPH_FILE", in_folder("first.xml"));
  }
  ncclComm_t comm = join(0, g->nranks, rank, local % g->ngpus);
  all_agree(comm, 0);
  add_up(comm);
  OK(ncclCommDestroy(comm));
}

static void graph_files(void **state)
{
  (void)state;
  const char *groups = KNOWN "pcie_4gpu_2socket_sw/input.xml";
  graphs_run all[] = {{.file = groups, .nranks = 4, .nnodes = 1, .ngpus = 4, .dumper = "0"},
                      {.file = groups, .nranks = 4, .nnodes = 1, .ngpus = 4, .dumper = "3"},
                      {.file = groups, .nranks = 8, .nnodes = 2, .ngpus = 4, .dumper = "6"},
                      {.file = MACHINE_FILE, .nranks = 8, .nnodes = 2, .ngpus = 2, .dumper = "0"}};
  char *texts[TT_COUNT(all)];
  for (size_t i = 0; i < TT_COUNT(all); i++) {
    PROCESSES(all[i].nranks, LIMIT, graphs_body, &all[i]);
    all[i].read = true;
    PROCESSES(all[i].nranks, LIMIT, graphs_body, &all[i]);
    same_text(in_folder("first.xml"), in_folder("second.xml"));
    texts[i] = text_of(in_folder("first.xml"));
  }
  assert_non_null(strstr(texts[0], "rank=\"0\""));
  assert_null(strstr(texts[0], "rank=\"3\""));
  assert_non_null(strstr(texts[1], "rank=\"3\""));
  assert_null(strstr(texts[1], "rank=\"0\""));
  assert_non_null(strstr(texts[2], "rank=\"6\""));
  assert_non_null(strstr(texts[3], "<gpu dev=\"0x1\" rank=\"3\"/>"));
  for (size_t i = 0; i < TT_COUNT(all); i++) {
    free(texts[i]);
  }
}

// --- Operations follow the channels

// Is `peer` beside the rank in some channel's ring or tree?
static bool is_neighbour(const tt_connect *c, int rank, int peer)
{
  bool yes = false;
  for (int ch = 0; ch < c->nchannels; ch++) {
    tt_tree_place t = tt_connect_tree(c, ch, rank);
    yes |= peer == tt_connect_ring_step(c, ch, rank, 1) || peer == tt_connect_ring_step(c, ch, rank, -1);
    yes |= peer == t.up || peer == t.down[0] || peer == t.down[1] || peer == t.down[2];
  }
  return yes;
}

static void sum_large(ncclComm_t comm, int32_t *in, int32_t *out, size_t count)
{
  int n = comm->nranks;
  for (size_t i = 0; i < count; i++) {
    in[i] = comm->rank + (int32_t)(i % 1000);
  }
  OK(ncclAllReduce(in, out, count, ncclInt32, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  for (size_t i = 0; i < count; i++) {
    CHECK(out[i] == n * (n - 1) / 2 + n * (int32_t)(i % 1000), "rank %d: element %zu of %zu is %d", comm->rank, i,
          count, out[i]);
  }
}

// Two machines; data go along the rings and trees of the topology, and nowhere else.
static void walk_body(int rank, void *arg)
{
  const char *algo = arg;
  size_t most = 1 << 20;
  node_of(rank);
  say("NCCL_TOPO_FILE", MACHINE_FILE);
  if (*algo != 0) {
    say("NCCL_ALGO", algo);
  }
  ncclComm_t comm = join(0, 2 * GPUS, rank, rank % GPUS);
  int32_t *in = malloc(most * sizeof *in), *out = malloc(most * sizeof *out);
  for (size_t count = 1; count <= most / SLOWER; count = count * 16 + 1) {
    sum_large(comm, in, out, count);
  }
  const tt_connect *c = comm->topology->connect;
  CHECK(comm->layout->channels.count == c->nchannels && c->nchannels > 1, "%d channels, of %d",
        comm->layout->channels.count, c->nchannels);
  int links = 0;
  for (int p = 0; p < comm->nranks; p++) {
    bool linked = p != rank && comm->port.links[p] != NULL;
    CHECK(!linked || is_neighbour(c, rank, p), "ranks %d and %d have a link, and are neighbours in no channel", rank,
          p);
    links += linked;
  }
  CHECK(links > 0, "rank %d has no links", rank);
  free(in);
  free(out);
  OK(ncclCommDestroy(comm));
}

static void operations_follow(void **state)
{
  (void)state;
  char none[] = "", ring[] = "Ring", tree[] = "Tree";
  PROCESSES(2 * GPUS, LIMIT, walk_body, none);
  PROCESSES(2 * GPUS, LIMIT, walk_body, ring);
  PROCESSES(2 * GPUS, LIMIT, walk_body, tree);
}

// --- Ranks that see different things

// The leader has no file: it sits beside the others' machine.
static void leaderless_body(int rank, void *arg)
{
  (void)arg;
  if (rank != 0) {
    say("NCCL_TOPO_FILE", MACHINE_FILE);
  }
  ncclComm_t comm = join(0, 4, rank, rank);
  all_agree(comm, 0);
  CHECK(!comm->topology->plain && comm->topology->connect->machine.cc_min == 0 &&
            comm->topology->connect->machine.cc_max == 90,
        "compute capabilities %d to %d", comm->topology->connect->machine.cc_min,
        comm->topology->connect->machine.cc_max);
  add_up(comm);
  OK(ncclCommDestroy(comm));
}

// Rank 2's file differs in the CPUs' model; node1 has no file, and its ranks look for their networks in different ways.
// `arg`: the rank that writes what it knows of node0.
static void differ_body(int rank, void *arg)
{
  const char *const *dumper = arg;
  char log[32];
  node_of(rank);
  snprintf(log, sizeof log, "log%d", rank);
  say("NCCL_DEBUG", "INFO");
  say("NCCL_DEBUG_SUBSYS", "INIT,GRAPH");
  say("NCCL_DEBUG_FILE", in_folder(log));
  say("NCCL_TOPO_DUMP_FILE_RANK", *dumper);
  if (rank < GPUS) {
    say("NCCL_TOPO_FILE", rank == 2 || rank == 6 ? in_folder("copy.xml") : MACHINE_FILE);
    say("NCCL_TOPO_DUMP_FILE", in_folder(*dumper));
  } else if (rank == GPUS + 1) {
    say("NCCL_SOCKET_IFNAME", "lo");
  }
  ncclComm_t comm = join(0, GPUS + 2, rank, rank % GPUS);
  all_agree(comm, 0);
  const tt_connect *c = comm->topology->connect;
  CHECK(c->nnodes == 2 && c->nshapes == 2 && c->shapes[0].ngpus == GPUS && c->shapes[1].ngpus == 2 &&
            !comm->topology->plain,
        "%d nodes of %d kinds", c->nnodes, c->nshapes);
  CHECK(c->shapes[0].graph[TT_GRAPH_RING].type_intra == TT_PATH_NVL, "rank 2 or 6 is not on the machine");
  add_up(comm);
  OK(ncclCommDestroy(comm));
}

static void different_views(void **state)
{
  (void)state;
  char *text = text_of(MACHINE_FILE);
  for (char *at = text; (at = strstr(at, "modelid=\"")) != NULL;) {
    at += strlen("modelid=\"");
    *at = '9';
  }
  write_text(in_folder("copy.xml"), text, strlen(text));
  free(text);
  const char *dumpers[] = {"0", "2", "5"}; // the leader, the other one, one like the leader
  for (size_t i = 0; i < TT_COUNT(dumpers); i++) {
    PROCESSES(GPUS + 2, LIMIT, differ_body, &dumpers[i]);
  }
  same_text(in_folder("2"), in_folder("0"));
  same_text(in_folder("5"), in_folder("0"));
  text = text_of(in_folder("log0"));
  assert_non_null(
      strstr(text, "ranks 0 and 2 are on one node and do not see the same machine (ranks that differ from rank 0: 2)"));
  assert_null(strstr(text, "ranks 0 and 3 are"));
  assert_null(strstr(text, "ranks 0 and 6 are"));
  assert_non_null(strstr(text, "=== System"));
  free(text);
  text = text_of(in_folder("log8")); // leads a node without a machine: there is nothing to look at
  assert_non_null(strstr(text, "Init COMPLETE"));
  assert_null(strstr(text, "=== System"));
  assert_null(strstr(text, "do not see"));
  free(text);
  PROCESSES(4, LIMIT, leaderless_body, NULL);
}

// --- Bad files

typedef struct bad {
  const char *name, *value; // a variable; value NULL: a file of the folder
  const char *file;
  int only; // on this rank alone; -1: on all
  const char *words[3];
} bad;

static void bad_body(int rank, void *arg)
{
  const bad *b = arg;
  ncclComm_t comm = NULL;
  say("NCCL_TOPO_FILE", MACHINE_FILE);
  if (b->only < 0 || b->only == rank) {
    say(b->name, b->value != NULL ? b->value : in_folder(b->file));
  }
  ncclUniqueId id = shared_id(0, rank);
  OK(tuttiSetDevice(rank));
  meet(4);
  holdings before = holdings_now();
  before.descriptors++; // the mailbox stays
  ncclResult_t res = ncclCommInitRank(&comm, 4, id, rank);
  CHECK(res != ncclSuccess && comm == NULL, "rank %d: %s=%s is taken", rank, b->name, b->value);
  for (int i = 0; i < 3 && b->words[i] != NULL; i++) {
    CHECK(strstr(ncclGetLastError(NULL), b->words[i]) != NULL, "rank %d: '%s' is missing", rank, b->words[i]);
  }
  meet(4);
  holdings after = holdings_settled(&before);
  CHECK(after.descriptors <= before.descriptors && after.threads <= before.threads,
        "rank %d: %d descriptors and %d threads, %d and %d before", rank, after.descriptors, after.threads,
        before.descriptors, before.threads);
}

static void bad_files(void **state)
{
  (void)state;
  static const bad all[] = {
      {.name = "NCCL_TOPO_FILE",
       .value = "/nowhere/topo.xml",
       .only = -1,
       .words = {"/nowhere/topo.xml", "No such file"}},
      {.name = "NCCL_TOPO_FILE",
       .value = "/nowhere/topo.xml",
       .only = 2,
       .words = {"/nowhere/topo.xml", "No such file"}},
      {.name = "NCCL_TOPO_FILE", .file = "cut.xml", .only = -1, .words = {"cut.xml:", "unclosed"}},
      {.name = "NCCL_TOPO_FILE", .file = "cut.xml", .only = 3, .words = {"cut.xml:", "unclosed"}},
      {.name = "NCCL_TOPO_FILE", .file = "empty.xml", .only = -1, .words = {"empty.xml"}},
      {.name = "NCCL_TOPO_FILE", .file = "graphs.xml", .only = -1, .words = {"graphs.xml:1", "<system>"}},
      {.name = "NCCL_GRAPH_FILE", .file = "graphs.xml", .only = -1, .words = {"graphs.xml:", "dev"}},
      {.name = "NCCL_GRAPH_FILE", .value = "/nowhere/graphs.xml", .only = 0, .words = {"/nowhere/graphs.xml"}},
      {.name = "NCCL_GRAPH_DUMP_FILE", .value = "/nowhere/graphs.xml", .only = -1, .words = {"/nowhere/graphs.xml"}},
      {.name = "NCCL_TOPO_DUMP_FILE", .value = "/nowhere/topo.xml", .only = -1, .words = {"/nowhere/topo.xml"}},
      {.name = "NCCL_NTHREADS", .value = "128", .only = 2, .words = {"NCCL_NTHREADS", "rank 2"}},
      {.name = "NCCL_MAX_NCHANNELS", .value = "3", .only = 1, .words = {"NCCL_MAX_NCHANNELS", "rank 1"}},
  };
  char *text = text_of(MACHINE_FILE);
  write_text(in_folder("cut.xml"), text, strlen(text) / 2);
  write_text(in_folder("empty.xml"), "", 0);
  free(text);
  static const char graphs[] =
      "<graphs version=\"1\">\n"
      "  <graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"1\" speedintra=\"1\" speedinter=\"1\" "
      "typeintra=\"NVL\" typeinter=\"PIX\" samechannels=\"1\">\n    <channel><gpu dev=\"0x33\"/></channel>\n"
      "  </graph>\n</graphs>\n";
  write_text(in_folder("graphs.xml"), graphs, sizeof graphs - 1);
  for (size_t i = 0; i < TT_COUNT(all); i++) {
    print_message("%s=%s on %d\n", all[i].name, all[i].value != NULL ? all[i].value : all[i].file, all[i].only);
    PROCESSES(4, LIMIT, bad_body, (void *)(uintptr_t)&all[i]);
  }
}

// Settings of the search on one rank of a node alone: its first rank's hold for the node, and its log says so.
static void settings_body(int rank, void *arg)
{
  const int *only = arg;
  say("NCCL_TOPO_FILE", MACHINE_FILE);
  say("NCCL_DEBUG", "INFO");
  say("NCCL_DEBUG_SUBSYS", "INIT");
  say("NCCL_DEBUG_FILE", in_folder(rank == 0 ? "log" : "other_log"));
  if (rank == *only) {
    say("NCCL_NVLS_ENABLE", "0");
    say("NCCL_CROSS_NIC", "1");
  }
  ncclComm_t comm = join(0, GPUS, rank, rank);
  all_agree(comm, 0);
  CHECK(comm->topology->connect->nvls_channels == (*only == 0 ? 0 : 16), "%d channels for NVLS",
        comm->topology->connect->nvls_channels);
  add_up(comm);
  OK(ncclCommDestroy(comm));
}

static void settings_of_one(void **state)
{
  (void)state;
  for (int only = 0; only <= 3; only += 3) {
    PROCESSES(GPUS, LIMIT, settings_body, &only);
    char *text = text_of(in_folder("log")), want[120];
    snprintf(want, sizeof want, "NCCL_CROSS_NIC has different values on ranks 0 and %d", only == 0 ? 1 : only);
    assert_non_null(strstr(text, want));
    assert_non_null(strstr(text, "NCCL_NVLS_ENABLE has different values"));
    assert_null(strstr(text, "NCCL_NVB_DISABLE"));
    free(text);
    text = text_of(in_folder("other_log"));
    assert_null(strstr(text, "different values"));
    free(text);
  }
}

// A rank without a place in the file sits beside its CPU, and rank 0's log says so.
static void stray_body(int rank, void *arg)
{
  (void)arg;
  say("NCCL_TOPO_FILE", MACHINE_FILE);
  say("NCCL_DEBUG", "WARN");
  say("NCCL_DEBUG_FILE", in_folder(rank == 0 ? "log" : "other_log"));
  ncclComm_t comm = join(0, 3, rank, rank == 1 ? GPUS : rank);
  all_agree(comm, 0);
  add_up(comm);
  OK(ncclCommDestroy(comm));
}

static void rank_without_place(void **state)
{
  (void)state;
  PROCESSES(3, LIMIT, stray_body, NULL);
  char *text = text_of(in_folder("log"));
  assert_non_null(strstr(text, "no GPU number 8 for rank 1"));
  free(text);
  text = text_of(in_folder("other_log"));
  assert_null(strstr(text, "no GPU number"));
  free(text);
}

// --- Threads, splits, many lives

static void split_one(int rank, void *arg)
{
  world *w = arg;
  ncclComm_t child = NULL;
  OK(tuttiSetDevice(rank));
  OK(ncclCommSplit(w->comm[rank], rank % 2, -rank, &child, NULL));
  int n = child->nranks;
  CHECK(n == GPUS / 2 && child->topology->connect->nranks == n, "%d ranks", child->topology->connect->nranks);
  uint64_t f = fingerprint(child->topology);
  CHECK(f != 0 && child->topology->connect->shapes[0].graph[TT_GRAPH_RING].type_intra == TT_PATH_NVL,
        "the child has no machine");
  w->stream[rank] = (cudaStream_t)(uintptr_t)f;
  OK(ncclCommDestroy(child));
}

static void threads_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  say("NCCL_TOPO_FILE", MACHINE_FILE);
  world w;
  world_open(&w, GPUS);
  uint64_t first = fingerprint(w.comm[0]->topology);
  for (int i = 1; i < GPUS; i++) {
    CHECK(fingerprint(w.comm[i]->topology) == first, "rank %d has other channels", i);
  }
  world split = w;
  run_threads(GPUS, split_one, &split);
  for (int i = 2; i < GPUS; i++) {
    CHECK(split.stream[i] == split.stream[i % 2], "rank %d's child has other channels", i);
  }
  world_close(&w);
}

// Several ranks on each GPU, more ranks than the machine has GPUs.
static void crowd_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  enum { MANY = 64 / (SLOWER > 1 ? 2 : 1) };
  int devices[MANY];
  ncclComm_t comm[MANY];
  say("NCCL_TOPO_FILE", MACHINE_FILE);
  for (int i = 0; i < MANY; i++) {
    devices[i] = i % GPUS;
  }
  OK(ncclCommInitAll(comm, MANY, devices));
  uint64_t first = fingerprint(comm[0]->topology);
  for (int i = 0; i < MANY; i++) {
    CHECK(fingerprint(comm[i]->topology) == first, "rank %d has other channels", i);
    OK(ncclCommDestroy(comm[i]));
  }
}

static void lives_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  holdings before = {0};
  say("NCCL_TOPO_FILE", MACHINE_FILE);
  for (int i = 0; i < 60 / SLOWER + 40; i++) {
    world w;
    world_open(&w, 2);
    world_close(&w);
    before = i == 39 ? holdings_now() : before;
  }
  holdings now = holdings_settled(&before);
  CHECK(now.descriptors <= before.descriptors && now.threads <= before.threads, "%d descriptors, %d before",
        now.descriptors, before.descriptors);
#if SLOWER == 1
  CHECK(now.rss_kib <= before.rss_kib + 1024, "%ld KiB, %ld before", now.rss_kib, before.rss_kib);
#endif
}

// Every allocation fails once.
static void memory_body(int rank, void *arg)
{
  (void)rank, (void)arg;
  ncclComm_t comm = NULL;
  int failed = 0; // some can be done without
  long left = 0;
  say("NCCL_TOPO_FILE", MACHINE_FILE);
  say("NCCL_TOPO_DUMP_FILE", "/dev/null");
  say("NCCL_GRAPH_DUMP_FILE", "/dev/null");
  say("NCCL_DEBUG", "NONE");
  for (int k = 1; left <= 0; k++) {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    tt_alloc_fail_at(k);
    ncclResult_t res = ncclCommInitRank(&comm, 1, id, 0);
    left = tt_alloc_fail_at(0);
    failed += res != ncclSuccess;
    if (res == ncclSuccess) {
      OK(ncclCommDestroy(comm));
    }
  }
  CHECK(failed > 60, "only %d failures", failed);
}

static void in_threads(void **state)
{
  (void)state;
  PROCESSES(1, LIMIT, memory_body, NULL);
  PROCESSES(1, LIMIT, threads_body, NULL);
  PROCESSES(1, LIMIT, crowd_body, NULL);
  PROCESSES(1, LIMIT, lives_body, NULL);
}

// --- Hosts that no file describes

static void plain_body(int rank, void *arg)
{
  const char *const *channels = arg;
  if (*channels != NULL) {
    say("NCCL_MIN_NCHANNELS", *channels);
    say("NCCL_GRAPH_DUMP_FILE", in_folder("plain.xml"));
    say("NCCL_TOPO_DUMP_FILE", in_folder("host.xml"));
  }
  ncclComm_t comm = join(0, 4, rank, rank);
  const tt_topology *t = comm->topology;
  all_agree(comm, 0);
  CHECK(t->plain && tt_topology_channels(t) == 1, "%d channels", tt_topology_channels(t));
  CHECK(t->model.nranks == 0, "a model of GPUs that nobody asks for");
  for (int i = 0; i < 4; i++) {
    CHECK(tt_connect_ring_step(t->connect, 0, i, 1) == (i + 1) % 4, "the ring is not in the order of ranks");
  }
  add_up(comm);
  OK(ncclCommDestroy(comm));
}

// Two nodes of processes, ranks dealt out in turn.
static void plain_nodes_body(int rank, void *arg)
{
  (void)arg;
  say("NCCL_HOSTID", rank % 2 == 0 ? "even" : "odd");
  ncclComm_t comm = join(0, 6, rank, rank / 2);
  const tt_connect *c = comm->topology->connect;
  all_agree(comm, 0);
  CHECK(c->nnodes == 2 && c->nshapes == 1, "%d nodes of %d kinds", c->nnodes, c->nshapes);
  CHECK(tt_connect_ring_step(c, 0, 0, 1) == 2 && tt_connect_ring_step(c, 0, 4, 1) % 2 == 1,
        "the ring leaves a node more than once");
  add_up(comm);
  OK(ncclCommDestroy(comm));
}

static void plain_hosts(void **state)
{
  (void)state;
  const char *channels = NULL;
  PROCESSES(4, LIMIT, plain_body, &channels);
  channels = "5";
  PROCESSES(4, LIMIT, plain_body, &channels);
  PROCESSES(6, LIMIT, plain_nodes_body, NULL);
  char *text = text_of(in_folder("plain.xml"));
  assert_non_null(strstr(text, "nchannels=\"1\""));
  assert_null(strstr(text, "nchannels=\"4\""));
  free(text);
  text = text_of(in_folder("host.xml"));
  assert_non_null(strstr(text, "class=\"0x0b4000\""));
  free(text);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(one_machine, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(two_machines, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(graph_files, open_folder, close_folder),
      cmocka_unit_test(operations_follow),
      cmocka_unit_test_setup_teardown(different_views, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(bad_files, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(settings_of_one, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(rank_without_place, open_folder, close_folder),
      cmocka_unit_test(in_threads),
      cmocka_unit_test_setup_teardown(plain_hosts, open_folder, close_folder),
  };
  return RUN_TESTS("topo", tests, argc, argv);
}
