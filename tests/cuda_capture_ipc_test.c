// cuda_capture_ipc_test.c: graphs of ranks in several processes of one machine.
#include "cuda_captures.h"

#include "os/fdbox.h"

// ---- What is left ----

// The pieces of memory for captured operations that this process has mapped.
static int pieces(void)
{
  char line[512];
  int n = 0;
  FILE *f = fopen("/proc/self/maps", "r");
  CHECK(f != NULL, "no maps");
  while (fgets(line, sizeof line, f) != NULL) {
    n += strstr(line, "tutti-captured") != NULL;
  }
  fclose(f);
  return n;
}

// Graphs without end need no more memory than the first ones, whichever process destroys them first; and all of it is
// given back.
static void memory_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  int had = 0;
  (void)arg;
  setenv("NCCL_P2P_DISABLE", "1", 1); // tokens alone need little
  peers_none = true;
  join(process, 2, 1);
  open_all(ALL_TO_ALL, 3000, &plain, m);
  for (int i = 0; i < 12; i++) {
    const CUgraphExec exec = capture(ALL_TO_ALL, m, 3000), other = capture(ALL_TO_ALL, m, 3000);
    launch(exec);
    launch(other);
    wait_all();
    compare(ALL_TO_ALL, first, m[first].out, 3000);
    if ((i + process) % 2 == 0) {
      meet(2);
    }
    destroy_exec(exec);
    destroy_exec(other);
    while (tt_gpu_port_in_graphs(tt_gpu_rank_port(&comms[first]->port))) { // the driver tells of it in a thread
      sleep_ms(1);
    }
    if ((i + process) % 2 == 1) {
      meet(2);
    }
    CHECK(i < 4 || pieces() == had, "%d pieces of memory, after %d before", pieces(), had);
    had = pieces();
    renew(ALL_TO_ALL, m, 3000);
    meet(2);
  }
  CHECK(had > 0, "no memory is shared");
  leave();
  CHECK(pieces() == 0, "%d pieces of memory are left", pieces());
}

// The graph outlives the communicator, and does nothing then; its memory goes with it.
static void outlives_body(int process, void *arg)
{
  rank_memory m[MAX_RANKS];
  ncclComm_t one;
  (void)arg;
  join(process, 2, 1);
  one = comms[first];
  OK(tt_gpu_enter(device_of(first)));
  OK(ncclCommSplit(one, 0, process, &comms[first], NULL));
  tt_gpu_leave();
  const CUgraphExec exec = capture_and_try(ALL_REDUCE, m, COUNT);
  OK(ncclCommDestroy(comms[first]));
  meet(2);
  check_outlived(exec, m);
  CHECK(pieces() > 0, "the graph's memory has gone");
  destroy_exec(exec);
  for (int i = 0;; i++) { // the next communicator looks
    atomic_store(&the_board->word[process], (uint64_t)pieces());
    meet(2);
    if (atomic_load(&the_board->word[0]) + atomic_load(&the_board->word[1]) == 0) {
      break;
    }
    CHECK(i < 1000, "the graph's memory stays");
    sleep_ms(1);
    OK(tt_gpu_enter(device_of(first)));
    OK(ncclCommSplit(one, 0, process, &comms[first], NULL));
    tt_gpu_leave();
    OK(ncclCommDestroy(comms[first]));
    meet(2);
  }
  OK(ncclCommDestroy(one));
}

static void test_memory(void **state)
{
  (void)state;
  PROCESSES(2, 100, memory_body, NULL);
  PROCESSES(2, 100, outlives_body, NULL);
}

// ---- Descriptors ----

// The descriptors of memory for captured operations that this process has, or that lie in its mailbox.
static int pieces_held(void)
{
  static const tt_fdkey nobody;
  int fd;
  CHECK(tt_fdbox_take(&nobody, 0, NULL, &fd) != ncclSuccess, "a descriptor without a key");
  return open_descriptors("tutti-captured");
}

static void *abort_later(void *arg)
{
  sleep_ms(300);
  OK(ncclCommAbort(comms[first]));
  return arg;
}

// Rank 1 aborts after it has asked rank 0, whose process is stopped, for memory. That comes too late for it.
static void late_body(int process, void *arg)
{
  const buffers plain = {.kind = DEVICE};
  rank_memory m[MAX_RANKS];
  pthread_t thread;
  CUgraph graph;
  (void)arg;
  setenv("NCCL_P2P_DISABLE", "1", 1); // else rank 1 would ask for other things first
  peers_none = true;
  join(process, 2, 1);
  open_all(ALL_REDUCE, COUNT, &plain, m);
  meet(2);
  if (process == 0) {
    const tt_mail *mail = comms[0]->port.neighbors[1].from;
    atomic_store(&the_board->word[0], (uint64_t)getpid());
    raise(SIGSTOP);
    while (atomic_load(&mail->answered) != atomic_load(&mail->asked)) {
      sleep_ms(1);
    }
    meet(2);
    OK(ncclCommAbort(comms[first]));
  } else {
    while (atomic_load(&the_board->word[0]) == 0 || tt_proc_doing((pid_t)atomic_load(&the_board->word[0])) != 'T') {
      sleep_ms(1);
    }
    sleep_ms(100); // its other threads stand, too
    assert_int_equal(pthread_create(&thread, NULL, abort_later, NULL), 0);
    capture_begin();
    const ncclResult_t res = call(ALL_REDUCE, first, m[first].in, m[first].out, COUNT);
    CHECK(res != ncclSuccess, "captured");
    ON(first, cu->StreamEndCapture(streams[first], &graph));
    pthread_join(thread, NULL);
    kill((pid_t)atomic_load(&the_board->word[0]), SIGCONT);
    meet(2);
  }
  CHECK(pieces_held() == 0, "%d descriptors are left", pieces_held());
}

static void test_descriptors(void **state)
{
  (void)state;
  PROCESSES(2, 60, late_body, NULL);
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_functions), cmocka_unit_test(test_many),   cmocka_unit_test(test_streams),
      cmocka_unit_test(test_times),     cmocka_unit_test(test_memory), cmocka_unit_test(test_destroy),
      cmocka_unit_test(test_killed),    cmocka_unit_test(test_gone),   cmocka_unit_test(test_mismatch),
      cmocka_unit_test(test_abort),     cmocka_unit_test(test_stall),  cmocka_unit_test(test_descriptors)};
  captures_mode(modes, number, "capture-ipc-test");
  peers_none = strstr(modes, "peers=none") != NULL;
  if (strstr(modes, "resident") != NULL) {
    peers_none = true; // plans use FIFOs alone
    mode_number = 2;   // two ranks: walks cost the driver's machine most
  }
  return cmocka_run_group_tests_name(modes, tests, NULL, NULL);
}

int main(int argc, char **argv)
{
  static const char *const modes[] = {"",
                                      "slices,queues=1",
                                      "devices=2,order=random,seed=5",
                                      "devices=3,peers=none",
                                      "stores,stale,seed=3,slices",
                                      "resident,devices=4,waits,stores,stale,seed=7"};
  return captures_main(argc, argv, modes, TT_COUNT(modes), in_mode);
}
