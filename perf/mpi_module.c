// A shared object of its own for every MPI: see mpi_module.h and cmake/tutti_perf.cmake.
#include "mpi_module.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PART = 1 << 30, LOOKS = 100, FIRST_NAP_US = 10, LONGEST_NAP_US = 500 };

static int init(int *proc, int *procs)
{
  int level;
  int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level); // MPI_Abort may come from any thread
  if (!error) {
    error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  if (!error) {
    error = MPI_Comm_rank(MPI_COMM_WORLD, proc);
  }
  return error ? error : MPI_Comm_size(MPI_COMM_WORLD, procs);
}

// MPI's own wait would spin. Here a waiting process gives its core away after each look, and later sleeps between them.
static int wait_for(MPI_Request *request)
{
  long nap = FIRST_NAP_US;
  for (int looks = 0;; looks++) {
    int done, error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (error || done) {
      return error;
    }
    if (looks < LOOKS) {
      sched_yield();
    } else {
      nanosleep(&(struct timespec){.tv_nsec = nap * 1000}, NULL);
      nap = nap * 2 < LONGEST_NAP_US ? nap * 2 : LONGEST_NAP_US;
    }
  }
}

static int barrier(void)
{
  MPI_Request request;
  int error = MPI_Ibarrier(MPI_COMM_WORLD, &request);
  return error ? error : wait_for(&request);
}

static int bcast(void *data, size_t size, int root)
{
  for (size_t at = 0; at < size; at += PART) {
    MPI_Request request;
    int part = (int)(size - at < PART ? size - at : PART);
    int error = MPI_Ibcast((char *)data + at, part, MPI_BYTE, root, MPI_COMM_WORLD, &request);
    error = error ? error : wait_for(&request);
    if (error) {
      return error;
    }
  }
  return 0;
}

// Counts are int: what is larger travels as one broadcast from each.
static int allgather(const void *mine, void *all, size_t size)
{
  MPI_Request request;
  int proc, procs, error;
  MPI_Comm_rank(MPI_COMM_WORLD, &proc);
  MPI_Comm_size(MPI_COMM_WORLD, &procs);
  if (size * (size_t)procs < PART) {
    error = MPI_Iallgather(mine, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, MPI_COMM_WORLD, &request);
    return error ? error : wait_for(&request);
  }
  memmove((char *)all + (size_t)proc * size, mine, size);
  error = 0;
  for (int p = 0; p < procs && !error; p++) {
    error = bcast((char *)all + (size_t)p * size, size, p);
  }
  return error;
}

static void abort_job(int status)
{
  MPI_Abort(MPI_COMM_WORLD, status);
}

static int finalize(void)
{
  return MPI_Finalize();
}

static void error_text(int code, char *buf, size_t size)
{
  char text[MPI_MAX_ERROR_STRING + 1] = "unknown error";
  int length;
  MPI_Error_string(code, text, &length);
  snprintf(buf, size, "%s", text);
}

extern const perf_mpi perf_mpi_table __attribute__((visibility("default")));
const perf_mpi perf_mpi_table = {
    .version = PERF_MPI_VERSION,
    .init = init,
    .barrier = barrier,
    .allgather = allgather,
    .bcast = bcast,
    .finalize = finalize,
    .abort = abort_job,
    .error_text = error_text,
};
