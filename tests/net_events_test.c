// net_events_test.c: what network plugins tell of their requests (tests/plugins/net_events.h) reaches profilers, below
// the step that it belongs to.
#include "profiler_rig.h"

#include "base/util.h"
#include "nccl/profiler.h"

enum { LARGE = 100000, MOST = 4000 };

#define APART "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_SOCKET_IFNAME=lo", "NCCL_ALGO=Ring", "NCCL_PROTO=Simple"

// NCCL_NET_PLUGIN for the plugin of a version, and how it tells.
static const char *plugin(int version)
{
  static char text[13][512];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(text[version], sizeof text[version], "NCCL_NET_PLUGIN=%s/tests/plugins/libnet_events_v%d.so",
           build != NULL ? build : "build", version);
  return text[version];
}

// ---- what a record says

typedef struct step {
  int op;     // number of its ProxyOp
  long bytes; // of the message's payload
  long told;  // lengths of its events, as they ended
  int events, rank;
} step;

typedef struct net_event {
  int step, op, updates, rank;
  long length;
  bool started, stopped;
} net_event;

typedef struct account {
  step steps[MOST];
  net_event events[MOST];
  bool sends[MOST]; // by number of the ProxyOp
  int op_ranks[MOST];
  int nsteps, nevents;
} account;

static void read_start(account *s, const char *line)
{
  int n, parent, rank, op;
  unsigned id;
  long length;
  const char *send = strstr(line, " send=");
  if (sscanf(line, "start ProxyOp#%d", &n) == 1) {
    assert_true(n < MOST && send != NULL);
    s->sends[n] = send[6] == '1';
    s->op_ranks[n] = atoi(strstr(line, " rank=") + 6);
  } else if (sscanf(line, "start ProxyStep#%d parent=ProxyOp#%d rank=%d", &n, &parent, &rank) == 3) {
    assert_true(n < MOST);
    s->steps[n] = (step){.op = parent, .rank = rank};
    s->nsteps = TT_MAX(n, s->nsteps);
  } else if (sscanf(line, "start NetPlugin#%d parent=ProxyStep#%d rank=%d id=%x op=%d length=%ld", &n, &parent, &rank,
                    &id, &op, &length) == 6) {
    assert_true(n < MOST && parent < MOST);
    assert_int_equal(id, NCCL_PROFILER_NET_TYPE_SOCK | NCCL_PROFILER_NET_SOCKET_VER);
    s->events[n] = (net_event){.step = parent, .op = op, .length = length, .rank = rank, .started = true};
    s->nevents = TT_MAX(n, s->nevents);
  } else {
    assert_null(strstr(line, "start NetPlugin#") == line ? line : NULL); // one with another parent
  }
}

static void read_rest(account *s, const char *line)
{
  int n;
  long length;
  char state[64];
  if (sscanf(line, "state ProxyStep#%d %63s size=%ld", &n, state, &length) == 3) {
    s->steps[n].bytes =
        strcmp(state, "SendWait") == 0 || strcmp(state, "RecvGPUWait") == 0 ? length : s->steps[n].bytes;
  } else if (sscanf(line, "state NetPlugin#%d NetUpdate length=%ld", &n, &length) == 2) {
    s->events[n].updates++;
    s->events[n].length = length;
  } else if (sscanf(line, "stop NetPlugin#%d", &n) == 1) {
    s->events[n].stopped = true;
  }
}

// Every event of the network hangs below a step of its own direction and rank.
static const account *read_story(const char *text)
{
  static account s;
  static char line[512];
  memset(&s, 0, sizeof s);
  for (const char *at = text; *at != '\0'; at += strcspn(at, "\n") + 1) {
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    read_start(&s, line);
    read_rest(&s, line);
  }
  for (int i = 1; i <= s.nevents; i++) {
    const net_event *e = &s.events[i];
    step *of = &s.steps[e->step];
    assert_true(e->started && e->stopped && of->op != 0);
    assert_int_equal(e->op == 0, s.sends[of->op]);
    assert_int_equal(e->rank, of->rank);
    assert_int_equal(of->rank, s.op_ranks[of->op]);
    of->events++;
    of->told += e->length;
  }
  return &s;
}

// Each message has been told of, once or (header and payload) twice, with its bytes and those of its header, which is
// always as long.
static void assert_all_told(const account *s, int version)
{
  long head = 0;
  bool two = false;
  assert_true(s->nsteps > 0);
  for (int i = 1; i <= s->nsteps; i++) {
    assert_in_range(s->steps[i].events, 1, 2);
    two |= s->steps[i].events == 2;
    long rest = s->steps[i].told - s->steps[i].bytes;
    head = head != 0 ? head : rest;
    assert_true(version < 4 || (rest == head && head > 0 && head < 100));
  }
  assert_true(two);
  for (int i = 1; i <= s->nevents; i++) {
    assert_int_equal(s->events[i].updates, version >= 4); // version 3 has no such state
  }
}

// ---- jobs

static void some_allreduces(int rank, int n, ncclComm_t comm)
{
  static float x[LARGE];
  cudaStream_t stream;
  one_allreduce(rank, n, comm);
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  for (size_t count = 3; count <= LARGE; count = count * 31 + 7) {
    OK(ncclAllReduce(x, x, count, ncclFloat, ncclSum, comm, stream));
  }
  OK(ncclAllReduce(x, x, LARGE, ncclFloat, ncclSum, comm, stream)); // payloads are messages of their own
  OK(tuttiStreamSynchronize(stream));
  OK(tuttiStreamDestroy(stream));
}

static void every_request_becomes_an_event(void **state)
{
  (void)state;
  for (int version = 10; version <= 12; version++) {
    run_all(&(job){.n = 2, .versions = "3456", .work = some_allreduces, .env = ENV(APART, plugin(version))});
    for (int v = 3; v <= 6; v++) {
      for (int rank = 0; rank < 2; rank++) {
        const char *text = record(rank, v);
        assert_sound(text);
        assert_all_told(read_story(text), v);
        assert_non_null(strstr(text, rank == 0 ? "rank=0 id=" : "rank=1 id="));
      }
    }
  }
}

// Profilers of the first two versions do not know such events; networks before version 10 cannot tell them.
static void who_does_not_know_them(void **state)
{
  (void)state;
  run_all(&(job){.n = 2, .versions = "126", .work = some_allreduces, .env = ENV(APART, plugin(12))});
  for (int v = 1; v <= 2; v++) {
    const char *text = record(0, v);
    assert_sound(text);
    assert_null(strstr(text, "NetPlugin"));
    record(1, v);
  }
  assert_all_told(read_story(record(0, 6)), 6);
  record(1, 6);
}

// One mask brings the ancestors; another, nothing of the network's.
static void as_the_mask_says(void **state)
{
  (void)state;
  run_all(&(job){
      .n = 2, .versions = "6", .work = some_allreduces, .env = ENV(APART, plugin(12), "TUTTI_RECORD_MASK=0x80")});
  const char *text = record(0, 6);
  assert_sound(text);
  assert_all_told(read_story(text), 6);
  record(1, 6);
  run_all(&(job){
      .n = 2, .versions = "6", .work = some_allreduces, .env = ENV(APART, plugin(12), "TUTTI_RECORD_MASK=0x1f")});
  text = record(0, 6);
  assert_sound(text);
  assert_null(strstr(text, "NetPlugin"));
  record(1, 6);
}

static void by_a_thread_of_its_own(void **state)
{
  (void)state;
  run_all(&(job){
      .n = 2, .versions = "36", .work = some_allreduces, .env = ENV(APART, plugin(11), "TEST_NET_EVENTS=thread")});
  for (int v = 3; v <= 6; v += 3) {
    const char *text = record(0, v);
    assert_sound(text);
    assert_all_told(read_story(text), v);
    assert_int_equal(count_lines(text, "finalize"), 1);
    record(1, v);
  }
}

static void many_messages(int rank, int n, ncclComm_t comm)
{
  for (int i = 0; i < 100; i++) {
    one_allreduce(rank, n, comm);
  }
}

// Records are used again, and events are told of when their message is long gone.
static void late_and_never(void **state)
{
  (void)state;
  const char *const modes[] = {"TEST_NET_EVENTS=late", "TEST_NET_EVENTS=never", "TEST_NET_EVENTS=thread"};
  for (int i = 0; i < 3; i++) {
    run_all(&(job){.n = 2, .versions = "6", .work = many_messages, .env = ENV(APART, plugin(12), modes[i])});
    for (int rank = 0; rank < 2; rank++) {
      const char *text = record(rank, 6);
      const account *s = read_story(text);
      assert_sound(text);
      assert_true(s->nevents >= s->nsteps);
      assert_int_equal(count_lines(text, "finalize"), 1);
    }
  }
}

// ---- failures

static void abort_large(int rank, int n, ncclComm_t comm)
{
  static float x[1 << 20];
  cudaStream_t stream;
  one_allreduce(rank, n, comm);
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  if (rank == 0) {
    OK(ncclAllReduce(x, x, 1 << 20, ncclFloat, ncclSum, comm, stream));
    for (int i = 0; i < 10; i++) {
      CHECK(tuttiStreamQuery(stream) == ncclInProgress, "done without rank 1");
    }
  }
  meet(n);
  OK(ncclCommAbort(comm));
  if (rank == 0) {
    CHECK(tuttiStreamSynchronize(stream) != ncclSuccess, "an aborted operation cannot succeed");
  }
  OK(tuttiStreamDestroy(stream));
}

static void when_it_ends_badly(void **state)
{
  (void)state;
  const char *const modes[] = {"TEST_NET_EVENTS=calls", "TEST_NET_EVENTS=thread", "TEST_NET_EVENTS=late",
                               "TEST_NET_EVENTS=never"};
  void (*const works[])(int, int, ncclComm_t) = {abort_large, peer_dies};
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < 2; k++) {
      run_all(
          &(job){.n = 2, .versions = "36", .work = works[k], .keeps = true, .env = ENV(APART, plugin(12), modes[i])});
      for (int v = 3; v <= 6; v += 3) {
        const char *text = record(0, v);
        assert_sound(text);
        assert_true(read_story(text)->nevents > 0);
        assert_int_equal(count_lines(text, "finalize"), 1);
        assert_non_null(strstr(text, "finalize"));
        // The last line.
        assert_int_equal(strlen(strstr(text, "finalize")), strcspn(strstr(text, "finalize"), "\n") + 1);
        record(1, v);
      }
    }
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_request_becomes_an_event),
      cmocka_unit_test(who_does_not_know_them),
      cmocka_unit_test(as_the_mask_says),
      cmocka_unit_test(by_a_thread_of_its_own),
      cmocka_unit_test(late_and_never),
      cmocka_unit_test(when_it_ends_badly),
  };
  return RUN_TESTS("net_events_test", tests, argc, argv);
}
