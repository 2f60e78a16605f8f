// one_sided.h: one-sided operations as the device sees them: what a rank shows of its windows, the counters of its
// signals, and batches of puts, signals and waits in a stream's queue.
//
// Every rank has a board in memory that the ranks of its machine map. It lists the rank's windows, and has a row for
// each rank of the machine, which only that rank writes: counters of its signals. A put copies into the peer's window,
// and then counts the signal up (release): so a signal that is seen has its data, and all earlier ones', in place.
//
// A window's owner may close it, and a rank may stop, while a peer writes. The two agree as in owner.h, with a word of
// the row: the writer counts itself in `writing` or `handing`, full fence, looks whether the owner runs and the window
// is open, writes a bounded piece, and counts itself out. The owner stores its state or closes the window, full fence,
// and waits until both are 0. For a peer over the network, the thread of the owner's process that takes its messages is
// the writer.
//
// Memory of a GPU that a rank of the machine does not reach (another GPU without peer access, a rank on the host,
// memory that no other process can map) it does not write itself: the payload goes through a FIFO in shared memory to a
// thread of the owner's process, before the signal. All else is the same, and so are puts from GPUs to ranks on the
// host.
#pragma once
#include <pthread.h>

#include "device/lane.h"

enum {
  TT_WINDOWS = 16384,     // that a rank has open in a communicator at one time
  TT_SIGNALS = 504,       // of one rank for another: contexts times signals of each
  TT_RMA_CONTEXTS = 64,   // at most
  TT_PUT_BYTES = 1 << 20, // that are written between two looks at whether the owner runs
};

// A window that a rank has open: number i lies at i % TT_WINDOWS.
typedef struct tt_window_note {
  _Atomic uint64_t number; // the rank's windows, counted from 1; 0: none is open here. Written last (release)
  uint64_t base, size;     // in the owner's process
  uint64_t mem; // handle of memory with it, or some of it (tt_device_ops.find); 0: peers cannot map it; TT_MEM_NONE
} tt_window_note;

// Of a GPU's window: other processes cannot map it, nor are payloads taken for it.
#define TT_MEM_NONE UINT64_MAX

// What one rank writes for another.
typedef struct tt_signal_row {
  // Who writes into the owner's windows just now: threads of the writer's device; and of a writer on a GPU, threads of
  // the host, which cannot add to a word beside a GPU.
  _Atomic uint64_t writing, handing;
  _Alignas(TT_CACHE_LINE) _Atomic uint64_t count[TT_SIGNALS]; // signals so far: [context * signals + signal]
} tt_signal_row;
_Static_assert(sizeof(tt_signal_row) == 4096, "shared memory layout: a page");

static inline bool tt_row_is_written(const tt_signal_row *row)
{
  return atomic_load_explicit(&row->writing, memory_order_acquire) != 0 ||
         atomic_load_explicit(&row->handing, memory_order_acquire) != 0;
}

typedef struct tt_board {
  _Alignas(TT_CACHE_LINE) _Atomic uint64_t opened; // windows so far
  char pad[4096 - sizeof(uint64_t)];               // the rest has pages of its own where the board begins with one
  tt_window_note windows[TT_WINDOWS];
  tt_signal_row rows[]; // by the place of the rank on its machine
} tt_board;
_Static_assert(sizeof(tt_board) == 4096 + 32 * TT_WINDOWS, "shared memory layout");

// Of a peer over the network: what its messages say.
typedef struct tt_board_copy {
  tt_signal_row row; // of the peer, for this rank
  tt_board board;    // without rows
} tt_board_copy;

// Bytes of the board of one of n ranks.
static inline size_t tt_board_bytes(int n)
{
  return sizeof(tt_board) + (size_t)n * sizeof(tt_signal_row);
}

// A peer's window that this process has mapped.
typedef struct tt_window_map {
  struct tt_window_map *next;
  uint64_t number;
  char *whole;     // NULL: it cannot be mapped, which is not tried again
  size_t size;     // of what is mapped, which may not be all of the window
  uint64_t remote; // address of that in the owner's process
} tt_window_map;

// A put's payload that has come over the network, and is not in the window yet: where the device places it later.
typedef struct tt_rma_message {
  struct tt_rma_message *next;
  uint64_t window, offset;
  size_t bytes;
  void *payload; // the device's
} tt_rma_message;

// A rank that one-sided operations reach.
typedef struct tt_rma_peer {
  tt_port *port;           // this rank's,
  int rank;                // and the peer
  bool networked;          // shares no memory with this rank: messages go to it (rma_link.h)
  tt_link *link;           // NULL: this rank itself; networked: nor has this rank named it in an operation yet
  struct tt_rma_link *net; // networked: where messages to it are written. NULL at the same times
  tt_board *board;         // the peer's; networked: a copy, which its messages keep up to date
  tt_signal_row *out, *in; // what this rank writes for the peer, and the peer for this one. Networked: `out` is NULL,
                           // `in` is private to this rank, which writes for the peer what its messages say
  tt_rank_page *page;      // NULL at the same times as `link` of one that is networked
  tt_fifo put;   // not networked, the peer on a GPU: for payloads that this rank cannot write there. Under `lock`
  tt_fifo comes; // not networked, this rank on a GPU: such payloads from the peer. No slots: there are none. Taken by
                 // one thread at a time
  pthread_mutex_t lock; // of what follows, and while one of the maps is used
  tt_window_map *maps;
  tt_rma_message *came, **came_end; // in order; NULL: none
  struct tt_gpu_rma_peer *gpu;      // the CUDA device's
} tt_rma_peer;

// What a communicator's one-sided operations share.
typedef struct tt_rma {
  tt_port *port;
  int contexts, signals;    // signals: of each context
  tt_board *board;          // own
  bool lone;                // it is in memory of its own: the rank has no neighbours
  _Atomic uint64_t changes; // windows opened or closed so far. Written by the launching thread (release)
  _Atomic uint64_t placing; // streams that place payloads in the own windows just now: counts as `writing` does
  void *copies;             // of the boards of peers over the network, and their rows; NULL: there are none
  size_t copies_bytes;
  tt_rma_peer *peers; // by rank
  // Takes a payload over that has come for an own window; NULL: it is copied there at once. The thread that takes the
  // peer's messages, or what `comes` has.
  void (*place)(tt_rma_peer *peer, uint64_t window, uint64_t offset, const char *payload, size_t bytes);
  _Atomic uint64_t *turn;     // [context * nranks + peer]: puts and signals that are complete
  uint64_t *issued;           // the same: issued. The launching thread's
  struct tt_rma_batch *spare; // ready for the next launch; NULL: none. The launching thread's
  uint64_t *expected; // [peer * TT_SIGNALS + context * signals + signal]: signals that waits have been issued for
} tt_rma;

// A put with its signal, a signal (no bytes), or one line of a wait.
typedef struct tt_rma_op {
  bool waits, over, looked;
  bool passed;    // a put or signal over the network: all messages are written, and the next one's turn has come
  bool lent;      // some payload stays in place
  uint32_t until; // until the FIFO's head has come so far
  int peer, ctx, sig;
  uint64_t contexts; // of its call, a bit each: what stands behind it in the batch with one of these waits for it
  uint64_t number;   // a put's or signal's place among those of its context and peer; the count that a wait waits for
  uint64_t window, offset; // the peer's window; where it writes next
  const char *from;
  size_t bytes; // that are left
} tt_rma_op;

// Operations of one communicator in a stream's queue, in order, but for those of different contexts.
typedef struct tt_rma_batch {
  tt_work work; // first member
  tt_rma *rma;
  void (*recycle)(struct tt_rma_batch *b); // takes the batch back when it is over
  // Tells when the batch has begun (op -1), or when this operation was over: nanoseconds of CLOCK_MONOTONIC, or of the
  // device's own clock (tt_device_ops.clock). NULL: nobody wants to know.
  void (*watch)(struct tt_rma_batch *b, int op, uint64_t ns);
  void *watcher;
  tt_stall stall;  // the runner's
  uint64_t left;   // operations and bytes that are left
  uint64_t record; // where the flight recorder has the first operation (tt_flight_queue)
  void *owner;
  bool moves; // some peer is networked: the runner drives the port's mover
  bool begun; // has been run before
  int n;
  tt_rma_op ops[];
} tt_rma_batch;

// Opens the window of this number in the own board. False: its place is taken by one that is still open. The launching
// thread.
bool tt_board_open(tt_rma *rma, const tt_window_note *note, uint64_t number);
// Closes it, and waits until no peer writes into it: at most a second, for a process that is suspended. The launching
// thread.
void tt_board_close(tt_rma *rma, uint64_t number);
// This rank's state says that it has gone: waits in the same way until no peer writes into any window.
void tt_board_settle(const tt_rma *rma);

// Closes all windows of the own board, and waits for nobody. Any thread, while no window is opened.
void tt_board_clear(const tt_rma *rma);

// tt_board_clear, then tt_board_settle: for peers whose kernels look at windows, but not at states.
void tt_board_shut(const tt_rma *rma);

// Where the peer's window of this number lies in this process; NULL: its memory cannot be mapped. Any thread.
char *tt_rma_window_address(tt_rma_peer *peer, uint64_t number, const tt_window_note *note);
// Unmaps what has been mapped of the peer's windows. No batch is left.
void tt_rma_forget_maps(tt_rma_peer *peer);

// Runs an operation inside the call, as far as it can go; what is left is done by a batch, which also has the error
// when the port has been stopped. Nothing is before it on its stream. Returns whether nothing is left. The launching
// thread.
bool tt_rma_run(tt_rma *rma, tt_rma_op *op);

// Writes a piece of a put whose turn it is, and which its window's owner has opened: moves on `from`, `offset` and
// `bytes`, but counts no signal; nothing where the peer's FIFO is full. One thread at a time for each peer. Errors:
// ncclInvalidUsage, ncclInvalidArgument, ncclRemoteError.
ncclResult_t tt_rma_write(tt_rma *rma, tt_rma_op *op);

// Functions of a batch in a stream's queue.
extern const tt_work_ops tt_rma_ops;

// Looks a peer's window up. 1: *out is a copy; 0: the peer has not opened it yet; -1: it has closed it. Any thread.
int tt_board_find(tt_board *board, uint64_t number, tt_window_note *out);
