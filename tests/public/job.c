// job.c: job ALLREDUCES PAIRS: a job of two processes whose operations are known, to test what plugins tell of it. It
// runs so many all-reduces of 1 MiB, then so many groups of a send and a receive of 64 KiB with the other rank. Every
// value is checked. Exit status 0: all of it was right.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti.h>
#include <unistd.h>

enum { SUMMED = 1 << 18, SENT = 1 << 14 };

static int failed;

// Says what went wrong, and ends the process.
static void need(int good, const char *what)
{
  if (!good) {
    fprintf(stderr, "job: %s: %s\n", what, ncclGetLastError(NULL));
    exit(1);
  }
}

static void expect(const float *x, int n, float value, const char *what)
{
  for (int i = 0; i < n; i++) {
    if (x[i] != value) {
      fprintf(stderr, "job: %s: element %d is %g instead of %g\n", what, i, x[i], value);
      failed = 1;
      return;
    }
  }
}

static void fill(float *x, int n, float value)
{
  for (int i = 0; i < n; i++) {
    x[i] = value;
  }
}

static int run(int rank, ncclUniqueId id, int reduces, int pairs)
{
  ncclComm_t comm;
  cudaStream_t stream;
  float *in = malloc(SUMMED * sizeof *in), *out = malloc(SUMMED * sizeof *out);
  need(in != NULL && out != NULL, "memory");
  need(tuttiSetDevice(rank) == ncclSuccess && tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT) == ncclSuccess,
       "stream");
  need(ncclCommInitRank(&comm, 2, id, rank) == ncclSuccess, "ncclCommInitRank");
  for (int i = 0; i < reduces; i++) {
    fill(in, SUMMED, (float)(i + rank));
    need(ncclAllReduce(in, out, SUMMED, ncclFloat, ncclSum, comm, stream) == ncclSuccess, "ncclAllReduce");
    need(tuttiStreamSynchronize(stream) == ncclSuccess, "all-reduce");
    expect(out, SUMMED, (float)(2 * i + 1), "all-reduce");
  }
  for (int i = 0; i < pairs; i++) {
    fill(in, SENT, (float)(i + 10 * rank));
    need(ncclGroupStart() == ncclSuccess && ncclSend(in, SENT, ncclFloat, 1 - rank, comm, stream) == ncclSuccess &&
             ncclRecv(out, SENT, ncclFloat, 1 - rank, comm, stream) == ncclSuccess && ncclGroupEnd() == ncclSuccess,
         "send and receive");
    need(tuttiStreamSynchronize(stream) == ncclSuccess, "send and receive");
    expect(out, SENT, (float)(i + 10 * (1 - rank)), "send and receive");
  }
  // Some profilers' threads write what they know now and then.
  nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
  need(ncclCommDestroy(comm) == ncclSuccess, "ncclCommDestroy");
  tuttiStreamDestroy(stream);
  free(in);
  free(out);
  return failed;
}

int main(int argc, char **argv)
{
  ncclUniqueId id;
  int ends[2], status = 1;
  if (argc != 3 || pipe(ends) != 0) {
    fprintf(stderr, "usage: job ALLREDUCES PAIRS\n");
    return 2;
  }
  int reduces = atoi(argv[1]), pairs = atoi(argv[2]);
  pid_t child = fork(); // before NCCL is used
  if (child == 0) {
    need(read(ends[0], &id, sizeof id) == (ssize_t)sizeof id, "the id did not come");
    return run(1, id, reduces, pairs);
  }
  need(child > 0 && ncclGetUniqueId(&id) == ncclSuccess && write(ends[1], &id, sizeof id) == (ssize_t)sizeof id, "id");
  int mine = run(0, id, reduces, pairs);
  return waitpid(child, &status, 0) == child && status == 0 && mine == 0 ? 0 : 1;
}
