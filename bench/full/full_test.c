// full_test.c: columns, best of the peers, missing peers, means and the worst point; what is read, printed and drawn.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "full.h"

static void put(full_run *r, int kind, int cold, double bytes, const char *name, double us)
{
  int who = full_player(r, name);
  full_point *p = full_at(r, 2, kind, cold, bytes);
  assert_true(who >= 0);
  assert_non_null(p);
  p->us[who] = us;
  p->rounds[who] = 5;
}

// All-reduce of 8 B (A: 1.0, A:x 0.5, B missing) and 32 B (A missing, A:x 4, B 3), reduce of 8 B where no peer was
// measured.
static void fill(full_run *r)
{
  *r = (full_run){0};
  put(r, COLL_REDUCE, 0, 8, "tutti", 1);
  put(r, COLL_ALL_REDUCE, 0, 32, "tutti", 2);
  put(r, COLL_ALL_REDUCE, 0, 32, "A:x", 4);
  put(r, COLL_ALL_REDUCE, 0, 32, "B", 3);
  put(r, COLL_ALL_REDUCE, 0, 8, "tutti", 1);
  put(r, COLL_ALL_REDUCE, 0, 8, "tutti:threads", 0.25);
  put(r, COLL_ALL_REDUCE, 0, 8, "A", 1);
  put(r, COLL_ALL_REDUCE, 0, 8, "A:x", 0.5);
  put(r, COLL_ALL_REDUCE, 1, 8, "tutti", 1);
  put(r, COLL_ALL_REDUCE, 1, 8, "A", 6);
  full_columns(r);
}

static int column(const full_run *r, const char *name)
{
  for (int i = 0; i < r->ncolumns; i++) {
    if (strcmp(r->columns[i].name, name) == 0) {
      return i;
    }
  }
  return -1;
}

static void test_columns(void **state)
{
  (void)state;
  full_run r;
  fill(&r);
  assert_int_equal(r.ncolumns, 5);
  assert_int_equal(column(&r, "tutti"), 0);
  assert_int_equal(column(&r, "tutti threads"), 1);
  assert_true(r.columns[0].own && r.columns[1].own);
  int plain = column(&r, "A"), tuned = column(&r, "A tuned"), b = column(&r, "B");
  assert_true(plain > 0 && tuned > 0 && b > 0 && !r.columns[plain].own && !r.columns[tuned].own);
  assert_int_equal(column(&r, "B tuned"), -1);
  int who;
  assert_true(full_us(&r, full_at(&r, 2, COLL_ALL_REDUCE, 0, 8), tuned, &who) == 0.5);
  assert_string_equal(r.players[who], "A:x");
  assert_true(full_us(&r, full_at(&r, 2, COLL_ALL_REDUCE, 1, 8), tuned, &who) == 6);
  assert_string_equal(r.players[who], "A");
  assert_true(full_us(&r, full_at(&r, 2, COLL_ALL_REDUCE, 0, 8), b, &who) == 0);
  assert_int_equal(who, -1);
  full_free(&r);
}

static void test_judge(void **state)
{
  (void)state;
  full_run r;
  fill(&r);
  full_verdict v = full_judge(&r, full_at(&r, 2, COLL_ALL_REDUCE, 0, 8), 0);
  assert_true(v.ours == 1 && v.best == 0.5 && v.ratio == 0.5);
  assert_int_equal(v.by, column(&r, "A tuned"));
  assert_true(v.limit == 0 && v.share == 0); // nothing is known of the machine
  v = full_judge(&r, full_at(&r, 2, COLL_ALL_REDUCE, 0, 32), 0);
  assert_true(v.best == 3 && v.ratio == 1.5);
  assert_int_equal(v.by, column(&r, "B"));
  v = full_judge(&r, full_at(&r, 2, COLL_ALL_REDUCE, 0, 8), 1);
  assert_true(v.ratio == 2);
  v = full_judge(&r, full_at(&r, 2, COLL_ALL_REDUCE, 0, 32), 1); // ours is missing
  assert_true(v.ours == 0 && v.ratio == 0);
  v = full_judge(&r, full_at(&r, 2, COLL_REDUCE, 0, 8), 0); // all peers are missing
  assert_int_equal(v.by, -1);
  assert_true(v.ratio == 0);
  full_free(&r);
}

static void test_summary(void **state)
{
  (void)state;
  full_run r;
  fill(&r);
  full_summary s = full_summarise(&r, 0, 2, -1);
  assert_int_equal(s.all.n, 3);
  assert_true(fabs(stats_geometric(&s.heat[0]) - sqrt(0.5 * 1.5)) < 1e-12);
  assert_true(fabs(stats_geometric(&s.heat[1]) - 6) < 1e-12);
  assert_true(fabs(stats_geometric(&s.all) - cbrt(0.5 * 1.5 * 6)) < 1e-12);
  assert_true(s.all.worst == 0.5);
  assert_true(r.points[s.all.where].bytes == 8 && r.points[s.all.where].kind == COLL_ALL_REDUCE &&
              !r.points[s.all.where].cold);
  assert_int_equal(full_summarise(&r, 0, 2, COLL_REDUCE).all.n, 0);
  assert_int_equal(full_summarise(&r, 0, 4, -1).all.n, 0);
  full_free(&r);
}

static void test_tables(void **state)
{
  (void)state;
  full_run r;
  fill(&r);
  // Sorted: all-reduce warm 8, 32; cold 8; reduce.
  assert_int_equal(full_table_end(&r, 0), 2);
  assert_int_equal(full_table_end(&r, 2), 3);
  assert_int_equal(full_table_end(&r, 3), 4);
  assert_true(r.points[0].bytes == 8 && r.points[1].bytes == 32 && r.points[2].cold && r.points[3].kind == COLL_REDUCE);
  full_free(&r);
}

static int load_text(full_run *r, const char *text)
{
  char path[] = "/tmp/tutti-full-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
  close(fd);
  int res = full_load(r, path);
  unlink(path);
  return res;
}

static void test_load(void **state)
{
  (void)state;
  full_run r = {0};
  assert_int_equal(load_text(&r, "{\"ranks\": 2, \"rounds\": 3, \"players\": [\"tutti\", \"A\"], \"wrong\": {\"A\": "
                                 "7}, \"collectives\": {\"broadcast\": "
                                 "{\"points\": [{\"bytes\": 8, \"cold\": true, \"tutti\": {\"us\": 1.5, \"rounds\": "
                                 "[1.5, 0, 2]}, \"A\": {\"us\": 0, "
                                 "\"rounds\": [0, 0, 0]}}]}}}"),
                   0);
  assert_int_equal(r.npoints, 1);
  assert_int_equal(r.wrong[1], 7);
  assert_true(r.points[0].cold && r.points[0].kind == COLL_BROADCAST && r.points[0].us[0] == 1.5 &&
              r.points[0].us[1] == 0);
  assert_int_equal(r.points[0].rounds[0], 2);
  full_free(&r);
}

static void test_load_bad(void **state)
{
  (void)state;
  static const char *const bad[] = {
      "",
      "[]",
      "{\"ranks\": 2}",
      "{\"ranks\": 0, \"players\": []}",
      "{\"ranks\": 2, \"players\": [3]}",
      "{\"ranks\": 2, \"players\": [\"a name that is much longer than any player's can be\"]}",
      "{\"ranks\": 2, \"players\": [], \"collectives\": {\"none\": {\"points\": []}}}",
      "{\"ranks\": 2, \"players\": [], \"collectives\": {\"reduce\": {}}}",
      "{\"ranks\": 2, \"players\": [], \"collectives\": {\"reduce\": {\"points\": [{\"cold\": true}]}}}"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    full_run r = {0};
    assert_int_equal(load_text(&r, bad[i]), 1);
    full_free(&r);
  }
}

static char *printed(const full_run *r, int markdown)
{
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  assert_non_null(f);
  full_print(r, f, markdown);
  fclose(f);
  return text;
}

static void test_print(void **state)
{
  (void)state;
  full_run r;
  fill(&r);
  r.wrong[0] = 3;
  char *text = printed(&r, 0), *markdown = printed(&r, 1);
  assert_non_null(strstr(text, "tutti: 3 WRONG elements"));
  assert_non_null(strstr(text, "Medians of 5 to 5 rounds"));
  assert_non_null(strstr(text, "0.50: all_reduce 8 B warm, A tuned"));
  assert_non_null(strstr(markdown, "### all_reduce, 2 ranks, warm"));
  // Each line of a markdown table has as many cells as its first.
  for (char *line = markdown, *next; line != NULL && *line != '\0'; line = next) {
    static int cells;
    int n = 0;
    next = strchr(line, '\n');
    next = next == NULL ? NULL : next + 1;
    for (char *c = line; c != next && *c != '\0'; c++) {
      n += *c == '|';
    }
    assert_true(n == 0 || cells == 0 || n == cells);
    cells = n;
  }
  free(text);
  free(markdown);
  full_free(&r);
}

static int count(const char *text, const char *what)
{
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)) != NULL; at++) {
    n++;
  }
  return n;
}

static void test_plot(void **state)
{
  (void)state;
  full_run r;
  char *text = NULL;
  size_t size = 0;
  fill(&r);
  FILE *f = open_memstream(&text, &size);
  assert_non_null(f);
  full_plot(&r, f, 0, 3); // warm and cold
  fclose(f);
  assert_non_null(strstr(text, "warm"));
  assert_non_null(strstr(text, "cold"));
  assert_non_null(strstr(text, "prefers-color-scheme:dark"));
  assert_null(strstr(text, "nan"));
  assert_null(strstr(text, "inf\"")); // no coordinate without a number
  assert_null(strstr(text, "href"));  // nothing from elsewhere
  // Lines: tutti, threads, A, A tuned, B warm; tutti, A, A tuned cold; as many of times; of ratios tutti and threads
  // warm, tutti cold; five in the legend; no limit is known.
  assert_int_equal(count(text, "<polyline"), 8 + 8 + 3 + 5);
  assert_int_equal(count(text, "<clipPath"), 6);
  assert_int_equal(count(text, "best peer's time over ours"), 2);
  assert_int_equal(count(text, ">tutti threads<"), 1);
  free(text);
  full_free(&r);
}

// What was printed is read again: pictures can be drawn from the tables.
static void test_read_tables(void **state)
{
  (void)state;
  full_run r, again = {0};
  char path[] = "/tmp/tutti-full-XXXXXX";
  fill(&r);
  r.points[0].limit = 0.125; // printed as 0.12 or 0.13
  int fd = mkstemp(path);
  FILE *f = fdopen(fd, "w");
  assert_non_null(f);
  full_print(&r, f, 1);
  fclose(f);
  assert_int_equal(full_load_tables(&again, path), 0);
  full_columns(&again);
  assert_int_equal(again.npoints, r.npoints);
  assert_int_equal(again.ncolumns, r.ncolumns);
  for (int i = 0; i < r.npoints; i++) {
    const full_point *p = &r.points[i], *q = &again.points[i];
    assert_true(p->ranks == q->ranks && p->kind == q->kind && p->cold == q->cold && p->bytes == q->bytes);
    assert_true(fabs(p->limit - q->limit) < 0.006);
    for (int k = 0; k < r.ncolumns; k++) {
      int same = column(&again, r.columns[k].name);
      assert_true(same >= 0 && again.columns[same].own == r.columns[k].own);
      assert_true(full_us(&r, p, k, NULL) == full_us(&again, q, same, NULL));
    }
  }
  static const char *const bad[] = {
      "", "nothing\n", "### all_reduce, 2 ranks, warm\n\n| us | tutti | best peer |\n|---|---|---|\n| 8 B | 1 |\n",
      "### all_reduce, 2 ranks, warm\n\n| us | tutti | best peer |\n|---|---|---|\n| eight | 1 | - |\n"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    f = fopen(path, "w");
    fputs(bad[i], f);
    fclose(f);
    full_run none = {0};
    assert_int_equal(full_load_tables(&none, path), 1);
    full_free(&none);
  }
  unlink(path);
  assert_int_equal(full_load_tables(&again, "/nowhere/at/all.md"), 1);
  full_free(&again);
  full_free(&r);
}

#define MEASURED(machine) "{\"ranks\": 2, \"players\": [], \"machine\": " machine "}"

// Every machine that measured a part stands once above the tables and in the JSON.
static void test_machines(void **state)
{
  (void)state;
  full_run r;
  char path[] = "/tmp/tutti-full-XXXXXX", json[65536] = "";
  fill(&r);
  assert_int_equal(load_text(&r, MEASURED("{\"cpu\": \"Xeon\", \"cores\": \"2\", \"load\": \"0.10\"}")), 0);
  assert_int_equal(load_text(&r, MEASURED("{\"cpu\": \"Xeon\", \"cores\": \"2\", \"load\": \"0.90\"}")), 0);
  assert_int_equal(load_text(&r, MEASURED("{\"cpu\": \"EPYC\", \"cores\": \"2\"}")), 0);
  assert_int_equal(load_text(&r, "{\"ranks\": 2, \"players\": []}"), 0); // of an older driver
  assert_int_equal(r.nmachines, 2);
  char *text = printed(&r, 0), *markdown = printed(&r, 1);
  assert_int_equal(count(text, "Machine: "), 2);
  assert_non_null(strstr(text, "Machine: cpu Xeon, cores 2, load 0.10\n"));
  assert_non_null(strstr(markdown, "Machine: cpu EPYC, cores 2\n"));
  assert_true(strstr(markdown, "Machine: ") < strstr(markdown, "### all_reduce"));
  free(text);
  free(markdown);
  int fd = mkstemp(path);
  assert_int_equal(full_json(&r, path), 0);
  assert_true(read(fd, json, sizeof json - 1) > 0);
  close(fd);
  unlink(path);
  assert_int_equal(count(json, "\"cpu\": "), 2);
  assert_non_null(strstr(json, "\"machines\""));
  assert_int_equal(load_text(&r, MEASURED("{\"cpu\": 3}")), 1);
  full_free(&r);
}

static void test_json(void **state)
{
  (void)state;
  full_run r;
  char path[] = "/tmp/tutti-full-XXXXXX", text[65536] = "";
  fill(&r);
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(full_json(&r, path), 0);
  ssize_t n = read(fd, text, sizeof text - 1);
  assert_true(n > 0);
  close(fd);
  unlink(path);
  assert_non_null(strstr(text, "\"setting\": \"A:x\""));
  assert_non_null(strstr(text, "\"best_peer\": \"A tuned\""));
  assert_non_null(strstr(text, "\"worst\": 0.5"));
  full_free(&r);
  assert_int_equal(full_json(&r, "/nowhere/at/all.json"), 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_columns), cmocka_unit_test(test_judge),   cmocka_unit_test(test_summary),
      cmocka_unit_test(test_tables),  cmocka_unit_test(test_load),    cmocka_unit_test(test_load_bad),
      cmocka_unit_test(test_print),   cmocka_unit_test(test_plot),    cmocka_unit_test(test_read_tables),
      cmocka_unit_test(test_json),    cmocka_unit_test(test_machines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
