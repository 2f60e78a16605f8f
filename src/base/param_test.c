#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/stat.h>

#include "base/param.h"
#include "base/test_child.h"
#include "base/util.h"

static void integers(void **unused)
{
  (void)unused;
  static const struct {
    const char *text;
    int64_t value;
  } good[] = {
      {"0", 0},
      {"-2", -2},
      {" 42\t", 42},
      {"+7", 7},
      {"010", 10},
      {"0x10", 16},
      {"4k", 4096},
      {"4M", 4 << 20},
      {"1g", 1 << 30},
      {"0x10k", 16384},
      {"-1k", -1024},
      {"9223372036854775807", INT64_MAX},
      {"-9223372036854775808", INT64_MIN},
      {"0xffffffffffffffff", -1},
  };
  static const char *const bad[] = {"",
                                    " ",
                                    "x",
                                    "1.5",
                                    "4kb",
                                    "4 k",
                                    "0x",
                                    "k",
                                    "--1",
                                    "1e3",
                                    "9223372036854775808",
                                    "-9223372036854775809",
                                    "0x10000000000000000",
                                    "9223372036854775807k",
                                    "12abc",
                                    "99999999999g",
                                    "0xffffffffffffffffk"};
  for (size_t i = 0; i < TT_COUNT(good); i++) {
    int64_t value = 12345;
    assert_true(tt_param_parse_value(TT_PARAM_TYPE_INT, good[i].text, &value));
    assert_true(value == good[i].value);
  }
  for (size_t i = 0; i < TT_COUNT(bad); i++) {
    int64_t value = 12345;
    if (tt_param_parse_value(TT_PARAM_TYPE_INT, bad[i], &value) || value != 12345) {
      fail_msg("\"%s\" was read as %lld", bad[i], (long long)value);
    }
  }
}

static void booleans_and_texts(void **unused)
{
  (void)unused;
  int64_t value = 7;
  assert_true(tt_param_parse_value(TT_PARAM_TYPE_BOOL, "TRUE", &value));
  assert_true(value == 1);
  assert_true(tt_param_parse_value(TT_PARAM_TYPE_BOOL, "off", &value));
  assert_true(value == 0);
  assert_true(tt_param_parse_value(TT_PARAM_TYPE_BOOL, "2", &value));
  assert_true(value == 1);
  assert_false(tt_param_parse_value(TT_PARAM_TYPE_BOOL, "maybe", &value));
  assert_true(tt_param_parse_value(TT_PARAM_TYPE_STR, "^docker,=eth0", &value));
  assert_false(tt_param_parse_value(TT_PARAM_TYPE_STR, "a\nb", &value));
}

static void nearest_names(void **unused)
{
  (void)unused;
  static const struct {
    const char *name, *nearest; // NULL: none
  } cases[] = {
      // letters
      {"NCCL_DEBG", "NCCL_DEBUG"},
      {"NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"},
      {"NCCL_BUFSIZE", "NCCL_BUFFSIZE"},
      {"NCCL_BUFFER_SIZE", "NCCL_BUFFSIZE"},
      {"NCCL_DEBUG_SUBSYSTEM", "NCCL_DEBUG_SUBSYS"},
      {"TUTTI_TRACE_DRI", "TUTTI_TRACE_DIR"},
      // words left out, or one too many at the end
      {"NCCL_GDR_LEVEL", "NCCL_NET_GDR_LEVEL"},
      {"NCCL_IFNAME", "NCCL_SOCKET_IFNAME"},
      {"NCCL_DEBUG_LEVEL", "NCCL_DEBUG_LEVELS"},
      {"NCCL_SOCKET_THREADS", "NCCL_SOCKET_NTHREADS"},
      {"NCCL_TUNER_FILE", "NCCL_TUNER_CONFIG_FILE"},
      {"TUTTI_TRACE_DIR_NAME", "TUTTI_TRACE_DIR"},
      // another word
      {"NCCL_IB_GDR_LEVEL", "NCCL_NET_GDR_LEVEL"},
      {"NCCL_P2P_LEVL", "NCCL_P2P_LEVEL"},
      // other programs' names
      {"TUTTI_DEBUG", NULL},
      {"NCCL_VERSION", NULL},
      {"NCCL_HOME", NULL},
      {"NCCL_", NULL},
      {"NCCL_FOO", NULL}, // not NCCL_NET
      {"NCCL_SOMETHING_ELSE", NULL},
      {"NCCL_INCLUDE_DIR", NULL},
      {"NCCL_LIB_DIR", NULL},
      {"NCCL_ASYNC_ERROR_HANDLING", NULL},
      {"NCCL_BLOCKING_WAIT", NULL},
      {"NCCL_DESYNC_DEBUG", NULL},
      {"NCCL_TRACE_BUFFER_SIZE", NULL},
      {"NCCL_________________________________________A", NULL},
      {"NCCL_A_NAME_THAT_IS_LONGER_THAN_ANY_NAME_IN_THE_TABLE_COULD_EVER_BE", NULL},
  };
  for (size_t i = 0; i < TT_COUNT(cases); i++) {
    const char *nearest = tt_param_nearest(cases[i].name);
    bool same = nearest == NULL || cases[i].nearest == NULL ? nearest == cases[i].nearest
                                                            : strcmp(nearest, cases[i].nearest) == 0;
    if (!same) {
      fail_msg("%s: %s", cases[i].name, nearest != NULL ? nearest : "none");
    }
  }
}

static void collect(void *arg, const tt_conf_line *line)
{
  char *out = arg;
  size_t used = strlen(out);
  snprintf(out + used, 1024 - used, "%d:%s=%s%s|", line->number, line->key, line->value,
           line->problem != NULL ? "!" : "");
}

static void parses_files(void **unused)
{
  (void)unused;
  char out[1024] = "";
  static const char good[] = "# c\n\n NCCL_NET = a b \r\nNCCL_X==y\r\n  # d\nE=";
  assert_int_equal(tt_param_parse_conf(good, sizeof good - 1, collect, out), ncclSuccess);
  assert_string_equal(out, "3:NCCL_NET=a b|4:NCCL_X==y|6:E=|");
  out[0] = '\0';
  static const char bad[] = "novalue\n=x\nA B=1\nC\0D=1\nOK=1\n";
  assert_int_equal(tt_param_parse_conf(bad, sizeof bad - 1, collect, out), ncclInvalidArgument);
  assert_string_equal(out, "1:=!|2:=!|3:=!|4:=!|5:OK=1|");
  assert_int_equal(tt_param_parse_conf("", 0, collect, out), ncclSuccess);
}

static void bounds_files(void **unused)
{
  (void)unused;
  char out[1024] = "";
  char *text = calloc(1, TT_CONF_MAX_BYTES + 1);
  assert_non_null(text);
  memset(text, 'a', TT_CONF_MAX_BYTES + 1);
  text[1] = '=';
  assert_int_equal(tt_param_parse_conf(text, TT_CONF_MAX_LINE + 1, collect, out), ncclInvalidArgument);
  assert_string_equal(out, "1:=!|");
  out[0] = '\0';
  assert_int_equal(tt_param_parse_conf(text, TT_CONF_MAX_BYTES + 1, collect, out), ncclInvalidArgument);
  assert_string_equal(out, "0:=!|");
  out[0] = '\0';
  assert_int_equal(tt_param_parse_conf(text, TT_CONF_MAX_LINE, collect, out), ncclSuccess);
  free(text);
}

static char dir[] = "/tmp/tt_param_test.XXXXXX";

// Writes dir/name and returns "VARIABLE=dir/name" in a buffer of the test's.
static const char *write_file(const char *name, const char *text, char *out, size_t size)
{
  char path[64];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
  snprintf(out, size, "NCCL_CONF_FILE=%s", path);
  return out;
}

static void print_some(void)
{
  const tt_params *p = tt_params_get();
  printf("buffsize %lld set %d; spin %lld; hostid %s set %d; shm_disable %lld; same %d\n", (long long)p->buffsize,
         tt_param_is_set(buffsize), (long long)p->host_spin_us, p->hostid ? p->hostid : "NULL", tt_param_is_set(hostid),
         (long long)p->shm_disable, p == tt_params_get());
}

static void defaults_and_environment(void **unused)
{
  (void)unused;
  char out[8192];
  child_run(CHILD_ENV("NCCL_BUFFSIZE="), print_some, out, sizeof out);
  assert_string_equal(out, "buffsize -1 set 0; spin -1; hostid NULL set 0; shm_disable 0; same 1\n");
  child_run(CHILD_ENV("NCCL_BUFFSIZE=64k", "NCCL_HOSTID=n0", "NCCL_SHM_DISABLE=1"), print_some, out, sizeof out);
  assert_string_equal(out, "buffsize 65536 set 1; spin -1; hostid n0 set 1; shm_disable 1; same 1\n");
}

static void print_plugins(void)
{
  const tt_params *p = tt_params_get();
  printf("net %s; tuner %s", p->net_plugin != NULL ? p->net_plugin : "NULL",
         p->tuner_plugin != NULL ? p->tuner_plugin : "NULL");
}

// An empty list of network plugins is none; without the variable there may be an installed one. Other plugins have no
// such difference.
static void an_empty_text_can_be_a_value(void **unused)
{
  (void)unused;
  char out[8192];
  child_run(CHILD_ENV("NCCL_NET_PLUGIN=", "NCCL_TUNER_PLUGIN="), print_plugins, out, sizeof out);
  assert_string_equal(out, "net ; tuner NULL");
  child_run(CHILD_ENV("NCCL_TUNER_PLUGIN=x"), print_plugins, out, sizeof out);
  assert_string_equal(out, "net NULL; tuner x");
}

static void complaints(void **unused)
{
  (void)unused;
  char out[8192];
  child_run(CHILD_ENV("NCCL_DEBUG=INFO", "NCCL_BUFFSIZE=big", "NCCL_SHM_DISABL=1", "NCCL_TESTS_DEVICE=0",
                      "NCCL_IB_TIMEOUT=22", "NCCL_XYZZY=1"),
            print_some, out, sizeof out);
  assert_contains(out, "NCCL WARN NCCL_BUFFSIZE=big (environment): expected a whole number");
  assert_contains(out, "using the default -1");
  assert_contains(out, "NCCL WARN NCCL_SHM_DISABL (environment) is not known; did you mean NCCL_SHM_DISABLE?");
  assert_contains(out, "NCCL INFO NCCL_IB_TIMEOUT=22 (environment) is accepted, but means nothing here");
  assert_contains(out, "NCCL INFO NCCL_XYZZY (environment) is not known");
  assert_contains(out, "buffsize -1 set 0");
  assert_int_equal(count_of(out, "NCCL_TESTS"), 0);
  assert_int_equal(count_of(out, "NCCL_BUFFSIZE"), 1);
}

static void read_now(void)
{
  tt_params_get();
}

// Values out of range, and words that are none of a variable's, are named when they are read.
static void bad_values_are_named(void **unused)
{
  (void)unused;
  static const struct {
    const char *setting, *said; // NULL: nothing
  } cases[] = {
      {"NCCL_SOCKET_NTHREADS=17", ": expected a number from 0 to 16; using the default -2\n"},
      {"NCCL_SOCKET_NTHREADS=-1", ": expected a number from 0 to 16; using the default -2\n"},
      {"NCCL_SOCKET_NTHREADS=-2", NULL},
      {"NCCL_SOCKET_NTHREADS=16", NULL},
      {"NCCL_BOOTSTRAP_TIMEOUT=0", ": expected a number from 1; using the default 300\n"},
      {"NCCL_COLLNET_ENABLE=2", ": expected a number from 0 to 1; it counts as not set\n"},
      {"NCCL_NET_MERGE_POLICY=SOME", ": expected one of ALL, RAIL; using the default \"ALL\"\n"},
      {"NCCL_NET_MERGE_POLICY=rail", NULL},
      {"NCCL_NET_GDR_LEVEL=NEAR",
       ": expected one of LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS, n; it counts as not set\n"},
      {"NCCL_NET_GDR_LEVEL=0", NULL},
      {"NCCL_NET_GDR_LEVEL=pxb", NULL},
      {"NCCL_P2P_LEVEL=-1", ": expected one of LOC"},
      {"NCCL_P2P_LEVEL=n", ": expected one of LOC"},
      {"NCCL_NETDEVS_POLICY=MAX:2", NULL},
      {"NCCL_NETDEVS_POLICY=max:12", NULL},
      {"NCCL_NETDEVS_POLICY=MAX:0", ": expected one of AUTO, ALL, MAX:n;"},
      {"NCCL_NETDEVS_POLICY=MAX:", ": expected one of AUTO, ALL, MAX:n;"},
      {"NCCL_NETDEVS_POLICY=MAX:2x", ": expected one of AUTO, ALL, MAX:n;"},
  };
  for (size_t i = 0; i < TT_COUNT(cases); i++) {
    char out[4096], line[256];
    child_run(CHILD_ENV("NCCL_DEBUG=WARN", cases[i].setting), read_now, out, sizeof out);
    snprintf(line, sizeof line, "NCCL WARN %s (environment)%s", cases[i].setting,
             cases[i].said != NULL ? cases[i].said : "");
    if (cases[i].said != NULL) {
      assert_contains(out, line);
    }
    assert_int_equal(count_of(out, "NCCL WARN"), cases[i].said != NULL);
  }
}

// Every other value of a text means something, or the module that it is for finds out: it refuses it with an error, or
// says what is missing.
static bool is_free(const tt_param_row *row)
{
  static const char *const names[] = {
      "NCCL_DEBUG",
      "NCCL_DEBUG_LEVELS",
      "NCCL_DEBUG_SUBSYS",
      "NCCL_DEBUG_TIMESTAMP_FORMAT",
      "NCCL_DEBUG_TIMESTAMP_LEVELS", // log.c
      "NCCL_DEBUG_FILE",
      "NCCL_CONF_FILE",
      "TUTTI_COMM_ID_SECRET_FILE",
      "NCCL_HOST_FIGURES",
      "NCCL_FLIGHT_RECORDER_FILE",
      "NCCL_TOPO_FILE",
      "TUTTI_CUDA_DRIVER",
      "TUTTI_NVML", // files
      "NCCL_TOPO_DUMP_FILE",
      "NCCL_GRAPH_FILE",
      "NCCL_GRAPH_DUMP_FILE",
      "NCCL_TUNER_CONFIG_FILE", //
      "NCCL_COMM_ID",
      "TUTTI_COMM_ID_SECRET",
      "NCCL_HOSTID",
      "NCCL_RAS_ADDR",
      "NCCL_RAS_TIMEOUT_FACTOR", // ras/server.c
      "NCCL_SOCKET_IFNAME",
      "NCCL_NET",
      "NCCL_OFI_PROVIDER", // names of things
      "NCCL_NET_FORCE_MERGE",
      "NCCL_NET_PLUGIN",
      "NCCL_TUNER_PLUGIN",
      "NCCL_PROFILER_PLUGIN",
      "NCCL_ENV_PLUGIN", //
      "NCCL_ALGO",
      "NCCL_PROTO",
      "NCCL_SOCKET_FAMILY",
      "NCCL_HOST_ISA", // refused where they are used, always
      "NCCL_COMM_BLOCKING",
      "NCCL_MIN_CTAS",
      "NCCL_MAX_CTAS", // refused by every communicator
  };
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    if (strcmp(names[i], row->name) == 0) {
      return true;
    }
  }
  return false;
}

// No variable has values that are wrong in silence, also those that mean nothing here. (On and off may be any numbers.)
static void no_variable_is_wrong_in_silence(void **unused)
{
  (void)unused;
  static const char *const bad[] = {"abc", "-5", "1x"};
  enum { USELESS = TT_PARAM_IGNORED | TT_PARAM_ELSEWHERE };
  for (size_t i = 0; i < tt_param_count() * TT_COUNT(bad); i++) {
    const tt_param_row *row = tt_param_row_at(i / TT_COUNT(bad));
    const char *value = bad[i % TT_COUNT(bad)];
    char out[4096], setting[96];
    bool number = strcmp(value, "-5") == 0, text = row->type == TT_PARAM_TYPE_STR;
    bool read = text || number; // by the type alone
    if (read && (is_free(row) || row->type == TT_PARAM_TYPE_BOOL || (row->flags & USELESS) != 0)) {
      continue;
    }
    snprintf(setting, sizeof setting, "%s=%s", row->name, value);
    child_run(CHILD_ENV("NCCL_DEBUG=WARN", setting), read_now, out, sizeof out);
    snprintf(setting, sizeof setting, "NCCL WARN %s=%s (environment): expected ", row->name, value);
    assert_contains(out, setting);
  }
}

static void file_values(void **unused)
{
  (void)unused;
  char out[8192];
  char conf[128];
  const char *env =
      write_file("conf", "NCCL_BUFFSIZE=1m\nNCCL_HOSTID=fromfile\nNCCL_HOSTID=again\nPATH=/x\n", conf, sizeof conf);
  child_run(CHILD_ENV(env, "NCCL_BUFFSIZE=2m"), print_some, out, sizeof out);
  assert_contains(out, "buffsize 2097152 set 1; spin -1; hostid fromfile set 1");
  env = write_file("bad", "NCCL_DEBUG=WARN\nrubbish\nNCCL_BUFFSIZE=x\nNCCL_HOST_ID=1\n", conf, sizeof conf);
  child_run(CHILD_ENV(env), print_some, out, sizeof out);
  assert_contains(out, "/bad:2: no '='; expected NAME=VALUE; the line is skipped");
  assert_contains(out, "/bad:3): expected a whole number");
  assert_contains(out, "/bad:4) is not known; did you mean NCCL_HOSTID?");
  child_run(CHILD_ENV("NCCL_DEBUG=WARN", "NCCL_CONF_FILE=/nonexistent/conf"), print_some, out, sizeof out);
  assert_contains(out, "cannot read configuration file /nonexistent/conf: No such file or directory");
  child_run(CHILD_ENV("NCCL_DEBUG=WARN", "NCCL_CONF_FILE=/"), print_some, out, sizeof out);
  assert_contains(out, "configuration file / is not a file");
}

static void home_file(void **unused)
{
  (void)unused;
  char out[8192];
  char conf[128];
  char home[64];
  write_file(".nccl.conf", "NCCL_HOSTID=home\n", conf, sizeof conf);
  snprintf(home, sizeof home, "HOME=%s", dir);
  child_run(CHILD_ENV(home), print_some, out, sizeof out);
  assert_contains(out, "hostid home set 1");
  child_run(CHILD_ENV(home, "NCCL_CONF_FILE=/dev/null"), print_some, out, sizeof out);
  assert_contains(out, "hostid NULL set 0");
}

static void print_as_user(void)
{
  assert_int_equal(setuid(23456), 0);
  print_some();
}

// A file that others can write, or that is theirs, is not obeyed; a user, but not root, may name one of theirs.
static void strange_files(void **unused)
{
  (void)unused;
  char out[8192], conf[128], home[64];
  snprintf(home, sizeof home, "HOME=%s", dir);
  write_file(".nccl.conf", "NCCL_HOSTID=strange\n", conf, sizeof conf);
  assert_int_equal(chmod(strchr(conf, '=') + 1, 0666), 0);
  child_run(CHILD_ENV(home, "NCCL_DEBUG=WARN"), print_some, out, sizeof out);
  assert_contains(out, "is not read: others may write it (mode 666)");
  assert_contains(out, "hostid NULL set 0");
  child_run(CHILD_ENV(conf, "NCCL_DEBUG=WARN"), print_some, out, sizeof out);
  assert_contains(out, "is not read: others may write it (mode 666)");
  if (geteuid() == 0) {
    assert_int_equal(chmod(strchr(conf, '=') + 1, 0644), 0);
    assert_int_equal(chown(strchr(conf, '=') + 1, 12345, 12345), 0);
    child_run(CHILD_ENV(home, "NCCL_DEBUG=WARN"), print_some, out, sizeof out);
    assert_contains(out, "is not read: it belongs to user 12345");
    child_run(CHILD_ENV(conf, "NCCL_DEBUG=WARN"), print_some, out, sizeof out); // named: for root that is no reason
    assert_contains(out, "is not read: it belongs to user 12345, this process runs as 0");
    assert_contains(out, "hostid NULL set 0");
    assert_int_equal(chmod(dir, 0755), 0);
    child_run(CHILD_ENV(conf), print_as_user, out, sizeof out);
    assert_contains(out, "hostid strange set 1");
  }
  unlink(strchr(conf, '=') + 1);
}

static void flood(void **unused)
{
  (void)unused;
  char out[1 << 16];
  char conf[128];
  char *text = calloc(1, 20001);
  assert_non_null(text);
  for (int i = 0; i < 10000; i++) {
    memcpy(text + 2L * i, "x\n", 2);
  }
  const char *env = write_file("flood", text, conf, sizeof conf);
  free(text);
  child_run(CHILD_ENV(env, "NCCL_DEBUG=WARN"), print_some, out, sizeof out);
  assert_int_equal(count_of(out, "the line is skipped"), 8);
  assert_contains(out, "9992 more malformed lines");
}

static void print_registry(void)
{
  char text[64];
  int64_t number = 5;
  const tt_param_row *row = tt_param_find("NCCL_HOSTID");
  size_t len = tt_param_text(row, text, sizeof text);
  printf("%zu %s %d", len, text, tt_param_origin_of(row) == TT_PARAM_FROM_ENV);
  printf(" %d", tt_param_int(row, &number));
  row = tt_param_find("NCCL_IB_TIMEOUT");
  bool is_number = tt_param_int(row, &number);
  printf(" %d %lld %s\n", is_number, (long long)number, row->def_text);
  printf("unknown %d end %d\n", tt_param_find("NCCL_X") == NULL, tt_param_row_at(tt_param_count()) == NULL);
  printf("now %s\n", tt_param_now("NCCL_DEBUG_SUBSYS"));
  fflush(stdout);
  tt_param_dump(false);
}

static void registry(void **unused)
{
  (void)unused;
  char out[1 << 15];
  child_run(CHILD_ENV("NCCL_HOSTID=abc"), print_registry, out, sizeof out);
  assert_contains(out, "3 abc 1 0 1 20 20\n");
  assert_contains(out, "unknown 1 end 1\n");
  assert_contains(out, "now INIT,BOOTSTRAP,ENV\n");
  assert_contains(out, "\nNCCL_IB_TIMEOUT=20 (default, means nothing here)\n");
  assert_int_equal(count_of(out, "NCCL_HOSTID"), 0); // hidden
}

static void print_secret(void)
{
  char text[64];
  const tt_params *p = tt_params_get();
  tt_param_text(tt_param_find("TUTTI_COMM_ID_SECRET"), text, sizeof text);
  printf("known %d shown %s\n", p->comm_id_secret != NULL && strlen(p->comm_id_secret) == 7, text);
  fflush(stdout);
  tt_param_dump(true);
}

// Neither the log nor a dump has the value of a secret, good or bad; both say whether it is set.
static void secrets_are_not_shown(void **unused)
{
  (void)unused;
  char out[1 << 16];
  child_run(CHILD_ENV("NCCL_DEBUG=INFO", "TUTTI_COMM_ID_SECRET=xyzzy12"), print_secret, out, sizeof out);
  assert_contains(out, "known 1 shown (not shown)\n");
  assert_contains(out, "TUTTI_COMM_ID_SECRET set by environment to (not shown)");
  assert_contains(out, "TUTTI_COMM_ID_SECRET=(not shown) (environment)");
  assert_int_equal(count_of(out, "xyzzy"), 0);
  child_run(CHILD_ENV("NCCL_DEBUG=INFO", "TUTTI_COMM_ID_SECRET=xyzzy\n"), print_secret, out, sizeof out);
  assert_contains(out, "TUTTI_COMM_ID_SECRET=(not shown) (environment): expected text without control characters");
  assert_contains(out, "TUTTI_COMM_ID_SECRET= (default)");
  assert_int_equal(count_of(out, "xyzzy"), 0);
}

static void rows_are_sound(void **unused)
{
  (void)unused;
  for (size_t i = 0; i < tt_param_count(); i++) {
    const tt_param_row *row = tt_param_row_at(i);
    assert_ptr_equal(tt_param_find(row->name), row); // no name twice
    assert_true(strncmp(row->name, "NCCL_", 5) == 0 || strncmp(row->name, "TUTTI_", 6) == 0);
    assert_true(strlen(row->name) <= 48 && strlen(row->doc) > 10);
    assert_true(!(row->flags & TT_PARAM_PUBLIC) != !(row->flags & TT_PARAM_HIDDEN));
    assert_true(!(row->flags & TT_PARAM_SECRET) || row->type == TT_PARAM_TYPE_STR);
  }
}

static int make_dir(void **unused)
{
  (void)unused;
  return mkdtemp(dir) == NULL;
}

static int remove_dir(void **unused)
{
  static const char *const names[] = {"conf", "bad", ".nccl.conf", "flood"};
  char path[64];
  (void)unused;
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    snprintf(path, sizeof path, "%s/%s", dir, names[i]);
    unlink(path);
  }
  return rmdir(dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers),
      cmocka_unit_test(booleans_and_texts),
      cmocka_unit_test(nearest_names),
      cmocka_unit_test(parses_files),
      cmocka_unit_test(bounds_files),
      cmocka_unit_test(defaults_and_environment),
      cmocka_unit_test(an_empty_text_can_be_a_value),
      cmocka_unit_test(complaints),
      cmocka_unit_test(bad_values_are_named),
      cmocka_unit_test(no_variable_is_wrong_in_silence),
      cmocka_unit_test(file_values),
      cmocka_unit_test(home_file),
      cmocka_unit_test(strange_files),
      cmocka_unit_test(flood),
      cmocka_unit_test(registry),
      cmocka_unit_test(rows_are_sound),
      cmocka_unit_test(secrets_are_not_shown),
  };
  return cmocka_run_group_tests_name("param", tests, make_dir, remove_dir);
}
