// The command line, and what else is parsed from text: sizes, splits, matrices.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"
#include "options.h"
#include "split.h"

static perf_options o;
static perf_text text;

// Parses a command line given as one string, cut at blanks.
static perf_parse_result parse(const char *line)
{
  static char copy[512];
  char *argv[128] = {"perf"};
  int argc = 1;
  strcpy(copy, line);
  for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
    argv[argc++] = word;
  }
  return perf_options_parse(&o, argc, argv, &text);
}

static void assert_bad(const char *line, const char *says)
{
  assert_int_equal(parse(line), PERF_BAD);
  if (!strstr(text.buf, says)) {
    fail_msg("'%s' said '%s', not '%s'", line, text.buf, says);
  }
}

static void test_defaults(void **state)
{
  (void)state;
  assert_int_equal(parse(""), PERF_RUN);
  assert_int_equal(o.min_bytes, 32 << 20);
  assert_int_equal(o.max_bytes, 32 << 20);
  assert_int_equal(o.step_bytes, 1 << 20);
  assert_int_equal(o.iters, 20);
  assert_int_equal(o.warmup_iters, 1);
  assert_int_equal(o.type, 7);
  assert_int_equal(o.op, 0);
  assert_int_equal(o.average, 1);
  assert_int_equal(o.check, 1);
  assert_string_equal(text.buf, "");
}

static void test_forms(void **state)
{
  (void)state;
  assert_int_equal(parse("-t2 -g 3 --minbytes=8 --maxbytes 128M -f 2 --iters=0x10 -d bfloat16 -o mulsum --root all"),
                   PERF_RUN);
  assert_int_equal(o.threads, 2);
  assert_int_equal(o.gpus, 3);
  assert_int_equal(o.min_bytes, 8);
  assert_int_equal(o.max_bytes, 128 << 20);
  assert_int_equal(o.step_factor, 2);
  assert_int_equal(o.iters, 16);
  assert_int_equal(o.type, 9);
  assert_int_equal(o.op, PERF_MULSUM);
  assert_int_equal(o.root, PERF_ALL);
  assert_int_equal(parse("--nth 4 --warm 0 -r -1 -o all -d all"), PERF_RUN); // shortened long names
  assert_int_equal(o.threads, 4);
  assert_int_equal(o.warmup_iters, 0);
  assert_int_equal(o.root, PERF_ALL);
  assert_int_equal(o.op, PERF_ALL);
  assert_int_equal(o.type, PERF_ALL);
  assert_int_equal(parse("-b 8 -h -z 77"), PERF_HELP);
  assert_int_equal(parse("--help"), PERF_HELP);
}

static void test_replaced_values(void **state)
{
  (void)state;
  // What nccl-tests replaces by a default, and says so.
  assert_int_equal(parse("-V 200"), PERF_RUN);
  assert_int_equal(o.device_ctas, 16);
  assert_non_null(strstr(text.buf, "-V 200"));
  assert_int_equal(parse("-I 2"), PERF_RUN);
  assert_int_equal(o.per_iter, 0);
  assert_int_equal(parse("-I 1 -z 3 -K 1 -G 4"), PERF_RUN);
  assert_true(o.per_iter == 0 && o.blocking == 0 && o.per_iter_skip == 0 && o.graph == 4);
  assert_non_null(strstr(text.buf, "(-I) does not go together"));
  assert_int_equal(parse("-G 4 -z 1"), PERF_BAD);
  assert_int_equal(parse("-G 4 -y 1"), PERF_BAD);
}

static void test_every_letter(void **state)
{
  (void)state;
  assert_int_equal(parse("-P 2 -t 1 -g 1 -b 1K -e 2K -i 1K -f 1 -n 5 -m 2 -w 3 -N 0 -p 1 -c 0 -o max -d half -r 1 -z 3 "
                         "-y 1 -T 9 -C 1 -S 1 "
                         "-J x.json -a 3 -R 2 -x 1 -D 1 -V 8 -M 1 -u 3 -I 1 -K 2 -U 1"),
                   PERF_RUN);
  assert_non_null(strstr(text.buf, "-V 8"));
  assert_non_null(strstr(text.buf, "-x 1"));
  assert_string_equal(o.output_file, "x.json");
  assert_int_equal(o.per_iter_skip, 2);
  assert_int_equal(o.tuning, 1);
  assert_int_equal(o.blocking, 3);
  assert_int_equal(o.procs, 2);
}

static void test_bad(void **state)
{
  (void)state;
  assert_bad("-q", "unknown option '-q'");
  assert_bad("--nonsense 3", "unknown option '--nonsense'");
  assert_bad("--m 3", "unknown option"); // minbytes, maxbytes or memory
  assert_bad("8M", "unexpected argument '8M'");
  assert_bad("-b", "-b,--minbytes: its value");
  assert_bad("-b 12x", "-b,--minbytes '12x'");
  assert_bad("-e nan", "-e,--maxbytes 'nan'");
  assert_bad("-e -5", "-e,--maxbytes '-5'");
  assert_bad("-e 1e30G", "-e,--maxbytes '1e30G'");
  assert_bad("-n 0", "-n,--iters '0': must be 1 to");
  assert_bad("-n 3x", "-n,--iters '3x': not a whole number");
  assert_bad("-n 99999999999999999999", "not a whole number");
  assert_bad("-f 0", "-f,--stepfactor '0'");
  assert_bad("-U 2", "-U,--report_tuning '2': must be 0 to 1");
  assert_bad("-w -1", "-w,--warmup_iters '-1'");
  assert_bad("-t 0", "-t,--nthreads '0'");
  assert_bad("-z 4", "-z,--blocking '4'");
  assert_bad("-o median", "-o,--op 'median'");
  assert_bad("-o bitand", "-o bitand is for integer types");
  assert_bad("-o bitxor -d half", "-o bitxor is for integer types");
  assert_bad("-o bitor -d all", "-o bitor is for integer types");
  assert_bad("-d quad", "-d,--datatype 'quad'");
  assert_bad("-b 2M -e 1M", "2097152 > 1048576");
  assert_bad("-b 1 -e 2 -i 0", "stepbytes 0");
  assert_bad("-D 1", "-R 2");
  assert_bad("-n 100000 -m 100000", "more than");
  assert_bad("-P 100 -t 100", "more than 4096 ranks");
  assert_bad("-P 4096 -t 4096 -g 4096", "more than 4096 ranks");
}

static void test_sizes(void **state)
{
  (void)state;
  size_t v = 0;
  assert_true(perf_parse_size("1.5K", &v));
  assert_int_equal(v, 1536);
  assert_true(perf_parse_size("2gB", &v));
  assert_int_equal(v, (size_t)2 << 30);
  assert_true(perf_parse_size("3 MiB", &v));
  assert_int_equal(v, 3 << 20);
  assert_true(perf_parse_size("0", &v));
  assert_int_equal(v, 0);
  assert_false(perf_parse_size("", &v));
  assert_false(perf_parse_size("inf", &v));
  assert_false(perf_parse_size("3T", &v));
  assert_false(perf_parse_size("3KK", &v));
}

static void test_scan(void **state)
{
  (void)state;
  parse("-b 8 -e 64 -f 2");
  assert_int_equal(perf_size_count(&o), 4);
  assert_int_equal(perf_next_size(&o, 32), 64);
  assert_int_equal(perf_next_size(&o, 64), 0);
  parse("-b 0 -e 8 -f 2");
  assert_int_equal(perf_size_count(&o), 4); // 0 2 4 8
  parse("-b 0 -e 10 -i 4");
  assert_int_equal(perf_size_count(&o), 3);
  assert_int_equal(perf_next_size(&o, 8), 0);
  parse("-b 7 -e 7 -i 0");
  assert_int_equal(perf_size_count(&o), 1);
  parse("-b 1 -e 1000000G -f 2147483647");
  assert_int_equal(perf_size_count(&o), 2);
}

static void test_split(void **state)
{
  (void)state;
  perf_split s;
  assert_true(perf_split_parse("AND 0x3", NULL, &s));
  assert_int_equal(perf_split_color(&s, 6), 2);
  assert_true(perf_split_parse("|0b100", NULL, &s));
  assert_int_equal(perf_split_color(&s, 3), 7);
  assert_true(perf_split_parse("mod 3", NULL, &s));
  assert_int_equal(perf_split_color(&s, 5), 2);
  assert_true(perf_split_parse("/2", NULL, &s));
  assert_int_equal(perf_split_color(&s, 5), 2);
  assert_true(perf_split_parse(NULL, "f", &s));
  assert_int_equal(perf_split_color(&s, 0x1c), 0xc);
  assert_true(perf_split_parse(NULL, NULL, &s));
  assert_int_equal(perf_split_color(&s, 9), 0);
  assert_false(perf_split_parse("MOD 0", NULL, &s));
  assert_false(perf_split_parse("XOR 1", NULL, &s));
  assert_false(perf_split_parse("MOD", NULL, &s));
  // Bits beyond the numbers of units mean nothing in a mask, and everything elsewhere.
  assert_true(perf_split_parse(NULL, "0xffffffff00000003", &s));
  assert_int_equal(perf_split_color(&s, 6), 2);
  assert_true(perf_split_parse("&0xffffffff", NULL, &s));
  assert_int_equal(perf_split_color(&s, 6), 6);
  assert_false(perf_split_parse("OR 0xffffffff", NULL, &s));
  assert_false(perf_split_parse("AND -1", NULL, &s));
  assert_false(perf_split_parse("AND +1", NULL, &s));
  assert_false(perf_split_parse(NULL, "1ffffffffffffffff", &s));
}

static uint64_t hash_of(const char *line)
{
  parse(line);
  return perf_options_hash(&o);
}

// Processes that were started differently are told apart, but each may write a file of its own.
static void test_hash(void **state)
{
  (void)state;
  assert_true(hash_of("-n 20") == hash_of("-c 1"));
  assert_false(hash_of("-n 21") == hash_of("-c 1"));
  assert_false(hash_of("-b 8") == hash_of("-b 16"));
  assert_false(hash_of("-d half") == hash_of("-d float"));
  assert_false(hash_of("-r all") == hash_of("-r 0"));
  assert_true(hash_of("-J a") == hash_of("-J b"));
}

static void test_matrix(void **state)
{
  (void)state;
  int dim = 0;
  const char *error;
  size_t *m = perf_matrix_parse("\n100 200\t17\n  50 100 75\r\n\n300 150 200", 2, &dim, &error);
  assert_non_null(m);
  assert_int_equal(dim, 3);
  assert_int_equal(m[0], 192);
  assert_int_equal(m[2], 32);
  assert_int_equal(m[8], 400);
  free(m);
  assert_null(perf_matrix_parse("1 2\n3", 1, &dim, &error));
  assert_string_equal(error, "is not square");
  assert_null(perf_matrix_parse("1 2\n3 4\n5 6", 1, &dim, &error));
  assert_null(perf_matrix_parse("", 1, &dim, &error));
  assert_string_equal(error, "is empty");
  assert_null(perf_matrix_parse("1 -2\n3 4", 1, &dim, &error));
  assert_null(perf_matrix_parse("1 nan\n3 4", 1, &dim, &error));
  assert_null(perf_matrix_parse("1 1e300\n3 4", 1, &dim, &error));
  assert_null(perf_matrix_parse("1 2,3\n3 4", 1, &dim, &error));
}

static void test_generated_matrix(void **state)
{
  (void)state;
  for (int n = 1; n <= 9; n++) {
    size_t total = (size_t)n * 4096;
    assert_true(perf_matrix_most(false, n, total) <= total);
    assert_int_equal(perf_matrix_most(false, n, total), perf_matrix_most(true, n, total));
    assert_int_equal(perf_matrix_bytes(0, n - 1, n, total), perf_matrix_bytes(1 % n, 0, n, total));
  }
  assert_int_equal(perf_matrix_bytes(2, 2, 4, 1 << 20), 0); // nothing to oneself
}

static void test_counts(void **state)
{
  (void)state;
  static const char *const bad[] = {
      "", " ", "abc", "-1", "+1", " 1", "1 ", "1x", "0x10", "1.5", "101", "2147483648", "99999999999999999999"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    int n = 7;
    if (perf_parse_count(bad[i], 100, &n) || n != 7) {
      fail_msg("'%s' was read as %d", bad[i], n);
    }
  }
  int n;
  assert_true(perf_parse_count("0", 100, &n) && n == 0);
  assert_true(perf_parse_count("007", 100, &n) && n == 7);
  assert_true(perf_parse_count("100", 100, &n) && n == 100);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_forms),
      cmocka_unit_test(test_every_letter),
      cmocka_unit_test(test_replaced_values),
      cmocka_unit_test(test_bad),
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_scan),
      cmocka_unit_test(test_split),
      cmocka_unit_test(test_hash),
      cmocka_unit_test(test_matrix),
      cmocka_unit_test(test_generated_matrix),
      cmocka_unit_test(test_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
