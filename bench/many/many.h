// many.h: what the measurements of ranks without a core of their own share: the job of one measurement, its ranks, and
// their clocks.
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>

#include "nccl.h"
#include "tutti.h"

#define MANY_RANKS 64
#define MANY_BLOCKS 15

typedef enum { MANY_PROCESSES, MANY_THREADS, MANY_ONE_THREAD } many_mode;

// What is measured; sizes are those of the larger buffer.
typedef enum {
  MANY_ALL_REDUCE,
  MANY_REDUCE_SCATTER,
  MANY_ALL_GATHER,
  MANY_BROADCAST,
  MANY_REDUCE,
  MANY_ALL_TO_ALL,
  MANY_SEND_RECV, // to the next rank, from the one before
  MANY_KINDS
} many_kind;

// In memory that all processes of the job share.
typedef struct many_job {
  many_mode mode;
  many_kind kind;
  int nranks, calls, batch; // calls of a block, and those between two waits
  size_t bytes;
  ncclUniqueId id;
  _Atomic int arrived, round, failed;
  double seconds[MANY_BLOCKS][MANY_RANKS]; // what each rank took for a block, or for whatever is measured
  double before[MANY_RANKS], after[MANY_RANKS];
  struct rusage used[MANY_RANKS]; // by the rank's process or thread, in all blocks
} many_job;

// One rank of a job, or all of them where one thread has them (then the arrays have an element for each).
typedef struct many_rank {
  many_job *job;
  int rank, n; // the first rank of this thread, how many it has
  ncclComm_t comm[MANY_RANKS];
  cudaStream_t stream[MANY_RANKS];
  float *in[MANY_RANKS], *out[MANY_RANKS];
} many_rank;

typedef int (*many_body)(many_rank *r); // 0, or another value when it has failed

double many_now(void);
int many_failed(ncclResult_t res, const char *what, int rank);

// Until all threads or processes of the job are here.
void many_meet(many_job *job);

// Makes the communicators and streams of a rank's thread; one call of the job's kind on each of them; gives them back.
int many_open(many_rank *r);
int many_call(many_rank *r);
int many_settle(many_rank *r);
int many_close(many_rank *r);

// Runs `body` as the job's mode says. Returns how many ranks have failed.
int many_run(many_job *job, many_body body);

// Middle and least of n figures, which are sorted on the way.
double many_median(double *v, int n);
