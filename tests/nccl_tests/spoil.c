// spoil.c: preloaded into a program, all-reduces leave the last element out. A program that checks results must notice.
#include <nccl.h>

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
  return pncclAllReduce(sendbuff, recvbuff, count > 0 ? count - 1 : 0, datatype, op, comm, stream);
}
