// Time lines that are made up: what is refused, two clocks brought together, which rank waited for which.
#include <math.h>
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

#define OTHER(rank, clock, skew)                                                            \
  "\"otherData\":{\"tutti_trace\":1,\"rank\":" rank                                         \
  ",\"ranks\":4,\"comm\":\"0x1\",\"name\":\"\",\"host\":\"h\",\"pid\":7,\"clock\":\"" clock \
  "\",\"realtime_minus_monotonic_ns\":" skew ",\"began_us\":0,\"lost_ring_full\":2,\"lost_disk\":0}"
#define OP(ts, dur, seq)                                                                               \
  "{\"name\":\"AllReduce\",\"cat\":\"op\",\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":" ts ",\"dur\":" dur \
  ",\"args\":{\"bytes\":1000,\"seq\":" seq "}}"
#define ARROW(ph, id, ts) "{\"name\":\"message\",\"ph\":\"" ph "\",\"id\":\"" id "\",\"pid\":0,\"tid\":1,\"ts\":" ts "}"

// Files of one job.
static xt_jobs opened;

static bool open_job(xt_job *job, int n)
{
  bool good = xt_jobs_open(&opened, names, n);
  assert_true(!good || opened.n == 1);
  *job = good ? opened.list[0] : (xt_job){0};
  return good;
}

static void refuses_what_is_no_time_line(void **state)
{
  (void)state;
  static const char *const bad[] = {
      "",
      "{",
      "[]",
      "{\"traceEvents\":[]}",
      "{\"traceEvents\":{}," OTHER("0", "a", "0") "}",
      "{\"traceEvents\":[]," OTHER("4", "a", "0") "}", // no such rank
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
  xt_jobs all = {0};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (xt_load(&all, write_file(0, "%s", bad[i]))) {
      fail_msg("taken: %s", bad[i]);
    }
  }
  assert_false(xt_load(&all, "/nonexistent/file.json"));
  assert_false(xt_load(&all, "/tmp"));
  assert_false(xt_load(&all, write_file(0, "%s", "\x80\2}q")));
  assert_int_equal(all.ntraces, 0);
  assert_true(xt_load(&all, write_file(0, "%s", "{\"traceEvents\":[" OP("1", "1", "5") "]," OTHER("0", "a", "0") "}")));
  assert_int_equal(all.traces[0].lost, 2);
  xt_jobs_close(&all);
}

// What says that it is one and is none has no arguments that were looked at.
static void operations_are_slices(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s",
             "{\"traceEvents\":[{\"name\":\"n\",\"cat\":\"op\",\"ph\":\"M\",\"args\":{}},{\"name\":\"message\",\"cat\":"
             "\"op\",\"ph\":\"s\",\"id\":\"a\","
             "\"pid\":0,\"tid\":1,\"ts\":1}," OP("1", "1", "5") "]," OTHER("0", "a", "0") "}");
  assert_true(open_job(&job, 1));
  assert_int_equal(job.nops, 1);
  xt_jobs_close(&opened);
}

// A file with a hole, larger than any memory it might be given: nothing of it is read.
static void refuses_what_is_too_large(void **state)
{
  (void)state;
  xt_job job;
  assert_int_equal(truncate(write_file(0, "{}"), (off_t)3 << 30), 0);
  assert_false(xt_fit(names, 1));
  assert_false(open_job(&job, 1));
  write_file(0, "{}");
  assert_true(xt_fit(names, 1));
}

static void refuses_a_rank_twice(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s", "{\"traceEvents\":[]," OTHER("0", "a", "0") "}");
  write_file(1, "%s", "{\"traceEvents\":[]," OTHER("0", "a", "0") "}");
  assert_false(open_job(&job, 2));
  assert_true(open_job(&job, 1));
  assert_int_equal(job.nops, 0);
  xt_jobs_close(&opened);
}

#define ENTRY(comm, name, sizes, seq, peer, begin, end)                                                             \
  "{\"process_group\":[\"" comm "\",\"undefined\"],\"profiling_name\":\"nccl:" name "\",\"collective_seq_id\":" seq \
  ",\"input_sizes\":[[" sizes "]],\"output_sizes\":[[100]],\"input_dtypes\":[\"Float\"],\"peer\":" peer             \
  ",\"time_created_ns\":1700000000000000000,\"time_discovered_started_ns\":" begin                                  \
  ",\"time_discovered_completed_ns\":" end "}"
#define DUMP(rank, entries)                                                                                          \
  "{\"version\":\"2.10\",\"rank\":" rank ",\"pid\":7,\"host\":\"h\",\"time_ns\":1700000000009000000,\"pg_config\":{" \
  "\"0xa\":{\"name\":\"0xa\",\"desc\":\"undefined\",\"ranks\":\"[0, 1]\"},"                                          \
  "\"0xb\":{\"name\":\"0xb\",\"desc\":\"half\",\"ranks\":\"[1, 0]\"}},\"entries\":[" entries "]}"

// Dumps of two ranks of a job, of which one has a call that has not ended: a time line of each communicator.
static void flight_recorders_are_time_lines(void **state)
{
  (void)state;
  xt_job job;
  write_file(
      0, "%s",
      DUMP("0", ENTRY("0xa", "all_reduce", "100", "1", "0", "1700000000001000000", "1700000000002000000") "," ENTRY(
                    "0xa", "send 0->1", "100", "1", "1", "1700000000003000000", "null")));
  write_file(
      1, "%s",
      "{\"tutti\":{\"flight_recorder\":[" DUMP(
          "1", ENTRY("0xa", "all_reduce", "100", "1", "0", "1700000000001500000", "1700000000002000000") "," ENTRY(
                   "0xb", "_reduce_scatter_base", "200", "1", "0", "null", "null")) "]}}");
  assert_true(open_job(&job, 2));
  assert_int_equal(job.n, 4);
  assert_int_equal(job.nops, 4);
  assert_string_equal(job.traces[2].name, "half");
  assert_int_equal(job.traces[2].rank, 0); // job rank 1
  assert_true(fabs(job.began - 1.7e15) < 1e3);
  const xt_op *op = job.ops;
  while (op->peer >= 0 || strcmp(op->func, "AllReduce") != 0) {
    op++;
  }
  assert_true(op->bytes == 400 && op->seq == 1 && fabs(op->end - op->start - 1000) < 0.1);
  assert_true(xt_same_op(op, op + 1) && fabs(job.waited[1] - 500) < 0.1); // rank 0 has waited for rank 1
  while (op > job.ops && op->peer < 0) {
    op--;
  }
  for (size_t i = 0; i < job.nops; i++) {
    op = &job.ops[i];
    const char *how = json_string_value(json_object_get(op->args, "state"));
    assert_string_equal(how, op->peer >= 0 ? "not completed" : strcmp(op->func, "AllReduce") == 0 ? "" : "not started");
    assert_true(op->peer < 0 || fabs(op->end - op->start - 6000) < 0.1); // until the dump
    assert_int_equal(op->bytes, 400);
  }
  xt_jobs_close(&opened);
}

// Each rank puts into the other's memory, one much later: neither has waited, and no message is the same as a put.
static void one_sided_operations_stand_alone(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s",
             DUMP("0", "],\"one_sided\":[" ENTRY("0xa", "PutSignal", "100", "0", "1", "1700000000001000000",
                                                 "1700000000002000000")));
  write_file(1, "%s",
             DUMP("1", ENTRY("0xa", "recv 1<-0", "100", "0", "0", "1700000000003000000", "1700000000007000000") //
                  "],\"one_sided\":[" ENTRY("0xa", "PutSignal", "100", "0", "0", "1700000000003000000",
                                            "1700000000004000000") "," //
                  ENTRY("0xa", "WaitSignal", "0", "0", "0", "1700000000000500000", "null")));
  assert_true(open_job(&job, 2));
  assert_int_equal(job.nops, 4);
  for (size_t i = 0; i < job.nops; i++) {
    const xt_op *op = &job.ops[i];
    assert_int_equal(op->peer, 1 - op->trace->rank);
    assert_true(op->bytes == (strcmp(op->func, "WaitSignal") == 0 ? 0 : 400) && op->seq == 0);
    assert_true(i == 0 || !xt_same_op(op, op - 1));
  }
  for (int i = 0; i < job.n * job.n; i++) {
    assert_true(job.waited[i] == 0);
  }
  xt_jobs_close(&opened);
}

static void refuses_bad_dumps(void **state)
{
  (void)state;
  static const char *const bad[] = {
      DUMP("2", ""),    // in no list
      DUMP("null", ""), //
      DUMP("0", "5"),
      DUMP("0", "],\"one_sided\":[5"),
      DUMP("0", ENTRY("0xc", "all_reduce", "1", "1", "0", "null", "null")), // no such communicator
      DUMP("0", ENTRY("0xa", "send 0->1", "1", "1", "4294967296", "null", "null")),
      "{\"entries\":[],\"pg_config\":{}}",
      "{\"tutti\":{\"flight_recorder\":[5]}}",
      "{\"tutti\":{\"flight_recorder\":[]}}",
  };
  xt_job job;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    write_file(0, "%s", bad[i]);
    if (open_job(&job, 1)) {
      fail_msg("taken: %s", bad[i]);
    }
  }
}

// Clock b is 500 us ahead of a. Messages take 10 us and more one way, 30 us the other: the shift is found within 20 us.
static void messages_bring_clocks_together(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s",
             "{\"traceEvents\":[" ARROW("s", "m1", "1000") "," ARROW("s", "m2", "2000") "," ARROW(
                 "f", "m3", "3000") "," OP("1000", "100", "0") "]," OTHER("0", "a", "0") "}");
  write_file(1, "%s",
             "{\"traceEvents\":[" ARROW("f", "m1", "1590") "," ARROW("f", "m2", "2510") "," ARROW(
                 "s", "m3", "3470") "," OP("1540", "60", "0") "]," OTHER("1", "b", "9000000") "}");
  assert_true(open_job(&job, 2));
  assert_int_equal(job.nclocks, 2);
  assert_int_equal(job.clocks[1].how, XT_CLOCK_MEASURED);
  assert_true(job.clocks[1].error >= 20 && job.clocks[1].error < 20.5); // in 2 ms clocks drift apart by 0.4 us at most
  assert_true(job.traces[1].shift == -490);
  // Rank 1 came at 1540 - 490, rank 0 at 1000.
  assert_true(job.waited[0 * 2 + 1] == 50);
  assert_true(job.waited[1 * 2 + 0] == 0);
  xt_jobs_close(&opened);
}

// Many messages between clock a and clock b, which is 1 s ahead and gains 50 us a second: in both directions some are
// as fast as 15 us, others late.
static void a_clock_that_drifts(void **state)
{
  (void)state;
  xt_job job;
  FILE *files[2] = {fopen(paths[0], "w"), fopen(paths[1], "w")};
  unsigned seed = 1;
  for (int rank = 0; rank < 2; rank++) {
    fprintf(files[rank], "{\"traceEvents\":[" OP("1000000", "1", "0"));
  }
  for (int i = 0; i < 4000; i++) {
    seed = seed * 1103515245 + 12345;
    int from = i % 2;
    double late = (double)(seed >> 16 & 1023), sent = 1e6 + i * 1e4, at[2] = {sent, sent + 15 + late};
    for (int end = 0; end < 2; end++) {
      int rank = end == 0 ? from : 1 - from;
      double t = rank == 0 ? at[end] : at[end] + 1e6 + 50e-6 * at[end];
      fprintf(files[rank], ",{\"name\":\"message\",\"ph\":\"%s\",\"id\":\"m%d\",\"pid\":0,\"tid\":1,\"ts\":%.3f}",
              end == 0 ? "s" : "f", i, t);
    }
  }
  fprintf(files[0], "]," OTHER("0", "a", "0") "}");
  fprintf(files[1], "]," OTHER("1", "b", "0") "}");
  fclose(files[0]);
  fclose(files[1]);
  assert_true(open_job(&job, 2));
  assert_int_equal(job.clocks[1].how, XT_CLOCK_MEASURED);
  assert_true(job.clocks[1].error < 30);
  for (double at = 1e6; at < 41e6; at += 1e6) {
    double found = xt_time(&job.traces[1], at + 1e6 + 50e-6 * at);
    if (found - at > 20 || at - found > 20) {
      fail_msg("%.3f is %.3f", at, found);
    }
  }
  xt_jobs_close(&opened);
}

// Messages go from a to b to c to a: each a hundred microseconds under way. b is 1000 us ahead, c 5000.
static void messages_that_go_round(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s",
             "{\"traceEvents\":[" ARROW("s", "m1", "1000") "," ARROW("f", "m3", "1400") "]," OTHER("0", "a", "0") "}");
  write_file(1, "%s",
             "{\"traceEvents\":[" ARROW("f", "m1", "2100") "," ARROW("s", "m2", "2150") "]," OTHER("1", "b", "0") "}");
  write_file(2, "%s",
             "{\"traceEvents\":[" ARROW("f", "m2", "6250") "," ARROW("s", "m3", "6300") "]," OTHER("2", "c", "0") "}");
  assert_true(open_job(&job, 3));
  for (int i = 1; i < 3; i++) {
    assert_int_equal(job.clocks[i].how, XT_CLOCK_MEASURED);
    // What clocks may drift apart in a ms stands besides.
    assert_true(job.clocks[i].error >= 150 && job.clocks[i].error < 151);
  }
  // The middle of what is possible.
  assert_true(fabs(xt_time(&job.traces[1], 2100) - (2100 - 1000 + 50)) < 0.5);
  assert_true(fabs(xt_time(&job.traces[2], 6250) - (6250 - 5000 - 50)) < 0.5);
  xt_jobs_close(&opened);
}

enum { ROUNDS = 200 };

// A job of `seconds`: messages go round four clocks, each of which runs at a pace of its own; at half-time the last one
// is put forward by `step` microseconds.
typedef struct ring_job {
  double seconds, step, ahead[FILES], drift[FILES];
} ring_job;

// What clock k shows at time t of the first.
static double shown(const ring_job *r, int k, double t)
{
  return r->ahead[k] + t * (1 + r->drift[k]) + (k == FILES - 1 && t > r->seconds * 1e6 / 2 ? r->step : 0);
}

static void write_ring(const ring_job *r)
{
  static const char *const ends[FILES] = {OTHER("0", "a", "0"), OTHER("1", "b", "0"), OTHER("2", "c", "0"),
                                          OTHER("3", "d", "0")};
  unsigned seed = 1;
  FILE *files[FILES];
  for (int k = 0; k < FILES; k++) {
    files[k] = fopen(paths[k], "w");
    assert_non_null(files[k]);
    fprintf(files[k], "{\"traceEvents\":[" OP("%.3f", "1", "0"), shown(r, k, 0));
  }
  for (int i = 0; i < ROUNDS * FILES; i++) {
    seed = seed * 1103515245 + 12345;
    int k = i % FILES, to = (k + 1) % FILES;
    double t = i / FILES * r->seconds * 1e6 / ROUNDS + k * 100, late = 30 + (double)(seed >> 16 & 15);
    fprintf(files[k], "," ARROW("s", "m%d", "%.3f"), i, shown(r, k, t));
    fprintf(files[to], "," ARROW("f", "m%d", "%.3f"), i, shown(r, to, t + late));
  }
  for (int k = 0; k < FILES; k++) {
    fprintf(files[k], "],%s}", ends[k]);
    fclose(files[k]);
  }
}

// Messages go one way round. How far the clocks drift apart meanwhile is much more than what is said that they may be
// wrong by, and that is true.
static void drifting_clocks_in_a_ring(void **state)
{
  (void)state;
  static const ring_job jobs[] = {{60, 0, {0, 3e8, 7e8, 1e6}, {0, 20e-6, -17e-6, 5e-6}},
                                  {600, 0, {0, 9e8, 2e3, 5e8}, {0, -80e-6, 80e-6, 20e-6}},
                                  {5, 0, {0, 1e3, 2e8, 4e8}, {0, -20e-6, 20e-6, 0}}};
  for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
    const ring_job *r = &jobs[i];
    xt_job job;
    write_ring(r);
    assert_true(open_job(&job, FILES));
    for (int k = 1; k < FILES; k++) {
      assert_int_equal(job.clocks[k].how, XT_CLOCK_MEASURED);
      assert_true(job.clocks[k].error < 200); // a round takes 30 to 180 us, and 160 as it was sent
      for (double t = 0; t < r->seconds * 1e6 * (ROUNDS - 1) / ROUNDS; t += r->seconds * 1e4) {
        double wrong = fabs(xt_time(&job.traces[k], shown(r, k, t)) - t);
        if (wrong > job.clocks[k].error) {
          fail_msg("%g s, clock %d at %.0f: wrong by %.3f, said: %.3f", r->seconds, k, t, wrong, job.clocks[k].error);
        }
      }
    }
    xt_jobs_close(&opened);
  }
}

// No drift explains it: nothing is said that messages contradict.
static void a_clock_that_is_put_forward(void **state)
{
  (void)state;
  xt_job job;
  static const ring_job r = {10, 1e6, {0, 3e8, 7e8, 1e6}, {0, 20e-6, -17e-6, 5e-6}};
  write_ring(&r);
  assert_true(open_job(&job, FILES));
  for (int k = 1; k < FILES; k++) {
    assert_int_equal(job.clocks[k].how, XT_CLOCK_WALL);
  }
  xt_jobs_close(&opened);
}

// The same between two clocks: b is put forward between one message there and back and the next.
static void two_clocks_that_contradict_each_other(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s",
             "{\"traceEvents\":[" ARROW("s", "m1", "1000") "," ARROW("f", "m2", "1100") "," ARROW(
                 "s", "m3", "2000") "," ARROW("f", "m4", "2100") "]," OTHER("0", "a", "5000000") "}");
  write_file(1, "%s",
             "{\"traceEvents\":[" ARROW("f", "m1", "1040") "," ARROW("s", "m2", "1060") "," ARROW(
                 "f", "m3", "3040") "," ARROW("s", "m4", "3060") "]," OTHER("1", "b", "9000000") "}");
  assert_true(open_job(&job, 2));
  assert_int_equal(job.clocks[1].how, XT_CLOCK_WALL);
  assert_true(job.traces[1].shift == 4000);
  xt_jobs_close(&opened);
}

// b is measured against a, c against b: what b may be wrong by c may be, too.
static void errors_add_up(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s",
             "{\"traceEvents\":[" ARROW("s", "m1", "1000") "," ARROW("f", "m2", "1100") "]," OTHER("0", "a", "0") "}");
  write_file(1, "%s",
             "{\"traceEvents\":[" ARROW("f", "m1", "1050") "," ARROW("s", "m2", "1050") "," ARROW(
                 "s", "m3", "1200") "," ARROW("f", "m4", "1240") "]," OTHER("1", "b", "0") "}");
  write_file(2, "%s",
             "{\"traceEvents\":[" ARROW("f", "m3", "1220") "," ARROW("s", "m4", "1220") "]," OTHER("2", "c", "0") "}");
  assert_true(open_job(&job, 3));
  assert_true(job.clocks[1].error >= 50 && job.clocks[1].error < 51);
  assert_true(job.clocks[2].error >= 70 && job.clocks[2].error < 71);
  xt_jobs_close(&opened);
}

// Time namespaces of one machine: nothing need be measured.
static void one_machine_has_one_clock(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s",
             "{\"traceEvents\":[" OP("1000", "100", "0") "," ARROW("s", "m1", "1000") "]," OTHER(
                 "0", "boot time:[1]\",\"clock_ahead_ns\":\"x", "0") "}");
  assert_false(open_job(&job, 1));
  write_file(
      0, "%s",
      "{\"traceEvents\":[" OP("1000", "100", "0") "]," OTHER("0", "boot time:[1]", "0,\"clock_ahead_ns\":-7000") "}");
  write_file(
      1, "%s",
      "{\"traceEvents\":[" OP("3000", "100", "0") "]," OTHER("1", "boot time:[2]", "0,\"clock_ahead_ns\":1993000") "}");
  write_file(2, "%s", "{\"traceEvents\":[" OP("3000", "100", "0") "]," OTHER("2", "boot time:[3]", "-1") "}");
  assert_false(open_job(&job, 3)); // no such difference to the wall clock
  write_file(2, "%s", "{\"traceEvents\":[" OP("3000", "100", "0") "]," OTHER("2", "boot time:[3]", "0") "}");
  assert_true(open_job(&job, 3));
  assert_int_equal(job.nclocks, 2); // of the third it is not known
  assert_true(xt_time(&job.traces[0], 1000) == 1007 && xt_time(&job.traces[1], 3000) == 1007);
  assert_int_equal(job.clocks[job.traces[2].at_clock].how, XT_CLOCK_WALL);
  xt_jobs_close(&opened);
}

static void wall_clocks_are_believed_without_messages(void **state)
{
  (void)state;
  xt_job job;
  write_file(0, "%s", "{\"traceEvents\":[" ARROW("s", "m1", "1000") "]," OTHER("0", "a", "5000000") "}");
  write_file(1, "%s", "{\"traceEvents\":[" ARROW("f", "m1", "1590") "]," OTHER("1", "b", "9000000") "}");
  assert_true(open_job(&job, 2));
  assert_int_equal(job.clocks[1].how, XT_CLOCK_WALL);
  assert_true(job.traces[1].shift == 4000);
  xt_jobs_close(&opened);
}

// Names of files sort rank 10 before rank 2; they may also come in any order.
static void ranks_are_sorted_as_numbers(void **state)
{
  (void)state;
  xt_job job;
  static const char other[] =
      "{\"traceEvents\":[],\"otherData\":{\"tutti_trace\":1,\"rank\":%d,\"ranks\":16,\"comm\":\"0x1\",\"name\":\"\","
      "\"host\":\"h\",\"pid\":7,\"clock\":\"a\",\"realtime_minus_monotonic_ns\":0,\"began_us\":0,\"lost_ring_full\":0,"
      "\"lost_disk\":0}}";
  static const int ranks[] = {0, 10, 2};
  for (int i = 0; i < 3; i++) {
    FILE *f = fopen(paths[i], "w");
    assert_non_null(f);
    fprintf(f, other, ranks[i]);
    fclose(f);
  }
  assert_true(open_job(&job, 3));
  assert_int_equal(job.traces[0].rank, 0);
  assert_int_equal(job.traces[1].rank, 2);
  assert_int_equal(job.traces[2].rank, 10);
  xt_jobs_close(&opened);
}

static void the_last_one_is_waited_for(void **state)
{
  (void)state;
  xt_job job;
  char *text = NULL;
  size_t size;
  write_file(0, "%s",
             "{\"traceEvents\":[" OP("100", "400", "0") "," OP("1000", "10", "1") "]," OTHER("0", "a", "0") "}");
  write_file(1, "%s",
             "{\"traceEvents\":[" OP("300", "200", "0") "," OP("1000", "10", "1") "]," OTHER("1", "a", "0") "}");
  write_file(2, "%s",
             "{\"traceEvents\":[" OP("450", "50", "0") "," OP("1000", "10", "1") "]," OTHER("2", "a", "0") "}");
  assert_true(open_job(&job, 3));
  assert_int_equal(job.nops, 6);
  assert_true(job.waited[0 * 3 + 2] == 350);
  assert_true(job.waited[1 * 3 + 2] == 150);
  assert_true(job.waited[2 * 3 + 0] == 0 && job.waited[0 * 3 + 1] == 0);
  FILE *out = open_memstream(&text, &size);
  xt_job_summary(&job, out);
  fclose(out);
  assert_non_null(strstr(text, "6 operations"));
  assert_non_null(strstr(text, "rank 0 of 0x1 waited 0.350 ms for others to come, most for rank 2"));
  free(text);
  out = open_memstream(&text, &size);
  assert_true(xt_merge(&opened, out));
  fclose(out);
  json_t *merged = json_loads(text, 0, NULL);
  assert_int_equal(json_array_size(json_object_get(merged, "traceEvents")), 6);
  assert_true(json_number_value(json_object_get(json_array_get(json_object_get(merged, "traceEvents"), 0), "ts")) == 0);
  assert_int_equal(
      json_integer_value(json_object_get(json_array_get(json_object_get(merged, "traceEvents"), 5), "pid")), 2);
  json_decref(merged);
  free(text);
  xt_jobs_close(&opened);
}

#define SLICE(func, start, dur, bytes, seq)                                                              \
  "{\"name\":\"" func "\",\"cat\":\"op\",\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":" start ",\"dur\":" dur \
  ",\"args\":{\"bytes\":" bytes ",\"seq\":" seq "}}"

// Functions in turn on one stream, all called at the beginning: each takes from the end of the one before. Rank 1 comes
// later to the third, and it counts from there. What has not ended is left out, with its reason.
static void workloads_are_sums_of_times(void **state)
{
  (void)state;
  xt_job job;
  char *text = NULL;
  size_t size;
  write_file(
      0, "%s",
      "{\"traceEvents\":[" SLICE("AllReduce", "0", "10", "800", "0") "," SLICE(
          "AllGather", "1", "29", "50",
          "0") "," SLICE("AllReduce", "2", "58", "800",
                         "1") "," SLICE("AllGather", "3", "77", "50",
                                        "1") "," SLICE("Send", "4", "1000", "8", "9") "]," OTHER("0", "a", "0") "}");
  write_file(1, "%s",
             "{\"traceEvents\":[" SLICE("AllReduce", "0", "10", "800", "0") "," SLICE(
                 "AllGather", "1", "29", "50", "0") "," SLICE("AllReduce", "55", "5", "800",
                                                              "1") "," SLICE("AllGather", "56", "24", "50",
                                                                             "1") "]," OTHER("1", "a", "0") "}");
  assert_true(open_job(&job, 2));
  FILE *out = open_memstream(&text, &size);
  assert_true(xt_workload(&opened, out));
  fclose(out);
  assert_non_null(strstr(text, "\nallgather,200,4,2,40.00\n")); // 10 to 30, 60 to 80
  assert_non_null(strstr(text, "\nallreduce,800,4,2,15.00\n")); // 0 to 10, 55 to 60
  assert_non_null(strstr(text, "left out: 1 sends"));
  free(text);
  xt_jobs_close(&opened);
  write_file(0, "%s", DUMP("0", ENTRY("0xa", "all_reduce", "100", "1", "0", "1700000000001000000", "null")));
  assert_true(open_job(&job, 1));
  out = open_memstream(&text, &size);
  assert_true(xt_workload(&opened, out));
  fclose(out);
  assert_null(strstr(text, "allreduce,"));
  assert_non_null(strstr(text, "left out: 1 collectives that had not ended"));
  free(text);
  xt_jobs_close(&opened);
}

#define RUN(comm, rank, pid, seconds)                                                 \
  "\"otherData\":{\"tutti_trace\":1,\"rank\":" rank ",\"ranks\":2,\"comm\":\"" comm   \
  "\",\"name\":\"\",\"host\":\"h\",\"pid\":" pid                                      \
  ",\"clock\":\"a\",\"realtime_minus_monotonic_ns\":1000000000,\"began_us\":" seconds \
  "000000,\"lost_ring_full\":0,\"lost_disk\":0}"

// The text that a command writes; free it.
static char *text_of(bool (*run)(xt_jobs *jobs, FILE *out))
{
  static char *text;
  static size_t size;
  FILE *out = open_memstream(&text, &size);
  assert_true(run(&opened, out));
  fclose(out);
  return text;
}

// The later run is the first file. Numbers of its operations begin anew: they are none of the other's.
static void two_runs_are_two_jobs(void **state)
{
  (void)state;
  write_file(0, "%s", "{\"traceEvents\":[" OP("90000000", "100", "0") "]," RUN("0x1", "0", "9", "90") "}");
  write_file(1, "%s", "{\"traceEvents\":[" OP("10000000", "500", "0") "]," RUN("0x2", "0", "7", "9") "}");
  write_file(2, "%s", "{\"traceEvents\":[" OP("10000200", "300", "0") "]," RUN("0x2", "1", "8", "10") "}");
  assert_true(xt_jobs_open(&opened, names, 3));
  assert_int_equal(opened.n, 2);
  assert_int_equal(opened.list[0].n, 2);
  assert_true(opened.list[0].end - opened.list[0].begin == 500 && opened.list[0].waited[0 * 2 + 1] == 200);
  assert_true(opened.list[1].end - opened.list[1].begin == 100 && opened.list[1].began == 91e6);
  char *text = text_of(xt_summary);
  assert_non_null(strstr(
      text, "job 1 of 2: 2 ranks on h, pids 7 to 8, 1970-01-01 00:00:10 UTC\n2 time lines, 2 operations in 0.001 s"));
  assert_non_null(strstr(text, "job 2 of 2: 1 of 2 ranks on h, pid 9, 1970-01-01 00:01:31 UTC\n1 time lines"));
  free(text);
  text = text_of(xt_merge);
  assert_non_null(strstr(text, "\"ts\":80000000.0")); // one machine: as far apart as they were
  free(text);
  xt_jobs_close(&opened);
}

// A container's first process has the same number in every run.
static void numbers_come_again(void **state)
{
  (void)state;
  write_file(0, "%s",
             "{\"traceEvents\":[" OP("10000000", "100", "0") "]," RUN("0x1", "0", "1,\"process_start\":500", "9") "}");
  write_file(1, "%s",
             "{\"traceEvents\":[" OP("90000000", "100", "0") "]," RUN("0x2", "0", "1,\"process_start\":700", "90") "}");
  write_file(2, "%s",
             "{\"traceEvents\":[" OP("95000000", "100", "0") "]," RUN("0x3", "0", "1,\"process_start\":700", "95") "}");
  assert_true(xt_jobs_open(&opened, names, 3));
  assert_int_equal(opened.n, 2);
  assert_int_equal(opened.list[1].n, 2);
  xt_jobs_close(&opened);
}

// A process that has two communicators makes one job of their ranks, in whatever order the files come.
static void processes_join_communicators(void **state)
{
  (void)state;
  write_file(0, "%s", "{\"traceEvents\":[]," RUN("0x1", "0", "7", "1") "}");
  write_file(1, "%s", "{\"traceEvents\":[]," RUN("0x2", "1", "8", "1") "}");
  write_file(2, "%s", "{\"traceEvents\":[]," RUN("0x1", "1", "8", "1") "}");
  write_file(3, "%s", "{\"traceEvents\":[]," RUN("0x2", "0", "9", "1") "}");
  assert_true(xt_jobs_open(&opened, names, 4));
  assert_int_equal(opened.n, 1);
  char *text = text_of(xt_summary);
  assert_non_null(strstr(text, "2 ranks on h, pids 7 to 9, 2 communicators, 1970-01-01 00:00:02 UTC\n4 time lines"));
  free(text);
  xt_jobs_close(&opened);
}

static json_t *data_of(const char *page)
{
  const char *at = strstr(page, "id=\"data\">");
  assert_non_null(at);
  json_t *data = json_loads(at + strlen("id=\"data\">"), JSON_DISABLE_EOF_CHECK, NULL);
  assert_non_null(data);
  return data;
}

// 1000 bytes of each of 2 ranks: an all-gather of 2000 bytes in 2 us moves half of them over a link.
static void bandwidth_is_that_of_the_perf_programs(void **state)
{
  (void)state;
  static const char gather[] =
      "{\"traceEvents\":[{\"name\":\"AllGather\",\"cat\":\"op\",\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":5,\"dur\":2,"
      "\"args\":{\"bytes\":1000,"
      "\"seq\":0,\"algo\":\"RING\",\"proto\":\"LL\",\"variant\":\"RING_LL\",\"type\":\"<b>\",\"channels\":1,\"tag\":"
      "\"77\",\"queued_us\":3}}],";
  write_file(0, "%s%s", gather, RUN("0x1", "0", "7", "1") "}");
  write_file(1, "%s%s", gather, RUN("0x1", "1", "8", "1") "}");
  assert_true(xt_jobs_open(&opened, names, 2));
  char *text = text_of(xt_summary);
  assert_non_null(strstr(text, "AllGather                  1000          2         2.00         2.00         2.00      "
                               "1.000      0.500      2        0\n"));
  free(text);
  text = text_of(xt_report);
  assert_null(strstr(text, "<b>"));
  json_t *data = data_of(text), *rank, *op, *factors;
  assert_int_equal(json_unpack(data, "{s:[{s:[o]}]}", "jobs", "ranks", &rank), 0);
  assert_int_equal(json_unpack(rank, "{s:[o],s:{s:o}}", "ops", &op, "factors", "AllGather", &factors), 0);
  assert_true(json_number_value(json_array_get(factors, 0)) == 2 &&
              json_number_value(json_array_get(factors, 1)) == 0.5);
  assert_true(json_number_value(json_array_get(op, 1)) == 2 && json_number_value(json_array_get(op, 7)) == 3);
  const json_t *how = json_array_get(json_object_get(data, "texts"), (size_t)json_integer_value(json_array_get(op, 6)));
  assert_string_equal(json_string_value(how), "RING, LL, RING_LL, <b>, 1 channel, tag 77");
  json_decref(data);
  free(text);
  xt_jobs_close(&opened);
  assert_true(xt_bandwidth("AllReduce", 4).size == 1 && xt_bandwidth("AllReduce", 4).bus == 1.5);
  assert_true(xt_bandwidth("Send", 4).size == 1 && xt_bandwidth("Broadcast", 4).bus == 1);
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
      cmocka_unit_test(refuses_what_is_no_time_line),
      cmocka_unit_test(operations_are_slices),
      cmocka_unit_test(flight_recorders_are_time_lines),
      cmocka_unit_test(one_sided_operations_stand_alone),
      cmocka_unit_test(refuses_bad_dumps),
      cmocka_unit_test(refuses_what_is_too_large),
      cmocka_unit_test(refuses_a_rank_twice),
      cmocka_unit_test(messages_bring_clocks_together),
      cmocka_unit_test(wall_clocks_are_believed_without_messages),
      cmocka_unit_test(ranks_are_sorted_as_numbers),
      cmocka_unit_test(two_runs_are_two_jobs),
      cmocka_unit_test(numbers_come_again),
      cmocka_unit_test(processes_join_communicators),
      cmocka_unit_test(bandwidth_is_that_of_the_perf_programs),
      cmocka_unit_test(the_last_one_is_waited_for),
      cmocka_unit_test(workloads_are_sums_of_times),
      cmocka_unit_test(a_clock_that_drifts),
      cmocka_unit_test(messages_that_go_round),
      cmocka_unit_test(one_machine_has_one_clock),
      cmocka_unit_test(drifting_clocks_in_a_ring),
      cmocka_unit_test(a_clock_that_is_put_forward),
      cmocka_unit_test(errors_add_up),
      cmocka_unit_test(two_clocks_that_contradict_each_other),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
