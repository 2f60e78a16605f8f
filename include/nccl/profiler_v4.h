// nccl/profiler_v4.h: version 4 of the profiler's interface, init says which communicator; time stamps of channels;
// states have arguments of their own. Life, threads and ownership: profiler_common.h.
#ifndef TUTTI_NCCL_PROFILER_V4_H
#define TUTTI_NCCL_PROFILER_V4_H

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
      uint64_t seqNumber; // calls of this function on the communicator so far
      const char *func;   // "AllReduce"
      void const *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      const char *datatype; // "ncclFloat32"
      uint8_t nChannels;    // KernelCh events that will come, where the version has them
      uint8_t nWarps;       // 1 on host memory
      const char *algo;     // "RING"
      const char *proto;    // "SIMPLE", "LL"
    } coll;

    struct { // P2p
      const char *func;
      void *buff;
      const char *datatype;
      size_t count;
      int peer;
      uint8_t nChannels;
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
      uint64_t pTimer; // when the channel began: nanoseconds of CLOCK_MONOTONIC; on a GPU, of the GPU's clock
    } kernelCh;

    struct {      // NetPlugin
      int64_t id; // plugin type and version of `data` (profiler_net.h)
      void *data; // what the network plugin says; good during the call
    } netPlugin;
  };
} ncclProfilerEventDescr_v4_t;

// What goes with a state.
typedef union {
  struct { // ProxyStep
    size_t transSize;
  } proxyStep;

  struct { // ProxyCtrl
    int appendedProxyOps;
  } proxyCtrl;

  struct { // NetPlugin
    void *data;
  } netPlugin;

  struct { // KernelCh
    uint64_t pTimer;
  } kernelCh;
} ncclProfilerEventStateArgs_v4_t;

// The table: `ncclProfiler_v4`. All members must be set.
typedef struct {
  const char *name;
  // commName: as the user has named it, or NULL; commHash: the same on all its ranks; logfn: writes into the library's
  // log.
  ncclResult_t (*init)(void **context, int *eActivationMask, const char *commName, uint64_t commHash, int nNodes,
                       int nranks, int rank, ncclDebugLogger_t logfn);
  ncclResult_t (*startEvent)(void *context, void **eHandle, ncclProfilerEventDescr_v4_t *eDescr);
  ncclResult_t (*stopEvent)(void *eHandle);
  ncclResult_t (*recordEventState)(void *eHandle, ncclProfilerEventState_v4_t eState,
                                   ncclProfilerEventStateArgs_v4_t *eStateArgs);
  ncclResult_t (*finalize)(void *context);
} ncclProfiler_v4_t;

#ifdef __cplusplus
}
#endif
#endif
