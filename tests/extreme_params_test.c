// No value of a variable breaks anything: extreme ones are used, or refused with a text that names the variable. One
// process each.
#include "harness.h"

#include "base/param.h"
#include "base/util.h"

enum { COUNT = 5000, PATIENCE_S = 20 };

static const char *const extremes[] = {
    "0", "1", "-1", "9223372036854775807", "-9223372036854775808", "99999999999999999999999"};

typedef struct {
  const char *name, *value;
} setting;

static int *sent[2], *got[2];

// A call has succeeded, or the text of what was wrong names the variable; then this process is done.
static void want(ncclResult_t res, const setting *s)
{
  if (res != ncclSuccess) {
    CHECK(strstr(ncclGetLastError(NULL), s->name) != NULL, "%s=%s is refused with a text that does not name it",
          s->name, s->value);
    exit(0);
  }
}

// Communicators may be non-blocking (NCCL_COMM_BLOCKING).
static void settle(ncclComm_t comm, const setting *s)
{
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    OK(ncclCommGetAsyncError(comm, &state));
    sched_yield();
  }
  want(state, s);
}

// A time-out of a millisecond may come in a healthy job; its text names the variable, too.
static void add_up(world *w, size_t count, const setting *s)
{
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    OK(ncclAllReduce(sent[i], got[i], count, ncclInt, ncclSum, w->comm[i], w->stream[i]));
  }
  OK(ncclGroupEnd());
  for (int i = 0; i < 2; i++) {
    ncclResult_t res = tuttiStreamSynchronize(w->stream[i]);
    CHECK(res == ncclSuccess || res == ncclTimeout, "%s=%s: result %d: %s", s->name, s->value, (int)res,
          ncclGetLastError(NULL));
    want(res, s);
  }
  for (size_t k = 0; k < count; k++) {
    CHECK(got[0][k] == 2 * (int)k + 1 && got[1][k] == got[0][k], "element %zu of %zu", k, count);
  }
}

static void live_with(int rank, void *arg)
{
  (void)rank;
  const setting *s = arg;
  world w = {.n = 2};
  setenv(s->name, s->value, 1);
  for (int i = 0; i < 2; i++) {
    sent[i] = calloc(COUNT, sizeof(int));
    got[i] = calloc(COUNT, sizeof(int));
    want(tuttiSetDevice(i), s);
    OK(tuttiStreamCreate(&w.stream[i], TUTTI_STREAM_DEFAULT));
    for (int k = 0; k < COUNT; k++) {
      sent[i][k] = k + i;
    }
  }
  ncclResult_t res = ncclCommInitAll(w.comm, 2, NULL);
  want(res == ncclInProgress ? ncclSuccess : res, s);
  for (int i = 0; i < 2; i++) {
    settle(w.comm[i], s);
  }
  add_up(&w, 2, s);
  add_up(&w, COUNT, s);
  world_close(&w);
  for (int i = 0; i < 2; i++) {
    free(sent[i]);
    free(got[i]);
  }
}

static bool is_used_number(const tt_param_row *row)
{
  return row->type == TT_PARAM_TYPE_INT && (row->flags & TT_PARAM_IGNORED) == 0;
}

// Every number that the library uses, between ranks that have memory in common, and over sockets.
static void lives_with_all(void **state)
{
  (void)state;
  static const char *const ways[][3] = {{NULL}, {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", NULL}};
  int bad = 0;
  for (size_t i = 0; i < tt_param_count() * TT_COUNT(extremes) * TT_COUNT(ways); i++) {
    const tt_param_row *row = tt_param_row_at(i / TT_COUNT(ways) / TT_COUNT(extremes));
    setting s = {.name = row->name, .value = extremes[i / TT_COUNT(ways) % TT_COUNT(extremes)]};
    run r = {.n = 1, .seconds = PATIENCE_S, .fn = live_with, .arg = &s, .env = ways[i % TT_COUNT(ways)]};
    if (is_used_number(row) && run_processes(&r) != 0) {
      print_error("%s=%s, way %zu\n", s.name, s.value, i % TT_COUNT(ways));
      bad++;
    }
  }
  assert_int_equal(bad, 0);
}

// Every row, also those that mean nothing here: a number is read as it stands or refused, never as another one.
static void reads_all(void **state)
{
  (void)state;
  static const int64_t means[] = {0, 1, -1, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < tt_param_count(); i++) {
    const tt_param_row *row = tt_param_row_at(i);
    for (size_t k = 0; k < TT_COUNT(extremes); k++) {
      int64_t value = 42;
      bool text = row->type == TT_PARAM_TYPE_STR, fits = k < TT_COUNT(means);
      assert_int_equal(tt_param_parse_value(row->type, extremes[k], &value), text || fits);
      if (!text) {
        assert_true(value == (!fits ? 42 : row->type == TT_PARAM_TYPE_BOOL ? means[k] != 0 : means[k]));
      }
    }
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_all),
      cmocka_unit_test(lives_with_all),
  };
  return RUN_TESTS("extreme_params_test", tests, argc, argv);
}
