// mpi_module.h: MPI as the perf programs need it. The programs are not linked with any MPI: each MPI that the build
// found becomes a shared object (perf_mpi_openmpi.so, perf_mpi_mpich.so) with this table in it, opened when that MPI's
// launcher has started the program.
#pragma once
#include <stddef.h>

#define PERF_MPI_TABLE "perf_mpi_table"
enum { PERF_MPI_VERSION = 1 };

// Those that return int return 0, or an MPI error code for error_text. None spins: while a process waits its cores
// belong to the ranks.
typedef struct perf_mpi {
  int version; // PERF_MPI_VERSION, or the object belongs to other programs
  int (*init)(int *proc, int *procs);
  int (*barrier)(void);
  int (*allgather)(const void *mine, void *all, size_t size);
  int (*bcast)(void *data, size_t size, int root);
  int (*finalize)(void);
  // Ends all processes of the job with this status. Any thread.
  void (*abort)(int status);
  void (*error_text)(int code, char *buf, size_t size);
} perf_mpi;
