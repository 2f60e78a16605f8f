// nccl/profiler_v3.h: version 3 of the profiler's interface, events of channels and of network plugins.
// Life, threads and ownership: profiler_common.h.
#ifndef TUTTI_NCCL_PROFILER_V3_H
#define TUTTI_NCCL_PROFILER_V3_H

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
      const char *func;   // "AllReduce"
      void const *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      const char *datatype; // "ncclFloat32"
      uint8_t nMaxChannels; // KernelCh events that will come, where the version has them
      uint8_t nWarps;       // 1 on host memory
      const char *algo;     // "RING"
      const char *proto;    // "SIMPLE", "LL"
    } coll;

    struct {             // P2p
      const char *name;  // NULL
      uint64_t commHash; // 0
      const char *func;
      void *buff;
      const char *datatype;
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

    struct { // KernelCh
      uint8_t channelId;
    } kernelCh;

    struct {      // NetPlugin
      int64_t id; // plugin type and version of `data` (profiler_net.h)
      void *data; // what the network plugin says; good during the call
    } netPlugin;
  };
} ncclProfilerEventDescr_v3_t;

// What goes with a state.
typedef union {
  struct { // not used any more
    size_t transSize;
    int steps;
  } proxyOp;

  struct { // ProxyCtrl
    int appendedProxyOps;
  } proxyCtrl;
} ncclProfilerEventStateArgs_v3_t;

// The table: `ncclProfiler_v3`. All members must be set.
typedef struct {
  const char *name;
  ncclResult_t (*init)(void **context, int *eActivationMask);
  ncclResult_t (*startEvent)(void *context, void **eHandle, ncclProfilerEventDescr_v3_t *eDescr);
  ncclResult_t (*stopEvent)(void *eHandle);
  ncclResult_t (*recordEventState)(void *eHandle, ncclProfilerEventState_v3_t eState,
                                   ncclProfilerEventStateArgs_v3_t *eStateArgs);
  ncclResult_t (*finalize)(void *context);
} ncclProfiler_v3_t;

#ifdef __cplusplus
}
#endif
#endif
