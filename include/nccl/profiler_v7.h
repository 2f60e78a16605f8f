// nccl/profiler_v7.h: version 7 of the profiler's interface, as version 6, with the caller's tag of a call, the
// kernel's variant, and phases of a channel. Life, threads and ownership: profiler_common.h.
#ifndef TUTTI_NCCL_PROFILER_V7_H
#define TUTTI_NCCL_PROFILER_V7_H

#include "profiler_common.h"
#include "profiler_v6.h"

#ifdef __cplusplus
extern "C" {
#endif

// A new event. Of the union, what belongs to `type`; Group and ProxyCtrl have nothing there.
typedef struct {
  uint64_t type;   // ncclProfile…
  void *parentObj; // handle of the parent, or NULL
  int rank;        // whose event it is
  TUTTI_NCCL_UNNAMED union {
    struct {              // GroupApi
      bool graphCaptured; // by a stream capture, or the launch of a graph
      int groupDepth;     // 1: a single call, which makes its own group; else 1 + how many groups are open
    } groupApi;

    struct {            // CollApi
      const char *func; // "AllReduce"
      size_t count;
      const char *datatype; // "ncclFloat32"
      int root;
      void *stream;
      bool graphCaptured; // by a stream capture, or the launch of a graph
      uint64_t userTag;   // ncclCollConfig_t.userProfilerTag; 0: none
    } collApi;

    struct {            // P2pApi
      const char *func; // "Send", "Recv"
      size_t count;
      const char *datatype;
      void *stream;
      bool graphCaptured; // by a stream capture, or the launch of a graph
      uint64_t userTag;   // ncclCollConfig_t.userProfilerTag; 0: none
    } p2pApi;

    struct { // KernelLaunch
      void *stream;
    } kernelLaunch;

    struct {              // Coll
      uint64_t seqNumber; // calls of this function on the communicator so far
      const char *func;
      void const *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      const char *datatype;
      uint8_t nChannels;         // KernelCh events that will come
      uint8_t nWarps;            // 1 on host memory
      const char *algo;          // "RING"
      const char *proto;         // "SIMPLE", "LL"
      void *parentGroup;         // the Group event, which was parentObj up to version 4
      const char *kernelVariant; // "RING_SIMPLE": algorithm and protocol
      bool isSymColl;            // by a kernel for symmetric memory: false on host memory
      uint64_t userTag;          // ncclCollConfig_t.userProfilerTag; 0: none
    } coll;

    struct { // P2p
      const char *func;
      void *buff;
      const char *datatype;
      size_t count;
      int peer;
      uint8_t nChannels;
      void *parentGroup;
      uint64_t userTag; // ncclCollConfig_t.userProfilerTag; 0: none
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

    struct { // CeColl
      uint64_t seqNumber;
      const char *func;
      void const *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      const char *datatype;
      const char *syncStrategy;
      bool intraBatchSync;
      uint32_t batchSize;
      uint32_t numBatches;
      uint32_t ceSeqNum;
      void *stream;
      uint64_t userTag;
    } ceColl;

    struct { // CeSync
      bool isComplete;
      int nRanks;
    } ceCollSync;

    struct { // CeBatch
      int numOps;
      size_t totalBytes;
      bool useIntraSync;
    } ceCollBatch;

    struct { // KernelPhase: a part of a channel's time, below KernelCh
      uint8_t channelId;
      uint8_t phaseId;       // 0: initial_sync, 1: compute, 2: final_sync; host memory has 1 alone
      const char *phaseName; // "compute"
      uint64_t pTimer;       // when it began: as KernelCh
    } kernelPhase;
  };
} ncclProfilerEventDescr_v7_t;

// What goes with a state. NULL for those of GroupApi.
typedef ncclProfilerEventStateArgs_v6_t ncclProfilerEventStateArgs_v7_t;

// The table: `ncclProfiler_v7`. All members must be set.
typedef struct {
  const char *name;
  // commId: the same on all ranks; commName: as the user has named it, or NULL; both good until finalize. logfn: writes
  // into the library's log.
  ncclResult_t (*init)(void **context, uint64_t commId, int *eActivationMask, const char *commName, int nNodes,
                       int nranks, int rank, ncclDebugLogger_t logfn);
  ncclResult_t (*startEvent)(void *context, void **eHandle, ncclProfilerEventDescr_v7_t *eDescr);
  ncclResult_t (*stopEvent)(void *eHandle);
  ncclResult_t (*recordEventState)(void *eHandle, ncclProfilerEventState_v7_t eState,
                                   ncclProfilerEventStateArgs_v7_t *eStateArgs);
  ncclResult_t (*finalize)(void *context);
} ncclProfiler_v7_t;

#ifdef __cplusplus
}
#endif
#endif
