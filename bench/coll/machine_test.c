// machine_test.c: what is read from a machine's files, and how it is written.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "machine.h"

// A file below root, with its folders.
static void put(const char *root, const char *path, const char *text)
{
  char name[512];
  snprintf(name, sizeof name, "%s%s", root, path);
  for (char *at = strchr(name + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
    *at = '\0';
    mkdir(name, 0700);
    *at = '/';
  }
  FILE *f = fopen(name, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void clear(const char *root)
{
  char command[600];
  snprintf(command, sizeof command, "rm -rf '%s'", root);
  assert_int_equal(system(command), 0);
}

#define CACHE "/sys/devices/system/cpu/cpu0/cache/index"

static void test_files(void **state)
{
  (void)state;
  char root[] = "/tmp/tutti-machine-XXXXXX";
  machine m, again;
  assert_non_null(mkdtemp(root));
  put(root, "/proc/cpuinfo",
      "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) "
      "\"8481C\"\nstepping\t: 8\n"
      "\nprocessor\t: 1\nvendor_id\t: Other\n");
  put(root, CACHE "0/level", "1\n");
  put(root, CACHE "0/size", "48K\n");
  put(root, CACHE "1/level", "3\n");
  put(root, CACHE "1/size", "266240K\n");
  put(root, CACHE "1/shared_cpu_list", "0-51\n");
  put(root, CACHE "2/level", "2\n");
  put(root, CACHE "2/size", "2048K\n");
  put(root, "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  put(root, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force\n");
  put(root, "/proc/sys/kernel/yama/ptrace_scope", "1\n");
  put(root, "/proc/loadavg", "0.25 0.50 0.75 1/100 1234\n");
  machine_read(&m, root);
  static const char *const rows[][2] = {
      {"cpu", "Intel(R) Xeon(R) \"8481C\""},
      {"vendor", "GenuineIntel"},
      {"family", "6"},
      {"model", "143"},
      {"stepping", "8"},
      {"last-level cache", "L3 266240K (cores 0-51)"},
      {"huge pages", "madvise"},
      {"huge shared pages", "never"},
      {"ptrace_scope", "1"},
      {"load", "0.25"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_non_null(machine_get(&m, rows[i][0]));
    assert_string_equal(machine_get(&m, rows[i][0]), rows[i][1]);
  }
  assert_null(machine_get(&m, "huge pages reserved"));
  assert_non_null(machine_get(&m, "kernel"));
  assert_true(atoi(machine_get(&m, "cores")) >= 1);
  assert_non_null(machine_get(&m, "process_vm_readv"));
  // The load may change; nothing else.
  put(root, "/proc/loadavg", "7.00 0.50 0.75 1/100 1234\n");
  machine_read(&again, root);
  assert_true(machine_same(&m, &again));
  put(root, "/proc/sys/kernel/yama/ptrace_scope", "2\n");
  machine_read(&again, root);
  assert_false(machine_same(&m, &again));
  assert_false(machine_same(&again, &m));
  clear(root);
}

// A machine that says nothing has the rows that are always there.
static void test_no_files(void **state)
{
  (void)state;
  machine m;
  machine_read(&m, "/nowhere/at/all");
  assert_string_equal(machine_get(&m, "cpu"), "unknown");
  assert_string_equal(machine_get(&m, "ptrace_scope"), "none");
  assert_null(machine_get(&m, "vendor"));
  assert_null(machine_get(&m, "last-level cache"));
}

// The line of this machine is what was read of it.
static void test_head_line(void **state)
{
  (void)state;
  char text[4096] = "", expected[4096] = "";
  machine m;
  FILE *f = fmemopen(text, sizeof text, "w");
  machine_say(f);
  fclose(f);
  machine_read(&m, "");
  snprintf(expected, sizeof expected, "Machine: cpu %s", machine_get(&m, "cpu"));
  assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
  assert_non_null(strstr(text, ", kernel Linux "));
  assert_non_null(strstr(text, ", process_vm_readv "));
}

static void test_written(void **state)
{
  (void)state;
  machine m = {0};
  char text[256] = "";
  assert_int_equal(machine_add(&m, "cpu", "a \"b\" \\ c\n"), 0);
  assert_int_equal(machine_add(&m, "cores", "2"), 0);
  FILE *f = fmemopen(text, sizeof text, "w");
  machine_json(&m, f);
  fclose(f);
  assert_string_equal(text, "{\"cpu\": \"a \\\"b\\\" \\\\ c\", \"cores\": \"2\"}");
  m.rows[0].value[1] = '\0';
  f = fmemopen(text, sizeof text, "w");
  machine_print(&m, f);
  fclose(f);
  assert_string_equal(text, "cpu a, cores 2\n");
  for (int i = 2; i < MACHINE_ROWS; i++) {
    assert_int_equal(machine_add(&m, "more", ""), 0);
  }
  assert_int_equal(machine_add(&m, "more", ""), -1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_no_files),
                                     cmocka_unit_test(test_head_line), cmocka_unit_test(test_written)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
