// types.h: the CUDA driver's types, constants and structures that the CUDA device uses.
//
// Most are those of the headers for host devices (include/hostcuda/), which have the driver's names, values and
// layouts. Here is what these lack: graphs of kernels and of operations on words, and objects that a graph keeps.
// Source: the public header cuda.h of CUDA 12 and 13.
#pragma once
#include "hostcuda/cuda.h"

typedef struct CUuserObject_st *CUuserObject;

enum {
  CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1, // of cuUserObjectCreate, which wants it
  CU_GRAPH_USER_OBJECT_MOVE = 1,         // of cuGraphRetainUserObject: the caller's references become the graph's
};

enum { CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 }; // of cuIpcOpenMemHandle, which wants it

// Of cuStreamUpdateCaptureDependencies.
enum {
  CU_STREAM_ADD_CAPTURE_DEPENDENCIES = 0,
  CU_STREAM_SET_CAPTURE_DEPENDENCIES = 1,
};

// How a node comes after another one; zeroed: when that is complete.
typedef struct CUgraphEdgeData_st {
  unsigned char from_port, to_port, type;
  unsigned char reserved[5];
} CUgraphEdgeData;

enum {
  CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1, // from_port: when its CTAs have said that the next kernel may begin
  CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1,
};

// The second version's: `kern` and `ctx` are NULL here.
typedef struct CUDA_KERNEL_NODE_PARAMS_v2_st {
  CUfunction func;
  unsigned int gridDimX, gridDimY, gridDimZ;
  unsigned int blockDimX, blockDimY, blockDimZ;
  unsigned int sharedMemBytes;
  void **kernelParams;
  void **extra;
  struct CUkern_st *kern;
  CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v1_st {
  CUcontext ctx;
  unsigned int count;
  CUstreamBatchMemOpParams *paramArray;
  unsigned int flags;
} CUDA_BATCH_MEM_OP_NODE_PARAMS;
