// unread_test.c: messages that are sent and never received: ncclCommFinalize and ncclCommDestroy name them, on
// whichever rank leaves last, and say nothing of messages that are only late.
#include "harness.h"

enum { BYTES = 4000, RANKS = 3, TOKEN = 1, READY = 2 }; // words of the board
#define LOST "ranks are in different calls, by number: rank "

typedef enum { RECEIVER_LAST, SENDER_LAST, TOGETHER, RECEIVED } order;

typedef struct plan {
  order when;
  bool finalize; // before it is destroyed
  ncclComm_t comm[RANKS];
} plan;

static ncclResult_t leave(ncclComm_t c, bool finalize)
{
  ncclResult_t res = finalize ? ncclCommFinalize(c) : ncclCommDestroy(c);
  if (finalize) {
    OK(ncclCommDestroy(c));
  }
  return res;
}

static void sum(ncclComm_t c, cudaStream_t s, float *x)
{
  OK(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, c, s));
  OK(tuttiStreamSynchronize(s));
}

// Rank 0 sends one message to rank 1; rank 2 takes no part in it.
static void body(int rank, void *arg)
{
  plan *p = arg;
  ncclComm_t c = p->comm[rank] != NULL ? p->comm[rank] : join_processes(0, RANKS, rank);
  cudaStream_t s;
  char *x = calloc(1, BYTES);
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  sum(c, s, (float *)(void *)x);
  if (rank == 0) { // so that the two are connected
    OK(ncclSend(x, BYTES, ncclChar, 1, c, s));
  } else if (rank == 1) {
    OK(ncclRecv(x, BYTES, ncclChar, 0, c, s));
  }
  OK(tuttiStreamSynchronize(s));
  meet(RANKS);
  if (rank == 1 && p->when == SENDER_LAST) {
    OK(leave(c, p->finalize));
  }
  meet(RANKS);
  if (rank == 0) {
    OK(ncclSend(x, BYTES, ncclChar, 1, c, s));
    OK(tuttiStreamSynchronize(s));
  }
  if (rank == 0 && p->when == RECEIVER_LAST) {
    OK(leave(c, p->finalize));
  }
  if (p->when != TOGETHER && p->when != RECEIVED) {
    meet(RANKS);
  }
  if (rank == 1 && p->when == RECEIVED) {
    sleep_ms(300); // rank 0 is leaving meanwhile
    OK(ncclRecv(x, BYTES, ncclChar, 0, c, s));
  }
  ncclResult_t res = ncclSuccess;
  double begin = seconds_now();
  if (!(rank == 1 && p->when == SENDER_LAST) && !(rank == 0 && p->when == RECEIVER_LAST)) {
    res = leave(c, p->finalize);
  }
  CHECK(seconds_now() - begin < GENEROUS(0.5), "leaving took %g s", seconds_now() - begin);
  if (res != ncclSuccess) {
    atomic_fetch_add(&the_board->word[TOKEN], 1);
    CHECK(res == ncclInvalidUsage && strstr(ncclGetLastError(NULL), LOST "0 has sent ") != NULL,
          "rank %d left with %d: %s", rank, (int)res, ncclGetLastError(NULL));
  }
  OK(tuttiStreamDestroy(s));
  free(x);
}

static void check_named(const plan *p)
{
  unsigned named = (unsigned)atomic_load(&the_board->word[TOKEN]);
  CHECK(p->when == RECEIVED ? named == 0 : named > 0, "order %d, finalize %d: %u ranks name the message", (int)p->when,
        p->finalize, named);
}

static void body_of_process(int rank, void *arg)
{
  body(rank, arg);
  meet(RANKS);
  check_named(arg);
}

static void between_processes(void **state)
{
  static const char *const net[] = {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", NULL};
  (void)state;
  for (int i = 0; i < 16; i++) {
    plan p = {.when = (order)(i / 4), .finalize = i % 2 != 0};
    run job = {.n = RANKS, .seconds = 30, .fn = body_of_process, .arg = &p, .env = i / 2 % 2 != 0 ? net : NULL};
    assert_int_equal(run_processes(&job), 0);
  }
}

static void between_threads(void **state)
{
  (void)state;
  for (int i = 0; i < 8; i++) {
    plan p = {.when = (order)(i / 2), .finalize = i % 2 != 0};
    board_open();
    OK(ncclCommInitAll(p.comm, RANKS, NULL));
    run_threads(RANKS, body, &p);
    check_named(&p);
    board_close();
  }
}

// Of two ranks, one leaves while the other one sends to it, and then leaves as well.
typedef struct crossing {
  ncclComm_t comm[2];
  double delay; // of the receiver's leaving, seconds
  bool finalize;
} crossing;

static void cross(int rank, void *arg)
{
  crossing *x = arg;
  ncclComm_t c = x->comm[rank];
  char *bytes = calloc(1, BYTES);
  cudaStream_t s;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  OK(rank == 0 ? ncclSend(bytes, BYTES, ncclChar, 1, c, s) : ncclRecv(bytes, BYTES, ncclChar, 0, c, s));
  OK(tuttiStreamSynchronize(s));
  atomic_fetch_add(&the_board->word[READY], 1);
  while (atomic_load(&the_board->word[READY]) < 2) {
  }
  if (rank == 0) {
    OK(ncclSend(bytes, BYTES, ncclChar, 1, c, s));
    OK(tuttiStreamSynchronize(s));
  } else {
    for (double end = seconds_now() + x->delay; seconds_now() < end;) {
    }
  }
  ncclResult_t res = leave(c, x->finalize);
  CHECK(res == ncclSuccess || (res == ncclInvalidUsage && strstr(ncclGetLastError(NULL), LOST "0 has sent ") != NULL),
        "rank %d left with %d: %s", rank, (int)res, ncclGetLastError(NULL));
  atomic_fetch_add(&the_board->word[TOKEN], res != ncclSuccess);
  OK(tuttiStreamDestroy(s));
  free(bytes);
}

static void crosses_with_leaving(void **state)
{
  (void)state;
  for (int i = 0; i < 800 / SLOWER; i++) {
    crossing x = {.delay = i % 50 * 100e-9, .finalize = i % 100 < 50};
    board_open();
    OK(ncclCommInitAll(x.comm, 2, NULL));
    run_threads(2, cross, &x);
    unsigned named = (unsigned)atomic_load(&the_board->word[TOKEN]);
    CHECK(named > 0, "round %d: the receiver left %g s later, and nobody names the message", i, x.delay);
    board_close();
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(between_processes), cmocka_unit_test(between_threads),
                                     cmocka_unit_test(crosses_with_leaving)};
  return RUN_TESTS("unread", tests, argc, argv);
}
