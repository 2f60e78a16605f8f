// check.c: which plugins a library has, and the jobs of checks on them.
#define _GNU_SOURCE // memfd_create
#include "check.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "os/library.h"

enum { FINE = 0, BROKEN = 1, UNUSABLE = 2, NEWEST = 24, LAST_TRY = 1000, SHOWN = 8 };

// Kinds without a job are told of, and no more. Seconds that a whole job may take, in multiples of the patience.
static const struct {
  void (*fn)(const pc_job *);
  int patiences;
} jobs[TT_PLUGIN_KINDS] = {[TT_PLUGIN_NET] = {pc_check_net, 60},
                           [TT_PLUGIN_PROFILER] = {pc_check_profiler, 30},
                           [TT_PLUGIN_COLLNET] = {pc_check_collnet, 2},
                           [TT_PLUGIN_TUNER] = {pc_check_tuner, 2},
                           [TT_PLUGIN_ENV] = {pc_check_env, 2}};

static int out = STDOUT_FILENO; // where findings go: in jobs not standard output, which is the plugin's

static const char unset[] = "%s is not set"; // each of these is told

// Has the text been said? It has now.
static bool is_said(pc_findings *found, const char *text)
{
  uint64_t hash = tt_hash(text, strlen(text), 0) | 1;
  int i = 0;
  while (i < PC_SAID - 1 && found->said[i] != 0 && found->said[i] != hash) {
    i++;
  }
  bool said = found->said[i] == hash;
  found->said[i] = hash;
  return said;
}

// Tells what is broken, unless it, or the same kind of thing often enough, has been told.
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
  if (!is_said(found, text) && (found->told[i] < PC_TELL || fmt == unset)) {
    found->told[i]++;
    dprintf(out, "    broken: %s\n", text);
  }
}

// Processes of one job tell at the same time. One that was killed while it told does not stop the others.
static void take_turn(pc_findings *found)
{
  for (int i = 0; i < LAST_TRY && __atomic_exchange_n(&found->lock, 1, __ATOMIC_ACQUIRE) != 0; i++) {
    sched_yield();
  }
}

static void end_turn(pc_findings *found)
{
  __atomic_store_n(&found->lock, 0, __ATOMIC_RELEASE);
}

bool pc_rule(const pc_job *job, bool holds, const char *fmt, ...)
{
  take_turn(job->found);
  job->found->rules++;
  if (!holds) {
    va_list args;
    job->found->broken++;
    va_start(args, fmt);
    tell(job->found, fmt, args);
    va_end(args);
  }
  end_turn(job->found);
  return holds;
}

void pc_note(const pc_job *job, const char *fmt, ...)
{
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  take_turn(job->found);
  if (!is_said(job->found, text)) {
    job->found->notes++;
    dprintf(out, "    note: %s\n", text);
  }
  end_turn(job->found);
}

void pc_say(const char *fmt, ...)
{
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  dprintf(out, "    %s\n", text);
}

bool pc_members(const pc_job *job, const tt_plugin_member *members, size_t n)
{
  bool all = true;
  for (size_t i = 0; i < n; i++) {
    const void *member;
    memcpy(&member, (const char *)job->table + members[i].offset, sizeof member);
    all &= pc_rule(job, member != NULL, unset, members[i].name);
  }
  return all;
}

void pc_name(const pc_job *job)
{
  const char *name = *(const char *const *)job->table;
  if (name == NULL) {
    pc_note(job, "it has no name");
  } else {
    pc_say("name: %.80s", name);
  }
}

enum { SPARE = 0x5a };

void pc_space_clear(pc_space *space, size_t size)
{
  memset(space->p, SPARE, sizeof space->p);
  memset(space->p, 0, size);
}

size_t pc_space_beyond(const pc_space *space, size_t size)
{
  size_t n = 0;
  for (size_t i = size; i < sizeof space->p; i++) {
    n += space->p[i] != SPARE;
  }
  return n;
}

// ---- processes

static long long milliseconds(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

// Starts fn(job, arg, i) in a process of its own; 0 or less: it could not be.
static pid_t start(const pc_job *job, void (*fn)(const pc_job *job, void *arg, int i), void *arg, int i)
{
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); // a job that is killed takes its own with it
    fn(job, arg, i);
    fflush(NULL);
    _exit(0);
  }
  return pid;
}

static void judge(pc_fate *fate, int status)
{
  fate->good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (WIFSIGNALED(status)) {
    snprintf(fate->how, sizeof fate->how, "%s", fate->late ? PC_LATE : strsignal(WTERMSIG(status)));
  } else {
    snprintf(fate->how, sizeof fate->how, "exit status %d", WEXITSTATUS(status));
  }
}

// Processes that belong together.
typedef struct group {
  int n, dies; // dies: one that is to end badly; -1: none
  pid_t pids[2];
  pc_fate *fates;
  long long end; // when they have to be gone
} group;

// Looks after one; false: it is gone.
static bool attend(group *g, int i, bool over)
{
  int status = -1;
  if (g->pids[i] <= 0) {
    return false;
  }
  pid_t got = waitpid(g->pids[i], &status, WNOHANG);
  if (got == 0 && over) {
    g->fates[i].late = true;
    kill(g->pids[i], SIGKILL);
    got = waitpid(g->pids[i], &status, 0);
  }
  if (got == 0) {
    return true;
  }
  judge(&g->fates[i], status);
  g->pids[i] = 0;
  if (!g->fates[i].good && i != g->dies) {
    g->end = TT_MIN(g->end, milliseconds() + 1000);
  }
  return false;
}

// Starts and awaits them; those that are there at the end get a SIGKILL: a plugin may ignore any other signal.
static bool run(const pc_job *job, group *g, void (*fn)(const pc_job *job, void *arg, int i), void *arg, int seconds)
{
  const struct timespec nap = {.tv_nsec = 2000000};
  bool good = true;
  for (int i = 0; i < g->n; i++) {
    g->fates[i] = (pc_fate){.how = "could not be run"};
    g->pids[i] = start(job, fn, arg, i);
  }
  g->end = milliseconds() + seconds * 1000LL;
  for (int left = g->n; left > 0;) {
    bool over = milliseconds() >= g->end;
    left = 0;
    for (int i = 0; i < g->n; i++) {
      left += attend(g, i, over);
    }
    if (left > 0) {
      nanosleep(&nap, NULL);
    }
  }
  for (int i = 0; i < g->n; i++) {
    good &= g->fates[i].good;
  }
  return good;
}

bool pc_side_by_side(const pc_job *job, int dies, void (*fn)(const pc_job *job, void *arg, int i), void *arg,
                     pc_fate fates[2])
{
  group g = {.n = 2, .dies = dies, .fates = fates};
  return run(job, &g, fn, arg, 3 * job->patience);
}

typedef struct single {
  void (*fn)(const pc_job *job, void *arg);
  void *arg;
} single;

static void run_single(const pc_job *job, void *arg, int i)
{
  const single *s = arg;
  (void)i;
  s->fn(job, s->arg);
}

static bool survives(const pc_job *job, int seconds, void (*fn)(const pc_job *job, void *arg), void *arg, char how[64])
{
  pc_fate fate;
  group g = {.n = 1, .dies = -1, .fates = &fate};
  bool good = run(job, &g, run_single, &(single){fn, arg}, seconds);
  memcpy(how, fate.how, sizeof fate.how);
  return good;
}

bool pc_survives(const pc_job *job, void (*fn)(const pc_job *job, void *arg), void *arg, char how[64])
{
  return survives(job, 2 * job->patience, fn, arg, how);
}

// ---- jobs

// Profilers write files into the working directory: each job has one of its own, which goes with it.
typedef struct room {
  tt_plugin_kind kind;
  char folder[64];
  int output; // what the plugin writes to standard output
} room;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
  (void)st;
  (void)type;
  (void)at;
  return remove(path);
}

static bool enter_room(room *r)
{
  snprintf(r->folder, sizeof r->folder, "/tmp/tutti-plugin-XXXXXX");
  r->output = memfd_create("tutti-plugin", MFD_CLOEXEC);
  if (mkdtemp(r->folder) == NULL || r->output < 0) {
    perror("tutti-plugin: no folder in /tmp, or no memory");
    return false;
  }
  return true;
}

// Shows what was written there. Log lines are the library's way of writing; anything else is the plugin's own.
static void leave_room(const room *r, const pc_job *job)
{
  FILE *f = fdopen(r->output, "r");
  char line[1024];
  int own = 0;
  rewind(f);
  while (fgets(line, sizeof line, f) != NULL) {
    own += strstr(line, " NCCL ") == NULL;
    if (own > SHOWN && strstr(line, " NCCL ") == NULL) {
      continue;
    }
    printf("    | %s%s", line, strchr(line, '\n') == NULL ? "\n" : "");
  }
  fclose(f);
  nftw(r->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  if (own > 0) {
    pc_note(job, "writes %d lines to standard output, which is the program's; there is the logger for that", own);
  }
}

static void run_job(const pc_job *job, void *arg)
{
  const room *r = arg;
  bool elsewhere = r->kind == TT_PLUGIN_PROFILER;
  if (dup2(r->output, STDOUT_FILENO) < 0 || (elsewhere && chdir(r->folder) != 0)) {
    perror("tutti-plugin: no room for the job");
    _exit(1);
  }
  jobs[r->kind].fn(job);
  job->found->reached = true;
}

static void add_up(const pc_findings *found, pc_findings *total)
{
  for (int i = 0; i < PC_TEXTS; i++) {
    if (found->times[i] > found->told[i]) {
      printf("    and %d times more, as: %s\n", found->times[i] - found->told[i], found->first[i]);
    }
  }
  printf("    %d rules, %d broken, %d notes\n", found->rules, found->broken, found->notes);
  total->rules += found->rules;
  total->broken += found->broken;
  total->notes += found->notes;
}

// The job of a kind, in its room.
static void do_job(pc_job *job, room *r)
{
  char how[64];
  if (!enter_room(r)) {
    return;
  }
  out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  out = out < 0 ? STDOUT_FILENO : out;
  bool survived = survives(job, jobs[r->kind].patiences * job->patience, run_job, r, how);
  if (out != STDOUT_FILENO) {
    close(out);
    out = STDOUT_FILENO;
  }
  if (!survived || !job->found->reached) {
    pc_rule(job, false, "the plugin ended the process: %s", how);
  }
  leave_room(r, job);
}

// One version of one kind.
static void check_version(tt_plugin_kind kind, pc_job *job, pc_findings *total)
{
  const tt_plugin_info *info = tt_plugin_kind_info(kind);
  bool known = info->newest > 0 && job->version >= info->oldest && job->version <= info->newest;
  printf("%s version %d%s\n", info->title, job->version,
         info->newest == 0 ? ": recognised, not used"
         : known           ? ""
                           : ": not known here, not used");
  if (!known || jobs[kind].fn == NULL) {
    return;
  }
  job->found = mmap(NULL, sizeof *job->found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (job->found == MAP_FAILED) {
    perror("tutti-plugin: no memory");
    return;
  }
  room r = {.kind = kind};
  do_job(job, &r);
  add_up(job->found, total);
  munmap(job->found, sizeof *job->found);
}

// ---- the library

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
static bool loads(const char *library, int patience)
{
  char how[64];
  attempt a = {.library = library,
               .ended = mmap(NULL, sizeof *a.ended, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
  if (a.ended == MAP_FAILED) {
    perror("tutti-plugin: no memory");
    return false;
  }
  bool good = survives(NULL, 2 * patience, load, &a, how) && *a.ended;
  munmap(a.ended, sizeof *a.ended);
  if (!good) {
    fprintf(stderr,
            "tutti-plugin: %s cannot be loaded: its constructors or destructors ended the process, or never came back: "
            "%s\n",
            library, how);
  }
  return good;
}

// All that the library has. Returns how many tables there are.
static int check_tables(pc_job *job, pc_findings *total)
{
  int tables = 0;
  for (int kind = 0; kind < TT_PLUGIN_KINDS; kind++) {
    job->newest = true;
    for (int v = NEWEST; v > 0; v--) {
      char symbol[64];
      snprintf(symbol, sizeof symbol, tt_plugin_kind_info(kind)->symbol, v);
      job->table = tt_library_symbol(job->lib, symbol);
      job->version = v;
      if (job->table != NULL) {
        tables++;
        check_version(kind, job, total);
        job->newest &= v > tt_plugin_kind_info(kind)->newest;
      }
    }
  }
  return tables;
}

int pc_check(const char *library, int patience)
{
  if (!loads(library, patience)) {
    return UNUSABLE;
  }
  char why[TT_LIBRARY_WHY], path[PATH_MAX];
  pc_job job = {.patience = patience, .path = path};
  pc_findings total = {0};
  tt_library_state state = tt_library_open(library, &job.lib, why);
  if (state != TT_LIBRARY_OPEN) {
    fprintf(stderr, "tutti-plugin: %s %s%s\n", library,
            state == TT_LIBRARY_ABSENT ? "is not there" : "cannot be loaded: ",
            state == TT_LIBRARY_ABSENT ? " (a name without / is looked for where the dynamic linker looks)" : why);
    return UNUSABLE;
  }
  if (realpath(tt_library_path(job.lib), path) == NULL) {
    snprintf(path, sizeof path, "%s", library);
  }
  printf("%s\n", tt_library_path(job.lib));
  if (why[0] != '\0') {
    printf("loads, but not all it needs is here (calling it would end the process): %s\n", why);
  }
  int tables = check_tables(&job, &total);
  tt_library_close(job.lib);
  if (tables == 0) {
    printf("no plugin: none of the tables that are known has a symbol here\n");
    return BROKEN;
  }
  printf("%s: %d rules, %d broken, %d notes\n", total.broken == 0 ? "good" : "broken", total.rules, total.broken,
         total.notes);
  return total.broken == 0 ? FINE : BROKEN;
}
