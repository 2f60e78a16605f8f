// The machine's figures: ranks that have others agree on rank 0's, and choices follow from them.
#include "folder.h"
#include "harness.h"

#include <math.h>

#include "tools/preview.h"
#include "comm/comm.h"
#include "comm/tuning.h"
#include "comm/tuning_priv.h"
#include "figures/figures.h"
#include "tools/figures.h"

enum { RANKS = 3, FLOATS = 20000 };

// ---- Ranks with different files ----

// Figures that differ from rank to rank: the kernel's copies begin ever later.
static tt_figures figures_of(int rank)
{
  tt_figures f = tt_figures_default();
  f.measured = 1;
  f.when = 1700000000 + rank;
  f.value[TT_FIG_CALL_START] *= 1u << 2 * rank;
  return f;
}

static void write_figures(const char *path, int rank)
{
  char text[TT_FIGURES_MAX_BYTES], why[TT_OWN_FILE_WHY];
  tt_machine_kind kind = tt_machine_kind_get();
  tt_figures f = figures_of(rank);
  size_t n = tt_figures_write(&f, &kind, "box", text);
  CHECK(tt_own_file_write(path, text, n, why), "%s: %s", path, why);
}

// A rank's sums in all sizes around the limits, each `more` eighths larger than the one before; wrong ones end it.
static void sum_some(ncclComm_t comm, int n, size_t more)
{
  static float in[FLOATS], out[FLOATS];
  for (size_t count = 1; count <= FLOATS; count += count * more / 8 + 1) {
    for (size_t k = 0; k < count; k++) {
      in[k] = (float)(k % 7);
    }
    OK(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, NULL));
    OK(tuttiStreamSynchronize(NULL));
    for (size_t k = 0; k < count; k++) {
      CHECK(out[k] == (float)n * (float)(k % 7), "%zu floats, element %zu: %g", count, k, (double)out[k]);
    }
  }
}

static void differ_body(int rank, void *arg)
{
  char path[128], log[128];
  (void)arg;
  snprintf(path, sizeof path, "%s/figures.%d", folder, rank);
  snprintf(log, sizeof log, "%s/log.%d", folder, rank);
  write_figures(path, rank);
  if (rank == 2) {
    CHECK(truncate(path, 40) == 0, "%s cannot be cut", path); // the last one's is broken
  }
  setenv("NCCL_HOST_FIGURES", path, 1);
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,TUNING", 1);
  setenv("NCCL_DEBUG_FILE", log, 1);
  ncclComm_t comm = join_processes(0, RANKS, rank);
  const tt_figures *f = &comm->peers[0].figures, mine = figures_of(0);
  CHECK(tt_figures_same(f, &mine) && f->measured == 1 && f->when == mine.when,
        "rank %d reckons with others than rank 0's", rank);
  sum_some(comm, RANKS, 8);
  OK(ncclCommDestroy(comm));
}

// What a rank has logged; the caller frees it.
static char *log_of(int rank)
{
  char name[16];
  snprintf(name, sizeof name, "log.%d", rank);
  return text_of(in_folder(name));
}

static void says(int rank, const char *words)
{
  char *log = log_of(rank);
  if (strstr(log, words) == NULL) {
    fail_msg("rank %d does not say \"%s\" but\n%s", rank, words, log);
  }
  free(log);
}

static void ranks_differ(void **state)
{
  (void)state;
  PROCESSES(RANKS, 30, differ_body, NULL);
  for (int r = 0; r < RANKS; r++) {
    says(r, "figures of rank 0's machine, measured 2023-11-14 22:13 UTC: line_ps ");
  }
  char *log = log_of(0);
  assert_null(strstr(log, "others than rank 0's"));
  free(log);
  says(1, "others than rank 0's");
  says(2, "the figures of this machine are not used, the library reckons with its own");
}

// ---- A rank that reckons otherwise ----

// Logarithms as another machine's library might have them, but further off, so that it shows in every limit.
static double off;

double log(double x)
{
  return (double)logl((long double)x) + off;
}

static void reckons_body(int rank, void *arg)
{
  (void)arg;
  off = rank == 0 ? 0 : 0.3;
  setenv("NCCL_HOST_FIGURES", in_folder("figures"), 1);
  ncclComm_t comm = join_processes(0, 2, rank);
  tt_limits mine, *used = &comm->tuning->limits;
  OK(tt_tuning_limits(&comm->tuning->figures, &mine));
  bool ll = mine.ll == used->ll, copy = mine.direct_copy == used->direct_copy;
  CHECK(ll == (rank == 0) && copy == (rank == 0),
        "rank %d finds LL up to %zu, direct access from %zu; used are %zu and %zu", rank, mine.ll, mine.direct_copy,
        used->ll, used->direct_copy);
  sum_some(comm, 2, 1);
  OK(ncclCommDestroy(comm));
}

// Rank 0's limits hold, not what each rank finds from rank 0's figures: ranks that choose apart wait for each other for
// ever.
static void one_reckons(void **state)
{
  (void)state;
  write_figures(in_folder("figures"), 0);
  PROCESSES(2, 30, reckons_body, NULL);
}

// ---- Choices ----

static const char *algorithm(tt_preview *p, size_t bytes)
{
  tt_choice c;
  double us;
  OK(tt_preview_choose(p, TT_FUNC_ALLREDUCE, bytes, &c, &us));
  CHECK(us > 0, "%zu bytes take no time", bytes);
  return tt_algorithms(NULL)[c.algo].name;
}

// The smallest size, in steps of a quarter, from which two processes reach into each other's memory.
static size_t direct_from(const tt_figures *f)
{
  tt_preview *p = NULL;
  size_t bytes = 256;
  OK(tt_preview_create(&(tt_preview_env){.figures = *f, .nranks = 2, .cores = 2}, &p));
  while (bytes < 64u << 20 && strcmp(algorithm(p, bytes), "Direct") != 0) {
    bytes += bytes / 4;
  }
  tt_preview_destroy(p);
  return bytes;
}

static void choices_body(int rank, void *arg)
{
  tt_figures own = tt_figures_default(), quick = own, slow = own;
  (void)rank, (void)arg;
  size_t unmeasured = direct_from(&own);
  CHECK(unmeasured >= 32768 && unmeasured < 40960, "without figures: direct from %zu, not from 32768", unmeasured);
  own.measured = quick.measured = slow.measured = 1;
  quick.value[TT_FIG_CALL_START] /= 4;
  slow.value[TT_FIG_CALL_START] *= 2;
  size_t from = direct_from(&own), sooner = direct_from(&quick), later = direct_from(&slow);
  CHECK(sooner < from, "calls that begin soon: direct from %zu, else from %zu", sooner, from);
  CHECK(later > from, "calls that begin late: direct from %zu, else from %zu", later, from);
}

static void choices_follow(void **state)
{
  (void)state;
  PROCESSES(1, 30, choices_body, NULL);
}

// The user's own threshold goes before figures.
static void user_body(int rank, void *arg)
{
  tt_figures slow = tt_figures_default();
  (void)rank, (void)arg;
  setenv("NCCL_HOST_DIRECT_THRESHOLD", "1000", 1);
  slow.measured = 1;
  slow.value[TT_FIG_CALL_START] *= 8;
  size_t from = direct_from(&slow);
  CHECK(from >= 1000 && from < 1250, "direct from %zu, not from 1000", from);
}

static void user_goes_before(void **state)
{
  (void)state;
  PROCESSES(1, 30, user_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(ranks_differ, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(one_reckons, open_folder, close_folder),
      cmocka_unit_test(choices_follow),
      cmocka_unit_test(user_goes_before),
  };
  return RUN_TESTS("figures", tests, argc, argv);
}
