// rma_priv.h: batches of one-sided operations on GPUs, for the files rma*.c and windows.c.
#pragma once
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/port_priv.h"
#include "device/cuda/work/rma.h"

// What a rank on a GPU has of a peer.
typedef struct tt_gpu_rma_peer {
  struct tt_gpu_rma_peer *next; // of the process
  tt_gpu_port *port;
  int rank; // the peer
  const tt_rma *rma;
  char **pins; // pages
  int npins, room;
  // The launching thread's, which others read: signals that have been queued so far, [context * signals + signal].
  _Atomic uint64_t queued[TT_SIGNALS];
  uint64_t turn[TT_RMA_CONTEXTS];       // operations that have been queued
  tt_gpu_stream *last[TT_RMA_CONTEXTS]; // the stream of the last of them
  _Atomic uint32_t *over;               // pinned: operations that are over, by context
} tt_gpu_rma_peer;

// Pinned: of an operation. Of a wait that places payloads `ready` says that its stream stands there, which waits for
// `late`.
typedef struct gpu_target {
  _Atomic uint32_t ready; // 1: the place is known, or the port has stopped. The stream waits for it,
  _Atomic uint32_t late;  // 1: because it was not known when the put was queued: the thread of rank.c finds it
  _Atomic uint32_t taken; // of a wait that places payloads: 1: they are in place
  _Atomic uint32_t sent;  // of a put: 1: the thread of rank.c has handed its payload over, or need not
  tt_cuda_operand operands[2];
  uint64_t list; // of such a wait: the payloads,
  uint32_t nlist;
  _Atomic uint32_t staged; // of a put: 1: its payload is where `operands` say. Its stream waits for `sent`
} gpu_target;

// An operation of which the thread of rank.c does a part: with a peer over the network, or with payload that goes by
// way of the host.
typedef struct gpu_far {
  tt_rma_op op;             // a put: what is left to send
  char *staging;            // its payload, pinned; NULL: none
  bool over;                // sent, or placed
  bool takes;               // a wait whose stream places payloads,
  bool places;              // and does so just now
  tt_rma_message *messages; // of a wait: what the kernel places,
  void *list;               // as it reads that
} gpu_far;

// Pinned: of a batch.
typedef struct gpu_batch_pinned {
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t begun, done; // written by its stream
  _Atomic uint64_t start, stop;                         // the GPU's time then, where profilers want to know it; else 0
  gpu_target targets[];                                 // by operation
} gpu_batch_pinned;

typedef struct gpu_batch {
  struct gpu_batch *next; // of its port's, or of those that are over
  tt_rma_batch *batch;
  tt_gpu_port *port;
  tt_gpu_stream *stream;
  gpu_batch_pinned *pinned;
  gpu_far *far;          // by operation
  uint64_t due_ns;       // then its peers are looked at
  _Atomic bool complete; // all of it has been queued
  bool lost;             // its end could not be queued
  bool begun, over;      // as the last look found it
} gpu_batch;

static inline tt_rma_peer *gpu_peer_of(const tt_rma_batch *b, const tt_rma_op *op)
{
  return &b->rma->peers[op->peer];
}

static inline _Atomic uint64_t *gpu_count_in(const tt_rma_batch *b, const tt_rma_op *op)
{
  return &gpu_peer_of(b, op)->in->count[op->ctx * b->rma->signals + op->sig];
}

// Is it a rank of this machine whose memory the device does not reach, nor it that of this rank?
static inline bool gpu_peer_is_apart(const tt_rma_peer *p)
{
  return !p->networked && p->link != NULL && p->link->access == TT_ACCESS_NONE;
}

// May payloads come from that peer for windows of this rank?
static inline bool tt_gpu_rma_is_sent_to(const tt_gpu_port *p, const tt_rma_peer *peer)
{
  return gpu_peer_is_apart(peer) ||
         (atomic_load_explicit(&p->unshared, memory_order_relaxed) && tt_gpu_ipc_has(p, peer->rank));
}

// Prepares the peer for operations: pins its counters, and where its board has the window; 0: no window. The launching
// thread; the device's context is current. Errors: ncclUnhandledCudaError, ncclSystemError.
ncclResult_t tt_gpu_rma_reach(tt_gpu_port *p, const tt_rma *rma, tt_rma_peer *peer, uint64_t window);
// How many signals has that peer, if it is a rank of this process, queued for this rank? UINT64_MAX: it is not.
uint64_t tt_gpu_rma_queued(const tt_gpu_port *p, const tt_rma_peer *peer, int signal);

// Waits the port for signals of another process that reaches its memory?
bool tt_gpu_rma_awaits(const tt_gpu_port *p);

// Looks whether the peer has opened the window of put i, and finds the place: targets[i].ready; where the device does
// not reach the window that is pinned memory, far[i].staging. The launching thread, or, where the put is late, that of
// rank.c. Errors: ncclInvalidUsage (it has been closed, or nothing can be put there), ncclInvalidArgument (it ends
// before), ncclUnhandledCudaError.
ncclResult_t tt_gpu_rma_aim(const gpu_batch *g, int i);

// Why the place of a put is none: `found` and `note` as the board has them. Returns the error.
ncclResult_t tt_gpu_rma_misses(const tt_rma_batch *b, const tt_rma_op *op, int found, const tt_window_note *note);

// ---- What is queued: rma.c. In the context of the batch's device. Errors: ncclUnhandledCudaError ----

// The stream waits until the word is at least `value`, or sets it to 1.
ncclResult_t tt_gpu_queue_wait(const gpu_batch *g, const volatile void *word, uint32_t value);
ncclResult_t tt_gpu_queue_word(const gpu_batch *g, const volatile void *word);
// A kernel of module one_sided; one of one CTA moves so many packs of data.
ncclResult_t tt_gpu_queue_kernel(const gpu_batch *g, const char *name, size_t ctas, size_t packs, void *args);
tt_cuda_port tt_gpu_rma_port(const gpu_batch *g);

// ---- With peers over the network, or payloads by way of the host: rma_far.c ----

// Queues the operation with a peer over the network: its first half, the copy of its payload; of a wait all of it, by
// these functions. The launching thread. Errors: ncclUnhandledCudaError, ncclSystemError.
ncclResult_t tt_gpu_far_queue(const gpu_batch *g, int i);
// Queues that a wait's stream places what has come. Likewise.
ncclResult_t tt_gpu_far_wait(const gpu_batch *g, int i);
// Pinned memory for the payload of put i: far[i].staging. Any thread. Errors: the same.
ncclResult_t tt_gpu_far_stage(const gpu_batch *g, int i);
// Has a put's stream staged its payload, which is not handed over yet?
bool tt_gpu_far_holds(const gpu_batch *g, int i);
// Sends what is staged, and lets waits go on whose signals have come. The lock of the batches is held. True: payloads
// have moved.
bool tt_gpu_far_move(const gpu_batch *g);
// Takes what ranks of this machine have put into their FIFOs. The lock of rank.c is held. True: there was something.
bool tt_gpu_far_take(tt_rma *rma);
// Is all of it sent, and placed? Likewise.
bool tt_gpu_far_over(const gpu_batch *g);
// The batch is over, or given up: gives back what it has. Likewise.
void tt_gpu_far_drop(const gpu_batch *g);
// Frees payloads that nobody has waited for.
void tt_gpu_far_forget(tt_rma_peer *peer);

// The batch is about to be queued: from now on it is looked at.
void tt_gpu_rma_fly(gpu_batch *g);
