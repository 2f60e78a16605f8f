// Time lines that are made up: what is refused, two clocks brought together, who waited for whom.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "trace_tool.h"

enum { FILES = 4 };

static char folder[] = "/tmp/tutti-trace-tool-XXXXXX";
static char paths[FILES][128];
static char *names[FILES] = {paths[0], paths[1], paths[2], paths[3]};

static const char *write_file(int i, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static const char *write_file(int i, const char *fmt, ...)
{
  FILE *f = fopen(paths[i], "w");
  assert_non_null(f);
  va_list ap;
  va_start(ap, fmt);
  vfprintf(f, fmt, ap);
  va_end(ap);
  fclose(f);
  return paths[i];
}

#define OTHER(rank, clock, skew)                                                                                                       \
  "\"otherData\":{\"tutti_trace\":1,\"rank\":" rank                                                                                    \
  ",\"ranks\":3,\"comm\":\"0x1\",\"name\":\"\",\"host\":\"h\",\"pid\":7,\"clock\":\"" clock "\",\"realtime_minus_monotonic_ns\":" skew \
  ",\"lost_ring_full\":2,\"lost_disk\":0}"
#define OP(ts, dur, seq)                                                                               \
  "{\"name\":\"AllReduce\",\"cat\":\"op\",\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":" ts ",\"dur\":" dur \
  ",\"args\":{\"bytes\":1000,\"seq\":" seq "}}"
#define ARROW(ph, id, ts) "{\"name\":\"message\",\"ph\":\"" ph "\",\"id\":\"" id "\",\"pid\":0,\"tid\":1,\"ts\":" ts "}"

static void refuses_what_is_no_time_line(void **state)
{
  (void)state;
  static const char *const bad[] = {
      "",
      "{",
      "[]",
      "{\"traceEvents\":[]}",
      "{\"traceEvents\":{}," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[]," OTHER("3", "a", "0") "}", // no such rank
      "{\"traceEvents\":[]," OTHER("-1", "a", "0") "}",
      "{\"traceEvents\":[]," OTHER("\"0\"", "a", "0") "}",
      "{\"traceEvents\":[],\"otherData\":{\"tutti_trace\":2}}",
      "{\"traceEvents\":[5]," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"n\"}]," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[{\"ph\":\"Q\",\"name\":\"n\",\"pid\":0,\"tid\":0,\"ts\":1}]," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[{\"ph\":\"M\",\"name\":\"process_sort_index\"}]," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[{\"ph\":\"M\",\"name\":\"process_name\",\"args\":3}]," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[" OP("-1", "1", "0") "]," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[" OP("1e300", "1", "0") "]," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[" OP("1", "\"1\"", "0") "]," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[" OP("1", "1", "-5") "]," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[{\"name\":\"message\",\"ph\":\"s\",\"pid\":0,\"tid\":1,\"ts\":1}]," OTHER("0", "a", "0") "}",
  };
  xt_trace t;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (xt_load(write_file(0, "%s", bad[i]), &t)) {
      fail_msg("taken: %s", bad[i]);
    }
  }
  assert_false(xt_load("/nonexistent/file.json", &t));
  assert_false(xt_load("/tmp", &t));
  assert_true(xt_load(write_file(0, "%s", "{\"traceEvents\":[" OP("1", "1", "5") "]," OTHER("0", "a", "0") "}"), &t));
  assert_int_equal(t.lost, 2);
  xt_unload(&t);
}

// What says that it is one and is none has no arguments that were looked at.
static void operations_are_slices(void **state)
{
  (void)state;
  xt_job job;
  write_file(
      0, "%s",
      "{\"traceEvents\":[{\"name\":\"n\",\"cat\":\"op\",\"ph\":\"M\",\"args\":{}},{\"name\":\"message\",\"cat\":\"op\",\"ph\":\"s\",\"id\":\"a\","
      "\"pid\":0,\"tid\":1,\"ts\":1}," OP("1", "1", "5") "]," OTHER("0", "a", "0") "}");
  assert_true(xt_job_open(&job, names, 1));
  assert_int_equal(job.nops, 1);
  xt_job_close(&job);
}

// A file with a hole, larger than any memory it might be given: nothing of it is read.
static void refuses_what_is_too_large(void **state)
{
  (void)state;
  xt_job job;
  assert_int_equal(truncate(write_file(0, "{}"), (off_t)3 << 30), 0);
  assert_false(xt_fit(names, 1));
  assert_false(xt_job_open(&job, names, 1));
  write_file(0, "{}");
  assert_true(xt_fit(names, 1));
}

static void refuses_a_rank_twice(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s", "{\"traceEvents\":[]," OTHER("0", "a", "0") "}");
  write_file(1, "%s", "{\"traceEvents\":[]," OTHER("0", "a", "0") "}");
  assert_false(xt_job_open(&job, names, 2));
  assert_true(xt_job_open(&job, names, 1));
  assert_int_equal(job.nops, 0);
  xt_job_close(&job);
}

// Clock b is 500 us ahead of a. Messages take 10 us and more one way, 30 us the other: the shift is found within 20 us.
static void messages_bring_clocks_together(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s",
             "{\"traceEvents\":[" ARROW("s", "m1", "1000") "," ARROW("s", "m2", "2000") "," ARROW("f", "m3", "3000") "," OP(
                 "1000", "100", "0") "]," OTHER("0", "a", "0") "}");
  write_file(1, "%s",
             "{\"traceEvents\":[" ARROW("f", "m1", "1590") "," ARROW("f", "m2", "2510") "," ARROW("s", "m3", "3470") "," OP(
                 "1540", "60", "0") "]," OTHER("1", "b", "9000000") "}");
  assert_true(xt_job_open(&job, names, 2));
  assert_int_equal(job.nclocks, 2);
  assert_true(job.clocks[1].error == 20);
  assert_true(job.traces[1].shift == -490);
  // Rank 1 came at 1540 - 490, rank 0 at 1000.
  assert_true(job.waited[0 * 2 + 1] == 50);
  assert_true(job.waited[1 * 2 + 0] == 0);
  xt_job_close(&job);
}

static void wall_clocks_are_believed_without_messages(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s", "{\"traceEvents\":[" ARROW("s", "m1", "1000") "]," OTHER("0", "a", "5000000") "}");
  write_file(1, "%s", "{\"traceEvents\":[" ARROW("f", "m1", "1590") "]," OTHER("1", "b", "9000000") "}");
  assert_true(xt_job_open(&job, names, 2));
  assert_true(job.clocks[1].error < 0);
  assert_true(job.traces[1].shift == 4000);
  xt_job_close(&job);
}

static void the_last_one_is_waited_for(void **state)
{
  (void)state;
  xt_job job;
  char *text = NULL;
  size_t size;
  write_file(0, "%s", "{\"traceEvents\":[" OP("100", "400", "0") "," OP("1000", "10", "1") "]," OTHER("0", "a", "0") "}");
  write_file(1, "%s", "{\"traceEvents\":[" OP("300", "200", "0") "," OP("1000", "10", "1") "]," OTHER("1", "a", "0") "}");
  write_file(2, "%s", "{\"traceEvents\":[" OP("450", "50", "0") "," OP("1000", "10", "1") "]," OTHER("2", "a", "0") "}");
  assert_true(xt_job_open(&job, names, 3));
  assert_int_equal(job.nops, 6);
  assert_true(job.waited[0 * 3 + 2] == 350);
  assert_true(job.waited[1 * 3 + 2] == 150);
  assert_true(job.waited[2 * 3 + 0] == 0 && job.waited[0 * 3 + 1] == 0);
  FILE *out = open_memstream(&text, &size);
  xt_summary(&job, out);
  fclose(out);
  assert_non_null(strstr(text, "6 operations"));
  assert_non_null(strstr(text, "rank 0 of 0x1 waited 0.350 ms for others to come, most for rank 2"));
  free(text);
  out = open_memstream(&text, &size);
  assert_true(xt_merge(&job, out));
  fclose(out);
  json_t *merged = json_loads(text, 0, NULL);
  assert_int_equal(json_array_size(json_object_get(merged, "traceEvents")), 6);
  assert_true(json_number_value(json_object_get(json_array_get(json_object_get(merged, "traceEvents"), 0), "ts")) == 0);
  assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(merged, "traceEvents"), 5), "pid")), 2);
  json_decref(merged);
  free(text);
  xt_job_close(&job);
}

static int make_folder(void **state)
{
  (void)state;
  if (mkdtemp(folder) == NULL) {
    return 1;
  }
  for (int i = 0; i < FILES; i++) {
    snprintf(paths[i], sizeof paths[i], "%s/%d.json", folder, i);
  }
  return 0;
}

static int remove_folder(void **state)
{
  (void)state;
  for (int i = 0; i < FILES; i++) {
    unlink(paths[i]);
  }
  return rmdir(folder);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refuses_what_is_no_time_line),   cmocka_unit_test(operations_are_slices),
      cmocka_unit_test(refuses_what_is_too_large),      cmocka_unit_test(refuses_a_rank_twice),
      cmocka_unit_test(messages_bring_clocks_together), cmocka_unit_test(wall_clocks_are_believed_without_messages),
      cmocka_unit_test(the_last_one_is_waited_for),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
