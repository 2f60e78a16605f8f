// tuner_test.c: tuner plugins of every version in a job: what they are given, and that their choice is what runs. The
// plugins are tests/plugins/tuner.h.
#include "harness.h"
#include "programs.h"

#include <limits.h>

enum { RANKS = 4, COUNT = 4096 };

static char record_file[64], log_file[64];

// The environment of a run with the test tuner of a version.
static void use_tuner(int version, const char *answer)
{
  char path[4096];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/tests/plugins/libtuner_v%d.so", build != NULL ? build : "build", version);
  snprintf(record_file, sizeof record_file, "/tmp/tutti_tuner_%d.txt", (int)getpid());
  snprintf(log_file, sizeof log_file, "/tmp/tutti_tuner_%d.log", (int)getpid());
  setenv("NCCL_TUNER_PLUGIN", path, 1);
  setenv("TEST_TUNER_RECORD", record_file, 1);
  setenv("NCCL_DEBUG", "TRACE", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,TUNING", 1);
  setenv("NCCL_DEBUG_FILE", log_file, 1);
  if (answer != NULL) {
    setenv("TEST_TUNER_ANSWER", answer, 1);
  }
}

static char *text_of(const char *name)
{
  static char text[4u << 20];
  FILE *f = fopen(name, "r");
  CHECK(f != NULL, "no %s", name);
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = '\0';
  return text;
}

static int times(const char *text, const char *what)
{
  int n = 0;
  for (const char *p = text; (p = strstr(p, what)) != NULL; p++) {
    n++;
  }
  return n;
}

#define RECORDED(what) times(text_of(record_file), what)
#define LOGGED(what) times(text_of(log_file), what)

static void forget(void)
{
  remove(record_file);
  remove(log_file);
}

static float *data[RANKS];

static void fill(void)
{
  for (int i = 0; i < RANKS; i++) {
    data[i] = data[i] != NULL ? data[i] : malloc(COUNT * sizeof(float));
    for (int k = 0; k < COUNT; k++) {
      data[i][k] = (float)(i + k);
    }
  }
}

static void free_data(void)
{
  for (int i = 0; i < RANKS; i++) {
    free(data[i]);
    data[i] = NULL;
  }
}

// An all-reduce in place, checked.
static void sum(const world *w, size_t count)
{
  fill();
  for (int i = 0; i < w->n; i++) {
    OK(ncclAllReduce(data[i], data[i], count, ncclFloat, ncclSum, w->comm[i], w->stream[i]));
  }
  world_wait(w);
  for (size_t k = 0; k < count; k++) {
    float want = (float)(w->n * (w->n - 1) / 2 + w->n * (int)k);
    CHECK(data[0][k] == want && data[w->n - 1][k] == want, "element %zu: %g and %g, not %g", k, (double)data[0][k],
          (double)data[w->n - 1][k], (double)want);
  }
}

static const char version_of_run[] = "TUTTI_TEST_VERSION";

static int version(void)
{
  const char *text = getenv(version_of_run);
  return text != NULL ? atoi(text) : 6;
}

// ---- Every version ----

static void choice_follows(int rank, void *arg)
{
  world w;
  char text[160];
  int v = version();
  (void)rank;
  (void)arg;
  use_tuner(v, "0,2,0"); // tree, simple
  world_open(&w, RANKS);
  sum(&w, COUNT);
  sum(&w, COUNT);
  snprintf(text, sizeof text, "init v%d ranks 4 nodes 1\n", v);
  CHECK(RECORDED(text) == RANKS, "init: %s", text_of(record_file));
  snprintf(text, sizeof text, "ask v%d func 4 bytes 16384 ", v);
  CHECK(RECORDED(text) == 2 * RANKS, "each operation is asked for: %s", text_of(record_file));
  if (v == 2) {
    CHECK(RECORDED("collnet 0 nvls 0 ops 1 in -1 -1 0\n") == 2 * RANKS, "%s", text_of(record_file));
  } else {
    CHECK(RECORDED("ops 1 table 7x3 ") == 2 * RANKS, "%s", text_of(record_file));
    CHECK(RECORDED(v == 3 ? "registered -1 in 0" : "registered 0 in 0") == 2 * RANKS, "%s", text_of(record_file));
  }
  CHECK(RECORDED("world named domains 1 of 4 to 4 base 6.8 hw 14.00 ll 141.0\n") == (v >= 5 ? RANKS : 0), "%s",
        text_of(record_file));
  CHECK(RECORDED("chunk func 4 bytes 16384 algo 0 proto 2 channels 1 size ") == (v == 6 ? 2 * RANKS : 0), "%s",
        text_of(record_file));
  CHECK(LOGGED("AllReduce of 16384 bytes: Tree, Simple, 1 channels, chunks of ") == 3 * RANKS, "%s", text_of(log_file));
  snprintf(text, sizeof text, "bytes, decided by Test (v%d)", v);
  CHECK(LOGGED(text) == 2 * RANKS, "%s: %s", text, text_of(log_file));
  snprintf(text, sizeof text, "TUNER/Plugin: Test (v%d) decides AllReduce of 16384 bytes: Tree, Simple", v);
  CHECK(LOGGED(text) == RANKS, "%s: %s", text, text_of(log_file));
  snprintf(text, sizeof text, "TUNER/Plugin: Using Test (v%d)\n", v);
  CHECK(LOGGED(text) == RANKS && LOGGED("test tuner v") == RANKS, "%s: %s", text, text_of(log_file));
  world_close(&w);
  CHECK(RECORDED("end v") == RANKS, "%s", text_of(record_file));
  forget();
  free_data();
}

static void test_choice_follows(void **state)
{
  (void)state;
  for (int v = 2; v <= 6; v++) {
    char text[64];
    snprintf(text, sizeof text, "%s=%d", version_of_run, v);
    assert_int_equal(run_processes(&(run){.n = 1, .seconds = 20, .fn = choice_follows, .env = ENV(text)}), 0);
  }
}

// ---- What plugins do wrong ----

typedef struct mistake {
  const char *answer, *complaint;
} mistake;

static void mistake_is_told(int rank, void *arg)
{
  const mistake *m = arg;
  world w;
  (void)rank;
  use_tuner(version(), m->answer);
  world_open(&w, RANKS);
  sum(&w, COUNT);
  sum(&w, COUNT / 2);
  CHECK(LOGGED(m->complaint) == RANKS, "'%s' is told once per rank: %s", m->complaint, text_of(log_file));
  CHECK(LOGGED("decided by") == 0 && LOGGED("left as it was by Test") == 2 * RANKS, "%s", text_of(log_file));
  world_close(&w);
  forget();
  free_data();
}

static void test_mistakes(void **state)
{
  static const mistake list[] = {{"error", "returned 3 (internal error"},
                                 {"touch", "which cannot be had here, a cost; such costs are ignored"},
                                 {"nan", "the cost nan; such costs are ignored"},
                                 {"none", "leaves nothing for function 4 of 16384 bytes; the library chooses"}};
  (void)state;
  for (int i = 0; i < 4; i++) {
    PROCESSES(1, 20, mistake_is_told, (void *)&list[i]);
  }
  mistake half = {"9,2,0", "returned 4 (invalid argument"};
  assert_int_equal(run_processes(&(run){
                       .n = 1, .seconds = 20, .fn = mistake_is_told, .arg = &half, .env = ENV("TUTTI_TEST_VERSION=2")}),
                   0);
}

static void init_fails(int rank, void *arg)
{
  world w;
  (void)rank;
  (void)arg;
  use_tuner(version(), "0,2,0");
  setenv("TEST_TUNER_INIT", "fail", 1);
  world_open(&w, RANKS);
  sum(&w, COUNT);
  CHECK(LOGGED("is not used: init of Test (v") == RANKS && RECORDED("ask") == 0 && RECORDED("end") == 0, "%s",
        text_of(log_file));
  world_close(&w);
  forget();
  free_data();
}

static void test_init_fails(void **state)
{
  (void)state;
  PROCESSES(1, 20, init_fails, NULL);
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = 20, .fn = init_fails, .env = ENV("TUTTI_TEST_VERSION=3")}),
                   0);
}

// ---- Ranks that differ ----

static void answers_differ(int rank, void *arg)
{
  world w;
  (void)rank;
  (void)arg;
  use_tuner(version(), "differ");
  world_open(&w, RANKS);
  fill();
  for (int i = 0; i < RANKS; i++) {
    ncclResult_t res = ncclAllReduce(data[i], data[i], COUNT, ncclFloat, ncclSum, w.comm[i], w.stream[i]);
    CHECK(res == ncclSuccess || res == ncclInvalidUsage, "rank %d: %d", i, (int)res);
  }
  int named = 0;
  for (int i = 0; i < RANKS; i++) {
    CHECK(tuttiStreamSynchronize(w.stream[i]) != ncclSuccess, "rank %d goes through", i);
    named += strstr(ncclGetLastError(w.comm[i]), "the tuner plugin Test (v6) answers differently on rank") != NULL;
  }
  CHECK(named > 0, "%s", ncclGetLastError(w.comm[0]));
  for (int i = 0; i < RANKS; i++) {
    OK(ncclCommAbort(w.comm[i]));
    OK(tuttiStreamDestroy(w.stream[i]));
  }
  forget();
  free_data();
}

static void test_answers_differ(void **state)
{
  (void)state;
  PROCESSES(1, 30, answers_differ, NULL);
}

// The plugin decides on rank 0 and leaves rank 1's choice alone: the error says so.
static void one_decides(int rank, void *arg)
{
  static const char wanted[] =
      "the tuner plugin Test (v6) decides on rank 0, and on rank 1 leaves alone, operation 1 AllReduce";
  float x[1024] = {1};
  (void)arg;
  use_tuner(6, rank == 0 ? "0,2,0" : NULL); // tree, simple
  setenv("NCCL_ALGO", "Ring,Tree", 1);
  setenv("NCCL_PROTO", "LL,Simple", 1);
  ncclComm_t comm = join_processes(0, 2, rank);
  ncclResult_t res = ncclAllReduce(x, x, 1024, ncclFloat, ncclSum, comm, NULL);
  bool good = res == ncclSuccess && tuttiStreamSynchronize(NULL) == ncclSuccess;
  const char *said = ncclGetLastError(comm);
  bool named = strstr(said, wanted) != NULL;
  CHECK(!good && (named || strstr(said, "which has failed") != NULL), "%s", said);
  atomic_fetch_add(&the_board->word[0], named);
  meet(2);
  CHECK(atomic_load(&the_board->word[0]) > 0, "nobody says why: %s", said);
  OK(ncclCommAbort(comm));
  forget();
}

static void test_one_decides(void **state)
{
  (void)state;
  PROCESSES(2, 30, one_decides, NULL);
}

// Process 1 has no tuner: nobody uses one.
static void one_has_none(int rank, void *arg)
{
  float x[2] = {1, 1};
  (void)arg;
  use_tuner(6, "0,2,0");
  if (rank == 1) {
    setenv("NCCL_TUNER_PLUGIN", "none", 1);
  }
  ncclComm_t comm = join_processes(0, 2, rank);
  OK(ncclAllReduce(x, x, 2, ncclFloat, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(x[0] == 2, "%g", (double)x[0]);
  CHECK(LOGGED("no tuner plugin is used: rank 0 has one, rank 1 has none") == 1, "%s", text_of(log_file));
  if (rank == 0) {
    CHECK(RECORDED("ask") == 0 && RECORDED("end v6") == 1, "%s", text_of(record_file));
  }
  OK(ncclCommDestroy(comm));
  forget();
}

static void test_one_has_none(void **state)
{
  (void)state;
  PROCESSES(2, 20, one_has_none, NULL);
}

// Small calls run inside the call that launches them, by programs of what the tuner chose. It is asked once for each.
static void small_calls_have_programs(int rank, void *arg)
{
  enum { CALLS = 3, FEW = 16 };
  world w;
  (void)rank;
  (void)arg;
  use_tuner(version(), "0,0,0"); // tree, LL
  world_open(&w, RANKS);
  for (int i = 0; i < CALLS; i++) {
    sum(&w, FEW);
  }
  for (int i = 0; i < RANKS; i++) {
    CHECK(programs_of(w.comm[i], TT_FUNC_ALLREDUCE) == 1, "rank %d has no program", i);
  }
  CHECK(RECORDED("ask v6 func 4 bytes 64 ") == CALLS * RANKS, "%s", text_of(record_file));
  world_close(&w);
  forget();
  free_data();
}

static void test_small_calls_have_programs(void **state)
{
  (void)state;
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = 20, .fn = small_calls_have_programs}), 0);
}

// ---- What else is asked and given ----

static void chunks(int rank, void *arg)
{
  world w;
  (void)rank;
  (void)arg;
  use_tuner(6, "1,2,0");
  world_open(&w, RANKS);
  static const char *const wanted[][2] = {{"1000", "chunks of 960 bytes"},
                                          {"1", "chunks of 64 bytes"},
                                          {"0", "the library chooses"},
                                          {"99999999999", "are cut to "}};
  for (int i = 0; i < 4; i++) {
    setenv("TEST_TUNER_CHUNK", wanted[i][0], 1);
    sum(&w, COUNT);
    CHECK(LOGGED(wanted[i][1]) > 0, "%s: %s", wanted[i][1], text_of(log_file));
  }
  world_close(&w);
  forget();
  free_data();
}

static void test_chunks(void **state)
{
  (void)state;
  PROCESSES(1, 20, chunks, NULL);
}

// Registered buffers, groups, simulation, functions without a row.
static void questions(int rank, void *arg)
{
  world w;
  void *handle[RANKS];
  double us = -1;
  (void)rank;
  (void)arg;
  use_tuner(5, NULL);
  world_open(&w, RANKS);
  fill();
  for (int i = 0; i < RANKS; i++) {
    OK(ncclCommRegister(w.comm[i], data[i], COUNT * sizeof(float), &handle[i]));
  }
  sum(&w, COUNT);
  CHECK(RECORDED("registered 1 ") == RANKS, "%s", text_of(record_file));
  for (int i = 0; i < RANKS; i++) {
    OK(ncclCommDeregister(w.comm[i], handle[i]));
  }
  OK(ncclGroupStart());
  for (int i = 0; i < 2 * RANKS; i++) {
    OK(ncclBroadcast(data[i % RANKS], data[i % RANKS], 10, ncclFloat, 1, w.comm[i % RANKS], w.stream[i % RANKS]));
  }
  OK(ncclGroupEnd());
  world_wait(&w);
  CHECK(RECORDED("func 0 bytes 40 ops 2 table") == 2 * RANKS, "%s", text_of(record_file));
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  int before = RECORDED("func 1 ");
  OK(ncclGroupStart());
  OK(ncclReduce(data[0], data[0], 100, ncclFloat, ncclMax, 0, w.comm[0], w.stream[0]));
  OK(ncclGroupSimulateEnd(&info));
  us = (double)info.estimatedTime;
  CHECK(us > 0 && RECORDED("func 1 ") == before + 1, "%g: %s", us, text_of(record_file));
  CHECK(LOGGED("decided by") == 0, "a plugin that changes nothing decides nothing: %s", text_of(log_file));
  world_close(&w);
  forget();
  free_data();
}

static void test_questions(void **state)
{
  (void)state;
  PROCESSES(1, 20, questions, NULL);
}

// A described machine: its predicted times, and constants that change them.
static void constants(int rank, void *arg)
{
  world w;
  const char *changed = getenv("TEST_TUNER_CONSTANTS");
  (void)rank;
  (void)arg;
  use_tuner(version(), NULL);
  setenv("NCCL_TOPO_FILE", "tests/topologies/known/hgx_h100_8gpu_nvswitch_8nic/input.xml", 1);
  world_open(&w, RANKS);
  sum(&w, 1000);
  // Ring, LL: the model's, or a million microseconds more.
  CHECK(RECORDED(" 1e+06 1e+06 1e+06 ") == (changed != NULL ? RANKS : 0), "%s", text_of(record_file));
  CHECK(LOGGED("; it has changed constants of the model\n") == (changed != NULL ? RANKS : 0), "%s", text_of(log_file));
  world_close(&w);
  forget();
  free_data();
}

static void test_constants(void **state)
{
  (void)state;
  PROCESSES(1, 20, constants, NULL);
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = 20, .fn = constants, .env = ENV("TEST_TUNER_CONSTANTS=1")}),
                   0);
  assert_int_equal(
      run_processes(
          &(run){.n = 1, .seconds = 20, .fn = constants, .env = ENV("TEST_TUNER_CONSTANTS=1", "TUTTI_TEST_VERSION=5")}),
      0);
}

// More ranks than the cost model is asked for: a rough table, which has the same entries.
static void many_ranks(int rank, void *arg)
{
  enum { MANY = 20 };
  world w;
  float x[MANY];
  (void)rank;
  (void)arg;
  use_tuner(6, "0,0,0");
  world_open(&w, MANY);
  for (int i = 0; i < MANY; i++) {
    x[i] = 1;
    OK(ncclAllReduce(&x[i], &x[i], 1, ncclFloat, ncclSum, w.comm[i], w.stream[i]));
  }
  world_wait(&w);
  CHECK(x[0] == MANY && x[MANY - 1] == MANY, "%g and %g", (double)x[0], (double)x[MANY - 1]);
  CHECK(RECORDED("table 7x3 registered 0 in 0 costs -1") == 0 && RECORDED("costs ") == MANY, "%s",
        text_of(record_file));
  CHECK(LOGGED("AllReduce of 4 bytes: Tree, LL, 1 channels, chunks of ") == 2 * MANY, "%s", text_of(log_file));
  world_close(&w);
  forget();
}

static void test_many_ranks(void **state)
{
  (void)state;
  PROCESSES(1, 30, many_ranks, NULL);
}

static void many_communicators(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  use_tuner(6, "1,2,0");
  unsetenv("NCCL_DEBUG");
  for (int i = 0; i < 1000; i++) { // the library comes and goes with them
    ncclComm_t comm[2];
    OK(ncclCommInitAll(comm, 2, NULL));
    OK(ncclCommDestroy(comm[0]));
    OK(ncclCommDestroy(comm[1]));
  }
  CHECK(RECORDED("init v6") == 2000 && RECORDED("end v6") == 2000, "begun and ended alike");
  forget();
}

static void test_many_communicators(void **state)
{
  (void)state;
  PROCESSES(1, 60, many_communicators, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_choice_follows),     cmocka_unit_test(test_mistakes),
      cmocka_unit_test(test_init_fails),         cmocka_unit_test(test_answers_differ),
      cmocka_unit_test(test_one_has_none),       cmocka_unit_test(test_chunks),
      cmocka_unit_test(test_questions),          cmocka_unit_test(test_constants),
      cmocka_unit_test(test_many_communicators), cmocka_unit_test(test_many_ranks),
      cmocka_unit_test(test_one_decides),        cmocka_unit_test(test_small_calls_have_programs),
  };
  return RUN_TESTS("tuner plugins", tests, argc, argv);
}
