// ras_test.c: a running job is asked for its state: a report of all processes, of one that is killed, stopped or gone;
// clients that send garbage, nothing, or come in crowds; events.
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <regex.h>
#include <sys/socket.h>

#include "harness.h"

enum { COUNT = 16, CROWD = 100 };
enum { READY, STOP }; // words of the board: ranks that are ready; the end

static char port_text[64];
static int port;

static void choose_port(void)
{
  port = free_port();
  snprintf(port_text, sizeof port_text, "NCCL_RAS_ADDR=localhost:%d", port);
}

// ---- the job

typedef struct job {
  int n;
  int late; // this rank leaves out an all-reduce at the end; 0: none
  int other_port;
} job;

static void body(int rank, void *arg)
{
  const job *j = arg;
  cudaStream_t s;
  float x[COUNT] = {0};
  ncclComm_t c = join_processes(0, j->n, rank);
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  for (int i = 0; i < 3; i++) {
    OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c, s));
  }
  OK(tuttiStreamSynchronize(s));
  meet(j->n);
  atomic_fetch_add(&the_board->word[READY], 1);
  if (j->late != 0 && rank != j->late) {
    OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, c, s));
  }
  while (atomic_load(&the_board->word[STOP]) == 0) {
    sleep_ms(5);
  }
  OK(ncclCommAbort(c));
  OK(tuttiStreamDestroy(s));
}

static void start_ranks(ranks_set *r, job *j, void (*fn)(int rank, void *arg), const char *more)
{
  const char *env[] = {port_text, more, NULL};
  start_processes(r, &(run){.n = j->n, .seconds = 30, .fn = fn, .arg = j, .env = env});
  double limit = seconds_now() + GENEROUS(10);
  while (atomic_load(&the_board->word[READY]) < (uint64_t)j->n) {
    assert_true(seconds_now() < limit);
    sleep_ms(5);
  }
}

static void start_job(ranks_set *r, job *j, const char *more)
{
  start_ranks(r, j, body, more);
}

// It has stopped when this returns.
static void stop_process(pid_t pid)
{
  siginfo_t stop;
  kill(pid, SIGSTOP);
  assert_int_equal(waitid(P_PID, (id_t)pid, &stop, WSTOPPED), 0);
}

static void end_job(ranks_set *r)
{
  atomic_store(&the_board->word[STOP], 1);
  assert_int_equal(finish_processes(r), 0);
}

// ---- clients

static int dial(void)
{
  struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
  return fd;
}

static void say(int fd, const char *text)
{
  assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static char heard[1 << 20];

// Reads until the end, or until `word` (NULL: none) has come. Returns what was read, which is valid until the next
// call.
static const char *hear(int fd, const char *word)
{
  size_t size = 0;
  double limit = seconds_now() + GENEROUS(10);
  heard[0] = 0;
  while (word == NULL || strstr(heard, word) == NULL) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_true(seconds_now() < limit);
    if (poll(&p, 1, 100) <= 0) {
      continue;
    }
    ssize_t n = recv(fd, heard + size, sizeof heard - 1 - size, 0);
    if (n <= 0) {
      break;
    }
    size += (size_t)n;
    heard[size] = 0;
  }
  return heard;
}

static const char *converse(const char *text)
{
  int fd = dial();
  say(fd, text);
  const char *answer = hear(fd, NULL);
  close(fd);
  return answer;
}

static void expect(const char *text, const char *word)
{
  if (strstr(text, word) == NULL) {
    fail_msg("no '%s' in:\n%s", word, text);
  }
}

// Until an answer has the text: news of a death, and a wait, take their time.
static void await_answer(const char *question, const char *word)
{
  double limit = seconds_now() + GENEROUS(10);
  while (strstr(converse(question), word) == NULL) {
    if (seconds_now() > limit) {
      fail_msg("no '%s' in:\n%s", word, heard);
    }
    sleep_ms(50);
  }
}

static void await_report(const char *word)
{
  await_answer("STATUS\n", word);
}

// ---- the form of a report

#define NUMBER "[0-9]+"
#define RANGE NUMBER "(-" NUMBER ")?"
#define NODE "[0-9a-f.:]+"
#define PROCESS "  Process " NUMBER " on node " NODE " managing GPU " NUMBER "\n"
#define PLACE "GPU " NUMBER " managed by process " NUMBER " on node " NODE "\n"
#define TITLE "#" NUMBER "-" NUMBER " \\([0-9a-f]{16}\\) "
#define WORDS "[a-z -]+"
#define FUNCS "(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)"
#define LAUNCHED "(launched up to operation " NUMBER "|not launched any operations)"
#define STATUSES "(NOCOMM|INIT|RUNNING|FINALIZE|ABORT)"

// Of a whole report, in order. Each stands for text from where the one before has ended.
static const char *const report_form[] = {
    "NCCL version 2\\.32\\.3 compiled with CUDA " NUMBER "\\." NUMBER "\n",
    "CUDA runtime version [0-9]{5}, driver version [0-9]{5}\n\nJob summary\n===========\n\n",
    "  Nodes  Processes         GPUs  Processes     GPUs\n\\(total\\)   per node  per process    \\(total\\)  "
    "\\(total\\)\n",
    "[ 0-9]{7}  [ 0-9-]{9}  [ 0-9-]{11}  [ 0-9]{9}  [ 0-9]{7}\n\n",
    "Communicators\\.\\.\\. \\(" NUMBER "\\.[0-9]{2}s\\)\n=============\n\n",
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n",
    "    #  in group  per comm  per node  per comm  in group\n",
    "( {4}" NUMBER "  [ 0-9]{8}  [ 0-9]{8}  [ 0-9-]{8}  [ 0-9]{8}  [ 0-9]{8}  "
    "( *)" STATUSES "  ( *)(OK|(INCOMPLETE|ERROR|MISMATCH)(,(ERROR|MISMATCH))*)\n)+\n",
    "Errors\n======\n\n",
    "(INCOMPLETE\n  Missing communicator data from (1 job process|" NUMBER " job processes)\n(" PROCESS ")+\n)?",
    "(DEAD\n  (1 job process is|" NUMBER
    " job processes are) considered dead \\(unreachable via the RAS network\\)\n(" PROCESS ")+\n)?",
    "(" TITLE "(INCOMPLETE\n  Missing communicator data from (1 rank|" NUMBER " ranks)\n(  Rank " NUMBER " -- (" PLACE
    "|\\[process information not found\\]\n))+|ERROR\n(  (Initialization|Asynchronous) (error on 1 rank|errors "
    "on " NUMBER " ranks)\n(  " NUMBER " ranks reported " WORDS "\n|  Rank " NUMBER " reported " WORDS " -- " PLACE
    ")+)+)\n)*",
    "Warnings\n========\n\n",
    "(TIMEOUT\n  Encountered (1 communication timeout|" NUMBER
    " communication timeouts) while gathering communicator data\n\n)?",
    "(" TITLE "(MISMATCH\n  Communicator ranks have different (status|" FUNCS " operation counts)\n(  " NUMBER
    " ranks have (status " STATUSES "|" LAUNCHED ")\n|  Rank " NUMBER " has (status " STATUSES "|" LAUNCHED
    ") -- " PLACE ")+|WAITING\n(  Rank " NUMBER " has waited [^\n]+ -- " PLACE ")+)\n)*",
};

static void check_text_form(const char *text)
{
  const char *at = text;
  for (size_t i = 0; i < sizeof report_form / sizeof *report_form; i++) {
    char form[1024];
    regex_t re;
    regmatch_t m;
    snprintf(form, sizeof form, "^(%s)", report_form[i]);
    assert_int_equal(regcomp(&re, form, REG_EXTENDED), 0);
    int no = regexec(&re, at, 1, &m, 0);
    regfree(&re);
    if (no != 0) {
      fail_msg("no '%s' at '%.60s' in:\n%s", report_form[i], at, text);
    }
    at += m.rm_eo;
  }
  if (*at != 0) {
    fail_msg("behind the report: '%s'", at);
  }
}

// By docs/ras.schema.json, where there is Python.
static void check_json_form(const char *text)
{
  char command[64], file[] = "/tmp/ras_test.XXXXXX";
  int fd = mkstemp(file);
  assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
  snprintf(command, sizeof command, "python3 tests/ras_schema.py %s", file);
  int status = system(command);
  unlink(file);
  assert_true(status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127));
}

// All three reports are as NCCL has them, and each text has the lines `words` (NULL: none).
static void check_forms(const char *words)
{
  static const char *const questions[] = {"STATUS\n", "VERBOSE STATUS\n"};
  for (int i = 0; i < 2; i++) {
    check_text_form(converse(questions[i]));
    expect(heard, words != NULL ? words : "");
  }
  check_json_form(strchr(converse("SET FORMAT json\nSTATUS\n"), '{'));
}

// ---- tests

static void forms_of_reports(void **state)
{
  static const int sizes[] = {1, 2, 8};
  (void)state;
  for (int i = 0; i < 3; i++) {
    job good = {.n = sizes[i]}, late = {.n = sizes[i], .late = sizes[i] - 1};
    ranks_set r;
    char line[80];
    start_job(&r, &good, NULL);
    check_forms("RUNNING      OK\n");
    if (good.n > 1) {
      snprintf(line, sizeof line, "\n  Process %d on node ", (int)r.pid[1]);
      ranks_kill(&r, 1);
      await_report("DEAD\n");
      check_forms(line);
    }
    end_job(&r);
    if (late.late == 0) {
      continue;
    }
    start_job(&r, &late, NULL);
    await_report("WAITING\n");
    snprintf(line, sizeof line, "  Rank %d has launched up to operation 3 -- GPU ", late.late);
    check_forms("  Communicator ranks have different AllReduce operation counts\n");
    expect(converse("STATUS\n"), line);
    end_job(&r);
  }
}

static void all_processes(void **state)
{
  (void)state;
  job j = {.n = 4};
  ranks_set r;
  start_job(&r, &j, NULL);
  const char *a = converse("CLIENT PROTOCOL 2\nstatus\n");
  expect(a, "SERVER PROTOCOL 2\n");
  expect(a, "      1          4            1          4        4\n");
  expect(a, "    0         1         1         4         4         4   RUNNING      OK\n");
  a = converse("SET FORMAT json\r\nSTATUS\r\nSTATUS\r\n");
  assert_int_equal(strncmp(a, "OK\n{", 4), 0);
  expect(a, "\"ranks_count\": 4, \"missing_ranks_count\": 0");
  expect(a, "{\"rank\": 3, ");
  expect(a, "\"ReduceScatter\": 0, \"AllReduce\": 3}");
  expect(a, "\"timeouts_count\": 0");
  a = converse("DIAGNOSTICS\n");
  assert_int_equal(strncmp(a, "=== RAS Diagnostics ===\n", 24), 0);
  expect(a, " NCCL DIAG [OK] ");
  expect(a, " ms across 4 RAS peers\n");
  expect(converse("SET FORMAT json\nDIAGNOSTICS\n"), "ERROR: diagnostics only supports text output\n");
  end_job(&r);
}

// What a program of bin/ says. Valid until the next call.
static const char *ask_tool(const char *tool, const char *arguments)
{
  static char text[1 << 14];
  char command[512];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(command, sizeof command, "%s/bin/%s %s 2>&1", build != NULL ? build : ".", tool, arguments);
  FILE *f = popen(command, "r");
  assert_non_null(f);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  (void)pclose(f);
  return text;
}

// Rank 1 comes late to an all-reduce: all forms of the answer name it, and the recorders show the operation.
static void one_is_late(void **state)
{
  (void)state;
  job j = {.n = 3, .late = 1};
  ranks_set r;
  char place[32];
  start_job(&r, &j, NULL);
  await_answer("WHY\n", "  late: rank 0 waits in operation 4 AllReduce ");
  expect(heard, ": 3 ranks, 3 answered\n  rank 0, process ");
  expect(heard, " rank 1; last call: operation 4 AllReduce type ncclFloat32 op sum");
  expect(heard, ": does not wait; last call: operation 3 AllReduce ");
  assert_null(strstr(strstr(heard, "  late: ") + 1, "  late: ")); // two ranks wait for one cause
  snprintf(place, sizeof place, "127.0.0.1:%d", port);
  expect(ask_tool("tutti-why", place), "  late: rank 0 waits in operation 4 AllReduce ");
  const char *a = converse("SET FORMAT json\nSTATUS\n");
  expect(a, "\"verdict\": {\"class\": \"late\", \"cause\": 1, \"text\": \"rank 0 waits in operation 4 ");
  expect(a, "\"last_call\": \"operation 3 AllReduce ");
  a = converse("RECORDER\n");
  static const char begins[] = "{\"tutti\": {\"flight_recorder\": [\n{";
  assert_int_equal(strncmp(a, begins, sizeof begins - 1), 0);
  expect(a, "\"state\":\"started\"");
  expect(a, "],\n\"processes\": 3, \"missing_processes\": 0}}\n");
  for (int rank = 0; rank < j.n; rank++) {
    char word[32];
    snprintf(word, sizeof word, "\"rank\":%d", rank);
    expect(a, word);
  }
  a = converse("RECORDER 1\n");
  assert_null(strstr(a, "\"record_id\":0"));
  expect(a, "\"record_id\":3");
  end_job(&r);
  snprintf(place, sizeof place, "127.0.0.1:%d", port);
  expect(ask_tool("tutti-why", place), "tutti-why: 127.0.0.1:"); // nobody listens any more
  expect(ask_tool("tutti-why", "a:b:c"), "expected HOST:PORT");
  expect(ask_tool("ncclras", "--port 99999"), "--port 99999: it must be a number from 1 to 65535");
}

// Runs the public readers. False: none of them is installed.
static bool read_by_others(const char *state)
{
  char command[512];
  const char *build = getenv("TUTTI_BUILD"), *python = getenv("TUTTI_RAS_PYTHON");
  snprintf(command, sizeof command, "%s tests/public/ras_readers.py %s/bin/ncclras %d %s",
           python != NULL ? python : "python3", build != NULL ? build : ".", port, state);
  int status = system(command);
  bool none = WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127);
  assert_true(none || status == 0);
  return !none;
}

// Ray's and SGLang's code reads a job that is healthy, one with a dead rank, one with a late rank.
static void public_readers(void **state)
{
  (void)state;
  job good = {.n = 3}, late = {.n = 3, .late = 1};
  ranks_set r;
  start_job(&r, &good, NULL);
  bool read = read_by_others("healthy");
  if (read) {
    ranks_kill(&r, 1);
    await_report("DEAD\n");
    read_by_others("dead");
  }
  end_job(&r);
  if (!read) {
    skip();
  }
  start_job(&r, &late, NULL);
  await_report("WAITING\n");
  read_by_others("late");
  end_job(&r);
}

// Also of 64 processes on few cores the answer is there in a second.
static void many_processes(void **state)
{
  (void)state;
  job j = {.n = 64};
  ranks_set r;
  double least = 1e9;
  start_job(&r, &j, NULL);
  for (int i = 0; i < 5; i++) {
    double start = seconds_now();
    expect(converse("SET FORMAT json\nSTATUS\n"), "\"ranks_count\": 64, \"missing_ranks_count\": 0");
    least = seconds_now() - start < least ? seconds_now() - start : least;
  }
  print_message("64 processes: an answer in %.3f s\n", least);
  assert_true(least < 1.0 * SLOWER);
  end_job(&r);
}

static void one_is_killed(void **state)
{
  (void)state;
  job j = {.n = 3};
  ranks_set r;
  char line[80];
  start_job(&r, &j, NULL);
  int monitor = dial(), pid = (int)r.pid[1];
  say(monitor, "MONITOR\n");
  expect(hear(monitor, "\n"), "OK\n");
  ranks_kill(&r, 1);
  bool asked_the_dead = strstr(hear(monitor, "\n"), "PEER_DEAD: ") == NULL; // the port is shared: it may be its client
  snprintf(line, sizeof line, "Process %d on node", pid);
  if (!asked_the_dead) {
    expect(heard, line);
  }
  close(monitor);
  await_report("DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n");
  expect(heard, line);
  expect(heard, "INCOMPLETE\n  Missing communicator data from 1 rank\n  Rank 1 -- GPU 0 managed by process ");
  expect(converse("SET FORMAT json\nSTATUS\n"), "\"considered_dead\": true");
  end_job(&r);
}

// A chain: each process shares a communicator with the next one only. The first one alone answers at our port.
static void chain_body(int rank, void *arg)
{
  const job *j = arg;
  ncclComm_t before = NULL, behind = NULL;
  if (rank > 0) {
    char at[64];
    snprintf(at, sizeof at, "localhost:%d", j->other_port);
    setenv("NCCL_RAS_ADDR", at, 1);
    before = join_processes(rank - 1, 2, 1);
  }
  if (rank < j->n - 1) {
    behind = join_processes(rank, 2, 0);
  }
  atomic_fetch_add(&the_board->word[READY], 1);
  while (atomic_load(&the_board->word[STOP]) == 0) {
    sleep_ms(5);
  }
  OK(ncclCommAbort(before));
  OK(ncclCommAbort(behind));
}

static void known_through_others(void **state)
{
  (void)state;
  job j = {.n = 5, .other_port = free_port()};
  ranks_set r;
  char line[80];
  start_ranks(&r, &j, chain_body, NULL);
  const char *a = converse("STATUS\n");
  expect(a, "      1          5            1          5        5\n");
  expect(a, "    0         4         1         2         2         5   RUNNING      OK\n");
  a = converse("SET FORMAT json\nSTATUS\n");
  expect(a, "\"communicators_count\": 4,");
  expect(converse("DIAGNOSTICS\n"), " ms across 5 RAS peers\n");
  expect(converse("RECORDER\n"), "],\n\"processes\": 5, \"missing_processes\": 0}}\n");
  expect(converse("CONTROL PROFILER_MASK none\nCLIENT PROTOCOL 2\nSTATUS\n"), "OK\nSERVER PROTOCOL 2\n");
  snprintf(line, sizeof line, "  Rank 1 -- GPU 0 managed by process %d on node ", (int)r.pid[4]);
  ranks_kill(&r, 4);
  await_report("DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n");
  expect(heard, "INCOMPLETE\n  Missing communicator data from 1 rank\n");
  expect(heard, line);
  stop_process(r.pid[2]); // what is behind it is out of reach
  a = converse("TIMEOUT 3\nSTATUS\n");
  expect(a, "INCOMPLETE\n  Missing communicator data from 1 job process\n");
  expect(a, "TIMEOUT\n  Encountered 1 communication timeout while gathering communicator data\n");
  kill(r.pid[2], SIGCONT);
  end_job(&r);
}

static void one_is_stopped(void **state)
{
  (void)state;
  job j = {.n = 3};
  ranks_set r;
  start_job(&r, &j, NULL);
  stop_process(r.pid[2]);
  int fd = -1;
  const char *a = "";
  double start = seconds_now();
  while (strstr(a, "TIMEOUT\n") == NULL && seconds_now() < start + GENEROUS(12)) { // the stopped process may be ours
    fd = dial();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    say(fd, "TIMEOUT 3\nSTATUS\n");
    a = poll(&p, 1, 1000 * SLOWER) > 0 ? hear(fd, NULL) : "";
    close(fd);
  }
  expect(a, "INCOMPLETE\n  Missing communicator data from 1 job process\n");
  expect(a, "TIMEOUT\n  Encountered 1 communication timeout while gathering communicator data\n");
  expect(a, "  Rank 2 -- GPU 0 managed by process ");
  check_text_form(strstr(a, "NCCL version"));
  kill(r.pid[2], SIGCONT);
  await_report("   RUNNING      OK\n");
  end_job(&r);
}

static void commands_and_faults(void **state)
{
  (void)state;
  job j = {.n = 1};
  ranks_set r;
  start_job(&r, &j, NULL);
  int fd = dial();
  say(fd, "garbage\n\nTIMEOUT x\nTIMEOUT 1\nSET FORMAT xml\nMONITOR foo\nCONTROL FOO\nCONTROL PROFILER_MASK "
          "9x\nRECORDER 0\n");
  say(fd, "CONTROL PROFILER_MASK coll\nSTATUS and more\nTIME");
  say(fd, "OUT 2\n");
  const char *a = hear(fd, "and more\nOK\n");
  assert_string_equal(a, "ERROR: Unknown command garbage\nERROR: Unknown command \nERROR: Invalid timeout value x\nOK\n"
                         "ERROR: Invalid format xml\nERROR: Invalid event group 'foo'\n"
                         "ERROR: Unknown CONTROL subcommand 'FOO'\nERROR: Invalid profiler mask value '9x'\n"
                         "ERROR: Invalid number of operations '0'\nOK\n"
                         "ERROR: Unknown command STATUS and more\nOK\n");
  close(fd);
  char line[1025];
  memset(line, 'x', 1024);
  line[1024] = 0;
  assert_string_equal(converse(line), ""); // too long: closed
  line[1023] = '\n';
  fd = dial();
  say(fd, line);
  expect(hear(fd, "\n"), "ERROR: Unknown command xxx");
  close(fd);
  fd = dial();
  say(fd, "STATUS\n");
  shutdown(fd, SHUT_WR); // as a pipe into netcat does
  expect(hear(fd, NULL), "Job summary");
  close(fd);
  end_job(&r);
}

static void a_crowd(void **state)
{
  (void)state;
  job j = {.n = 2};
  ranks_set r;
  int idle[CROWD], asks[CROWD];
  start_job(&r, &j, NULL);
  for (int i = 0; i < CROWD; i++) {
    idle[i] = dial();
    say(idle[i], i % 2 == 0 ? "STAT" : "\xff\xfe\x01\r");
  }
  for (int i = 0; i < CROWD; i++) {
    asks[i] = dial();
    say(asks[i], "VERBOSE STATUS\n");
  }
  for (int i = 0; i < CROWD; i++) {
    expect(hear(asks[i], NULL), "    0         1         1         2         2         2   RUNNING      OK\n");
    close(asks[i]);
    close(idle[i]);
  }
  expect(converse("STATUS\n"), "RUNNING");
  end_job(&r);
}

// How often the RAS thread of a process has gone to sleep.
static long naps_of(pid_t pid)
{
  char path[320], text[4096];
  long naps = -1;
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *d = opendir(path);
  assert_non_null(d);
  for (const struct dirent *e; naps < 0 && (e = readdir(d)) != NULL;) {
    snprintf(path, sizeof path, "/proc/%d/task/%.20s/status", (int)pid, e->d_name);
    FILE *f = e->d_name[0] != '.' ? fopen(path, "re") : NULL;
    if (f == NULL) {
      continue;
    }
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *line = strstr(text, "\nvoluntary_ctxt_switches:");
    if (strncmp(text, "Name:\ttutti-ras\n", 16) == 0 && line != NULL) {
      naps = strtol(strchr(line, ':') + 1, NULL, 10);
    }
  }
  closedir(d);
  return naps;
}

// Has the thread of each process woken as often as it should, within some seconds?
static bool naps_are_right(const ranks_set *r, int n)
{
  bool right = true;
  long before[3];
  const double start = seconds_now();
  for (int i = 0; i < n; i++) {
    before[i] = naps_of(r->pid[i]);
    assert_true(before[i] > 0);
  }
  sleep_ms(4000);
  for (int i = 0; i < n; i++) {
    const long naps = naps_of(r->pid[i]) - before[i], most = n == 1 ? 0 : (long)(seconds_now() - start) + 1;
    print_message("%d processes: rank %d slept %ld times\n", n, i, naps);
    right = right && naps <= most && (n == 1 || naps > 0);
  }
  return right;
}

// While nobody asks, the thread wakes for its own keep-alive alone, once a second, and never in a job of one process.
static void nobody_asks(void **state)
{
  (void)state;
  for (int n = 1; n <= 3; n += 2) {
    job j = {.n = n};
    ranks_set r;
    bool right = false;
    start_job(&r, &j, NULL);
    expect(converse("STATUS\n"), "RUNNING      OK\n"); // the ring stands, or nearly
    sleep_ms(1000);
    for (int i = 0; i < 3 && !right; i++) { // a thread that wakes too often does so each time
      right = naps_are_right(&r, n);
    }
    assert_true(right);
    end_job(&r);
  }
}

static void switched_off(void **state)
{
  (void)state;
  job j = {.n = 2};
  ranks_set r;
  start_job(&r, &j, "NCCL_RAS_ENABLE=0");
  struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), -1);
  close(fd);
  end_job(&r);
}

// ---- in one process

static void fork_body(int rank, void *arg)
{
  (void)arg;
  (void)rank;
  ncclComm_t c[2];
  OK(ncclCommInitAll(c, 2, NULL));
  OK(ncclCommDestroy(c[0]));
  OK(ncclCommDestroy(c[1])); // what stays open for the life of the process
  holdings before = holdings_now();
  OK(ncclCommInitAll(c, 2, NULL));
  CHECK(strstr(converse("STATUS\n"), "RUNNING      OK") != NULL, "%s", heard);
  pid_t child = fork();
  if (child == 0) { // it has no RAS thread; its own communicator starts one
#if SLOWER < 10     // ThreadSanitizer refuses threads here
    ncclComm_t own;
    OK(ncclCommInitAll(&own, 1, NULL));
    CHECK(strstr(converse("STATUS\n"), "Job summary") != NULL, "%s", heard);
    OK(ncclCommDestroy(own));
#endif
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0, "%d", status);
  CHECK(strstr(converse("STATUS\n"), "RUNNING      OK") != NULL, "%s", heard);
  OK(ncclCommDestroy(c[0]));
  OK(ncclCommDestroy(c[1]));
  holdings after = holdings_settled(&before);
  CHECK(after.descriptors == before.descriptors && after.threads == before.threads,
        "%d files, %d threads; before %d, %d", after.descriptors, after.threads, before.descriptors, before.threads);
}

static void fork_and_end(void **state)
{
  (void)state;
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = 20, .fn = fork_body, .env = ENV(port_text)}), 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_processes),        cmocka_unit_test(one_is_killed),  cmocka_unit_test(one_is_stopped),
      cmocka_unit_test(commands_and_faults),  cmocka_unit_test(a_crowd),        cmocka_unit_test(switched_off),
      cmocka_unit_test(fork_and_end),         cmocka_unit_test(one_is_late),    cmocka_unit_test(many_processes),
      cmocka_unit_test(known_through_others), cmocka_unit_test(public_readers), cmocka_unit_test(forms_of_reports),
      cmocka_unit_test(nobody_asks),
  };
  choose_port();
  return RUN_TESTS("ras", tests, argc, argv);
}
