// nccl/profiler_v1.h: version 1 of the profiler's interface, the first: functions, types, algorithms and protocols as
// numbers; no events of kernels or networks. Life, threads and ownership: profiler_common.h.
#ifndef TUTTI_NCCL_PROFILER_V1_H
#define TUTTI_NCCL_PROFILER_V1_H

#include "profiler_common.h"

#ifdef __cplusplus
extern "C" {
#endif

// A new event. Of the union, what belongs to `type`; Group and ProxyCtrl have nothing there.
typedef struct {
  uint8_t type;    // ncclProfile…
  void *parentObj; // handle of the parent, or NULL
  int rank;        // whose event it is
  TUTTI_NCCL_UNNAMED union {
    struct {              // Coll
      const char *name;   // NULL; the communicator's name came to init with version 4
      uint64_t commHash;  // 0; likewise
      uint64_t seqNumber; // calls of this function on the communicator so far
      uint8_t func;       // ncclFunc_t
      void const *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      uint8_t datatype;     // ncclDataType_t; types younger than this version are ncclFloat64
      uint32_t op;          // 0
      size_t trafficBytes;  // 0
      uint8_t nMaxChannels; // KernelCh events that will come, where the version has them
      uint8_t nWarps;       // 1 on host memory
      uint8_t algo;         // 0 tree, 1 ring, 2 CollNet direct, 3 CollNet chain, 4 NVLS, 5 NVLS tree, 6 any other
      uint8_t proto;        // 0 LL, 1 LL128, 2 simple
      int isCollnet;        // 0
      int isNvls;           // 0
    } coll;

    struct {             // P2p
      const char *name;  // NULL
      uint64_t commHash; // 0
      uint8_t func;
      void *buff;
      uint8_t datatype;
      size_t count;
      int peer;
    } p2p;

    struct {     // ProxyOp
      pid_t pid; // the process whose operation this is: parentObj is an address of that process, and nothing else in
                 // another one
      uint8_t channelId;
      int peer;      // rank
      int nSteps;    // messages
      int chunkSize; // bytes of a message, at most
      int isSend;    // 1: to the peer, 0: from it
    } proxyOp;

    struct {    // ProxyStep
      int step; // number of the message, from 0 on
    } proxyStep;
  };
} ncclProfilerEventDescr_v1_t;

// What goes with a state.
typedef union {
  struct { // not used any more
    size_t transSize;
    int steps;
  } proxyOp;

  struct { // ProxyCtrl
    int appendedProxyOps;
  } proxyCtrl;
} ncclProfilerEventStateArgs_v1_t;

// The table: `ncclProfiler_v1`. All members must be set.
typedef struct {
  const char *name;
  ncclResult_t (*init)(void **context, int *eActivationMask);
  ncclResult_t (*startEvent)(void *context, void **eHandle, ncclProfilerEventDescr_v1_t *eDescr);
  ncclResult_t (*stopEvent)(void *eHandle);
  ncclResult_t (*recordEventState)(void *eHandle, ncclProfilerEventState_v1_t eState,
                                   ncclProfilerEventStateArgs_v1_t *eStateArgs);
  ncclResult_t (*finalize)(void *context);
} ncclProfiler_v1_t;

#ifdef __cplusplus
}
#endif
#endif
