// nccl/profiler_common.h: what all versions of the profiler's interface share: kinds of events, their states, and the
// life of a profiler. Names and values are NCCL's (2.32.3). Included by the headers of the versions.
//
// Life. A profiler is a table `ncclProfiler_vN` in a library; where a library has several, the newest that is known is
// used. All communicators of a process share the library, and one mask of events. For each communicator of each rank
//
//   init -> (startEvent -> recordEventState* -> stopEvent)* -> finalize
//
// init, finalize  the thread that creates or frees the communicator, one at a time per library. They may block; the
//                 communicator's creation waits. Where something is told for longer than the communicator lives,
//                 finalize follows in a thread of its own.
// init            *context is the plugin's, one per communicator; NULL is allowed, and then there is no finalize.
//                 *eActivationMask: bits of what the plugin wants; it lives as long as the library is open, is shared
//                 by all of the plugin's contexts, and may be changed at any time. An error makes the library go on
//                 without this profiler for this communicator.
// startEvent      any thread: the one that calls the library, one that waits for a stream, the library's own. It must
//                 not call the library, and should not block: a thread that waits for the event's operation waits for
//                 it. The descriptor is the library's and good during the call; texts in it are constants. *eHandle
//                 (NULL before the call): the plugin's name for the event; NULL: not interested, and nothing more is
//                 heard of it, but its children come with parentObj NULL.
// recordEventState, stopEvent  as startEvent, often another thread. Each event that has a handle is stopped exactly
//                              once, before finalize, also when its
//                 operation fails or is aborted. The handle is not used afterwards, except as a child's parentObj.
// Return values   of all but init are ignored.
//
// A bit of the mask brings the event's ancestors with it, because they are where the children hang:
//
//   GroupApi - CollApi - Coll - ProxyOp - ProxyStep - NetPlugin          ProxyCtrl: no parent
//            |                \ KernelCh - KernelPhase
//            - P2pApi  - P2p  - as Coll
//            - KernelLaunch
//
// Group is the parent of Coll and P2p in versions 1 to 4. CeColl, with CeSync and CeBatch below it, is for copy
// engines, which host memory has not.
#ifndef TUTTI_NCCL_PROFILER_COMMON_H
#define TUTTI_NCCL_PROFILER_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common.h"

#ifndef __cplusplus
#include <stdbool.h>
#endif

// Members of the unions in descriptors are reached without a name in between, as everywhere in plugins; C99 has to be
// told that this is meant.
#ifdef __GNUC__
#define TUTTI_NCCL_UNNAMED __extension__
#else
#define TUTTI_NCCL_UNNAMED
#endif

// Kinds of events: `type` of a descriptor, bits of the mask.
enum {
  ncclProfileGroup = 1 << 0,         // operations that are launched together
  ncclProfileColl = 1 << 1,          // a collective is being queued; when it ends, its children tell
  ncclProfileP2p = 1 << 2,           // the same for a send or receive
  ncclProfileProxyOp = 1 << 3,       // messages to or from one peer over the network
  ncclProfileProxyStep = 1 << 4,     // one message
  ncclProfileProxyCtrl = 1 << 5,     // what a thread that moves messages does besides
  ncclProfileKernelCh = 1 << 6,      // one channel of an operation runs
  ncclProfileNetPlugin = 1 << 7,     // what a network plugin tells
  ncclProfileGroupApi = 1 << 8,      // from a group's first operation to the end of ncclGroupEnd (from version 5 on)
  ncclProfileCollApi = 1 << 9,       // a call of a collective (5)
  ncclProfileP2pApi = 1 << 10,       // a call of ncclSend or ncclRecv (5)
  ncclProfileKernelLaunch = 1 << 11, // operations are given to the stream (5)
  ncclProfileCeColl = 1 << 12,       // copy engine (6)
  ncclProfileCeSync = 1 << 13,
  ncclProfileCeBatch = 1 << 14,
  ncclProfileKernelPhase = 1 << 15 // a part of a channel's time (7)
};

// States of events. Those of ProxyOp up to 7 were given up with version 4; nobody is told of them.
typedef enum {
  ncclProfilerProxyOpSendPosted = 0,
  ncclProfilerProxyOpSendRemFifoWait = 1,
  ncclProfilerProxyOpSendTransmitted = 2,
  ncclProfilerProxyOpSendDone = 3,
  ncclProfilerProxyOpRecvPosted = 4,
  ncclProfilerProxyOpRecvReceived = 5,
  ncclProfilerProxyOpRecvTransmitted = 6,
  ncclProfilerProxyOpRecvDone = 7,
  ncclProfilerProxyOpInProgress_v4 = 19, // its connection stands, and it is its turn

  ncclProfilerProxyStepSendGPUWait = 8,      // the operation has not filled the slot yet
  ncclProfilerProxyStepSendPeerWait_v4 = 20, // it has; the network has not taken the message yet
  ncclProfilerProxyStepSendWait = 9,         // it has; the message is not sent yet. transSize: its bytes
  ncclProfilerProxyStepRecvWait = 10,        // a slot is posted, the message has not come yet
  ncclProfilerProxyStepRecvFlushWait = 11,   // it has, and is being flushed. transSize: its bytes
  ncclProfilerProxyStepRecvGPUWait = 12,     // the operation has been shown the message

  ncclProfilerProxyCtrlIdle = 13,
  ncclProfilerProxyCtrlActive = 14,
  ncclProfilerProxyCtrlSleep = 15,
  ncclProfilerProxyCtrlWakeup = 16,
  ncclProfilerProxyCtrlAppend = 17,
  ncclProfilerProxyCtrlAppendEnd = 18, // appendedProxyOps: how many were taken on

  ncclProfilerNetPluginUpdate = 21, // netPlugin.data: the network plugin's
  ncclProfilerKernelChStop = 22,    // kernelCh.pTimer: when the channel ended

  ncclProfilerGroupStartApiStop = 23, // the group has been opened
  ncclProfilerGroupEndApiStart = 24,  // ncclGroupEnd has been called

  ncclProfilerCeCollStart = 25,
  ncclProfilerCeCollComplete = 26,
  ncclProfilerCeSyncStart = 27,
  ncclProfilerCeSyncComplete = 28,
  ncclProfilerCeBatchStart = 29,
  ncclProfilerCeBatchComplete = 30,

  ncclProfilerKernelPhaseStop = 31 // kernelCh.pTimer: when the phase ended
} ncclProfilerEventState_t;

typedef ncclProfilerEventState_t ncclProfilerEventState_v1_t;
typedef ncclProfilerEventState_t ncclProfilerEventState_v2_t;
typedef ncclProfilerEventState_t ncclProfilerEventState_v3_t;
typedef ncclProfilerEventState_t ncclProfilerEventState_v4_t;
typedef ncclProfilerEventState_t ncclProfilerEventState_v5_t;
typedef ncclProfilerEventState_t ncclProfilerEventState_v6_t;
typedef ncclProfilerEventState_t ncclProfilerEventState_v7_t;

#endif
