// The table, character for character, and the JSON file, key for key.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"
#include "report.h"

static perf_options options_of(int argc, char *const *argv)
{
  perf_options o;
  perf_text text;
  assert_int_equal(perf_options_parse(&o, argc, argv, &text), PERF_RUN);
  return o;
}

static void assert_fixed(double v, int width, const char *want)
{
  char buf[32];
  perf_format_fixed(v, width, buf);
  assert_string_equal(buf, want);
}

static void test_numbers_fit(void **state)
{
  (void)state;
  assert_fixed(1.234, 7, "   1.23");
  assert_fixed(12345.678, 7, "12345.7");
  assert_fixed(123456.7, 7, " 123457");
  assert_fixed(1234567.8, 7, "1234568");
  assert_fixed(12345678.9, 7, "1.2e+07");
  assert_fixed(1234567, 6, " 1e+06");
  assert_fixed(0, 6, "  0.00");
  assert_fixed(NAN, 6, "   nan");
}

static void test_statistics(void **state)
{
  (void)state;
  double times[100];
  perf_iter_stats s;
  for (int i = 0; i < 100; i++) {
    times[i] = (i * 37) % 100 + 1;
  }
  assert_true(perf_iter_statistics(times, 100, &s));
  assert_true(s.min == 1 && s.max == 100 && s.p50 == 51 && s.p95 == 95 && s.p99 == 99);
  assert_true(fabs(s.avg - 50.5) < 1e-9 && fabs(s.stdev - 28.866) < 1e-3);
  assert_true(perf_iter_statistics(times, 1, &s));
  assert_true(s.min == 1 && s.p99 == 1 && s.stdev == 0);
}

static const perf_row row = {
    .bytes = 1048576,
    .count = 262144,
    .type = "float",
    .op = "sum",
    .root = -1,
    .result = {{.usec = 123.456,
                .alg_bw = 8.5,
                .bus_bw = 12.74,
                .checked = true,
                .stats = {1e-6, 3e-6, 2e-6, 2e-6, 3e-6, 3e-6, 1e-6}},
               {.usec = 99.9,
                .alg_bw = 10.5,
                .bus_bw = 15.75,
                .wrong = 3,
                .checked = false,
                .stats = {1e-6, 3e-6, 2e-6, 2e-6, 3e-6, 3e-6, 1e-6}}},
};

static void test_table(void **state)
{
  (void)state;
  char buf[2048];
  perf_options o = options_of(1, (char *[]){"x"});
  perf_report_columns(&o, buf, sizeof(buf));
  assert_string_equal(buf, "#\n"
                           "#                                                              out-of-place                "
                           "       in-place          \n"
                           "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
                           "time   algbw   busbw  #wrong \n"
                           "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
                           "(us)  (GB/s)  (GB/s)         \n");
  perf_report_row(&o, &row, NULL, buf, sizeof(buf));
  assert_string_equal(buf, "     1048576        262144     float     sum      -1   123.46    8.50   12.74       0    "
                           "99.90   10.50   15.75     N/A\n");
  perf_report_start(&o, "all_reduce_perf", 23007, buf, sizeof(buf));
  assert_non_null(strstr(
      buf, "# nThread 1 nGpus 1 minBytes 33554432 maxBytes 33554432 step: 1048576(bytes) warmup iters: 1 iters: 20 "
           "agg iters: 1 validation: 1 graph: 0 unalign: 0\n#\n# Using devices\n"));
  perf_report_footer("x", 0, 12.5, -1, buf, sizeof(buf));
  assert_string_equal(
      buf, "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 12.5 \n#\n# Collective test concluded: x\n");
  perf_report_footer("x", 2, 1.5, 2, buf, sizeof(buf));
  assert_string_equal(
      buf,
      "# Out of bounds values : 2 FAILED\n# Avg bus bandwidth    : 1.5 FAILED\n#\n# Collective test concluded: x\n");
  perf_device d = {
      .rank = 3, .group = 1, .pid = 77, .device = 3, .host = "box", .bus = "0000:03:00", .info = "host memory"};
  perf_report_device(&d, buf, sizeof(buf));
  assert_string_equal(buf, "#  Rank  3 Group  1 Pid     77 on        box device  3 [0000:03:00] host memory\n");
}

static void test_more_columns(void **state)
{
  (void)state;
  char buf[2048];
  perf_options o = options_of(7, (char *[]){"x", "-I", "1", "-S", "1", "-C", "1"});
  perf_report_columns(&o, buf, sizeof(buf));
  assert_string_equal(buf, "#\n"
                           "#                                                                 out-of-place (+ "
                           "per-iteration)                                "
                           "in-place (+ per-iteration)\n"
                           "#       size         count      type   redop    root  cputime   algbw   busbw  #wrong    "
                           "i_min    i_max    i_p99    i_cv%  cputime"
                           "   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%           timestamp\n"
                           "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
                           "(us)     (us)     (us)      (%)     (us)"
                           "  (GB/s)  (GB/s)             (us)     (us)     (us)      (%)   %Y-%m-%d %H:%M:%S\n");
  perf_report_row(&o, &row, "2025-01-31 10:20:30", buf, sizeof(buf));
  assert_string_equal(
      buf, "     1048576        262144     float     sum      -1   123.46    8.50   12.74       0     1.00     3.00    "
           " 3.00    "
           "50.00    99.90   10.50   15.75     N/A     1.00     3.00     3.00    50.00  2025-01-31 10:20:30\n");
  char tiny[10];
  perf_report_columns(&o, tiny, sizeof(tiny)); // cut, not overrun
  assert_int_equal(strlen(tiny), 9);
}

static void test_tuning(void **state)
{
  (void)state;
  char buf[2048];
  perf_row r = row;
  perf_options o = options_of(3, (char *[]){"x", "-U", "1"});
  perf_report_columns(&o, buf, sizeof(buf));
  assert_non_null(strstr(buf, "  #wrong  implementation            algo   proto                variant  #channels  "
                              "#warps     chunk \n"));
  assert_non_null(strstr(buf, "                 (B) \n"));
  r.tuning = (perf_tuning){"collective", "COLLNET_DIRECT", "SIMPLE", "COLLNET_DIRECT_SIMPLE", 12, 1, 524288};
  perf_report_row(&o, &r, NULL, buf, sizeof(buf));
  assert_non_null(strstr(buf,
                         "     N/A      collective  COLLNET_DIRECT  SIMPLE  COLLNET_DIRECT_SIMPLE         12       "
                         "1    524288\n"));
  perf_report_row(&o, &row, "2025-01-31 10:20:30", buf, sizeof(buf)); // nothing known
  assert_non_null(strstr(buf, "     N/A             N/A             N/A     N/A                    N/A        N/A     "
                              "N/A       N/A  2025-01-31 10:20:30\n"));
}

static void test_memory_line(void **state)
{
  (void)state;
  char buf[256];
  perf_memory m[] = {{"Initialization", 5 << 20}, {"User-Allocated", 100}, {"Collective", -2048}};
  perf_report_memory(m, 3, buf, sizeof(buf));
  assert_string_equal(buf, "# Memory usage         : Initialization 5.00 MB | User-Allocated 100 B | Collective -2.00 "
                           "KB | Total 5.00 MB \n");
}

static json_t *write_and_load(const char *path, const perf_options *o)
{
  char note[4200];
  char *argv[] = {"x", "-n", "\xff\xfe"};
  perf_json *j = perf_json_open(path, 3, argv, 23007, note, sizeof(note));
  assert_non_null(j);
  perf_device d = {.rank = 0, .pid = 77, .host = "box", .bus = "0000:00:00", .info = "host memory"};
  perf_json_config(j, o, &d, 1);
  perf_row r = row;
  double times[] = {1e-6, 3e-6}, rows[] = {1e-6, 2e-6, 1e-6, 3e-6};
  r.result[0].times = times;
  r.result[0].rows = rows;
  r.result[1].alg_bw = NAN;
  perf_json_row(j, o, &r, 2);
  perf_json_footer(j, 0, 3.5, -1);
  perf_json_errors(j, "");
  assert_true(perf_json_close(j));
  json_error_t error;
  json_t *top = json_load_file(path, 0, &error);
  assert_non_null(top);
  return top;
}

// Has the document's list of the environment this line?
static bool has_variable(const json_t *top, const char *line)
{
  const json_t *list = json_object_get(top, "env");
  for (size_t i = 0; i < json_array_size(list); i++) {
    if (strcmp(json_string_value(json_array_get(list, i)), line) == 0) {
      return true;
    }
  }
  return false;
}

static void assert_keys(const json_t *object, const char *keys)
{
  char found[512] = "";
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value)
  {
    strcat(found, *found ? " " : "");
    strcat(found, key);
  }
  assert_string_equal(found, keys);
}

static void test_json(void **state)
{
  (void)state;
  char folder[] = "/tmp/perf_report_test_XXXXXX", path[64], second[70], note[4200];
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof(path), "%s/a.JSON", folder);
  perf_options o = options_of(9, (char *[]){"x", "-n", "2", "-f", "2", "-I", "1", "-e", "64M"});
  setenv("TUTTI_COMM_ID_SECRET", "xyzzy", 1);
  setenv("TUTTI_COMM_ID", "seen", 1);
  json_t *top = write_and_load(path, &o);
  assert_true(has_variable(top, "TUTTI_COMM_ID_SECRET=(not shown)") && has_variable(top, "TUTTI_COMM_ID=seen"));
  assert_keys(
      top,
      "version start_time args env nccl_version config results out_of_bounds average_bus_bandwidth errors end_time");
  assert_keys(json_object_get(top, "config"),
              "nthreads ngpus minimum_bytes maximum_bytes step_factor warmup_iters iterations "
              "aggregated_iterations validation graph blocking_collectives per_iter_timing per_iter_skip parallel_init "
              "devices");
  json_t *one = json_array_get(json_object_get(top, "results"), 0);
  assert_keys(
      one, "size count type redop root out_of_place out_of_place_per_iter in_place actual_iterations experiment_name");
  assert_keys(json_object_get(one, "out_of_place"), "time alg_bw bus_bw nwrong");
  assert_true(json_is_null(json_object_get(json_object_get(one, "in_place"), "nwrong")));
  assert_keys(json_object_get(one, "out_of_place_per_iter"),
              "skipped_iterations min_us max_us avg_us p50_us p95_us p99_us stdev_us cv_pct "
              "times_us per_process_max_times_us");
  assert_string_equal(json_string_value(json_object_get(json_object_get(top, "average_bus_bandwidth"), "okay")),
                      "unchecked");
  assert_int_equal(json_array_size(json_object_get(top, "errors")), 0);
  assert_int_equal(json_integer_value(json_object_get(top, "version")), 4);
  json_decref(top);
  perf_json *j = perf_json_open(path, 0, NULL, 0, note, sizeof(note)); // exists: the next name is taken
  snprintf(second, sizeof(second), "%s.0", path);
  assert_int_equal(access(second, F_OK), 0);
  perf_json_close(j);
  assert_null(perf_json_open("/nonexistent/x.json", 0, NULL, 0, note, sizeof(note)));
  assert_null(perf_json_open("a.json/x", 0, NULL, 0, note, sizeof(note)));
  unlink(path);
  unlink(second);
  rmdir(folder);
}

static void test_json_tuning(void **state)
{
  (void)state;
  char path[] = "/tmp/perf_report_test_XXXXXX.json";
  int f = mkstemps(path, 5);
  assert_true(f >= 0);
  close(f);
  unlink(path);
  perf_options o = options_of(5, (char *[]){"x", "-n", "2", "-U", "1"});
  json_t *top = write_and_load(path, &o);
  json_t *tuning = json_object_get(json_array_get(json_object_get(top, "results"), 0), "tuning");
  assert_keys(tuning, "implementation algo proto variant #channels #warps chunk");
  assert_true(json_is_null(json_object_get(tuning, "algo")) && json_is_null(json_object_get(tuning, "chunk")));
  json_decref(top);
  unlink(path);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers_fit),  cmocka_unit_test(test_statistics),  cmocka_unit_test(test_table),
      cmocka_unit_test(test_more_columns), cmocka_unit_test(test_memory_line), cmocka_unit_test(test_json),
      cmocka_unit_test(test_tuning),       cmocka_unit_test(test_json_tuning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
