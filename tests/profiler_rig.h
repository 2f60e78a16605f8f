// profiler_rig.h: what the tests of profilers share: jobs with recorders (tests/plugins/recorder.h), and what these
// have written, to be looked at.
#pragma once
#include <glob.h>

#include "harness.h"

enum { TEXT = 1 << 20, COUNT = 1000 };

// What the processes of a test do.
typedef struct job {
  int n;
  const char *versions; // "456": the recorders that are loaded
  void (*work)(int rank, int n, ncclComm_t comm);
  bool keeps; // the work ends the communicator itself
  const char *const *env;
} job;

HARNESS const char *record_name(int rank)
{
  static char name[128];
  snprintf(name, sizeof name, "/tmp/tutti_profiler_%d_%d", the_board != NULL ? (int)getppid() : (int)getpid(), rank);
  return name;
}

HARNESS const char *plugin_list(const char *versions)
{
  static char list[4096];
  const char *build = getenv("TUTTI_BUILD");
  size_t used = 0;
  list[0] = '\0';
  for (const char *v = versions; *v != '\0'; v++) {
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s/tests/plugins/librecorder_v%c.so",
                             used > 0 ? "," : "", build != NULL ? build : "build", *v);
  }
  return list;
}

HARNESS void run_job(int rank, void *arg)
{
  const job *j = arg;
  setenv("TUTTI_RECORD", record_name(rank), 1);
  setenv("NCCL_PROFILER_PLUGIN", plugin_list(j->versions), 1);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm;
  config.commName = "job";
  OK(ncclCommInitRankConfig(&comm, j->n, shared_id(0, rank), rank, &config));
  j->work(rank, j->n, comm);
  if (!j->keeps) {
    OK(ncclCommDestroy(comm));
  }
}

// Finds the file of a rank and version.
HARNESS bool find_record(int rank, int version, char *name, size_t size)
{
  char pattern[256];
  glob_t found;
  snprintf(pattern, sizeof pattern, "%s.v%d.*", record_name(rank), version);
  bool any = glob(pattern, 0, NULL, &found) == 0;
  if (any) {
    snprintf(name, size, "%s", found.gl_pathv[0]);
  }
  globfree(&found);
  return any;
}

// What a rank's recorder of a version has written; the file goes. "" when there is none.
HARNESS char *record(int rank, int version)
{
  static char texts[8][TEXT];
  static int next;
  char *text = texts[next++ % 8], name[256];
  size_t n = 0;
  if (find_record(rank, version, name, sizeof name)) {
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    n = fread(text, 1, TEXT - 1, f);
    fclose(f);
    remove(name);
  }
  text[n] = '\0';
  return text;
}

HARNESS void remove_records(const job *j)
{
  char name[256];
  for (int rank = 0; rank < j->n; rank++) {
    for (int v = 1; v <= 7; v++) {
      while (find_record(rank, v, name, sizeof name)) {
        remove(name);
      }
    }
  }
}

HARNESS void run_all(const job *j)
{
  remove_records(j);
  assert_int_equal(
      run_processes(&(run){.n = j->n, .seconds = 60, .fn = run_job, .arg = (void *)(uintptr_t)j, .env = j->env}), 0);
}

// Line by line these do not read on to the end of the text, as the C library's functions do under a sanitizer.
HARNESS const char *line_end(const char *line)
{
  while (*line != '\0' && *line != '\n') {
    line++;
  }
  return line;
}

HARNESS bool begins(const char *line, const char *with)
{
  while (*with != '\0' && *line == *with) {
    line++;
    with++;
  }
  return *with == '\0';
}

// What comes after the line's first word; its end if there is nothing.
HARNESS const char *second_word(const char *line)
{
  const char *end = line_end(line), *blank = memchr(line, ' ', (size_t)(end - line));
  return blank != NULL ? blank + 1 : end;
}

// Is the line about an event of one of these kinds?
HARNESS bool is_about(const char *line, const char *kinds)
{
  const char *subject = second_word(line);
  size_t n = 0;
  while (subject[n] != '\0' && memchr("#- \n", subject[n], 4) == NULL) {
    n++;
  }
  for (const char *kind = kinds; n > 0 && *kind != '\0'; kind += strspn(kind, " ")) {
    size_t len = strcspn(kind, " ");
    if (len == n && memcmp(kind, subject, n) == 0) {
      return true;
    }
    kind += len;
  }
  return false;
}

// The lines about events of these kinds; "init" among them: also init and finalize.
HARNESS char *pick(const char *text, const char *kinds)
{
  static char picks[8][TEXT];
  static int next;
  char *out = picks[next++ % 8];
  size_t used = 0;
  for (const char *line = text; *line != '\0'; line = line_end(line) + 1) {
    size_t n = (size_t)(line_end(line) - line) + 1;
    bool life = begins(line, "init") || begins(line, "finalize");
    if (life ? strstr(kinds, "init") != NULL : is_about(line, kinds)) {
      memcpy(out + used, line, n);
      used += n;
    }
  }
  out[used] = '\0';
  return out;
}

HARNESS int count_lines(const char *text, const char *beginning)
{
  int n = 0;
  for (const char *line = text; *line != '\0'; line = line_end(line) + 1) {
    n += begins(line, beginning);
  }
  return n;
}

// No rule is broken, and everything that was started was stopped.
HARNESS void assert_sound(const char *text)
{
  assert_null(strstr(text, "ERROR"));
  assert_int_equal(count_lines(text, "start ") > 0, 1);
  assert_int_equal(count_lines(pick(text, "GroupApi"), "start "), count_lines(pick(text, "GroupApi"), "stop "));
  assert_int_equal(count_lines(text, "start "), count_lines(text, "stop "));
}

// What happens to one event: "start RecvWait … stop".
HARNESS const char *story(const char *text, const char *name)
{
  static char out[512];
  size_t used = 0, len = strlen(name);
  out[0] = '\0';
  for (const char *line = text; *line != '\0'; line = line_end(line) + 1) {
    const char *subject = second_word(line), *end = line_end(line);
    if (!begins(subject, name) || (subject[len] != ' ' && subject[len] != '\n')) {
      continue;
    }
    char rest[256] = "", state[64] = "";
    snprintf(rest, sizeof rest, "%.*s", (int)(end - subject - (ptrdiff_t)len), subject + len);
    sscanf(rest, " %63s", state);
    const char *word = line[0] == 's' && line[2] == 'a' && line[3] == 'r' ? "start" : line[2] == 'o' ? "stop" : state;
    used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", used > 0 ? " " : "", word);
  }
  return out;
}

// The value after `key` in the line that starts the event.
HARNESS long started_with(const char *text, const char *name, const char *key)
{
  char line[128];
  snprintf(line, sizeof line, "start %s ", name);
  const char *at = strstr(text, line), *value = at != NULL ? strstr(at, key) : NULL;
  assert_non_null(value);
  return strtol(value + strlen(key), NULL, 10);
}

// Bytes of all steps in a state.
HARNESS long bytes_in(const char *text, const char *state)
{
  long sum = 0;
  char key[64];
  snprintf(key, sizeof key, " %s size=", state);
  for (const char *at = strstr(text, key); at != NULL; at = strstr(at + 1, key)) {
    sum += strtol(at + strlen(key), NULL, 10);
  }
  return sum;
}

// Every step of every operation went its way, as this version is told of it.
HARNESS void assert_steps(const char *text, int version)
{
  const char *op_story = version >= 4 ? "start InProgress stop" : "start stop";
  const char *sent = version >= 4 ? "start SendGPUWait SendPeerWait SendWait stop" : "start SendGPUWait SendWait stop";
  int ops = count_lines(text, "start ProxyOp#"), steps = count_lines(text, "start ProxyStep#");
  long expected = 0;
  char name[64], parent[64];
  for (int i = 1; i <= ops; i++) {
    snprintf(name, sizeof name, "ProxyOp#%d", i);
    assert_string_equal(story(text, name), op_story);
    expected += started_with(text, name, " steps=");
  }
  assert_int_equal(steps, expected);
  for (int i = 1; i <= steps; i++) {
    snprintf(name, sizeof name, "ProxyStep#%d", i);
    snprintf(parent, sizeof parent, "ProxyOp#%ld", started_with(text, name, "parent=ProxyOp#"));
    assert_string_equal(story(text, name),
                        started_with(text, parent, " send=") ? sent : "start RecvWait RecvFlushWait RecvGPUWait stop");
    assert_true(started_with(text, name, " step=") < started_with(text, parent, " steps="));
  }
}

#define API "init GroupApi CollApi P2pApi Group Coll P2p KernelLaunch"

HARNESS void one_allreduce(int rank, int n, ncclComm_t comm)
{
  static float x[COUNT];
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  for (int i = 0; i < COUNT; i++) {
    x[i] = (float)(rank + i);
  }
  OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclSum, comm, stream));
  OK(tuttiStreamSynchronize(stream));
  CHECK(x[COUNT - 1] == (float)(n * (COUNT - 1) + n * (n - 1) / 2), "wrong sum %g", (double)x[COUNT - 1]);
  OK(tuttiStreamDestroy(stream));
}

// Its two chunks are not of one length.
HARNESS void odd_allreduce(int rank, int n, ncclComm_t comm)
{
  static float x[COUNT];
  (void)rank, (void)n;
  OK(ncclAllReduce(x, x, COUNT - 1, ncclFloat, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
}

HARNESS void mixed_group(int rank, int n, ncclComm_t comm)
{
  static int x[COUNT], y[COUNT], z[COUNT];
  cudaStream_t stream;
  int peer = (rank + 1) % n;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  OK(ncclGroupStart());
  OK(ncclGroupStart());
  OK(ncclAllReduce(x, x, COUNT, ncclInt, ncclSum, comm, stream));
  OK(ncclGroupEnd());
  OK(ncclSend(y, 10, ncclInt64, peer, comm, stream));
  OK(ncclBroadcast(z, z, COUNT, ncclUint8, 1, comm, stream));
  OK(ncclRecv(y + 500, 10, ncclInt64, peer, comm, stream));
  OK(ncclGroupEnd());
  OK(tuttiStreamSynchronize(stream));
  OK(ncclAllReduce(x, x, 0, ncclInt, ncclSum, comm, stream)); // nothing to do: told as a call, no more
  OK(tuttiStreamDestroy(stream));
}

HARNESS void aborted(int rank, int n, ncclComm_t comm)
{
  static int x[COUNT];
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  if (rank == 0) {
    OK(ncclAllReduce(x, x, COUNT, ncclInt, ncclSum, comm, stream));
    OK(ncclAllReduce(x, x, COUNT, ncclInt, ncclSum, comm, stream)); // does not begin
  }
  meet(n);
  OK(ncclCommAbort(comm));
  if (rank == 0) {
    CHECK(tuttiStreamSynchronize(stream) != ncclSuccess, "an aborted operation cannot succeed");
  }
  OK(tuttiStreamDestroy(stream));
}

// Rank 1 ends in the middle of the job.
HARNESS void peer_dies(int rank, int n, ncclComm_t comm)
{
  static float x[1 << 20];
  cudaStream_t stream;
  one_allreduce(rank, n, comm);
  meet(n);
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  if (rank == 1) {
    _exit(0);
  }
  OK(ncclAllReduce(x, x, 1 << 20, ncclFloat, ncclSum, comm, stream));
  CHECK(tuttiStreamSynchronize(stream) != ncclSuccess, "nobody was there");
  OK(ncclCommAbort(comm));
  OK(tuttiStreamDestroy(stream));
}

HARNESS void send_and_receive(int rank, int n, ncclComm_t comm)
{
  static double x[COUNT];
  cudaStream_t stream;
  (void)n;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  if (rank == 0) {
    OK(ncclSend(x, COUNT, ncclDouble, 1, comm, stream));
  } else {
    OK(ncclRecv(x, COUNT, ncclDouble, 0, comm, stream));
  }
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiStreamDestroy(stream));
}

HARNESS void split(int rank, int n, ncclComm_t comm)
{
  ncclComm_t half;
  OK(ncclCommSplit(comm, rank / 2, n - rank, &half, NULL));
  one_allreduce(1 - rank % 2, 2, half);
  OK(ncclCommDestroy(half));
}
