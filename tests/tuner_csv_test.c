// tuner_csv_test.c: the bundled tuner: its file's lines, and that the library loads it by itself when there is a file
// of choices.
#include "harness.h"

#include <limits.h>
#include <sys/stat.h>

#include "../plugins/tuner-csv/choices.c"

static void lines(void **state)
{
  static const struct {
    const char *line, *why; // why NULL: it is good; "": nothing to read
  } list[] = {{"allreduce,0,65536,tree,simple,2,1,-1,-1,1", NULL},
              {" AllReduce , 1 , 2 , Ring , LL128 , -1 , -1 , -1 ", NULL},
              {"\"reduce\",0,18446744073709551615,hier_rd,ll,-1,2,8,4", NULL},
              {"", ""},
              {"  # words", ""},
              {"collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff", ""},
              {"allreduce,0,65536,tree,simple,2,1", "too few fields"},
              {"allreduce,0,1,tree,simple,2,1,1,1,1,1", "too many fields"},
              {"alltoall,0,1,tree,simple,2,1,1", "no collective is called 'alltoall'"},
              {"reduce,0,1,bush,simple,2,1,1", "no algorithm is called 'bush'"},
              {"reduce,0,1,ring,simpel,2,1,1", "no protocol is called 'simpel'"},
              {"reduce,2,1,ring,simple,2,1,1", "no range of bytes"},
              {"reduce,-1,1,ring,simple,2,1,1", "no range of bytes"},
              {"reduce,0,1k,ring,simple,2,1,1", "no range of bytes"},
              {"reduce,0,99999999999999999999999,ring,simple,2,1,1", "no range of bytes"},
              {"reduce,0,1,ring,simple,0,1,1", "neither -1 nor a number from 1 on: '0'"},
              {"reduce,0,1,ring,simple,x,1,1", "neither -1 nor a number from 1 on: 'x'"},
              {"reduce,0,1,ring,simple,1,1,-2", "neither -1 nor a number from 1 on: '-2'"},
              {"reduce,0,1,ring,simple,1,1,1,1,", "neither -1 nor a number from 0 on: ''"}};
  (void)state;
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    char why[128] = "";
    choice c;
    int got = choice_parse(list[i].line, &c, why);
    assert_int_equal(got, list[i].why == NULL ? 1 : list[i].why[0] == '\0' ? 0 : -1);
    if (got < 0 && strstr(why, list[i].why) == NULL) {
      fail_msg("%s: %s, not %s", list[i].line, why, list[i].why);
    }
  }
  char why[128], long_line[4000];
  choice c;
  assert_int_equal(choice_parse(list[2].line, &c, why), 1);
  assert_true(c.func == ncclFuncReduce && c.max == SIZE_MAX && c.algo == TUTTI_ALGO_HIER_RD &&
              c.proto == NCCL_PROTO_LL && c.ranks == 8 && c.nodes == 2 && c.ops == 4 && c.registered == -1);
  memset(long_line, 'x', sizeof long_line);
  long_line[sizeof long_line - 1] = '\0';
  assert_int_equal(choice_parse(long_line, &c, why), -1);
}

static void not_expected(void *arg, int line, const char *what)
{
  (void)arg;
  fail_msg("line %d: %s", line, what);
}

// A file that everybody may write is not believed, even one that the user has named.
static void strange_file(void **state)
{
  (void)state;
  char path[] = "/tmp/tutti-choices-XXXXXX", why[TT_TRUST_WHY];
  choices all;
  int fd = mkstemp(path);
  assert_true(fd >= 0 && write(fd, "allreduce,0,100,tree,ll,-1,1,2\n", 31) == 31);
  assert_true(choices_read(path, false, &all, not_expected, NULL, why));
  assert_int_equal(all.count, 1);
  free(all.list);
  assert_int_equal(fchmod(fd, 0666), 0);
  assert_false(choices_read(path, true, &all, not_expected, NULL, why));
  assert_non_null(strstr(why, "others may write it (mode 666)"));
  close(fd);
  unlink(path);
}

// ---- In a job ----

static char folder[64], log_file[128];

static void write_choices(const char *text)
{
  char name[128];
  snprintf(folder, sizeof folder, "/tmp/tutti_csv_%d", (int)getpid());
  snprintf(log_file, sizeof log_file, "%s/log", folder);
  snprintf(name, sizeof name, "%s/.nccl", folder);
  CHECK(mkdir(folder, 0700) == 0 && mkdir(name, 0700) == 0, "%s", folder);
  snprintf(name, sizeof name, "%s/.nccl/tuner.csv", folder);
  FILE *f = fopen(name, "w");
  CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0, "%s", name);
  setenv("HOME", folder, 1);
  setenv("NCCL_DEBUG", "TRACE", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,TUNING", 1);
  setenv("NCCL_DEBUG_FILE", log_file, 1);
}

static void remove_choices(void)
{
  char command[160];
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(system(command) == 0, "%s", command);
}

static int logged(const char *what)
{
  static char text[1u << 20];
  FILE *f = fopen(log_file, "r");
  CHECK(f != NULL, "no %s", log_file);
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  int n = 0;
  for (const char *p = text; (p = strstr(p, what)) != NULL; p++) {
    n++;
  }
  return n;
}

static void reduce_all(const world *w, size_t count)
{
  static float x[2][20000];
  for (int i = 0; i < 2; i++) {
    for (size_t k = 0; k < count; k++) {
      x[i][k] = (float)k;
    }
    OK(ncclAllReduce(x[i], x[i], count, ncclFloat, ncclSum, w->comm[i], w->stream[i]));
  }
  world_wait(w);
  for (size_t k = 0; k < count; k++) {
    CHECK(x[0][k] == 2 * (float)k && x[1][k] == 2 * (float)k, "element %zu", k);
  }
}

static void by_itself(int rank, void *arg)
{
  world w;
  (void)rank;
  (void)arg;
  write_choices("# "
                "choices\nallreduce,0,100,tree,ll,-1,1,2\nallreduce,101,1000,tree,simple,-1,1,3\nallreduce,0,1000,nvls,"
                "simple,-1,-1,-1\n"
                "allreduce,101,1000,rd,simple,-1,-1,2\nallreduce,1001,99999,oneshot,simple,-1,-1,-1\nnonsense\n");
  world_open(&w, 2);
  reduce_all(&w, 10);
  reduce_all(&w, 100);
  reduce_all(&w, 1000);
  reduce_all(&w, 20000);
  CHECK(logged("the bundled plugin is used") == 2 && logged("Using CSV (v6)") == 2, "it is loaded");
  CHECK(logged(".nccl/tuner.csv:7: too few fields: there are 8 to 10; the line is skipped") == 2,
        "the wrong line is told");
  CHECK(logged("of 40 bytes: Tree, LL, 1 channels") == 4 && logged("of 400 bytes: RD, Simple") == 2 &&
            logged("of 4000 bytes: Oneshot, Simple") == 2,
        "lines are followed");
  CHECK(logged("of 80000 bytes: Oneshot, Simple") == 2, "and where no measured choice would go");
  world_close(&w);
  remove_choices();
}

static void test_by_itself(void **state)
{
  (void)state;
  PROCESSES(1, 20, by_itself, NULL);
}

static void not_wanted(int rank, void *arg)
{
  world w;
  (void)rank;
  (void)arg;
  write_choices("allreduce,0,100,tree,ll,-1,1,2\n");
  setenv("NCCL_TUNER_PLUGIN", "none", 1);
  world_open(&w, 2);
  reduce_all(&w, 10);
  CHECK(logged("CSV") == 0 && logged("TUNER/Plugin: none, as NCCL_TUNER_PLUGIN says") == 2, "none is none");
  world_close(&w);
  remove_choices();
}

static void test_not_wanted(void **state)
{
  (void)state;
  PROCESSES(1, 20, not_wanted, NULL);
}

// Two processes with other files: neither is used.
static void files_differ(int rank, void *arg)
{
  float x = 1;
  (void)arg;
  write_choices(rank == 0 ? "allreduce,0,100,tree,ll,-1,1,2\n" : "allreduce,0,100,ring,ll,-1,1,2\n");
  ncclComm_t comm = join_processes(0, 2, rank);
  OK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(x == 2, "%g", (double)x);
  CHECK(logged("no tuner plugin is used: rank 0 has one, rank 1 has another") == 1 || rank > 0, "told");
  OK(ncclCommDestroy(comm));
  remove_choices();
}

static void test_files_differ(void **state)
{
  (void)state;
  PROCESSES(2, 20, files_differ, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines),           cmocka_unit_test(strange_file),      cmocka_unit_test(test_by_itself),
      cmocka_unit_test(test_not_wanted), cmocka_unit_test(test_files_differ),
  };
  return RUN_TESTS("the bundled tuner", tests, argc, argv);
}
