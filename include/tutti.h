// tutti.h: the host device's public face. Plain host memory as a real device: streams, events, memory, host functions.
// The same under the CUDA runtime's names: hostcuda/cuda_runtime.h.
//
// Tutti's nccl.h takes a cudaStream_t. Where there is no GPU, a cudaStream_t is one of the streams created here, or one
// of the special values NULL, (cudaStream_t)1 (legacy default stream) and (cudaStream_t)2 (per-thread default stream),
// which mean what CUDA says they mean.
//
// Threads: every function may be called from any thread. Errors: an ncclResult_t; ncclGetLastError(NULL) has the text.
// Usable from C99 and C++.
#ifndef TUTTI_H_
#define TUTTI_H_

#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tuttiEvent *tuttiEvent_t;

// Options of one call for ncclCollConfig_t.ext (key.vendorId TUTTI_VENDOR_ID; the value is val.i). The same on all
// ranks. STALL_ERROR_MS: milliseconds without progress after which this call fails with ncclTimeout, in place of
//   NCCL_STALL_ERROR_MS. 0: never.
// RANK_ORDER: 1: every element is summed in the order of the ranks, 0 to n-1, with one rounding. So its bits do not
//   depend on the message's size, on the machine or on the transport. It uses the algorithms Oneshot, Ordered, Direct
//   and DirectWrite. 0: as the library chooses, which is the same in every run of the same call on the same machine
//   anyway. Functions that reduce nothing are not affected. TUTTI_REPRODUCIBLE=1 means 1 for all calls.
#define TUTTI_VENDOR_ID 0x747474
#define TUTTI_OPTION_STALL_ERROR_MS 1
#define TUTTI_OPTION_RANK_ORDER 2

// More operations of the reducing functions, beside nccl.h's. The bitwise ones are for integer types; another type is
// ncclInvalidArgument. The logical ones are for every type: an element is true unless it is zero (-0 is zero, a NaN is
// not), and the result is 1 or 0 of the type. A network that reduces is not asked for them.
#define tuttiBitAnd ((ncclRedOp_t)0x74747400)
#define tuttiBitOr ((ncclRedOp_t)0x74747401)
#define tuttiBitXor ((ncclRedOp_t)0x74747402)
#define tuttiLogicalAnd ((ncclRedOp_t)0x74747403)
#define tuttiLogicalOr ((ncclRedOp_t)0x74747404)
#define tuttiLogicalXor ((ncclRedOp_t)0x74747405) // true where an odd number of ranks is

// A program's own operation: inout[i] = in[i] op inout[i] for i < count, of elements of `type`; op is associative. The
// blocks are cut anywhere, so elements stand for themselves. inout begins at a multiple of 64 bytes, and `in` is
// aligned as the ranks' buffers are. Called from any thread of the process, of one communicator by one thread at a
// time. It returns soon, waits for nothing, calls no function of the library, and throws nothing.
typedef void (*tuttiRedOpFn_t)(const void *in, void *inout, size_t count, ncclDataType_t type, void *arg);

// Makes an operation of this function, for all types and all reducing functions of `comm`. `commutes`: 1, or 0: in[i]
// is what lower ranks have, and the ranks are combined in their order, by the algorithms of TUTTI_OPTION_RANK_ORDER.
// Such a call is ncclInvalidUsage where NCCL_ALGO or NCCL_PROTO forbid them all. All ranks name functions that give the
// same, with the same `commutes`. `fn` and `arg` stay until all calls are complete and all graphs with them are gone.
// Free the handle with ncclRedOpDestroy, at any time after the last call. Errors: ncclInvalidArgument (op or fn NULL,
// commutes neither 0 nor 1), ncclSystemError (no memory; over 4,194,304 at a time). A call with a freed handle is
// ncclInvalidArgument, until the communicator has made so many more operations (900 million at least) that its number
// comes again; so is one with another communicator's, unless a living operation of this one has that number.
ncclResult_t tuttiRedOpCreateUser(ncclRedOp_t *op, tuttiRedOpFn_t fn, int commutes, void *arg, ncclComm_t comm);

// Kinds of memory, for what a program was written to tell apart: on the host device every pointer is good for
// everything.
typedef enum {
  tuttiMemoryUnknown = 0, // not allocated or registered here: an ordinary pointer of the program
  tuttiMemoryHost = 1,
  tuttiMemoryDevice = 2,
  tuttiMemoryManaged = 3
} tuttiMemory_t;

// What is known of a pointer.
typedef struct {
  tuttiMemory_t kind;
  int device;     // the calling thread's when it was allocated; -1 when unknown
  void *base;     // of the allocation; NULL when unknown
  size_t size;    // of the allocation, as asked for
  unsigned flags; // of tuttiMallocKind or tuttiHostRegister
} tuttiPointerAttributes_t;

// An operation with a rank on another machine: `steps` messages to send or to receive, of one collective or
// send/receive. The other counters are numbers of messages too. Each is at most `steps`, and at most the one before:
//   send:    posted (the network's sender waits for them) >= transmitted (passed to the network) = received >= flushed
//            >= done (the network has sent them)
//   receive: posted (passed to the network) >= transmitted = received (they have arrived) >= flushed (they can be read)
//            >= done (they have been used)
typedef struct {
  int peer;      // rank it sends to or receives from
  int send;      // 1: sends, 0: receives
  int protocol;  // 0: Simple, 1: LL
  int channel;   // of the plan
  int connected; // 1: there is a connection
  int behalf;    // the rank whose messages these are: this rank's own, or a neighbour's that sends through this rank's
                 // proxy
  unsigned steps, posted, transmitted, received, flushed, done;
  unsigned long long bytes;     // all messages together, about
  unsigned long long operation; // number of the launch on this communicator
  unsigned long long startedNs; // CLOCK_MONOTONIC
} tuttiProxyState_t;

// `height` rows of `width` bytes; each begins `pitch` bytes (at least `width`) behind the one before.
typedef struct {
  void *dst;
  const void *src; // not used where rows are set
  size_t dstPitch, srcPitch;
  size_t width, height;
} tuttiRows_t;

// Names of memory and of events for other processes of the same machine and user: plain bytes, to be carried there by
// the program.
typedef struct {
  char reserved[64];
} tuttiIpcMemHandle_t;
typedef struct {
  char reserved[64];
} tuttiIpcEventHandle_t;

// Flags of tuttiStreamCreate: a blocking stream orders itself with the legacy default stream, a non-blocking one does
// not.
#define TUTTI_STREAM_DEFAULT 0
#define TUTTI_STREAM_NON_BLOCKING 1

// A process whose driver has GPUs gets communicators on them, unless it has called one of these before the first
// communicator, ncclMemAlloc or tuttiGetDeviceKind, or NCCL_HOST_DEVICES is set: those for devices, the ones that
// create streams or events, allocate or register memory, or ask about a pointer (docs/gpu.md).

// Kinds of device that ranks are on.
typedef enum { tuttiDeviceHost = 0, tuttiDeviceCuda = 1 } tuttiDeviceKind_t;

// The kind that this process's communicators get. Asked before the first of them, it decides. It opens the driver, so a
// process that forks leaves it to its children.
ncclResult_t tuttiGetDeviceKind(tuttiDeviceKind_t *kind);

// Number of host devices: NCCL_HOST_DEVICES when set, else 1024 (host devices cost nothing until used).
ncclResult_t tuttiGetDeviceCount(int *count);
// How many of them a program should use that uses all there are: NCCL_HOST_DEVICES when set, else 8.
ncclResult_t tuttiGetUsualDeviceCount(int *count);

// Device of the calling thread (0 at first): ncclCommInitRank binds the communicator to it. Several ranks may share
// one.
ncclResult_t tuttiSetDevice(int device);
ncclResult_t tuttiGetDevice(int *device);

// Creates a stream on the calling thread's device. `flags`: TUTTI_STREAM_…. Free it with tuttiStreamDestroy, which
// waits for nothing: queued work still runs.
ncclResult_t tuttiStreamCreate(cudaStream_t *stream, unsigned flags);
ncclResult_t tuttiStreamDestroy(cudaStream_t stream);

// What a stream is: its device, its TUTTI_STREAM_… flags, and a number that no other living stream has. Output pointers
// may be NULL.
ncclResult_t tuttiStreamGetInfo(cudaStream_t stream, int *device, unsigned *flags, unsigned long long *id);

// Waits until all work queued so far is complete, and helps to run it. Returns the first error of that work since the
// last synchronise (ncclSuccess otherwise); a communicator's own error stays readable with ncclCommGetAsyncError.
ncclResult_t tuttiStreamSynchronize(cudaStream_t stream);
// The same for about `ms` milliseconds at most. ncclInProgress: the work is not complete then, and goes on. For callers
// that look after other things while they wait, as signals.
ncclResult_t tuttiStreamSynchronizeFor(cudaStream_t stream, unsigned ms);

// ncclInProgress while the stream has work; then ncclSuccess, or the first error of that work, which stays for
// tuttiStreamSynchronize to take. Never waits; runs a bounded amount of queued work.
ncclResult_t tuttiStreamQuery(cudaStream_t stream);

// Work queued on `stream` after this call starts when `event` is complete (at once when it was never recorded).
ncclResult_t tuttiStreamWaitEvent(cudaStream_t stream, tuttiEvent_t event);

// Queues fn(arg). It runs on a thread of its own kind, never on one that queues or waits; what follows in the stream
// waits until it has returned, other streams go on. It may queue work and wait for other streams, but not for its own.
// More than 64 at a time take turns.
ncclResult_t tuttiLaunchHostFunc(cudaStream_t stream, void (*fn)(void *arg), void *arg);

// Conditions for a word in memory and a value of the same width. AtLeast: the difference, as a signed number, is not
// negative. And: some bit is set in both. Nor: some bit is set in neither.
typedef enum { tuttiValueAtLeast = 0, tuttiValueEqual = 1, tuttiValueAnd = 2, tuttiValueNor = 3 } tuttiValueCondition_t;

// In stream order: stores a value in a word, and holds up the stream, and nothing else, until a word meets the
// condition. Anybody may store what is waited for: the program, another process, another stream. `at` is aligned to the
// width; its memory stays until the entry is complete. While a wait does not end, synchronising with its stream does
// not return either.
ncclResult_t tuttiStreamWriteValue32(cudaStream_t stream, uint32_t *at, uint32_t value);
ncclResult_t tuttiStreamWriteValue64(cudaStream_t stream, uint64_t *at, uint64_t value);
ncclResult_t tuttiStreamWaitValue32(cudaStream_t stream, const uint32_t *at, uint32_t value,
                                    tuttiValueCondition_t condition);
ncclResult_t tuttiStreamWaitValue64(cudaStream_t stream, const uint64_t *at, uint64_t value,
                                    tuttiValueCondition_t condition);
// Ends all waits for values that are queued to the streams of `device` now. Each gives its stream an error,
// ncclInvalidUsage; what is behind them runs. For a program that gives up the device's work.
ncclResult_t tuttiDeviceAbandonValues(int device);

// Waits for all streams of the calling thread's device. Returns (and clears) the first error among them.
ncclResult_t tuttiDeviceSynchronize(void);
// Waits for all streams of `device` and leaves their errors for those who synchronise: what must happen before memory
// is freed.
ncclResult_t tuttiDeviceWait(int device);

// Flags of tuttiEventCreateWithFlags: no time stamp is wanted; other processes can open it (needs the former too).
#define TUTTI_EVENT_DEFAULT 0
#define TUTTI_EVENT_DISABLE_TIMING 2
#define TUTTI_EVENT_INTERPROCESS 4

// Events: marks in a stream's queue, with a time stamp from the monotonic clock.
ncclResult_t tuttiEventCreate(tuttiEvent_t *event);
ncclResult_t tuttiEventCreateWithFlags(tuttiEvent_t *event, unsigned flags);
// Queued records and waits still do their work.
ncclResult_t tuttiEventDestroy(tuttiEvent_t event);
ncclResult_t tuttiEventRecord(tuttiEvent_t event, cudaStream_t stream);
// ncclSuccess when the newest record has been reached (or there was none), else ncclInProgress. Of an event shared
// between processes also ncclRemoteError: the process that recorded it has ended before.
ncclResult_t tuttiEventQuery(tuttiEvent_t event);
ncclResult_t tuttiEventSynchronize(tuttiEvent_t event);
// The same with a limit, as tuttiStreamSynchronizeFor.
ncclResult_t tuttiEventSynchronizeFor(tuttiEvent_t event, unsigned ms);
// Milliseconds between two completed events (ncclInvalidUsage when one was not recorded or has no time, ncclInProgress
// when one is not complete).
ncclResult_t tuttiEventElapsedTime(float *ms, tuttiEvent_t start, tuttiEvent_t end);

// A handle of an event made with TUTTI_EVENT_INTERPROCESS, and the event in another process, which destroys what it
// opened. There it can be recorded, waited for and asked as any other. The owner must live when the handle is opened.
ncclResult_t tuttiIpcGetEventHandle(tuttiIpcEventHandle_t *handle, tuttiEvent_t event);
ncclResult_t tuttiIpcOpenEventHandle(tuttiEvent_t *event, const tuttiIpcEventHandle_t *handle);

// Host memory on pages of its own, zeroed. tuttiMalloc gives device memory; tuttiMallocKind any kind but unknown, with
// flags that are only kept. Not shared with other processes (ncclMemAlloc gives memory that peers can map) until a
// handle of it is made, or it is a window.
// After a fork the child has its own copy of what it writes, may free it, and may make a handle of it. This holds for
// this memory, for ncclMemAlloc's, and for memory of the program that is registered or a window (but for the handle),
// whether it was shared or not. The parent and the parent's peers see nothing of it. What the parent writes later into
// shared memory, the child may see in pages that it has not written itself.
ncclResult_t tuttiMalloc(void **ptr, size_t size);
ncclResult_t tuttiMallocKind(void **ptr, size_t size, tuttiMemory_t kind, unsigned flags);
// Frees it at once: the program sees to it that nothing queued uses it any more (tuttiDeviceWait). NULL does nothing.
ncclResult_t tuttiFree(void *ptr);
// Frees it in stream order.
ncclResult_t tuttiFreeAsync(void *ptr, cudaStream_t stream);

// Makes memory of the program known as tuttiMemoryHost, and unknown again. ncclInvalidArgument: overlaps what is known;
// was not registered.
ncclResult_t tuttiHostRegister(void *ptr, size_t size, unsigned flags);
ncclResult_t tuttiHostUnregister(void *ptr);

// What is known of the allocation that holds `ptr`. Any pointer is allowed.
ncclResult_t tuttiPointerGetAttributes(tuttiPointerAttributes_t *attributes, const void *ptr);

// A handle of the whole allocation that holds `ptr` (device memory of this process), and the beginning of that
// allocation in another process. The first handle turns the memory into shared memory in place: the call waits for the
// allocation's device, and no other thread may write to the memory meanwhile. Opened twice, the same address is given
// and must be closed twice. The owner must live when the handle is opened; what is open stays valid whatever becomes of
// the owner. A forked child shares what its parent has opened, with the owner; of what its parent owns it has a copy
// (tuttiMalloc).
ncclResult_t tuttiIpcGetMemHandle(tuttiIpcMemHandle_t *handle, const void *ptr);
ncclResult_t tuttiIpcOpenMemHandle(void **ptr, const tuttiIpcMemHandle_t *handle);
ncclResult_t tuttiIpcCloseMemHandle(void *ptr);

// Bytes of memory that could still be allocated, and all there are, as the system (or the container's limit) has them.
ncclResult_t tuttiMemGetInfo(size_t *available, size_t *total);

// In stream order. Sizes in bytes. They return at once: only a small part of the work is ever done by the call itself.
ncclResult_t tuttiMemcpyAsync(void *dst, const void *src, size_t size, cudaStream_t stream);
ncclResult_t tuttiMemsetAsync(void *dst, int value, size_t size, cudaStream_t stream);
// Reads `src` before it returns, so that it may be changed at once; needs a buffer of that size. For small sizes.
ncclResult_t tuttiMemcpyStagedAsync(void *dst, const void *src, size_t size, cudaStream_t stream);
// The same for rows. Those of source and destination do not overlap.
ncclResult_t tuttiMemcpyRowsAsync(const tuttiRows_t *rows, cudaStream_t stream);
ncclResult_t tuttiMemsetRowsAsync(const tuttiRows_t *rows, int value, cudaStream_t stream);
// Sets each element of `elementSize` bytes (1, 2 or 4) of the rows to `value`. A row's width is a multiple of it.
ncclResult_t tuttiFillRowsAsync(const tuttiRows_t *rows, uint32_t value, size_t elementSize, cudaStream_t stream);

// ---- Collectives with blocks of several lengths
//
// As ncclAllGather and its relatives, but each block has a length of its own. Counts and displacements are numbers of
// elements. The arrays have an entry for each rank, and are read before the call returns. A displacement says where in
// the buffer a block begins; NULL: the blocks lie one behind the other. Blocks may have gaps between them, and may be
// empty; those that are written do not overlap. A buffer may be NULL where all of its blocks on this rank are empty.
// All five may stand in groups, be captured, and be used with non-blocking communicators.
//
// Errors: those of the calls with equal blocks. ncclInvalidArgument: an array is NULL; a rank gives two lengths for its
// own block; a block does not fit into memory; two blocks that are written overlap (those that are read may). What two
// ranks say of a block must be the same: if not, the one that gets it ends with ncclInvalidUsage and a text with both
// counts, and the others end as its peers.

// Rank i's block of recvcounts[i] elements comes to all ranks. sendcount: recvcounts[rank]. In place: sendbuff is where
// the own block belongs in recvbuff.
ncclResult_t tuttiAllGatherV(const void *sendbuff, size_t sendcount, void *recvbuff, const size_t *recvcounts,
                             const size_t *displs, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
// Rank i gets the result of block i, of recvcounts[i] elements; the blocks lie one behind the other in sendbuff. Every
// element is summed in the order of the ranks. In place: recvbuff is where the own block lies in sendbuff.
ncclResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff, const size_t *recvcounts,
                                 ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
// Rank i's block of sendcount elements comes to `root`, whose recvcounts[i] that is. recvbuff, recvcounts and displs
// are read on `root` alone. In place: sendbuff is where the root's block belongs in recvbuff.
ncclResult_t tuttiGatherV(const void *sendbuff, size_t sendcount, void *recvbuff, const size_t *recvcounts,
                          const size_t *displs, ncclDataType_t datatype, int root, ncclComm_t comm,
                          cudaStream_t stream);
// Rank i gets the root's block i, of sendcounts[i] elements, which is its recvcount. sendbuff, sendcounts and displs
// are read on `root` alone. In place: recvbuff is where the root's block lies in sendbuff.
ncclResult_t tuttiScatterV(const void *sendbuff, const size_t *sendcounts, const size_t *displs, void *recvbuff,
                           size_t recvcount, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
// Rank j gets sendcounts[j] elements from each rank i, whose recvcounts[i] that is on rank j. In place (sendbuff is
// recvbuff): works, through a copy of the input.
ncclResult_t tuttiAlltoAllV(const void *sendbuff, const size_t *sendcounts, const size_t *sdispls, void *recvbuff,
                            const size_t *recvcounts, const size_t *rdispls, ncclDataType_t datatype, ncclComm_t comm,
                            cudaStream_t stream);

// The communicator's operations with ranks on other machines that are not done: for each one the peer, and how many of
// its messages have moved. At most `max` of them are written to `states`, which may be NULL when `max` is 0; `count` is
// how many there are. From any thread, also while others wait for these operations; not while the communicator is
// destroyed.
ncclResult_t tuttiCommProxyStates(ncclComm_t comm, tuttiProxyState_t *states, int max, int *count);

// What the communicator does just now. *json becomes a text, which the caller frees with free():
//   rank, nranks, hash, name, state, error; ranks: what this machine's ranks show, each with pid, process (what it
//   does), state, operation (number of its last collective; 0: a message), call, and waits: null, or for (rank; -1: for
//   other work of its stream), to, in, seconds; verdict: class, cause (rank; -1: none), pid, process, seconds, text
//   (docs/hangs.md); operations: the last 16.
// A rank shows what it waits for once it has waited for NCCL_PEER_CHECK_MS. From any thread, also while others wait;
// not while the communicator is created or destroyed.
ncclResult_t tuttiCommDiagnose(ncclComm_t comm, char **json);

// The flight recorder: the last NCCL_FLIGHT_RECORDER_SIZE operations of each communicator. *json becomes a text, which
// the caller frees with free(): the communicators of this rank of the job and their operations, the oldest first, with
// the fields of torch's flight recorder; one-sided operations in a list of their own (docs/hangs.md). From any thread,
// also while others call; not while the communicator is destroyed.
ncclResult_t tuttiCommFlightRecorder(ncclComm_t comm, char **json);
// Writes files `<prefix><rank>`, one for each rank of the job in this process, in the format of
// NCCL_FLIGHT_RECORDER_FORMAT. From any thread. ncclSystemError: a file could not be written; the others are there.
ncclResult_t tuttiFlightRecorderDump(const char *prefix);

// ---- Graphs ----
//
// While a stream is captured, what is queued to it (copies, fills, calls of the host, operations of NCCL) is recorded
// in a graph instead. Streams that wait for an event recorded in it are captured too, from then on, until the capture
// ends at the stream where it began. A graph is instantiated and launched in a stream as often as wanted. Each launch
// does what the recorded calls would do if they were made then, so operations of NCCL count anew, and may be mixed with
// ordinary calls; all ranks launch alike. A graph with operations of NCCL is launched by the threads that may use their
// communicators; when one of these is destroyed the launch gives ncclInvalidArgument and queues nothing.
//
// Rules and errors are CUDA's: a call that is not allowed gives ncclInvalidUsage and makes the capture invalid, which
// its end then says; tuttiTakeCaptureFault tells which rule it was. Use a graph from one thread at a time.

typedef struct tuttiGraph *tuttiGraph_t;
typedef struct tuttiNode *tuttiNode_t; // of a graph; goes with it
typedef struct tuttiGraphExec *tuttiGraphExec_t;

// Which calls of others a capture forbids (tuttiCaptureAllows): those of all threads, of the thread that began it, of
// nobody.
typedef enum { tuttiCaptureGlobal = 0, tuttiCaptureThreadLocal = 1, tuttiCaptureRelaxed = 2 } tuttiCaptureMode_t;
typedef enum { tuttiCaptureNone = 0, tuttiCaptureActive = 1, tuttiCaptureInvalidated = 2 } tuttiCaptureStatus_t;

// Rules of captures.
typedef enum {
  tuttiCaptureFaultNone = 0,
  tuttiCaptureFaultUnsupported = 1, // cannot be captured, or is not allowed meanwhile
  tuttiCaptureFaultInvalidated = 2, // an earlier call has broken a rule
  tuttiCaptureFaultMerge = 3,       // two captures would become one
  tuttiCaptureFaultUnmatched = 4,   // ends at another stream than where it began
  tuttiCaptureFaultUnjoined = 5,    // ends before another of its streams is joined
  tuttiCaptureFaultIsolation = 6,   // depends on work outside
  tuttiCaptureFaultImplicit = 7,    // depends on the legacy default stream
  tuttiCaptureFaultEvent = 8,       // asks for an event that was recorded in a captured stream
  tuttiCaptureFaultThread = 9,      // ends in another thread than where it began
  tuttiCaptureFaultState = 10       // begins on a captured stream, or ends on one that is not
} tuttiCaptureFault_t;

typedef enum {
  tuttiNodeCopy = 1,
  tuttiNodeFill = 2,
  tuttiNodeHost = 3,
  tuttiNodeGraph = 4,
  tuttiNodeEmpty = 5,
  tuttiNodeRecord = 6,
  tuttiNodeWait = 7,
  tuttiNodeNccl = 8, // the operations of one communicator in one group
  tuttiNodeValue = 9 // a value that is written or waited for
} tuttiNodeKind_t;

// What a stream's capture is; all but the status is 0 when there is none.
typedef struct {
  tuttiCaptureStatus_t status;
  unsigned long long id;           // no other capture of this process has it
  tuttiGraph_t graph;              // as far as it has come; not to be destroyed
  const tuttiNode_t *dependencies; // the stream's next node comes after these; good until the stream is used again
  size_t dependencyCount;
} tuttiCaptureInfo_t;

// Begins to capture the stream: in a new graph, or in one that is there, whose nodes `dependencies` go before the first
// that is added. Not the legacy default stream.
ncclResult_t tuttiStreamBeginCapture(cudaStream_t stream, tuttiCaptureMode_t mode);
ncclResult_t tuttiStreamBeginCaptureToGraph(cudaStream_t stream, tuttiGraph_t graph, const tuttiNode_t *dependencies,
                                            size_t count, tuttiCaptureMode_t mode);
// Ends it. The graph is the caller's, to be destroyed. Errors: ncclInvalidUsage; no graph then, and, but where thread
// or stream are wrong, no capture.
ncclResult_t tuttiStreamEndCapture(cudaStream_t stream, tuttiGraph_t *graph);
ncclResult_t tuttiStreamGetCaptureInfo(cudaStream_t stream, tuttiCaptureInfo_t *info);
// The stream's next node comes after these; with `set` 0 also after those it would come after anyway.
ncclResult_t tuttiStreamUpdateCaptureDependencies(cudaStream_t stream, const tuttiNode_t *dependencies, size_t count,
                                                  int set);
// The calling thread's mode, tuttiCaptureGlobal at first; the one before is given back.
ncclResult_t tuttiThreadExchangeCaptureMode(tuttiCaptureMode_t *mode);
// Asks whether the thread's mode allows a call such as function `what` beside the captures under way. Such calls may
// wait for a captured stream in a program that is not the only user of its process. ncclInvalidUsage: the mode does not
// allow it, and the captures are invalid now.
ncclResult_t tuttiCaptureAllows(const char *what);
// Which rule the calling thread's last call with ncclInvalidUsage has broken, once.
tuttiCaptureFault_t tuttiTakeCaptureFault(void);

// With TUTTI_EVENT_EXTERNAL the record or wait is a node of its own when the stream is captured, done at each launch,
// for work outside of the graph.
#define TUTTI_EVENT_EXTERNAL 1
ncclResult_t tuttiEventRecordWithFlags(tuttiEvent_t event, cudaStream_t stream, unsigned flags);
ncclResult_t tuttiStreamWaitEventWithFlags(cudaStream_t stream, tuttiEvent_t event, unsigned flags);
// As tuttiLaunchHostFunc, with a copy of `size` bytes of `arg`, which is the library's: the same for every launch of a
// graph.
ncclResult_t tuttiLaunchHostFuncStaged(cudaStream_t stream, void (*fn)(void *arg), const void *arg, size_t size);

ncclResult_t tuttiGraphCreate(tuttiGraph_t *graph);
// What was instantiated from it stays good. NULL does nothing.
ncclResult_t tuttiGraphDestroy(tuttiGraph_t graph);
ncclResult_t tuttiGraphAddEmptyNode(tuttiGraph_t graph, const tuttiNode_t *dependencies, size_t count,
                                    tuttiNode_t *node);
// The graph's nodes, each behind those that it comes after; good until the graph changes.
ncclResult_t tuttiGraphGetNodes(tuttiGraph_t graph, const tuttiNode_t **nodes, size_t *count);
ncclResult_t tuttiNodeGetKind(tuttiNode_t node, tuttiNodeKind_t *kind);
// The nodes that this one comes after: at most `max` are written, `count` is how many there are.
ncclResult_t tuttiNodeGetDependencies(tuttiNode_t node, tuttiNode_t *dependencies, size_t max, size_t *count);

// What can be launched. The graph may then be changed or destroyed.
ncclResult_t tuttiGraphInstantiate(tuttiGraphExec_t *exec, tuttiGraph_t graph);
// Queues the graph's work in stream order; launches of one exec run one after the other. In a captured stream: a node.
// Any thread.
ncclResult_t tuttiGraphLaunch(tuttiGraphExec_t exec, cudaStream_t stream);
// Later launches do what `graph` says, if it has the same kinds of nodes in the same order. If not:
// ncclInvalidArgument, and the first node that differs (NULL: there are fewer).
ncclResult_t tuttiGraphExecUpdate(tuttiGraphExec_t exec, tuttiGraph_t graph, tuttiNode_t *changed);
// Launched work still runs. NULL does nothing.
ncclResult_t tuttiGraphExecDestroy(tuttiGraphExec_t exec);

#ifdef __cplusplus
}
#endif
#endif
