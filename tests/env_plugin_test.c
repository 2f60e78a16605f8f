// env_plugin_test.c: environment plugins: what they say holds, what they do not say is not set, files come after them.
// The plugins are tests/plugins/env.h.
#include <dlfcn.h>

#include "harness.h"

static char record_file[64], log_file[64], conf_file[64];

static void name_files(pid_t pid)
{
  snprintf(record_file, sizeof record_file, "/tmp/tutti_env_%d.txt", (int)pid);
  snprintf(log_file, sizeof log_file, "/tmp/tutti_env_%d.log", (int)pid);
  snprintf(conf_file, sizeof conf_file, "/tmp/tutti_env_%d.conf", (int)pid);
}

static const char *plugin_path(int version)
{
  static char path[4096];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/tests/plugins/libenv_v%d.so", build != NULL ? build : "build", version);
  return path;
}

static void write_file(const char *name, const char *text)
{
  FILE *f = fopen(name, "w");
  CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0, "%s", name);
}

static char *text_of(const char *name)
{
  static char text[1u << 20];
  FILE *f = fopen(name, "r");
  CHECK(f != NULL, "no %s", name);
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = '\0';
  return text;
}

#define SAYS(file, what) CHECK(strstr(text_of(file), what) != NULL, "'%s' is not in: %s", what, text_of(file))

// What the parent reads when the child has ended.
static void prepare(int version, bool by_file)
{
  name_files(getppid());
  if (by_file) {
    char line[4200];
    snprintf(line, sizeof line, "NCCL_ENV_PLUGIN=%s\nNCCL_IB_HCA=from_file\nNCCL_BUFFSIZE=77777\n",
             plugin_path(version));
    write_file(conf_file, line);
  } else {
    setenv("NCCL_ENV_PLUGIN", plugin_path(version), 1);
    write_file(conf_file, "NCCL_IB_HCA=from_file\nNCCL_BUFFSIZE=77777\n");
  }
  setenv("NCCL_CONF_FILE", conf_file, 1);
  setenv("TEST_ENV_RECORD", record_file, 1);
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,ENV", 1);
  setenv("NCCL_DEBUG_FILE", log_file, 1);
}

typedef struct wanted {
  int version;
  bool by_file;
} wanted;

static const char *text_param(const char *key)
{
  const char *value = NULL;
  int len = 0;
  OK(ncclParamGetParameter(key, &value, &len));
  return value;
}

static void plugin_speaks(int rank, void *arg)
{
  const wanted *w = arg;
  float x = 1;
  (void)rank;
  prepare(w->version, w->by_file);
  setenv("NCCL_BUFFSIZE", "1048576", 1); // hidden by the plugin
  setenv("NCCL_ALGO", "Nonsense", 1);    // too
  setenv("TEST_ENV_NCCL_PROTO", "Simple", 1);
  setenv("TEST_ENV_NCCL_DEBUG", "INFO", 1);
  setenv("TEST_ENV_NCCL_DEBUG_SUBSYS", "ALL", 1);
  setenv("TEST_ENV_NCCL_DEBUG_FILE", log_file, 1);
  setenv("TEST_ENV_NCCL_ENV_PLUGIN", "none", 1); // not asked for
  ncclComm_t comm;
  OK(ncclCommInitAll(&comm, 1, NULL));
  OK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(strcmp(text_param("NCCL_PROTO"), "Simple") == 0, "NCCL_PROTO is %s", text_param("NCCL_PROTO"));
  CHECK(strcmp(text_param("NCCL_ALGO"), "") == 0, "NCCL_ALGO is %s", text_param("NCCL_ALGO"));
  CHECK(strcmp(text_param("NCCL_BUFFSIZE"), "77777") == 0, "NCCL_BUFFSIZE is %s", text_param("NCCL_BUFFSIZE"));
  CHECK(strcmp(text_param("NCCL_ENV_PLUGIN"), plugin_path(w->version)) == 0, "NCCL_ENV_PLUGIN is %s",
        text_param("NCCL_ENV_PLUGIN"));
  OK(ncclCommDestroy(comm));
}

static void test_plugin_speaks(void **state)
{
  (void)state;
  static wanted list[] = {{1, false}, {2, false}, {2, true}};
  for (int i = 0; i < 3; i++) {
    name_files(getpid());
    PROCESSES(1, 20, plugin_speaks, &list[i]);
    char begun[64];
    snprintf(begun, sizeof begun, "init v%d for %d.%d.%d\nend v%d, asked often\n", list[i].version, NCCL_MAJOR,
             NCCL_MINOR, NCCL_PATCH, list[i].version);
    assert_string_equal(text_of(record_file), begun);
    SAYS(log_file, list[i].version == 1 ? "ENV/Plugin: Using TestEnv (v1)" : "the test's environment begins");
    SAYS(log_file, "NCCL_PROTO set by environment plugin TestEnv (v");
    SAYS(log_file, "ENV/Plugin: Closing TestEnv (v");
    remove(record_file);
    remove(log_file);
    remove(conf_file);
  }
}

static void init_fails(int rank, void *arg)
{
  (void)rank;
  prepare(*(const int *)arg, false);
  setenv("TEST_ENV_INIT", "fail", 1);
  setenv("NCCL_PROTO", "LL", 1);
  setenv("TEST_ENV_NCCL_PROTO", "Simple", 1);
  CHECK(strcmp(text_param("NCCL_PROTO"), "LL") == 0, "NCCL_PROTO is %s", text_param("NCCL_PROTO"));
  ncclComm_t comm;
  OK(ncclCommInitAll(&comm, 1, NULL));
  OK(ncclCommDestroy(comm));
}

static void test_init_fails(void **state)
{
  (void)state;
  for (int v = 1; v <= 2; v++) {
    name_files(getpid());
    PROCESSES(1, 20, init_fails, &v);
    SAYS(log_file, "is not used: init of TestEnv (v");
    assert_null(strstr(text_of(record_file), "end"));
    remove(record_file);
    remove(log_file);
    remove(conf_file);
  }
}

static void empty_table(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  prepare(2, false);
  char path[4096];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/tests/plugins/libenv_empty.so", build != NULL ? build : "build");
  setenv("NCCL_ENV_PLUGIN", path, 1);
  setenv("NCCL_PROTO", "LL", 1);
  ncclComm_t comm;
  OK(ncclCommInitAll(&comm, 1, NULL));
  CHECK(strcmp(text_param("NCCL_PROTO"), "LL") == 0, "NCCL_PROTO is %s", text_param("NCCL_PROTO"));
  OK(ncclCommDestroy(comm));
}

static void test_empty_table(void **state)
{
  (void)state;
  name_files(getpid());
  PROCESSES(1, 20, empty_table, NULL);
  SAYS(log_file, "libenv_empty.so is not used: its table of version 2 lacks: init getEnv");
  remove(log_file);
  remove(conf_file);
}

// The plugin comes with the library, and goes with it: a program that loads and unloads the library does so with the
// plugin, too.
static void loads_and_unloads(int rank, void *arg)
{
  char path[4096];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/lib/libnccl.so.2", build != NULL ? build : "build");
  (void)rank;
  (void)arg;
  prepare(2, false);
  unsetenv("NCCL_DEBUG");
  setenv("TEST_ENV_NCCL_PROTO", "Simple", 1);
  for (int i = 0; i < 1000; i++) {
    const char *value = NULL;
    int len = 0;
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(lib != NULL, "%s", dlerror());
    ncclResult_t (*get)(const char *, const char **, int *) =
        (ncclResult_t(*)(const char *, const char **, int *))(uintptr_t)dlsym(lib, "ncclParamGetParameter");
    CHECK(get != NULL, "%s", dlerror());
    OK(get("NCCL_PROTO", &value, &len));
    CHECK(strcmp(value, "Simple") == 0, "NCCL_PROTO is %s", value);
    CHECK(dlclose(lib) == 0, "%s", dlerror());
    CHECK(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL, "the library is still there");
    CHECK(dlopen(plugin_path(2), RTLD_NOW | RTLD_NOLOAD) == NULL, "the plugin is still there");
  }
}

static int times(const char *text, const char *what)
{
  int n = 0;
  for (const char *p = text; (p = strstr(p, what)) != NULL; p++) {
    n++;
  }
  return n;
}

static void test_loads_and_unloads(void **state)
{
  (void)state;
  name_files(getpid());
  PROCESSES(1, 60, loads_and_unloads, NULL);
  assert_int_equal(times(text_of(record_file), "init v2"), 1000);
  assert_int_equal(times(text_of(record_file), "end v2"), 1000);
  remove(record_file);
  remove(conf_file);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plugin_speaks),
      cmocka_unit_test(test_init_fails),
      cmocka_unit_test(test_empty_table),
      cmocka_unit_test(test_loads_and_unloads),
  };
  return RUN_TESTS("environment plugins", tests, argc, argv);
}
