// check.c: which plugins a library has, and the jobs of checks on them.
#include "check.h"

#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "os/library.h"

enum { FINE = 0, BROKEN = 1, UNUSABLE = 2, SECONDS = 20, NEWEST = 24 };

// Kinds without a job are told of, and no more.
static void (*const jobs[TT_PLUGIN_KINDS])(const pc_job *) = {[TT_PLUGIN_TUNER] = pc_check_tuner, [TT_PLUGIN_ENV] = pc_check_env};

// Tells what is broken, unless the same kind of thing has been told often enough.
static void tell(pc_findings *found, const char *fmt, va_list args)
{
  char text[256];
  int i = 0;
  vsnprintf(text, sizeof text, fmt, args);
  while (i < PC_TEXTS - 1 && found->formats[i] != NULL && found->formats[i] != fmt) {
    i++;
  }
  if (found->times[i]++ == 0) {
    found->formats[i] = fmt;
    snprintf(found->first[i], sizeof found->first[i], "%.100s", text);
  }
  if (found->times[i] <= PC_TELL) {
    printf("    broken: %s\n", text);
  }
}

bool pc_rule(const pc_job *job, bool holds, const char *fmt, ...)
{
  job->found->rules++;
  if (!holds) {
    va_list args;
    job->found->broken++;
    va_start(args, fmt);
    tell(job->found, fmt, args);
    va_end(args);
  }
  return holds;
}

void pc_note(const pc_job *job, const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  job->found->notes++;
  printf("    note: ");
  vprintf(fmt, args);
  printf("\n");
  va_end(args);
}

bool pc_members(const pc_job *job, const tt_plugin_member *members, size_t n)
{
  bool all = true;
  for (size_t i = 0; i < n; i++) {
    const void *member;
    memcpy(&member, (const char *)job->table + members[i].offset, sizeof member);
    all &= pc_rule(job, member != NULL, "%s is not set", members[i].name);
  }
  return all;
}

// The child's end, or after SECONDS its SIGKILL: a plugin may ignore any other signal. False: it could not be waited for.
static bool await(pid_t pid, int *status, bool *late)
{
  struct timespec now, nap = {.tv_nsec = 2000000};
  pid_t got;
  clock_gettime(CLOCK_MONOTONIC, &now);
  time_t end = now.tv_sec + SECONDS;
  while ((got = waitpid(pid, status, WNOHANG)) == 0 && now.tv_sec < end) {
    nanosleep(&nap, NULL);
    clock_gettime(CLOCK_MONOTONIC, &now);
  }
  *late = got == 0;
  if (*late) {
    kill(pid, SIGKILL);
    got = waitpid(pid, status, 0);
  }
  return got == pid;
}

bool pc_survives(const pc_job *job, void (*fn)(const pc_job *job, void *arg), void *arg, char how[64])
{
  int status = -1;
  bool late = false;
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); // a job that is killed takes its own with it
    fn(job, arg);
    fflush(NULL);
    _exit(0);
  }
  if (pid < 0 || !await(pid, &status, &late)) {
    snprintf(how, 64, "could not be run");
    return false;
  }
  if (WIFSIGNALED(status)) {
    snprintf(how, 64, "%s", late ? "did not come back" : strsignal(WTERMSIG(status)));
  } else {
    snprintf(how, 64, "exit status %d", WEXITSTATUS(status));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void run_job(const pc_job *job, void *arg)
{
  const tt_plugin_kind *kind = arg;
  jobs[*kind](job);
  job->found->reached = true;
}

// One version of one kind.
static void check_version(tt_plugin_kind kind, int version, const void *table, pc_findings *total)
{
  const tt_plugin_info *info = tt_plugin_kind_info(kind);
  bool known = info->newest > 0 && version >= info->oldest && version <= info->newest;
  printf("%s version %d%s\n", info->title, version,
         info->newest == 0 ? ": recognised, not used"
         : known           ? ""
                           : ": not known here, not used");
  if (!known || jobs[kind] == NULL) {
    if (known) {
      printf("    there are no checks for this kind yet\n");
    }
    return;
  }
  pc_findings *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) {
    perror("tutti-plugin: no memory");
    return;
  }
  char how[64];
  pc_job job = {.version = version, .table = table, .found = found};
  bool survived = pc_survives(&job, run_job, &kind, how);
  if (!survived || !found->reached) {
    pc_rule(&job, false, "the plugin ended the process: %s", how);
  }
  for (int i = 0; i < PC_TEXTS; i++) {
    if (found->times[i] > PC_TELL) {
      printf("    and %d times more, as: %s\n", found->times[i] - PC_TELL, found->first[i]);
    }
  }
  printf("    %d rules, %d broken, %d notes\n", found->rules, found->broken, found->notes);
  total->rules += found->rules;
  total->broken += found->broken;
  total->notes += found->notes;
  munmap(found, sizeof *found);
}

typedef struct attempt {
  const char *library;
  bool *ended; // shared
} attempt;

static void load(const pc_job *job, void *arg)
{
  char why[TT_LIBRARY_WHY];
  tt_library *lib = NULL;
  const attempt *a = arg;
  (void)job;
  if (tt_library_open(a->library, &lib, why) == TT_LIBRARY_OPEN) {
    tt_library_close(lib);
  }
  *a->ended = true;
}

// Does the library come and go without taking a process with it? Its constructors may do anything. False: said so.
static bool loads(const char *library)
{
  char how[64];
  attempt a = {.library = library, .ended = mmap(NULL, sizeof *a.ended, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
  if (a.ended == MAP_FAILED) {
    perror("tutti-plugin: no memory");
    return false;
  }
  bool good = pc_survives(NULL, load, &a, how) && *a.ended;
  munmap(a.ended, sizeof *a.ended);
  if (!good) {
    fprintf(stderr, "tutti-plugin: %s cannot be loaded: its constructors or destructors ended the process, or never came back: %s\n",
            library, how);
  }
  return good;
}

int pc_check(const char *library)
{
  if (!loads(library)) {
    return UNUSABLE;
  }
  char why[TT_LIBRARY_WHY];
  tt_library *lib = NULL;
  pc_findings total = {0};
  int tables = 0;
  tt_library_state state = tt_library_open(library, &lib, why);
  if (state != TT_LIBRARY_OPEN) {
    fprintf(stderr, "tutti-plugin: %s %s%s\n", library, state == TT_LIBRARY_ABSENT ? "is not there" : "cannot be loaded: ",
            state == TT_LIBRARY_ABSENT ? " (a name without / is looked for where the dynamic linker looks)" : why);
    return UNUSABLE;
  }
  printf("%s\n", tt_library_path(lib));
  if (why[0] != '\0') {
    printf("loads, but not all it needs is here (calling it would end the process): %s\n", why);
  }
  for (int kind = 0; kind < TT_PLUGIN_KINDS; kind++) {
    for (int v = NEWEST; v > 0; v--) {
      char symbol[64];
      snprintf(symbol, sizeof symbol, tt_plugin_kind_info(kind)->symbol, v);
      const void *table = tt_library_symbol(lib, symbol);
      if (table != NULL) {
        tables++;
        check_version(kind, v, table, &total);
      }
    }
  }
  tt_library_close(lib);
  if (tables == 0) {
    printf("no plugin: none of the tables that are known has a symbol here\n");
    return BROKEN;
  }
  printf("%s: %d rules, %d broken, %d notes\n", total.broken == 0 ? "good" : "broken", total.rules, total.broken, total.notes);
  return total.broken == 0 ? FINE : BROKEN;
}
