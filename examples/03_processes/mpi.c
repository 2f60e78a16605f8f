// mpi.c: one process per rank, started by mpirun. MPI carries the id; the data go by NCCL.
#include "../check.h"
#include <mpi.h>

enum { COUNT = 1 << 18 };

// Number of this process among those of its machine: the device it takes.
static int local_rank(void)
{
  MPI_Comm machine;
  int rank;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &rank);
  MPI_Comm_free(&machine);
  return rank;
}

int main(int argc, char **argv)
{
  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;
  double *data, *host;
  int rank, nranks, devices, wrong = 0, all_wrong;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  CUDA(cudaGetDeviceCount(&devices));
  CUDA(cudaSetDevice(local_rank() % devices));

  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
  }
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));

  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc((void **)&data, COUNT * sizeof *data));
  CUDA(cudaMallocHost((void **)&host, COUNT * sizeof *host));
  for (int k = 0; k < COUNT; k++) {
    host[k] = rank == nranks - 1 ? k : -1;
  }
  CUDA(cudaMemcpyAsync(data, host, COUNT * sizeof *host, cudaMemcpyHostToDevice, stream));
  NCCL(ncclBroadcast(data, data, COUNT, ncclDouble, nranks - 1, comm, stream));
  CUDA(cudaMemcpyAsync(host, data, COUNT * sizeof *host, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int k = 0; k < COUNT; k++) {
    wrong += host[k] != k;
  }

  MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%d processes: %s\n", nranks, all_wrong == 0 ? "all have the last one's data" : "wrong");
  }
  CUDA(cudaFree(data));
  CUDA(cudaFreeHost(host));
  CUDA(cudaStreamDestroy(stream));
  NCCL(ncclCommDestroy(comm));
  MPI_Finalize();
  return wrong != 0;
}
