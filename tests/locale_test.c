// A program may set its locale, as GUI programs do: what the library and its plugins read and write stays the same.
// German has decimal commas; in Turkish "i" is not the small "I". The locales are built by localedef, since few
// machines have them.
#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/test_child.h"
#include "base/text.h"
#include "nccl.h"

static char folder[64];

static int __attribute__((format(printf, 1, 2))) run_shell(const char *format, ...)
{
  char command[512];
  va_list args;
  va_start(args, format);
  vsnprintf(command, sizeof command, format, args);
  va_end(args);
  return system(command);
}

static bool build_locale(const char *name)
{
  return run_shell("localedef -f UTF-8 -i %s %s/%s.UTF-8 >/dev/null 2>&1", name, folder, name) == 0;
}

static int build_locales(void **state)
{
  (void)state;
  strcpy(folder, "/tmp/tutti_locale_XXXXXX");
  if (mkdtemp(folder) == NULL) {
    return -1;
  }
  // Without their sources (Debian's package "locales") nothing is built, and the tests skip.
  if (!build_locale("de_DE") || !build_locale("tr_TR")) {
    printf("localedef cannot build locales here (Debian: package locales)\n");
    rmdir(folder);
    folder[0] = '\0';
  }
  return 0;
}

static int remove_locales(void **state)
{
  (void)state;
  return folder[0] != '\0' ? run_shell("rm -rf %s", folder) : 0;
}

// A whole job of two ranks. Its output: the library's warnings, the result, the dumps, and how many decimal commas the
// trace's summary has.
static void run_job(void)
{
  if (setlocale(LC_ALL, getenv("WANTED")) == NULL) {
    printf("no locale %s\n", getenv("WANTED"));
    exit(1);
  }
  ncclComm_t comms[2];
  ncclResult_t res = ncclCommInitAll(comms, 2, NULL);
  printf("%s %s\n", ncclGetErrorString(res), res != ncclSuccess ? ncclGetLastError(NULL) : "");
  for (int i = 0; res == ncclSuccess && i < 2; i++) {
    ncclCommDestroy(comms[i]);
  }
  fflush(stdout);
  exit(run_shell("cd %s && for f in *.dump; do [ ! -f $f ] || cat $f; done; cat *.txt | grep -c '[0-9],[0-9]'; "
                 "rm -f *.dump *.json *.txt",
                 folder) != 0);
}

static void run_in(const char *locale, const char *topology, const char *more, char out[1 << 15])
{
  char path[128], wanted[64], file[256], topo_dump[256], graph_dump[256], trace[256], plugin[512];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "LOCPATH=%s", folder);
  snprintf(wanted, sizeof wanted, "WANTED=%s", locale);
  snprintf(file, sizeof file, "NCCL_TOPO_FILE=%s", topology);
  snprintf(topo_dump, sizeof topo_dump, "NCCL_TOPO_DUMP_FILE=%s/topo.dump", folder);
  snprintf(graph_dump, sizeof graph_dump, "NCCL_GRAPH_DUMP_FILE=%s/graph.dump", folder);
  snprintf(trace, sizeof trace, "TUTTI_TRACE_DIR=%s", folder);
  snprintf(plugin, sizeof plugin, "NCCL_PROFILER_PLUGIN=%s/lib/libnccl-profiler-trace.so",
           build != NULL ? build : "build");
  const char *env[] = {
      path, wanted, file, topo_dump, graph_dump, trace, plugin, "TUTTI_TRACE_WAIT=1.5", "NCCL_DEBUG=warn", more, NULL};
  child_run(env, run_job, out, 1 << 15);
}

// The same job in the C locale and in another gives the same text; returns it.
static const char *same_text(const char *locale, const char *topology, const char *more)
{
  static char there[1 << 15], here[1 << 15];
  run_in("C", topology, more, here);
  run_in(locale, topology, more, there);
  assert_string_equal(there, here);
  return there;
}

static void need_locales(void)
{
  if (folder[0] == '\0') {
    skip();
  }
}

static void decimal_commas_change_nothing(void **state)
{
  (void)state;
  need_locales();
  char topology[128];
  snprintf(topology, sizeof topology, "%s/two.xml", folder);
  FILE *f = fopen(topology, "w");
  assert_non_null(f);
  fputs("<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
        "familyid=\"6\" modelid=\"143\">",
        f);
  for (int i = 0; i < 2; i++) {
    fprintf(f,
            "<pci busid=\"0000:%d0:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
            "<gpu dev=\"%d\" sm=\"90\" rank=\"%d\" gdr=\"1\"/></pci>",
            i + 1, i, i);
  }
  fputs("<pci busid=\"0000:30:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><nic><net "
        "name=\"mlx5_0\" dev=\"0\" "
        "speed=\"400000\" port=\"1\" latency=\"1.500000\" guid=\"0x1\" maxconn=\"131072\" "
        "gdr=\"1\"/></nic></pci></cpu></system>\n",
        f);
  fclose(f);
  const char *text = same_text("de_DE.UTF-8", topology, "NCCL_MIN_NCHANNELS=1");
  assert_non_null(strstr(text, "no error"));
  assert_non_null(strstr(text, "latency=\"1.500000\""));
  assert_non_null(strstr(text, "32.0 GT/s"));
  assert_non_null(strstr(text, "<graph id=\"0\""));
}

static void words_ignore_the_turkish_i(void **state)
{
  (void)state;
  need_locales();
  const char *text = same_text("tr_TR.UTF-8", "", "NCCL_ALGO=ring");
  assert_non_null(strstr(text, "no error"));
  assert_null(strstr(text, "ring:"));
}

static void read_and_write(void)
{
  if (setlocale(LC_ALL, getenv("WANTED")) == NULL) {
    exit(1);
  }
  char *end, text[64];
  double value = (double)tt_strtof("32.5 GT/s", &end);
  tt_format(text, sizeof text, "%.2f %g", value, (double)tt_strtof("0.25", NULL));
  printf("[%s][%s] %d %d", text, end, tt_casecmp("RING", "ring"), tt_ncasecmp("TITLE", "title2", 5));
  printf(" %s", localeconv()->decimal_point); // the program's own locale is as it was
}

static void numbers_and_words(void **state)
{
  (void)state;
  need_locales();
  char path[128], out[256];
  snprintf(path, sizeof path, "LOCPATH=%s", folder);
  child_run((const char *[]){path, "WANTED=tr_TR.UTF-8", NULL}, read_and_write, out, sizeof out);
  assert_string_equal(out, "[32.50 0.25][ GT/s] 0 0 ,");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(decimal_commas_change_nothing),
      cmocka_unit_test(words_ignore_the_turkish_i),
      cmocka_unit_test(numbers_and_words),
  };
  return cmocka_run_group_tests(tests, build_locales, remove_locales);
}
