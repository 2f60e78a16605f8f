// nccl.h: the public interface of Tutti, a collective-communication library with NCCL's API and ABI (level 2.32.3).
//
// Names, values, struct layouts and prototypes are those of NCCL 2.32.3, so that a program compiled against either
// header runs with either library. What this header adds to NCCL's is marked "Tutti:"; functions of our own live in
// tutti.h.
//
// What holds for every function, unless its own comment says otherwise:
//   Result    ncclSuccess, or a code whose text ncclGetLastError() gives. On an error no output argument has been
//             written.
//   Threads   any thread may call any function. Calls that name one communicator come from one thread at a time.
//             ncclCommAbort, ncclCommRevoke and ncclCommGetAsyncError may come from any thread at any time.
//   Memory    pointers are read during the call only, except data buffers, which stay in use until the stream has
//             passed the operation.
//   Sizes     "count" is in elements of the data type, "size" and offsets are in bytes.
//   Streams   collective calls queue work on a stream and return. On the host device a cudaStream_t comes from
//             tuttiStreamCreate(), or is NULL, (cudaStream_t)1 or (cudaStream_t)2 with the meaning that CUDA gives
//             them.
//   Names     each ncclX has a twin pncclX with the same code: a tool may define its own ncclX and go on to pncclX.
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

// Tutti: CUDA's headers are used where they are found, and not needed. TUTTI_NO_CUDA_HEADERS keeps them out.
#if !defined(TUTTI_NO_CUDA_HEADERS) && defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#define TUTTI_HAVE_CUDA_RUNTIME_H 1
#include <cuda_runtime.h>
#if __has_include(<cuda_fp16.h>)
#include <cuda_fp16.h>
#endif
#if defined(CUDART_VERSION) && CUDART_VERSION >= 11000
#if __has_include(<cuda_bf16.h>)
#include <cuda_bf16.h>
#endif
#endif
#if defined(__cplusplus) && defined(CUDART_VERSION) && CUDART_VERSION >= 11080
#if __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#endif
#endif
#endif
#endif

// Tutti: without CUDA's headers, the same opaque types under the same names, so that both kinds of program link with
// each other.
#if !defined(TUTTI_HAVE_CUDA_RUNTIME_H) && !defined(TUTTI_CUDA_STREAM_DECLARED)
#define TUTTI_CUDA_STREAM_DECLARED 1
struct CUstream_st;
typedef struct CUstream_st *cudaStream_t;
struct CUevent_st;
typedef struct CUevent_st *cudaEvent_t;
#endif

// Scripts read these lines: one blank between name and value.
// clang-format off
#define NCCL_MAJOR 2
#define NCCL_MINOR 32
#define NCCL_PATCH 3
#define NCCL_SUFFIX ""

// The version as one comparable number. Up to 2.8 the minor number weighed 100 and the major 1000; since 2.9 the major
// weighs 10000.
#define NCCL_VERSION_CODE 23203
#define NCCL_VERSION(X, Y, Z) (((X) <= 2 && (Y) <= 8) ? (X) * 1000 + (Y) * 100 + (Z) : (X) * 10000 + (Y) * 100 + (Z))
// clang-format on

// Tutti: tells our header from NVIDIA's at compile time.
#define TUTTI_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------------------------------------------------------------
// Types
// ---------------------------------------------------------------------------------------------------------------------

// One rank's view of a group of ranks. Made by ncclCommInit…, ncclCommSplit, ncclCommShrink and ncclCommGrow; freed by
// ncclCommDestroy.
typedef struct ncclComm *ncclComm_t;
#define NCCL_COMM_NULL NULL

// A range of memory that all ranks of a communicator have registered together. See ncclCommWindowRegister.
typedef struct ncclWindow_vidmem *ncclWindow_t;

// Ticket for meeting: rank 0, or another process, makes it, and the program carries its bytes to all ranks. Plain data,
// freely copied.
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

// What functions return.
typedef enum {
  ncclSuccess = 0,            // done, or queued
  ncclUnhandledCudaError = 1, // a call to CUDA failed
  ncclSystemError = 2,        // a call to the operating system failed
  ncclInternalError = 3,      // a fault of the library, or memory that was overwritten
  ncclInvalidArgument = 4,    // one argument has a value that it cannot have
  ncclInvalidUsage = 5,       // the call does not fit what was called before, here or on another rank
  ncclRemoteError = 6,        // another rank, or the way to it, is gone
  ncclInProgress = 7,         // non-blocking communicator: ask ncclCommGetAsyncError again later
  ncclTimeout = 8,            // a time limit ran out
  ncclNumResults = 9          // number of codes
} ncclResult_t;

// "Not set" for members of ncclConfig_t, and for the result of a simulation.
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f

// Colour for ncclCommSplit: this rank joins no new communicator.
#define NCCL_SPLIT_NOCOLOR -1

// Mark at the head of an initialised ncclConfig_t. The initialiser sets it.
#define NCCL_API_MAGIC 0xcafebeef

// Flags of ncclCommWindowRegister.
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01  // every rank gives the same offset of a buffer of the same size
#define NCCL_WIN_STRICT_ORDERING 0x02 // writes of one rank to the window become visible in the order of the calls
#define NCCL_WIN_GIN_ONLY 0x04        // GPU only
#define NCCL_WIN_CFT_COUNTED 0x08     // GPU only

// Windows start at a multiple of this many bytes.
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

// Values of ncclConfig_t.CTAPolicy: speed first, few execution units, or none where the transport can do without.
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

// Values of ncclConfig_t.hostCftMode: GPU only.
typedef enum {
  ncclHostCftDefault = NCCL_CONFIG_UNDEF_INT,
  ncclHostCftEnable = 1,
  ncclHostCftDisable = 2,
  ncclHostCftFallback = 3
} ncclHostCftMode_t;

// Bits of ncclConfig_t.nvlsHostMode: GPU only.
typedef enum {
  ncclNvlsHostModeDefault = NCCL_CONFIG_UNDEF_INT,
  ncclNvlsHostModeEnable = 0,
  ncclNvlsHostModeDisableTransport = 1,
  ncclNvlsHostModeDisableSymmetricMultimem = 2,
  ncclNvlsHostModeDisable = INT_MAX
} ncclNvlsHostMode_t;

// Flags of ncclCommShrink: let work of the parent end by itself, or stop it first (the choice after a rank died).
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01

// Flags of ncclCommRevoke: none are defined.
#define NCCL_REVOKE_DEFAULT 0x00

// Flags of ncclCommSuspend: give memory back.
#define NCCL_SUSPEND_MEM 0x01

// Settings of one communicator. Always start from NCCL_CONFIG_INITIALIZER, then set what should differ from the
// default. A member that was not set follows the environment; where the environment names a value, the environment
// wins. Strings need to live during the call only. On the host device an execution unit ("CTA") is a channel.
typedef struct ncclConfig_v23100 {
  size_t size;             // sizeof(ncclConfig_t) in the program; set by the initialiser
  unsigned int magic;      // NCCL_API_MAGIC; set by the initialiser
  unsigned int version;    // NCCL_VERSION_CODE in the program; set by the initialiser
  int blocking;            // 1: calls return when they are done (default). 0: they may return ncclInProgress
  int cgaClusterSize;      // 0…8, GPU only: thread blocks per cluster
  int minCTAs;             // fewest channels, at least 1; above 64 counts as 64
  int maxCTAs;             // most channels, at least minCTAs where both are set; above 64 counts as 64
  const char *netName;     // network to use ("Socket", "IB", a plugin's name)
  int splitShare;          // 1: children of ncclCommSplit share the parent's resources
  int trafficClass;        // traffic class that the network gets told, 0 or more
  const char *commName;    // name for logs and profilers
  int collnetEnable;       // 1: let the network reduce, where it can
  int CTAPolicy;           // NCCL_CTA_POLICY_… bits
  int shrinkShare;         // 1: children of ncclCommShrink share the parent's resources
  int nvlsCTAs;            // GPU only: channels for NVLink SHARP
  int nChannelsPerNetPeer; // channels per network peer for send/recv, 1…64
  int nvlinkCentricSched;  // GPU only: 1 prefers NVLink when scheduling send/recv
  int graphUsageMode;      // 0: no CUDA graphs, 1: one graph, 2: graphs mixed with other launches
  int numRmaCtx;           // contexts for one-sided operations, at least 0
  int maxP2pPeers;         // most peers that this rank sends to or receives from
  int graphStreamOrdering; // 1: launches from graphs and streams keep the order of the calls
  int launchOrderImplicit; // 1: launches of several communicators on one device keep the order of the calls
  int numRmaSig;           // signals of each context for one-sided operations, at least 0
  int rmaEagerInit;        // 1: one-sided operations are set up with the communicator, 0: with the first window
  int hostCftMode;         // GPU only: an ncclHostCftMode_t
  int nvlsHostMode;        // GPU only: bits of ncclNvlsHostMode_t
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                          \
  {                                                      \
    sizeof(ncclConfig_t),      /* size */                \
        NCCL_API_MAGIC,        /* magic */               \
        NCCL_VERSION_CODE,     /* version */             \
        NCCL_CONFIG_UNDEF_INT, /* blocking */            \
        NCCL_CONFIG_UNDEF_INT, /* cgaClusterSize */      \
        NCCL_CONFIG_UNDEF_INT, /* minCTAs */             \
        NCCL_CONFIG_UNDEF_INT, /* maxCTAs */             \
        NCCL_CONFIG_UNDEF_PTR, /* netName */             \
        NCCL_CONFIG_UNDEF_INT, /* splitShare */          \
        NCCL_CONFIG_UNDEF_INT, /* trafficClass */        \
        NCCL_CONFIG_UNDEF_PTR, /* commName */            \
        NCCL_CONFIG_UNDEF_INT, /* collnetEnable */       \
        NCCL_CONFIG_UNDEF_INT, /* CTAPolicy */           \
        NCCL_CONFIG_UNDEF_INT, /* shrinkShare */         \
        NCCL_CONFIG_UNDEF_INT, /* nvlsCTAs */            \
        NCCL_CONFIG_UNDEF_INT, /* nChannelsPerNetPeer */ \
        NCCL_CONFIG_UNDEF_INT, /* nvlinkCentricSched */  \
        NCCL_CONFIG_UNDEF_INT, /* graphUsageMode */      \
        NCCL_CONFIG_UNDEF_INT, /* numRmaCtx */           \
        NCCL_CONFIG_UNDEF_INT, /* maxP2pPeers */         \
        NCCL_CONFIG_UNDEF_INT, /* graphStreamOrdering */ \
        NCCL_CONFIG_UNDEF_INT, /* launchOrderImplicit */ \
        NCCL_CONFIG_UNDEF_INT, /* numRmaSig */           \
        NCCL_CONFIG_UNDEF_INT, /* rmaEagerInit */        \
        NCCL_CONFIG_UNDEF_INT, /* hostCftMode */         \
        NCCL_CONFIG_UNDEF_INT, /* nvlsHostMode */        \
  }

// An option of one library for one call: a list, in any order, without two of the same key. A library passes over the
// options of other vendors. tutti.h has this one's.
typedef struct ncclConfigExt {
  struct ncclConfigExt *next; // NULL: the last
  struct {
    int vendorId; // 1 to 2^24 - 1: whose option it is
    int optionId; // which one of that vendor
  } key;
  union {
    int i;
    const char *s;
    void *raw;
  } val;
} ncclConfigExt_t;

// Settings of one call of a nccl…Config function: always start from NCCL_COLLCONFIG_INITIALIZER. Give the same on all
// ranks, but for the tag and the event. Read during the call only, the event excepted. The environment wins over a
// call's settings, a call's over the communicator's.
typedef struct ncclCollConfig_v23200 {
  size_t size;              // sizeof(ncclCollConfig_t) in the program; set by the initialiser
  unsigned int magic;       // NCCL_API_MAGIC; set by the initialiser
  unsigned int version;     // NCCL_VERSION_CODE in the program; set by the initialiser
  ncclConfigExt_t *ext;     // NULL: none
  int minCTAs;              // 1…64: accepted; other values are ignored
  int maxCTAs;              // 1…64: most channels, not more than the communicator's; other values are ignored
  int nvlsCTAs;             // GPU only
  int cgaClusterSize;       // GPU only
  const char *algSelection; // which algorithms may be used, as "RING_LL,TREE+^TREE_LL". NULL or "": all
  int forceAlgSelection;    // 1: a selection that cannot be used is an error (default). 0: it is ignored
  int CTAPolicy;            // NCCL_CTA_POLICY_… bits
  uint64_t userProfilerTag; // for profilers
  cudaEvent_t launchCompletionEvent; // recorded on the call's stream when the operation starts; NULL: none. At most one
                                     // per communicator in a group
} ncclCollConfig_t;

#define NCCL_COLLCONFIG_INITIALIZER                        \
  {                                                        \
    sizeof(ncclCollConfig_t),  /* size */                  \
        NCCL_API_MAGIC,        /* magic */                 \
        NCCL_VERSION_CODE,     /* version */               \
        NCCL_CONFIG_UNDEF_PTR, /* ext */                   \
        NCCL_CONFIG_UNDEF_INT, /* minCTAs */               \
        NCCL_CONFIG_UNDEF_INT, /* maxCTAs */               \
        NCCL_CONFIG_UNDEF_INT, /* nvlsCTAs */              \
        NCCL_CONFIG_UNDEF_INT, /* cgaClusterSize */        \
        NCCL_CONFIG_UNDEF_PTR, /* algSelection */          \
        1,                     /* forceAlgSelection */     \
        NCCL_CONFIG_UNDEF_INT, /* CTAPolicy */             \
        0,                     /* userProfilerTag */       \
        NCCL_CONFIG_UNDEF_PTR, /* launchCompletionEvent */ \
  }

// How ncclSetEncryption protects what the library sends over TCP: not, or by a key that all processes share.
#define NCCL_ENCRYPTION_MODE_NONE 0
#define NCCL_ENCRYPTION_MODE_PSK 1

// Start from NCCL_ENCRYPTION_CONFIG_INITIALIZER.
typedef struct ncclEncryptionConfig_v23200 {
  size_t size;          // set by the initialiser
  unsigned int magic;   // set by the initialiser
  unsigned int version; // set by the initialiser
  int mode;             // NCCL_ENCRYPTION_MODE_…
  const char *psk;      // the key, a text of at least 32 characters; read during the call only
} ncclEncryptionConfig_t;

#define NCCL_ENCRYPTION_CONFIG_INITIALIZER        \
  {                                               \
    sizeof(ncclEncryptionConfig_t), /* size */    \
        NCCL_API_MAGIC,             /* magic */   \
        NCCL_VERSION_CODE,          /* version */ \
        NCCL_ENCRYPTION_MODE_NONE,  /* mode */    \
        NCCL_CONFIG_UNDEF_PTR,      /* psk */     \
  }

// What ncclGroupSimulateEnd answers. Start from NCCL_SIM_INFO_INITIALIZER.
typedef struct ncclSimInfo_v22200 {
  size_t size;          // set by the initialiser
  unsigned int magic;   // set by the initialiser
  unsigned int version; // set by the initialiser
  float estimatedTime;  // microseconds; NCCL_UNDEF_FLOAT when there is no estimate
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER              \
  {                                            \
    sizeof(ncclSimInfo_t), /* size */          \
        0x74685283,        /* magic */         \
        NCCL_VERSION_CODE, /* version */       \
        NCCL_UNDEF_FLOAT   /* estimatedTime */ \
  }

// What ncclCommMemStats can be asked. Sizes in bytes of device memory that the communicator holds (on the host device:
// host memory).
typedef enum {
  ncclStatGpuMemSuspend = 0,   // could be given back by ncclCommSuspend
  ncclStatGpuMemSuspended = 1, // 1 when it has been given back, else 0
  ncclStatGpuMemPersist = 2,   // stays, suspended or not
  ncclStatGpuMemTotal = 3      // all of it
} ncclCommMemStat_t;

// Reductions. Values from ncclNumOps up to ncclMaxRedOp are handles made by ncclRedOpCreatePreMulSum.
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4, // sum over ranks, divided by their number; integers round towards zero
  ncclNumOps = 5,
  // The largest positive value that leaves the enum as wide as a small one: part of the ABI.
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

// Element types, their size in bytes beside them.
typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,  // 1
  ncclUint8 = 1, // 1
  ncclInt32 = 2,
  ncclInt = 2,    // 4
  ncclUint32 = 3, // 4
  ncclInt64 = 4,  // 8
  ncclUint64 = 5, // 8
  ncclFloat16 = 6,
  ncclHalf = 6, // 2, IEEE binary16
  ncclFloat32 = 7,
  ncclFloat = 7, // 4
  ncclFloat64 = 8,
  ncclDouble = 8,      // 8
  ncclBfloat16 = 9,    // 2
  ncclFloat8e4m3 = 10, // 1, no infinities
  ncclFloat8e5m2 = 11, // 1
  ncclNumTypes = 12
} ncclDataType_t;

// When the scalar of a reduction is read: while the operation runs, or before ncclRedOpCreatePreMulSum returns.
typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

// One line of what ncclWaitSignal waits for: opCnt signals from rank `peer`, with this signal index and this context.
typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;

// A parameter of the library, as the ncclParam… functions see it. Never freed.
typedef struct ncclParamHandle *ncclParamHandle_t;

// ---------------------------------------------------------------------------------------------------------------------
// Library and memory
// ---------------------------------------------------------------------------------------------------------------------

// NCCL_VERSION_CODE of the library that runs (not of the header that the program was compiled with).
ncclResult_t ncclGetVersion(int *version);
ncclResult_t pncclGetVersion(int *version);

// At least `size` bytes of memory that peers can reach without a copy, starting on a page. The caller frees it with
// ncclMemFree.
ncclResult_t ncclMemAlloc(void **ptr, size_t size);
ncclResult_t pncclMemAlloc(void **ptr, size_t size);

// Frees memory of ncclMemAlloc; NULL does nothing. Any other pointer gives ncclInvalidArgument.
ncclResult_t ncclMemFree(void *ptr);
ncclResult_t pncclMemFree(void *ptr);

// A constant text for a code; for a value that is not a code too. Never NULL, never freed.
const char *ncclGetErrorString(ncclResult_t result);
const char *pncclGetErrorString(ncclResult_t result);

// The text of the last error, in a sentence: the calling thread's own, or else the process's. An error that a thread is
// told of (ncclCommGetAsyncError, tuttiStreamSynchronize, tuttiStreamQuery) is its own from then on. With a
// communicator that has failed: why it did. `comm` may be NULL. Valid until the calling thread's next error. Never
// freed.
const char *ncclGetLastError(ncclComm_t comm);
const char *pncclGetLastError(ncclComm_t comm);

// Reads NCCL_DEBUG and its relatives again. Kept for old programs.
#if defined(__GNUC__)
__attribute__((deprecated("ncclResetDebugInit will go away; set NCCL_DEBUG before the first call")))
#endif
void ncclResetDebugInit(void);
#if defined(__GNUC__)
__attribute__((deprecated("pncclResetDebugInit will go away; set NCCL_DEBUG before the first call")))
#endif
void pncclResetDebugInit(void);

// ---------------------------------------------------------------------------------------------------------------------
// Communicators: creation. All ranks call; each call waits for the others, so one thread that creates several ranks
// puts the calls between ncclGroupStart and ncclGroupEnd. With config->blocking = 0 the call may return ncclInProgress;
// *comm is then valid for ncclCommGetAsyncError, ncclCommAbort and nothing else until the state is ncclSuccess.
// `config` may be NULL.
// ---------------------------------------------------------------------------------------------------------------------

// A new ticket, usable for one communicator. The calling process must stay alive until that communicator exists.
// With NCCL_COMM_ID=host:port set, the ticket names that address.
ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId);
ncclResult_t pncclGetUniqueId(ncclUniqueId *uniqueId);

// Encrypts the connections that the library makes from now on. Call it before ncclGetUniqueId, with the same key
// everywhere. NULL, or NCCL_ENCRYPTION_MODE_NONE: no encryption. Errors: ncclInvalidArgument (a config without its
// initialiser, another mode, a key that is NULL or shorter than 32 characters), ncclSystemError (no OpenSSL 3).
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t *config);
ncclResult_t pncclSetEncryption(const ncclEncryptionConfig_t *config);

// Makes rank `rank` (0…nranks-1, each once) of a communicator of `nranks`, on the calling thread's device. Another
// number gives ncclInvalidArgument at once, no other rank learns of it, and the ticket stays usable.
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank);

// ncclCommInitRank with settings. A config that did not come from the initialiser gives ncclInvalidArgument.
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config);
ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config);

// ncclCommInitRankConfig with `nId` tickets (1…nranks, the same ones in the same order on all ranks), which share the
// work of meeting.
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
                                      ncclConfig_t *config);
ncclResult_t pncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
                                       ncclConfig_t *config);

// All `ndev` ranks of a communicator inside this process: rank i on device devlist[i], or on device i when devlist is
// NULL. `comm` has room for ndev handles.
ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist);
ncclResult_t pncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist);

// Splits `comm`: ranks with the same colour (0 or more) form a new communicator, ordered by key and then by old rank.
// Colour NCCL_SPLIT_NOCOLOR takes part in the call and gets *newcomm = NULL. Without config the parent's settings are
// inherited.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config);
ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config);

// A communicator of the ranks of `comm` that are not in the list, in their old order. Only those ranks call.
// `shrinkFlags`: NCCL_SHRINK_DEFAULT (nothing is in flight) or NCCL_SHRINK_ABORT (stop what is in flight; for use after
// a failure).
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags);
ncclResult_t pncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                             ncclConfig_t *config, int shrinkFlags);

// A ticket for one ncclCommGrow of `comm`; a second one is refused (ncclInvalidUsage) until the first has been used.
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId);
ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId);

// A communicator of `nRanks`: the old ranks keep their numbers and new ones follow. Arguments:
//   an old rank that made the ticket   comm, uniqueId, rank -1
//   any other old rank                 comm, NULL, rank -1
//   a new rank                         NULL, uniqueId, its number (old size … nRanks-1)
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config);
ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
                           ncclConfig_t *config);

// ---------------------------------------------------------------------------------------------------------------------
// Communicators: end, state, questions
// ---------------------------------------------------------------------------------------------------------------------

// Lets queued operations complete and takes leave of the peers. All ranks call. No operation may follow.
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t pncclCommFinalize(ncclComm_t comm);

// Frees the communicator; finalises it first when that has not been done. NULL does nothing. While the communicator is
// healthy its queued operations complete first, so this waits for peers that have not called them yet. It does not wait
// for a peer that has died, left or aborted, and not at all for peers after a failure or a revocation. Another thread's
// ncclCommAbort ends the wait.
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t pncclCommDestroy(ncclComm_t comm);

// Stops what runs, waits for no peer, frees the communicator. For use after an error; any thread, but not from inside
// another call of that thread on the communicator (a plugin's function, a host function that a launch runs at once):
// ncclInvalidUsage.
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t pncclCommAbort(ncclComm_t comm);

// Stops what runs and keeps the communicator for split, shrink and destroy; ncclCommFinalize is no longer allowed.
// `revokeFlags` must be NCCL_REVOKE_DEFAULT.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);
ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags);

// The communicator's state: ncclSuccess, ncclInProgress, or the first error that its work met. Never waits.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError);
ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError);

// Number of ranks.
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t pncclCommCount(const ncclComm_t comm, int *count);

// Number of the device that the rank was created on.
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device);

// This rank's number.
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);
ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank);

// Gives resources back until ncclCommResume; nothing may be queued in between. `flags`: NCCL_SUSPEND_MEM.
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags);

// Makes a suspended communicator usable again.
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t pncclCommResume(ncclComm_t comm);

// One number about the communicator's memory.
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value);
ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value);

// ---------------------------------------------------------------------------------------------------------------------
// Registered memory
// ---------------------------------------------------------------------------------------------------------------------

// Announces that buff…buff+size will be used in operations, so that peers may reach it directly. Local: other ranks
// need not call. The buffer stays the caller's and must not be freed before ncclCommDeregister.
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle);
ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle);

// Ends a registration of ncclCommRegister. ncclInvalidArgument: the handle is none, or is a window.
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);
ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle);

// Registers a buffer on all ranks together; all ranks call, in the same order. `winFlags`: NCCL_WIN_… bits.
// The window is freed by ncclCommWindowDeregister; the buffer stays the caller's. *win may become NULL where windows
// are not supported.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags);
ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags);

// Frees a window; NULL does nothing. ncclInvalidArgument: it is none, or is a handle of ncclCommRegister. Local, after
// all operations on the window are complete on all ranks.
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);

// The address that this rank registered the window with.
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr);
ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr);

// ---------------------------------------------------------------------------------------------------------------------
// Reductions of one's own
// ---------------------------------------------------------------------------------------------------------------------

// A reduction that multiplies this rank's input by *scalar (one element of `datatype`) and sums the products over the
// ranks. Valid for this communicator and type. With ncclScalarDevice the scalar must live until the operations that use
// it are complete.
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm);

// Frees such a reduction; allowed as soon as the last call that names it has returned.
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

// ---------------------------------------------------------------------------------------------------------------------
// Collectives. Every rank calls the same functions in the same order with the same count, type, operation and root.
// They return when the work is queued; results are in place when the stream has passed it. A count of 0 is allowed and
// moves nothing. Buffers of one call may not overlap, except in place, as told at each function.
// ---------------------------------------------------------------------------------------------------------------------

// recvbuff of `root` = reduction of all ranks' sendbuff. Elsewhere recvbuff is not used and may be NULL. In place: same
// address.
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                         int root, ncclComm_t comm, cudaStream_t stream);

// Old form of ncclBroadcast: always in place.
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t pncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                        cudaStream_t stream);

// recvbuff of every rank = sendbuff of `root`. Elsewhere sendbuff is not used and may be NULL. In place: same address.
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                            ncclComm_t comm, cudaStream_t stream);

// recvbuff of every rank = reduction of all ranks' sendbuff, the same bits everywhere. In place: same address.
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream);

// recvbuff of rank r (recvcount elements) = block r of the reduction of all sendbuffs (nranks * recvcount elements).
// In place: recvbuff is block r of sendbuff.
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

// recvbuff (nranks * sendcount elements) of every rank = the sendbuffs of all ranks, in rank order.
// In place: sendbuff is block r of recvbuff.
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                            ncclComm_t comm, cudaStream_t stream);

// Block r of rank s's recvbuff = block s of rank r's sendbuff; blocks have `count` elements. Not in place.
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream);
ncclResult_t pncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream);

// recvbuff (nranks * count elements) of `root` = the sendbuffs of all ranks, in rank order; elsewhere recvbuff is not
// used. In place: the root's sendbuff is its block of recvbuff.
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream);

// recvbuff of rank r = block r of the root's sendbuff (nranks * count elements); elsewhere sendbuff is not used.
// In place: the root's recvbuff is its block of sendbuff.
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                          ncclComm_t comm, cudaStream_t stream);

// ---------------------------------------------------------------------------------------------------------------------
// Collectives with settings of one call. `config` NULL: as the function without Config. Errors besides that function's:
// ncclInvalidArgument for a config without its initialiser or with a value that it cannot have, and for an
// algSelection that is wrong or cannot be used while forceAlgSelection is 1.
// ---------------------------------------------------------------------------------------------------------------------

ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);

ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);

ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t *config);
ncclResult_t pncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t *config);

ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);

ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t *config);
ncclResult_t pncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                      const ncclCollConfig_t *config);

ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);

ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);

ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);

// ---------------------------------------------------------------------------------------------------------------------
// Between two ranks. Sends and receives of one pair of ranks match in the order of the calls. Those that need each
// other to complete go between ncclGroupStart and ncclGroupEnd.
// ---------------------------------------------------------------------------------------------------------------------

// Sends `count` elements to rank `peer`, which calls ncclRecv with the same count and type.
ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t pncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream);

// Receives `count` elements from rank `peer`, which calls ncclSend with the same count and type.
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t pncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream);

// Writes `count` elements into rank peer's part of a window, `peerWinOffset` bytes from its start, and then counts up
// the peer's signal (sigIdx, ctx). The peer does not take part. `flags` must be 0.
ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                           size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t pncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
                            ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
                            ncclComm_t comm, cudaStream_t stream);

// Counts up rank peer's signal (sigIdx, ctx) after earlier puts to that peer have arrived. `flags` must be 0.
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);

// Work queued after this call waits until all `nDesc` descriptions are met. The array is read during the call only.
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream);

// ---------------------------------------------------------------------------------------------------------------------
// Groups: the calls between start and end become one operation. Needed where one thread drives several ranks, and where
// sends and receives depend on each other. Creating communicators and collectives do not mix in one group. Groups nest;
// the outermost end acts. A group belongs to the calling thread. What the end will do with a communicator (create,
// finalise, suspend it, make children of it) keeps that thread from destroying, aborting or revoking it before
// (ncclInvalidUsage).
// ---------------------------------------------------------------------------------------------------------------------

// Opens a group.
ncclResult_t ncclGroupStart(void);
ncclResult_t pncclGroupStart(void);

// Closes a group; the outermost one queues its operations. Returns the first error of the calls in it.
ncclResult_t ncclGroupEnd(void);
ncclResult_t pncclGroupEnd(void);

// Closes a group without running it, and tells how long it would take. `simInfo` comes from NCCL_SIM_INFO_INITIALIZER.
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo);
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *simInfo);

// ---------------------------------------------------------------------------------------------------------------------
// Parameters of the library: what the environment, a file or the default made of each NCCL_… variable. Keys are the
// variables' names ("NCCL_DEBUG"). Texts and tables belong to the library. An unknown key gives ncclInvalidArgument.
// ---------------------------------------------------------------------------------------------------------------------

// Looks a key up.
ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key);
ncclResult_t pncclParamBind(ncclParamHandle_t *out, const char *key);

// The value as an integer. A value that does not fit, and a text, give ncclInvalidArgument.
ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t *out);
ncclResult_t pncclParamGetI8(ncclParamHandle_t h, int8_t *out);
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t *out);
ncclResult_t pncclParamGetI16(ncclParamHandle_t h, int16_t *out);
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t *out);
ncclResult_t pncclParamGetI32(ncclParamHandle_t h, int32_t *out);
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t *out);
ncclResult_t pncclParamGetI64(ncclParamHandle_t h, int64_t *out);
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t *out);
ncclResult_t pncclParamGetU8(ncclParamHandle_t h, uint8_t *out);
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t *out);
ncclResult_t pncclParamGetU16(ncclParamHandle_t h, uint16_t *out);
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t *out);
ncclResult_t pncclParamGetU32(ncclParamHandle_t h, uint32_t *out);
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t *out);
ncclResult_t pncclParamGetU64(ncclParamHandle_t h, uint64_t *out);

// The value as text ("" for a text that is not set). Valid until the calling thread's next ncclParamGetStr.
ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out);
ncclResult_t pncclParamGetStr(ncclParamHandle_t h, const char **out);

// Copies the value's bytes: an int64_t, or a text with its final 0. *len gets the size; more than maxLen bytes:
// ncclInvalidArgument.
ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len);
ncclResult_t pncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len);

// The value as text by key, its length without the final 0. `valueLen` may be NULL.
// Valid until the calling thread's next ncclParamGetParameter.
ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *valueLen);
ncclResult_t pncclParamGetParameter(const char *key, const char **value, int *valueLen);

// The keys of the documented parameters; with NCCL_PARAM_DUMP_ALL=1 all of them.
// The table is valid until the calling thread's next ncclParamGetAllParameterKeys.
ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *tableLen);
ncclResult_t pncclParamGetAllParameterKeys(const char ***table, int *tableLen);

// Writes the parameters (as chosen above) to the log, whatever NCCL_DEBUG says.
void ncclParamDumpAll(void);
void pncclParamDumpAll(void);

#ifdef __cplusplus
}
#endif

#endif
