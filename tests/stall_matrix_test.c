// stall_matrix_test.c: jobs that go wrong in every way that stands still, as processes, threads, both, and over the
// network: is the right rank named, with the right class, in time? And slow jobs that are well: is nothing said?
//
//   STALL_RUNS=1000   that stand still; 6 by default
//   STALL_WELL=10000  that are well; 4 by default
//   STALL_SEED=7      other ones: run i of a seed is always the same
//   STALL_FIRST=41    begins with run 41
//   STALL_JOBS=8      so many runs at a time; they mostly sleep. Eight hold 64 ranks at most, 40 MiB each
// It prints how many were not named rightly, and what was said instead.
#include "stall.h"

typedef enum {
  M_SKIP,
  M_LOOP,
  M_STOP,
  M_EXIT,
  M_FINALIZE,
  M_LOCK,
  M_LATE,
  M_ORDER,
  M_TWO,
  M_RECEIVES,
  M_SENDS,
  M_MISSING,
  M_SIGNAL,  // is not given
  M_STOPPED, // before it gives one
  M_SIGNALS, // each waits for one before it gives one
  M_SLOW,    // is well, and slower than the time of the warning
  M_WELL,    // is well
  M_KINDS
} kind;

typedef enum { M_PROCESSES, M_THREADS, M_MIXED, M_NETWORK, M_MODES } mode;

static const char *const kinds[] = {"skip",   "loop",    "stop",    "exit",     "finalize", "lock",
                                    "late",   "order",   "two",     "receives", "sends",    "missing",
                                    "signal", "stopped", "signals", "slow",     "well"};
static const char *const modes[] = {"processes", "threads", "mixed", "network"};

// One run.
typedef struct matrix_run {
  kind what;
  mode how;
  int n, cause, processes;
  unsigned seed;
  char text[128];
  const char *words[3];
} matrix_run;

// The next random number.
static unsigned draw(unsigned *seed)
{
  *seed = *seed * 1103515245u + 12345u;
  return *seed / 65536;
}

// The rank is busy with something else: it sleeps, or, one time in eight, computes.
static void be_busy(unsigned *seed, int most_ms)
{
  unsigned ms = draw(seed) % (unsigned)most_ms;
  if (draw(seed) % 8 != 0) {
    sleep_ms(ms);
    return;
  }
  for (double end = seconds_now() + ms / 1e3; seconds_now() < end;) {
    turns++;
  }
}

static void stand_still(void)
{
  for (;;) {
    pause();
  }
}

// What the rank does that the others wait for.
static void do_harm(const matrix_run *m, ncclComm_t c)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  switch (m->what) {
  case M_LOOP:
    for (;;) {
      turns++;
    }
  case M_STOPPED:
  case M_STOP: raise(SIGSTOP); break;
  case M_EXIT: _exit(0);
  case M_FINALIZE: OK(ncclCommFinalize(c)); break;
  case M_LOCK:
    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&lock);
    break;
  case M_LATE: sleep_ms(1500); return;
  default: break;
  }
  stand_still();
}

static bool is_alone(kind what)
{
  return what <= M_LATE || (what >= M_MISSING && what <= M_STOPPED);
}

static ncclResult_t await_signal(int peer, ncclComm_t c, cudaStream_t s)
{
  ncclWaitSignalDesc_t d = {.opCnt = 1, .peer = peer};
  return ncclWaitSignal(1, &d, c, s);
}

// The calls that meet no answer, or a late one.
static ncclResult_t call_wrongly(const matrix_run *m, int rank, ncclComm_t c[2], float *x, cudaStream_t s)
{
  int n = m->n, next = (rank + 1) % n, before = (rank + n - 1) % n;
  bool odd = rank == m->cause;
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < 2 && res == ncclSuccess; i++) {
    bool first = (i == 0) != odd;
    switch (m->what) {
    case M_ORDER:
      res = first ? ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[0], s)
                  : ncclBroadcast(x, x, COUNT, ncclFloat, 0, c[0], s);
      break;
    case M_TWO: res = ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[first], s); break;
    case M_RECEIVES:
      res = i == 0 ? ncclRecv(x, COUNT, ncclFloat, before, c[0], s) : ncclSend(x, COUNT, ncclFloat, next, c[0], s);
      break;
    case M_SENDS:
      res = i == 0 ? ncclSend(x, LARGE, ncclFloat, next, c[0], s) : ncclRecv(x, LARGE, ncclFloat, before, c[0], s);
      break;
    case M_MISSING: res = i == 0 && next == m->cause ? ncclSend(x, LARGE, ncclFloat, m->cause, c[0], s) : res; break;
    case M_SIGNAL:
    case M_STOPPED: res = i == 0 ? await_signal(m->cause, c[0], s) : res; break;
    case M_SIGNALS: res = i == 0 ? await_signal(before, c[0], s) : ncclSignal(next, 0, 0, 0, c[0], s); break;
    default: res = i == 0 ? ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[0], s) : res;
    }
  }
  return res;
}

// One of the calls that all ranks make alike: `which` says which one.
static ncclResult_t call_rightly(unsigned which, const int place[2], ncclComm_t c, float *x, cudaStream_t s)
{
  int n = place[0], rank = place[1];
  size_t count = which / 8 % 2 ? LARGE / 64 : COUNT;
  ncclResult_t res;
  switch (which % 4) {
  case 0: return ncclBroadcast(x, x, count, ncclFloat, (int)(which / 16) % n, c, s);
  case 1: return ncclReduce(x, x, count, ncclFloat, ncclSum, (int)(which / 16) % n, c, s);
  case 2: return ncclAllReduce(x, x, count, ncclFloat, ncclSum, c, s);
  default: break;
  }
  OK(ncclGroupStart());
  res = ncclSend(x, count, ncclFloat, (rank + 1) % n, c, s);
  res = res == ncclSuccess ? ncclRecv(x + LARGE / 2, count, ncclFloat, (rank + n - 1) % n, c, s) : res;
  OK(ncclGroupEnd());
  return res;
}

// Calls of two communicators with long pauses. All goes well.
static ncclResult_t call_slowly(const matrix_run *m, int rank, ncclComm_t c[2], float *x, cudaStream_t s)
{
  unsigned common = m->seed, seed = m->seed * 31 + (unsigned)rank;
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < 4 && res == ncclSuccess; i++) {
    unsigned which = draw(&common);
    be_busy(&seed, m->what == M_SLOW ? 900 : 250);
    res = call_rightly(which, (int[]){m->n, rank}, c[which / 512 % 2 && c[1] != NULL], x, s);
    res = res == ncclSuccess && which / 1024 % 2 ? tuttiStreamSynchronize(s) : res;
  }
  return res;
}

static void matrix_rank(const matrix_run *m, int rank)
{
  cudaStream_t s;
  ncclComm_t c[2] = {NULL, NULL};
  float *x = calloc(LARGE, sizeof *x);
  OK(tuttiSetDevice(rank));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.rmaEagerInit = 1;
  OK(ncclCommInitRankConfig(&c[0], m->n, shared_id(0, rank), rank, &config));
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c[0], s));
  OK(tuttiStreamSynchronize(s));
  if (m->what == M_TWO || (m->what >= M_SLOW && m->seed / 65536 % 4 == 0)) {
    OK(ncclCommSplit(c[0], 0, rank, &c[1], NULL));
  }
  meet(m->n);
  if (rank == m->cause && is_alone(m->what)) {
    do_harm(m, c[0]);
  }
  ncclResult_t res = m->what >= M_SLOW ? call_slowly(m, rank, c, x, s) : call_wrongly(m, rank, c, x, s);
  res = res == ncclSuccess ? tuttiStreamSynchronize(s) : res;
  if (res != ncclSuccess) {
    fprintf(stderr, "error %d: %s; %s\n", (int)res, ncclGetLastError(c[0]), c[1] != NULL ? ncclGetLastError(c[1]) : "");
  } else {
    atomic_fetch_add(&the_board->word[RESULTS], 1);
  }
  stand_still();
}

typedef struct matrix_thread {
  const matrix_run *m;
  int rank;
} matrix_thread;

static void *matrix_main(void *arg)
{
  const matrix_thread *t = arg;
  matrix_rank(t->m, t->rank);
  return NULL;
}

static void matrix_process(int process, void *arg)
{
  const matrix_run *m = arg;
  static matrix_thread all[MOST];
  char host[16];
  if (m->how == M_NETWORK) {
    snprintf(host, sizeof host, "host%d", process);
    setenv("NCCL_HOSTID", host, 1);
  }
  for (int rank = process; rank < m->n; rank += m->processes) {
    pthread_t t;
    all[rank] = (matrix_thread){m, rank};
    CHECK(pthread_create(&t, NULL, matrix_main, &all[rank]) == 0, "thread");
  }
  stand_still();
}

// What must be said.
static void expect(matrix_run *m)
{
  bool net = m->how == M_NETWORK;
  static const char *const fixed[M_KINDS] = {[M_ORDER] = "Broadcast",
                                             [M_TWO] = "opposite order",
                                             [M_RECEIVES] = "deadlock, ranks wait for each other",
                                             [M_SENDS] = "deadlock, ranks wait for each other",
                                             [M_SIGNALS] = "deadlock, ranks wait for each other"};
  const char *there = m->what == M_TWO                              ? "has queued its call behind"
                      : m->what == M_RECEIVES || m->what == M_SENDS ? "wait for each other, and none can go on"
                                                                    : "wait for each other";
  bool gone = m->what == M_EXIT || m->what == M_FINALIZE;
  bool stops = m->what == M_STOP || m->what == M_STOPPED, signals = m->what >= M_SIGNAL && m->what <= M_SIGNALS;
  snprintf(m->text, sizeof m->text,
           gone      ? "rank %d (pid "
           : signals ? "rank %d has not signalled"
                     : "rank %d has not called it",
           m->cause);
  m->words[0] = fixed[m->what] == NULL ? m->text : net && m->what != M_ORDER ? there : fixed[m->what];
  m->words[1] = m->what == M_LATE       ? "goes on after "
                : m->what == M_FINALIZE ? "has finalized"
                : m->what == M_ORDER    ? "AllReduce"
                : m->what == M_EXIT     ? "left by _exit"
                : net                   ? NULL
                : stops                 ? "is stopped by a signal"
                : m->what == M_SIGNALS  ? "none can go on" // the proof
                                        : NULL;
}

// Run number i of a seed; `well`: one of those that are.
static void matrix_choose(matrix_run *m, unsigned seed, int i, bool well)
{
  unsigned state = seed * 0x9e3779b9u + (unsigned)i * 0x85ebca6bu + well;
  state = (state ^ state >> 15) * 0x2c1b3c6du; // neighbours become unlike
  state ^= state >> 12;
  *m = (matrix_run){.what = (kind)(draw(&state) % M_SLOW)};
  m->what = well ? draw(&state) % 2 ? M_SLOW : M_WELL : m->what;
  m->how = (mode)(draw(&state) % M_MODES);
  if (m->what == M_STOP || m->what == M_STOPPED || m->what == M_EXIT) { // a process
    m->how = m->how == M_NETWORK ? M_NETWORK : M_PROCESSES;
  }
  m->n = 2 << draw(&state) % 3;
  m->n = m->what == M_RECEIVES || m->what == M_SENDS ? 2 + m->n / 4 : m->n;
  m->cause = (int)(draw(&state) % (unsigned)m->n);
  m->processes = m->how == M_THREADS ? 1 : m->how == M_MIXED ? 2 : m->n;
  m->seed = state;
  expect(m); // its words may point into it, so it stays where it is
}

// Does every line that reports a wait name the rank that is the cause?
static bool lines_name(const char *said, int cause)
{
  char name[2][32];
  snprintf(name[0], sizeof name[0], "rank %d ", cause);
  snprintf(name[1], sizeof name[1], "rank %d;", cause);
  for (const char *at = strstr(said, "no progress"); at != NULL; at = strstr(at + 1, "no progress")) {
    char line[2048];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    if (strchr(at, '\n') != NULL && strstr(line, name[0]) == NULL && strstr(line, name[1]) == NULL) {
      return false;
    }
  }
  return true;
}

// Has the run said what it should? One that is well may report waits if they are that long, and nothing else.
static bool is_right(const matrix_run *m, const char *said)
{
  if (m->what == M_WELL) {
    return said[0] == '\0';
  }
  if (m->what == M_SLOW) {
    return strstr(said, "error") == NULL && strstr(said, "each other") == NULL;
  }
  return has_words(said, m->words) && (!is_alone(m->what) || lines_name(said, m->cause));
}

static void end_job(job *j)
{
  ranks_look(&j->ranks);
  ranks_kill_all(&j->ranks);
  (void)finish_processes(&j->ranks);
  close_job(j);
}

// Runs it. Returns whether it went as expected; *took: seconds from the first wrong call on.
static bool matrix_try(const matrix_run *m, double *took)
{
  job j;
  bool good = false, over = false, well = m->what >= M_SLOW;
  char late[40];
  snprintf(late, sizeof late, "NCCL_STALL_WARN_MS=%d", 3000 * SLOWER);
  const char *const *env = m->what == M_WELL ? ENV(late) : SOON;
  start_processes(
      &j.ranks,
      &(run){.n = m->processes, .seconds = 60, .fn = matrix_process, .arg = (void *)(uintptr_t)m, .env = env});
  for (int i = 0; i < m->processes; i++) {
    j.output[i] = dup(j.ranks.output[i]);
  }
  while (atomic_load(&the_board->round) == 0 && seconds_now() < j.ranks.limit) {
    sleep_ms(2);
  }
  double begun = seconds_now();
  while (!over && seconds_now() < begun + GENEROUS(2)) {
    sleep_ms(10);
    over = well ? atomic_load(&the_board->word[RESULTS]) == (unsigned)m->n : has_words(read_job(&j), m->words);
  }
  *took = seconds_now() - begun;
  const char *said = read_job(&j);
  good = over && is_right(m, said);
  if (!good) {
    print_error("%s, %s, %d ranks, cause %d: not \"%s\" but: %s\n", kinds[m->what], modes[m->how], m->n, m->cause,
                well ? "nothing" : m->words[0], said);
  }
  end_job(&j);
  return good;
}

static int number_of(const char *name, int otherwise)
{
  const char *text = getenv(name);
  return text != NULL ? atoi(text) : otherwise;
}

// What the runs have come to: all of them, and of each kind.
typedef struct tally {
  _Atomic int next, late, wrong[M_KINDS], runs[M_KINDS];
} tally;

// Takes one run after the other until all are taken.
static void take_runs(tally *t, int runs, bool well)
{
  unsigned seed = (unsigned)number_of("STALL_SEED", 1);
  int first = number_of("STALL_FIRST", 0);
  for (int i; (i = atomic_fetch_add(&t->next, 1)) < runs;) {
    double took;
    matrix_run m;
    matrix_choose(&m, seed, first + i, well);
    bool good = matrix_try(&m, &took);
    bool proved = (m.what >= M_TWO && m.what <= M_SENDS) || m.what == M_SIGNALS;
    double proof = proved ? 2.3 : m.how == M_NETWORK ? 1.3 : 0.3;
    if (!good) {
      print_error("(that was STALL_FIRST=%d of %s)\n", first + i, well ? "STALL_WELL" : "STALL_RUNS");
    }
    atomic_fetch_add(&t->runs[m.what], 1);
    atomic_fetch_add(&t->wrong[m.what], !good);
    atomic_fetch_add(&t->late, !well && took > (m.what == M_LATE ? 1.5 : 0) + proof + 1);
  }
}

// STALL_JOBS processes share the runs. Returns how many went wrong.
static int run_all(int runs, bool well)
{
  int jobs = number_of("STALL_JOBS", 1), wrong = 0, status;
  tally *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(t != MAP_FAILED);
  for (int i = 0; i < jobs; i++) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      take_runs(t, runs, well);
      _exit(0);
    }
  }
  for (int i = 0; i < jobs; i++) {
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  for (int k = 0; k < M_KINDS; k++) {
    wrong += t->wrong[k];
    if (t->runs[k] > 0) {
      print_message("%s: %d of %d right\n", kinds[k], t->runs[k] - t->wrong[k], t->runs[k]);
    }
  }
  print_message(well ? "%d runs that are well: %d false alarms\n" : "%d runs that stand still: %d not named rightly, ",
                runs, wrong);
  if (!well) {
    print_message("%d later than the time of the warning + 1 s\n", t->late);
  }
  munmap(t, sizeof *t);
  return wrong;
}

static void stalls_are_named(void **state)
{
  (void)state;
  assert_int_equal(run_all(number_of("STALL_RUNS", SLOWER > 1 ? 2 : 6), false), 0);
}

static void slow_jobs_are_left_alone(void **state)
{
  (void)state;
  assert_int_equal(run_all(number_of("STALL_WELL", SLOWER > 1 ? 1 : 4), true), 0);
}

// A circle of which each rank is connected with few others: they tell each other of it.
static void a_long_circle_is_found(void **state)
{
  (void)state;
  double took;
  matrix_run m = {.what = M_SIGNALS, .how = M_NETWORK, .n = 8, .processes = 8, .seed = 1};
  expect(&m);
  assert_true(matrix_try(&m, &took));
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(stalls_are_named), cmocka_unit_test(slow_jobs_are_left_alone),
                                     cmocka_unit_test(a_long_circle_is_found)};
  return RUN_TESTS("stall_matrix", tests, argc, argv);
}
