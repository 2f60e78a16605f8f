// trace_faults_test.c: the bundled profiler where things go wrong, or go elsewhere: programs that abort, fork, change
// their folder; a disk that hangs.
#include "slow_disk.h" // first: it wants more of the system's headers

#include "harness.h"
#include "nccl/profiler_v6.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <sys/stat.h>

enum { RANKS = 2, OPS = 50 };

static bool is_child; // forked by a rank

#if SLOWER == 5 // LeakSanitizer: the library forgets in a child what it has inherited, and that is no leak
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
  return is_child;
}
#endif

#if SLOWER == 10 // ThreadSanitizer: a child may start threads
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

const char *__tsan_default_options(void)
{
  return "die_after_fork=0";
}
#endif

static char folder[128], disk[160], store[160];

// A file of the build.
static const char *built(const char *file, char *out)
{
  const char *build = getenv("TUTTI_BUILD");
  snprintf(out, PATH_MAX, "%s/%s", build != NULL ? build : "build", file);
  return out;
}

static void use_trace(const char *dir)
{
  char path[PATH_MAX];
  built("lib/libnccl-profiler-trace.so", path);
  CHECK(access(path, R_OK) == 0, "no %s", path);
  setenv("NCCL_PROFILER_PLUGIN", path, 1);
  setenv("TUTTI_TRACE_DIR", dir, 1);
  setenv("TUTTI_TRACE_WAIT", "120", 1); // however busy the machine or its disk
}

static void make_folders(void)
{
  snprintf(folder, sizeof folder, "/tmp/tutti-trace-faults-XXXXXX");
  assert_non_null(mkdtemp(folder));
  snprintf(disk, sizeof disk, "%s/disk", folder);
  snprintf(store, sizeof store, "%s/store", folder);
  assert_int_equal(mkdir(disk, 0755), 0);
  assert_int_equal(mkdir(store, 0755), 0);
}

typedef struct file {
  char name[PATH_MAX];
  char *text; // the caller frees
} file;

// Files in `dir` whose names end so, at most `most`; how many there are.
static int read_files(const char *dir, const char *end, file *out, int most)
{
  int n = 0;
  DIR *d = opendir(dir);
  CHECK(d != NULL, "no folder %s", dir);
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    size_t length = strlen(e->d_name), m = strlen(end);
    if (length < m || strcmp(e->d_name + length - m, end) != 0) {
      continue;
    }
    if (n < most) {
      snprintf(out[n].name, sizeof out[n].name, "%s/%s", dir, e->d_name);
      FILE *f = fopen(out[n].name, "r");
      CHECK(f != NULL, "cannot read %s", out[n].name);
      out[n].text = calloc(1, 8u << 20);
      CHECK(out[n].text != NULL && fread(out[n].text, 1, (8u << 20) - 1, f) > 0, "%s is empty", out[n].name);
      fclose(f);
    }
    n++;
  }
  closedir(d);
  return n;
}

static void forget_files(file *list, int n)
{
  for (int i = 0; i < n; i++) {
    free(list[i].text);
  }
}

static void remove_all(const char *dir)
{
  DIR *d = opendir(dir);
  for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    if (e->d_name[0] != '.' && unlink(path) != 0) {
      remove_all(path);
    }
  }
  if (d != NULL) {
    closedir(d);
  }
  rmdir(dir);
}

static int times(const char *text, const char *what)
{
  int n = 0;
  for (const char *p = text; (p = strstr(p, what)) != NULL; p++) {
    n++;
  }
  return n;
}

// The number behind `key`.
static long long number(const char *text, const char *key)
{
  const char *at = strstr(text, key);
  CHECK(at != NULL, "no %s", key);
  return strtoll(at + strlen(key), NULL, 10);
}

// As many slices as the file says, and its end is there.
static void check_whole(const file *f)
{
  const char *tail = strstr(f->text, "\n],\"displayTimeUnit\"");
  CHECK(strncmp(f->text, "{\"traceEvents\":[\n", 17) == 0 && tail != NULL && times(f->text, "\"otherData\"") == 1,
        "%s is cut off", f->name);
  CHECK(strcmp(f->text + strlen(f->text) - 3, "}}\n") == 0, "something stands behind the end of %s", f->name);
  long long said = number(f->text, "\"written\":");
  CHECK(times(f->text, "\"ph\":\"X\"") == said, "%s: %d slices, %lld are said", f->name, times(f->text, "\"ph\":\"X\""),
        said);
}

static void sums(const world *w, int n)
{
  static float x[RANKS][64];
  for (int k = 0; k < n; k++) {
    for (int i = 0; i < w->n; i++) {
      OK(ncclAllReduce(x[i], x[i], 64, ncclFloat, ncclSum, w->comm[i], w->stream[i]));
    }
  }
  world_wait(w);
}

// ---- A program that goes elsewhere after its first communicator

static void goes_elsewhere(int rank, void *arg)
{
  world w;
  (void)rank;
  (void)arg;
  char build[PATH_MAX];
  CHECK(realpath(getenv("TUTTI_BUILD") != NULL ? getenv("TUTTI_BUILD") : "build", build) != NULL, "no build");
  setenv("TUTTI_BUILD", build, 1);
  CHECK(chdir(folder) == 0, "chdir");
  use_trace("store");
  for (int i = 0; i < 2; i++) { // the second time it is elsewhere already
    world_open(&w, 1);
    CHECK(chdir("/") == 0, "chdir");
    sums(&w, OPS);
    world_close(&w);
  }
}

static void test_a_relative_folder(void **state)
{
  file list[3];
  (void)state;
  make_folders();
  PROCESSES(1, 30, goes_elsewhere, NULL);
  assert_int_equal(read_files(store, ".json", list, 3), 2);
  forget_files(list, 2);
  remove_all(folder);
}

// ---- A program that aborts

static void aborts(int rank, void *arg)
{
  world w;
  (void)rank;
  (void)arg;
  use_trace(store);
  setenv("TUTTI_TRACE_RING", "1", 1);
  setenv("TUTTI_TRACE_EVENTS", "64", 1);
  setenv("TUTTI_TRACE_WAIT", "3600", 1);
  world_open(&w, RANKS);
  sums(&w, OPS);
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    abort(); // writes nothing, waits for nobody
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "the child: %d",
        status);
  file list[1];
  CHECK(read_files(store, ".json", list, 0) == 0, "the child has written");
  abort();
}

static void test_abort_writes_the_last_events(void **state)
{
  file list[RANKS];
  (void)state;
  make_folders();
  ranks_set r;
  start_processes(&r, &(run){.n = 1, .seconds = 60, .fn = aborts});
  r.expected[0] = -SIGABRT;
  assert_int_equal(finish_processes(&r), 0);
  assert_int_equal(read_files(store, ".json", list, RANKS), RANKS);
  for (int i = 0; i < RANKS; i++) {
    check_whole(&list[i]);
    int slices = times(list[i].text, "\"ph\":\"X\""), ops = times(list[i].text, "\"cat\":\"op\"");
    CHECK(slices - ops >= 32 && slices - ops <= 64 && ops > 0, "%s: %d slices, %d operations", list[i].name, slices,
          ops);
    CHECK(number(list[i].text, "\"finished\":") == 0, "%s: the communicator has not ended", list[i].name);
  }
  forget_files(list, RANKS);
  remove_all(folder);
}

// ---- A program that forks

// The child may use what it has inherited for nothing, traces communicators of its own, and ends in good order, with
// all destructors.
static void child_of(const world *parent)
{
  world w;
  float x[4] = {0};
  is_child = true;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CHECK(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, parent->comm[0], parent->stream[0]) != ncclSuccess,
        "the parent's communicator");
  world_open(&w, 1);
  sums(&w, 7);
  world_close(&w);
  raise(SIGUSR2); // to all of a job's processes: ends none, if it is the plugin's
  exit(0);
}

// How often the other threads of this process have gone to sleep: the library's do so once when there is nothing to do,
// the plugin's every few milliseconds.
static long count_naps(void)
{
  long n = 0;
  char path[300];
  DIR *d = opendir("/proc/self/task");
  for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
    snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
    n += atoi(e->d_name) > 0 && atoi(e->d_name) != getpid() ? status_value(path, "voluntary_ctxt_switches:") : 0;
  }
  if (d != NULL) {
    closedir(d);
  }
  return n;
}

// A sanitizer's allocator stays locked in a child for good if another thread is in it at the fork. So the plugin's
// thread gets the time before to fetch all memory that it needs.
static void let_plugin_settle(void)
{
  enum { ENOUGH = 20, MOST_MS = 10000 };
  long before = SLOWER > 1 ? count_naps() : 0;
  for (int ms = 0; SLOWER > 1 && ms < MOST_MS && count_naps() < before + ENOUGH; ms += 5) {
    sleep_ms(5);
  }
}

static void forks(int rank, void *arg)
{
  const char *keeps = arg;
  world w;
  (void)rank;
  use_trace(store);
  setenv("TUTTI_TRACE_RING", keeps, 1);
  setenv("TUTTI_TRACE_EVENTS", "1024", 1);
  if (strcmp(keeps, "0") == 0) {
    signal(SIGUSR2, SIG_IGN);
  }
  world_open(&w, RANKS);
  sums(&w, OPS / 2);
  let_plugin_settle();
  sums(&w, OPS - OPS / 2);
  pid_t child = fork(); // while events wait to be written
  if (child == 0) {
    child_of(&w);
  }
  sums(&w, OPS);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: status %d", status);
  sums(&w, OPS);
  world_close(&w);
  for (int i = 0; i < 100;
       i++) { // the plugin's thread ends a little after its last communicator: requests that come late end nobody
    raise(SIGUSR2);
    sleep_ms(0.2);
  }
  world_open(&w, 1);
  world_close(&w);
}

// Three files of the process and one of its child, each with its own events.
static void test_forked_children(void **state)
{
  static const char *const keeps[] = {"0", "1"};
  (void)state;
  for (int k = 0; k < 2; k++) {
    file list[8];
    int children = 0;
    make_folders();
    PROCESSES(1, 60, forks, (void *)(uintptr_t)keeps[k]);
    int n = read_files(store, ".json", list, 8);
    assert_int_equal(n, RANKS + 2);
    for (int i = 0; i < n; i++) {
      check_whole(&list[i]);
      int ops = times(list[i].text, "\"cat\":\"op\"");
      CHECK(ops == 0 || ops == 7 || ops == 3 * OPS, "%s: %d operations", list[i].name, ops);
      CHECK(number(list[i].text, "\"finished\":") == 1, "%s is not finished", list[i].name);
      children += ops == 7;
    }
    assert_int_equal(children, 1);
    forget_files(list, n);
    remove_all(folder);
  }
}

// ---- A disk that hangs

enum { HOLD, MOUNTED };

static void slow(int rank, void *arg)
{
  char log[PATH_MAX];
  world w;
  (void)rank;
  (void)arg;
  if (!slow_mount(disk, store, &the_board->word[HOLD])) {
    return;
  }
  atomic_store(&the_board->word[MOUNTED], 1);
  use_trace(disk);
  snprintf(log, sizeof log, "%s/log", folder);
  setenv("TUTTI_TRACE_WAIT", "0.5", 1);
  setenv("TUTTI_TRACE_EVENTS", "64", 1);
  setenv("NCCL_DEBUG", "WARN", 1);
  setenv("NCCL_DEBUG_FILE", log, 1);
  atomic_store(&the_board->word[HOLD], 1);
  world_open(&w, RANKS);
  sums(&w, 20 * OPS); // nobody waits: the disk does not answer before all is over
  world_close(&w);
  file said;
  CHECK(read_files(folder, "log", &said, 1) == 1, "no log");
  CHECK(times(said.text, "is still being written after 0.5 s: the job does not wait any longer") == 1, "%s", said.text);
  CHECK(times(said.text, "is still being written, as before, and not waited for again") == RANKS - 1, "%s", said.text);
  CHECK(times(said.text, " 0 events found no room") == 0, "%s", said.text);
  free(said.text);
  atomic_store(&the_board->word[HOLD], 0);
  file list[RANKS];
  for (int finished = 0; finished < RANKS;) { // the rest is written, as long as the process is there
    sleep_ms(5);
    finished = read_files(store, ".txt", list, 0);
  }
}

// Runs `fn` in a process that mounts the disk. False: it could not.
static bool runs_on_slow_disk(void (*fn)(int rank, void *arg))
{
  ranks_set r;
  make_folders();
  start_processes(&r, &(run){.n = 1, .seconds = 60, .fn = fn});
  int bad = ranks_wait(&r);
  bool mounted = atomic_load(&the_board->word[MOUNTED]) != 0;
  board_close();
  assert_int_equal(bad, 0);
  if (!mounted) {
    remove_all(folder);
  }
  return mounted;
}

static void test_a_disk_that_hangs(void **state)
{
  file list[RANKS];
  (void)state;
  if (!runs_on_slow_disk(slow)) {
    skip(); // no FUSE, or no right to mount
  }
  assert_int_equal(read_files(store, ".json", list, RANKS), RANKS);
  for (int i = 0; i < RANKS; i++) {
    check_whole(&list[i]);
    long long written = number(list[i].text, "\"written\":"), lost = number(list[i].text, "\"lost_ring_full\":");
    CHECK(number(list[i].text, "\"finished\":") == 1 && lost > 0, "%s: %lld lost", list[i].name, lost);
    // Call, queue and channel of each operation at least, and what the file makes of them itself.
    CHECK(written + lost >= 3 * 20 * OPS, "%s: %lld written, %lld lost", list[i].name, written, lost);
  }
  forget_files(list, RANKS);
  remove_all(folder);
}

// ---- A library that is unloaded while its events wait for the disk

static void unloads(int rank, void *arg)
{
  char path[PATH_MAX];
  (void)rank;
  (void)arg;
  if (!slow_mount(disk, store, &the_board->word[HOLD])) {
    return;
  }
  atomic_store(&the_board->word[MOUNTED], 1);
  use_trace(disk);
  setenv("TUTTI_TRACE_WAIT", "0.1", 1);
  void *plugin = dlopen(getenv("NCCL_PROFILER_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  void *host = dlopen(built("tests/plugins/libprofiler_host.so", path), RTLD_NOW | RTLD_LOCAL);
  CHECK(plugin != NULL && host != NULL, "%s", dlerror());
  const ncclProfiler_v6_t *profiler = dlsym(plugin, "ncclProfiler_v6");
  int (*host_run)(const ncclProfiler_v6_t *, int) =
      (int (*)(const ncclProfiler_v6_t *, int))(uintptr_t)dlsym(host, "host_run");
  atomic_store(&the_board->word[HOLD], 1);
  CHECK(host_run(profiler, OPS) == 0, "the profiler refused");
  CHECK(dlclose(host) == 0 && dlclose(plugin) == 0, "%s", dlerror());
  atomic_store(&the_board->word[HOLD], 0);
  file list[1];
  while (read_files(store, ".txt", list, 0) == 0) {
    sleep_ms(5);
  }
}

static void test_a_library_that_is_unloaded(void **state)
{
  file list[1];
  (void)state;
  if (!runs_on_slow_disk(unloads)) {
    skip();
  }
  assert_int_equal(read_files(store, ".json", list, 1), 1);
  check_whole(&list[0]);
  assert_int_equal(times(list[0].text, "\"algo\":\"HOSTRING\""), OPS);
  forget_files(list, 1);
  remove_all(folder);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_relative_folder),
      cmocka_unit_test(test_abort_writes_the_last_events),
      cmocka_unit_test(test_forked_children),
      cmocka_unit_test(test_a_disk_that_hangs),
      cmocka_unit_test(test_a_library_that_is_unloaded),
  };
  return RUN_TESTS("the bundled profiler where things go wrong", tests, argc, argv);
}
