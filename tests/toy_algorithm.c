// toy_algorithm.c: for toy_algorithm.sh, linked with a library that has the algorithm of docs/contributing.md. Proves
// its schedules, runs it, and looks whether it is chosen by its rule.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/tuning.h"
#include "tools/verify.h"
#include "tutti.h"

enum { RANKS = 3, PROVED = 9, FLOATS = 50000 };

#define NEED(cond)                                             \
  do {                                                         \
    if (!(cond)) {                                             \
      fprintf(stderr, "toy_algorithm: not true: %s\n", #cond); \
      exit(1);                                                 \
    }                                                          \
  } while (0)

static void prove(int row, int n)
{
  tt_schedule *all[PROVED];
  char why[256] = "";
  for (int r = 0; r < n; r++) {
    NEED(tt_algorithm_write(&tt_algorithms(NULL)[row], &(tt_shape){.func = TT_FUNC_ALLREDUCE, .rank = r, .nranks = n},
                            &all[r]) == ncclSuccess);
  }
  ncclResult_t res =
      tt_verify((const tt_schedule *const *)all,
                &(tt_verify_options){.func = TT_FUNC_ALLREDUCE, .slots = 1, .loops = 2}, why, sizeof why);
  for (int r = 0; r < n; r++) {
    tt_schedule_free(all[r]);
  }
  if (res != ncclSuccess) {
    fprintf(stderr, "toy_algorithm: %d ranks: %s\n", n, why);
    exit(1);
  }
}

static void sum(ncclComm_t *comms, size_t count)
{
  static float in[RANKS][FLOATS], out[RANKS][FLOATS];
  for (int r = 0; r < RANKS; r++) {
    for (size_t i = 0; i < count; i++) {
      in[r][i] = (float)(r + 1) * (float)(i % 100);
    }
  }
  NEED(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < RANKS; r++) {
    NEED(ncclAllReduce(in[r], out[r], count, ncclFloat, ncclSum, comms[r], NULL) == ncclSuccess);
  }
  NEED(ncclGroupEnd() == ncclSuccess);
  for (int r = 0; r < RANKS; r++) {
    NEED(tuttiSetDevice(r) == ncclSuccess && tuttiStreamSynchronize(NULL) == ncclSuccess);
    for (size_t i = 0; i < count; i++) {
      NEED(out[r][i] == 6.0F * (float)(i % 100));
    }
  }
}

static int chosen(const struct ncclComm *comm, size_t bytes)
{
  tt_choice c;
  NEED(tt_tuning_choose(comm, TT_FUNC_ALLREDUCE, bytes, 0, false, &c) == ncclSuccess);
  return c.algo;
}

int main(void)
{
  ncclComm_t comms[RANKS];
  const char *algo = getenv("NCCL_ALGO");
  int toy = tt_algorithm_find("Toy");
  NEED(toy >= 0);
  for (int n = 1; n <= PROVED; n++) {
    prove(toy, n);
  }
  NEED(ncclCommInitAll(comms, RANKS, NULL) == ncclSuccess);
  sum(comms, 2);
  sum(comms, FLOATS);
  NEED(chosen(comms[0], 8) == toy);
  NEED((chosen(comms[0], FLOATS * sizeof(float)) == toy) == (algo != NULL)); // the rule is for small ones alone
  for (int r = 0; r < RANKS; r++) {
    NEED(ncclCommDestroy(comms[r]) == ncclSuccess);
  }
  puts("toy algorithm: proved, chosen and run");
  return 0;
}
