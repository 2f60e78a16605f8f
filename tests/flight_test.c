// flight_test.c: the flight recorder of a job: what the ranks did is in the text, and in the files that a failure, a
// reported wait and a signal write; Python reads the pickles.
#include "folder.h"
#include "harness.h"

enum { COUNT = 100000, FILES = 4 };
enum { TIMED_OUT }; // word of the board: rank 0 has its error

static void write_all_files(ncclComm_t c, int rank)
{
  char prefix[96];
  snprintf(prefix, sizeof prefix, "%s/asked_", folder);
  OK(tuttiFlightRecorderDump(prefix));
  GIVES(tuttiFlightRecorderDump("/nowhere/at/all"), ncclSystemError);
  GIVES(tuttiFlightRecorderDump(NULL), ncclInvalidArgument);
  GIVES(tuttiCommFlightRecorder(c, NULL), ncclInvalidArgument);
  if (rank == 0) {
    kill(getpid(), SIGUSR2); // writes the file of the signal
  }
}

// Is the word soon in what tuttiCommDiagnose says?
static bool is_said(ncclComm_t c, const char *word)
{
  bool said = false;
  for (double end = seconds_now() + GENEROUS(10); !said && seconds_now() < end; sleep_ms(1)) {
    char *text = NULL;
    OK(tuttiCommDiagnose(c, &text));
    said = strstr(text, word) != NULL;
    free(text);
  }
  return said;
}

// Rank 0 puts and signals, rank 1 waits: in the call, then by a batch. The last signal that rank 1 waits for does not
// come. Returns the window's memory.
static char *put_and_wait(ncclComm_t c, int rank, cudaStream_t s)
{
  ncclWindow_t w;
  char *memory;
  const ncclWaitSignalDesc_t one = {.opCnt = 1, .peer = 0};
  ncclWaitSignalDesc_t each[] = {one, one};
  OK(ncclMemAlloc((void **)&memory, 4096));
  OK(ncclCommWindowRegister(c, memory, 4096, &w, NCCL_WIN_DEFAULT));
  meet(2);
  if (rank == 0) {
    OK(ncclPutSignal(memory, 6, ncclFloat, 1, w, 0, 0, 0, 0, c, s));
    OK(ncclGroupStart());
    OK(ncclPutSignal(memory, 8, ncclUint8, 1, w, 0, 0, 0, 0, c, s));
    OK(ncclSignal(1, 0, 0, 0, c, s));
    OK(ncclGroupEnd());
    OK(tuttiStreamSynchronize(s));
  }
  meet(2);
  if (rank == 1) {
    cudaStream_t other;
    OK(tuttiStreamCreate(&other, TUTTI_STREAM_NON_BLOCKING));
    OK(ncclWaitSignal(1, each, c, s));
    OK(ncclWaitSignal(2, each, c, s));
    OK(tuttiStreamSynchronize(s));
    each[0].opCnt = 3;
    OK(ncclWaitSignal(1, each, c, other));
    CHECK(is_said(c, "\"function\":\"WaitSignal\",\"peer\":0,\"count\":3,\"state\":\"started\""), "not started");
  }
  return memory;
}

// An operation of each kind; then rank 1 comes too late for the last one.
static void body(int rank, void *arg)
{
  (void)arg;
  char *text = NULL;
  cudaStream_t s;
  ncclComm_t c = join_processes(0, 2, rank), half = NULL, third = NULL;
  float *x = calloc(2 * COUNT, sizeof *x);
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  OK(ncclAllReduce(x, x, 2, ncclFloat, ncclSum, c, s));
  OK(ncclAllReduce(x, x, COUNT, ncclFloat, ncclMax, c, s));
  OK(ncclCommSplit(c, 0, 1 - rank, &half, NULL));
  OK(ncclReduceScatter(x, x + COUNT, 2, ncclBfloat16, ncclSum, half, s));
  OK(rank == 0 ? ncclSend(x, 3, ncclInt, 1, c, s) : ncclRecv(x, 3, ncclInt, 0, c, s));
  OK(tuttiStreamSynchronize(s));
  OK(tuttiCommFlightRecorder(c, &text));
  CHECK(has_words(text, (const char *const[]){"\"nccl:all_reduce\"", "\"nccl:_reduce_scatter_base\"", "\"[1, 0]\"",
                                              rank == 0 ? "nccl:send 0->1" : "nccl:recv 1<-0", NULL}),
        "%s", text);
  free(text);
  OK(ncclCommSplit(c, 0, rank, &third, NULL));
  char *memory = put_and_wait(third, rank, s);
  write_all_files(c, rank);
  meet(2);
  while (rank == 1 && atomic_load(&the_board->word[TIMED_OUT]) == 0) {
    sleep_ms(1);
  }
  ncclResult_t res = ncclAllReduce(x, x, 7, ncclFloat, ncclSum, c, s);
  res = res == ncclSuccess ? tuttiStreamSynchronize(s) : res;
  CHECK(rank == 1 || res == ncclTimeout, "%d", (int)res);
  atomic_store(&the_board->word[TIMED_OUT], 1);
  meet(2);
  OK(ncclCommAbort(third));
  OK(ncclMemFree(memory));
  OK(ncclCommAbort(half));
  OK(ncclCommAbort(c));
  free(x);
}

static bool file_is(const char *name)
{
  return access(in_folder(name), R_OK) == 0;
}

static const char *const script =
    "import pickle, sys\n"
    "load = lambda name: pickle.load(open(sys.argv[1] + '/' + name, 'rb'))\n"
    "d = load('auto_0')\n"
    "e = d['entries']\n"
    "assert d['version'] == '2.10' and d['rank'] == 0, d\n"
    "assert sorted(g['ranks'] for g in d['pg_config'].values()) == ['[0, 1]', '[0, 1]', '[1, 0]'], d\n"
    "names = [x['profiling_name'] for x in e]\n"
    "ops = ['nccl:all_reduce', 'nccl:all_reduce', 'nccl:send 0->1', 'nccl:all_reduce', 'nccl:_reduce_scatter_base']\n"
    "assert names == ops, names\n"
    "assert e[1]['input_sizes'] == [[100000]] and e[1]['input_dtypes'] == ['Float'] and e[1]['operator'] == 2, e[1]\n"
    "assert e[4]['input_sizes'] == [[4]] and e[4]['output_sizes'] == [[2]], e[4]\n"
    "assert [x['collective_seq_id'] for x in e] == [1, 2, 2, 3, 1] and e[2]['is_p2p'], e\n"
    "assert [x['state'] for x in e] == ['completed'] * 3 + ['started', 'completed'], e\n"
    "assert e[3]['time_discovered_completed_ns'] is None, e[3]\n"
    "assert all(x['time_discovered_completed_ns'] >= x['time_discovered_started_ns'] for x in e[:3]), e\n"
    "for rank in 0, 1:\n"
    "  d = load('asked_%d' % rank)\n"
    "  assert d['rank'] == rank and len(d['entries']) == 4, d\n"
    "  o = d['one_sided']\n"
    "  says = lambda x: (x['profiling_name'], x['peer'], x['input_sizes'], x['signals'], x['state'])\n"
    "  times = lambda x: [x['time_%s_ns' % t] for t in ('created', 'discovered_started', 'discovered_completed')]\n"
    "  wait = lambda n, state: ('nccl:WaitSignal', 0, [[0]], n, state)\n"
    "  put = lambda name, n: ('nccl:' + name, 1, [[n]], 1, 'completed')\n"
    "  puts = [put('PutSignal', 24), put('PutSignal', 8), put('Signal', 0)]\n"
    "  waits = [wait(1, 'completed')] * 3 + [wait(3, 'started')]\n"
    "  assert [says(x) for x in o] == [puts, waits][rank], o\n"
    "  assert len(set(times(o[0]))) == 1 and o[0]['thread_id'] == '0', o[0]\n"
    "  assert all(times(x) == sorted(times(x)) and x['thread_id'] != '0' for x in o[1:3]), o\n"
    "  assert d['pg_status'][max(d['pg_status'])]['last_completed_collective'] == -1, d\n";

static void python_reads(void)
{
  if (system("python3 -c 0 2>/dev/null") != 0) {
    print_message("no python3: the pickles are not read\n");
    return;
  }
  pid_t child = fork();
  if (child == 0) {
    execlp("python3", "python3", "-c", script, folder, (char *)NULL);
    _exit(127);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static void a_job_is_recorded(void **state)
{
  (void)state;
  char file[128], limit[40]; // what goes well takes less
  snprintf(file, sizeof file, "NCCL_FLIGHT_RECORDER_FILE=%s/auto_", folder);
  snprintf(limit, sizeof limit, "NCCL_STALL_ERROR_MS=%d", 1500 * SLOWER);
  run job = {.n = 2,
             .seconds = 30,
             .fn = body,
             .env = ENV(file, "NCCL_FLIGHT_RECORDER_SIGNAL=12", "NCCL_STALL_WARN_MS=300", limit)};
  assert_int_equal(run_processes(&job), 0);
  assert_true(file_is("auto_0") && file_is("asked_0") && file_is("asked_1"));
  python_reads();
}

static void signalled(int rank, void *arg)
{
  (void)arg;
  ncclComm_t c = join_processes(0, 1, rank);
  CHECK(!file_is("auto_0"), "too early");
  kill(getpid(), SIGUSR2);
  for (double end = seconds_now() + GENEROUS(10); !file_is("auto_0") && seconds_now() < end;) {
    sleep_ms(5);
  }
  CHECK(file_is("auto_0"), "no file");
  OK(ncclCommDestroy(c));
  kill(getpid(), SIGUSR2); // harmless
  sleep_ms(20);
}

static void a_signal_writes(void **state)
{
  (void)state;
  char file[128];
  snprintf(file, sizeof file, "NCCL_FLIGHT_RECORDER_FILE=%s/auto_", folder);
  run job = {.n = 1, .seconds = 10, .fn = signalled, .env = ENV(file, "NCCL_FLIGHT_RECORDER_SIGNAL=12")};
  assert_int_equal(run_processes(&job), 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_job_is_recorded, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(a_signal_writes, open_folder, close_folder),
  };
  return RUN_TESTS("flight", tests, argc, argv);
}
