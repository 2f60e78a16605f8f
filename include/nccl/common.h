// nccl/common.h: what plugins of every kind share with the library: log levels and subsystems, the logger, the
// profiler's callback for network plugins, the numbers of functions. Names and values are NCCL's (2.30.7), so that a
// plugin compiled with NCCL's headers runs here and one compiled with these runs there. The comment above each type
// says what holds here.
//
// Every header in this folder compiles alone, as C99 and as C++; `nccl.h` must be on the include path.
#ifndef TUTTI_NCCL_COMMON_H
#define TUTTI_NCCL_COMMON_H

#include <stdint.h>

#include "../nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

// How loud a line is; NCCL_DEBUG chooses up to which one lines are written.
typedef enum {
  NCCL_LOG_NONE = 0,
  NCCL_LOG_VERSION = 1,
  NCCL_LOG_WARN = 2,
  NCCL_LOG_INFO = 3,
  NCCL_LOG_ABORT = 4,
  NCCL_LOG_TRACE = 5,
  NCCL_LOG_ATTN = 6 // between WARN and INFO
} ncclDebugLogLevel;

// What a line is about; bits, NCCL_DEBUG_SUBSYS chooses.
typedef enum {
  NCCL_INIT = 0x1,
  NCCL_COLL = 0x2,
  NCCL_P2P = 0x4,
  NCCL_SHM = 0x8,
  NCCL_NET = 0x10,
  NCCL_GRAPH = 0x20,
  NCCL_TUNING = 0x40,
  NCCL_ENV = 0x80,
  NCCL_ALLOC = 0x100,
  NCCL_CALL = 0x200,
  NCCL_PROXY = 0x400,
  NCCL_NVLS = 0x800,
  NCCL_BOOTSTRAP = 0x1000,
  NCCL_REG = 0x2000,
  NCCL_PROFILE = 0x4000,
  NCCL_RAS = 0x8000,
  NCCL_DESTROY = 0x10000,
  NCCL_ALLOC_HOST = 0x20000,
  NCCL_ALL = ~0
} ncclDebugLogSubSys;

// Writes a line of the library's log for a plugin. `flags`: bits of ncclDebugLogSubSys; `file`, `line`: where the
// plugin says it (shown at WARN and TRACE); `fmt` as printf, without a newline at the end. Any thread; cut at 4096
// bytes.
typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                                  const char *fmt, ...);

// What a network plugin tells the profiler: `type` of ncclProfilerCallback_t.
enum {
  ncclProfilerNetEventStart = 0,
  ncclProfilerNetEventStop,
  ncclProfilerNetEventUpdate,
  ncclProfilerNetEventUpdateAndStop
};

// Given to network plugins (from version 10 on). Start: *eHandle becomes the new event (NULL: nobody wants it),
// `pHandle` is the one that isend or irecv was given, `pluginId` names the plugin's type and version of its data,
// `extData` is the event as both plugins understand it. Stop and update: *eHandle is what start gave; a stop makes it
// NULL. Any thread, the plugin's own too, from isend or irecv until closeSend or closeRecv of the connection returns;
// always ncclSuccess. Events that are not stopped are stopped then.
typedef ncclResult_t (*ncclProfilerCallback_t)(void **eHandle, int type, void *pHandle, int64_t pluginId,
                                               void *extData);

// Number of functions with a row in the tables of tuner plugins: those before ncclFuncSendRecv.
#define NCCL_NUM_FUNCTIONS 5

typedef enum {
  ncclFuncBroadcast = 0,
  ncclFuncReduce = 1,
  ncclFuncAllGather = 2,
  ncclFuncReduceScatter = 3,
  ncclFuncAllReduce = 4,
  ncclFuncSendRecv = 5,
  ncclFuncSend = 6,
  ncclFuncRecv = 7,
  ncclFuncAlltoAll = 8,
  ncclFuncScatter = 9,
  ncclFuncGather = 10,
  ncclFuncAllGatherV = 11,
  ncclFuncPutSignal = 12,
  ncclFuncSignal = 13,
  ncclFuncWaitSignal = 14,
  ncclNumFuncs = 15
} ncclFunc_t;

#ifdef __cplusplus
}
#endif
#endif
