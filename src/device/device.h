// device.h: the table of devices: what the layers above ask of the kind of device that a rank is on. One row per kind.
//
// A rank's port holds the row of its device (link.h), and everything above src/device goes through it: no other folder
// includes a row's headers, but for src/api/host*.c, the public face of the host device (src/LEVELS). README.md says
// what each member means on a GPU.
//
// Members, unless they say otherwise: any thread; they never wait for a peer's call. Errors are recorded with tt_fail.
#pragma once
#include "device/lane.h"
#include "device/one_sided.h"
#include "device/verdict.h"

typedef struct tt_stream tt_stream; // a stream, as its row knows it
typedef struct tt_moved tt_moved;   // memory whose pages have moved, too

// The device that a rank is on, as ranks tell each other. Part of a bootstrap message: fixed layout.
typedef struct tt_device_id {
  char kind[8];     // name of its row
  uint8_t uuid[16]; // tells devices of one machine apart
  char bus_id[16];  // of the PCI device that it is ("0000:0F:00.0"); "": none
  int64_t sm;       // a GPU's compute capability × 10; 0: no GPU
} tt_device_id;
_Static_assert(sizeof(tt_device_id) == 48, "bootstrap message layout");

// A rank of this machine, maybe the asking one, as `reaches` wants to know it.
typedef struct tt_reach {
  int rank, device;       // of its process
  bool here;              // in this process
  const tt_proc_id *proc; // its process,
  uint64_t probe;         // and what that has named
  const tt_device_id *id;
} tt_reach;

// What a port needs to know of its surroundings when it is opened.
typedef struct tt_port_env {
  int ranks, cores; // ranks of the communicator on this machine, and the cores that they share
  bool reads;       // some of them are in other processes: their memory is read by the kernel's copies
} tt_port_env;

// A stream that a call uses, and the name of the call's function, for messages.
typedef struct tt_stream_use {
  cudaStream_t stream;
  const char *what;
} tt_stream_use;

// Work that a graph keeps, and queues at each of its launches. The first member of whatever it is.
typedef struct tt_recorded {
  // Could it be queued? Asked of everything in the graph before the first is queued.
  ncclResult_t (*check)(const struct tt_recorded *r);
  // Queues it on the stream. Never waits. One thread at a time.
  ncclResult_t (*issue)(struct tt_recorded *r, cudaStream_t stream);
  // Frees it, when no graph has it any more.
  void (*drop)(struct tt_recorded *r);
} tt_recorded;

// Work for a quiet moment: run(d) is called until it returns true; it may free `d`.
typedef struct tt_deferred {
  struct tt_deferred *next;
  bool (*run)(struct tt_deferred *d);
} tt_deferred;

#define TT_TIME_SHARED 8

// What small calls need that the calling thread runs itself (comm/inline.c).
typedef struct tt_shortcut_ops {
  // The time in ticks (os/clock.h), if a call could run at once, because nothing on the stream, or before it in order,
  // is under way; runs a little of what is. Else 0, also for a captured stream, and for what is no stream. Reading the
  // clock takes up to 20 ns, a fifth of the smallest calls: so up to TT_TIME_SHARED calls that follow each other within
  // a microsecond have one time, unless a thread in between waits for the stream, asks whether it is idle, or records
  // an event. Not `timed`: nobody wants the time, which is any but 0.
  uint64_t (*free_at)(cudaStream_t stream, int device, bool timed);
  // Has a thread waited for the stream since this was last asked? A hint.
  bool (*take_synchronized)(cudaStream_t stream, int device);
  // Looks whether ready(arg), and gives the core to others in between, for as long as they are likely to need it for
  // their part of a small call; never sleeps. Returns whether it is ready. For calls that have a short thing to wait
  // for, with more ranks than cores.
  bool (*spin)(cudaStream_t stream, int device, bool (*ready)(void *arg), void *arg);
  // The stream's queue, if no other stream is ordered with it by itself: two calls are apart if their queues differ.
  // NULL: it has none, or is captured.
  const void *(*queue)(cudaStream_t stream, int device);
  bool (*run_rma)(tt_rma *rma, tt_rma_op *op); // tt_rma_run
} tt_shortcut_ops;

// The buffers of a large call; those that have no bytes do not count.
typedef struct tt_buffer_use {
  const void *in, *out;
  size_t in_bytes, out_bytes;
} tt_buffer_use;

typedef struct tt_device_ops {
  const char *name; // in messages, and in tt_device_id
  bool levels;      // it takes the steps of all strands one after the other, by their levels (tt_step.level)
  bool pins;        // the device reads and writes the links' memory: its pages stay where they are
  bool clock;       // times of channels (tt_stamp) and batches are of the device's own clock
  bool pairs;       // what `reaches` says is a pair's, so each is asked about. NCCL_P2P_DISABLE forbids such access

  // --- identity
  int (*count)(void);   // devices of this kind
  int (*current)(void); // the calling thread's
  void (*identify)(int device, tt_device_id *out);
  // Names a place of this process's memory, for `reaches` in other processes of this machine.
  uint64_t (*probe)(void);
  // Can the port's rank read and write the memory of that rank of this machine? Tries it. The peer's port is open, or
  // will be. Waits for it, for NCCL_BOOTSTRAP_TIMEOUT at most.
  bool (*reaches)(tt_port *port, const tt_reach *peer);
  // Must the communicator's plans use no memory of peers, but FIFOs alone, because the port's rank cannot open memory
  // later? Then that goes for all ranks. NULL: no.
  bool (*fifos_only)(const tt_port *port);
  // Must the connections on this machine be made with the communicator, because the port's rank cannot make them later?
  // Then that goes for all ranks. NULL: no.
  bool (*connects_early)(const tt_port *port);
  // Can ranks of this process on these two devices use each other's memory by its address?
  bool (*joins)(int device, int other);

  // --- memory that peers can map (ncclMemAlloc)
  ncclResult_t (*alloc)(size_t size, void **ptr);
  ncclResult_t (*free)(void *ptr); // ncclInvalidArgument: it is not from `alloc`
  // Memory that peers can map and that holds [ptr, ptr + size), or some of it.
  tt_mappable (*find)(const void *ptr, size_t size);
  // The whole allocation of `alloc` that holds the range. False: none does.
  bool (*range)(const void *ptr, size_t size, void **base, size_t *bytes);
  // Has peers map [ptr, ptr + size), which `alloc` has not made, as far as that can be had. What the device has
  // allocated is shared as a whole, until it is freed; other memory only if `ordinary` is set: its whole pages move, in
  // place, and no thread writes there meanwhile. Returns what `unmap` undoes, and of how many bytes; NULL: there is
  // nothing to undo.
  tt_moved *(*map)(void *ptr, size_t size, bool ordinary, size_t *bytes);
  void (*unmap)(tt_moved *moved);
  // The allocation of device memory, from `alloc` or not, that holds the byte. False: none does.
  bool (*allocation)(const void *ptr, void **base, size_t *bytes);
  // From now on fn is called with each allocation that is freed: nothing finds it any more, and its memory is still
  // there. One such function per process.
  void (*on_free)(void (*fn)(void *base, size_t size));

  // Memory of the device for operations' intermediate results, a cache line's multiple, that no peer reaches. NULL:
  // there is none. `scratch_free` takes NULL; no plan uses the memory any more.
  void *(*scratch_alloc)(int device, size_t bytes);
  void (*scratch_free)(int device, void *scratch);

  // --- streams
  // The stream of this handle, for function `what`: NULL and 1 are the device's legacy default stream, 2 the calling
  // thread's. Errors: ncclInvalidArgument (it is no stream of this kind of device), ncclInvalidUsage (it is captured,
  // and the device cannot capture what that port does).
  ncclResult_t (*get)(cudaStream_t handle, const tt_port *port, const char *what, tt_stream **out);
  // What is submitted to `later` from now on runs after what has been submitted to `earlier`. Errors: ncclSystemError.
  ncclResult_t (*order)(tt_stream *earlier, tt_stream *later);
  // Records the event on the stream, captured or not: it is complete when what has been submitted before is. Errors:
  // ncclInvalidArgument (no stream of this kind of device, an event that other processes share), ncclInvalidUsage
  // (breaks a rule of captures), ncclSystemError.
  ncclResult_t (*record_event)(cudaEvent_t event, cudaStream_t stream, int device);
  // Is the stream captured? Errors: ncclInvalidArgument (the handle is no stream of this kind of device).
  ncclResult_t (*captured)(cudaStream_t stream, int device, bool *captured);
  // Does what is submitted to the stream, of which the calling thread has last asked `get`, become a part of a graph?
  // Then a launch of the graph sends its messages, and not the call (tt_mover.attach). NULL: it never does.
  bool (*in_graph)(const tt_stream *stream);
  // Records `r` in the graph if the streams are captured; *captured: they are. Takes `r` over, and drops it on an error
  // or where they are not. `r` NULL: there was no memory for it. Errors: ncclInvalidUsage (only some are captured, or
  // the call breaks a rule of captures), ncclSystemError. Asked while tt_capturing().
  ncclResult_t (*record)(const tt_stream_use *uses, size_t n, int device, tt_recorded *r, bool *captured);

  // --- ports
  // Gives the port what the device needs to run plans. Its page and links are there. Errors: ncclSystemError.
  ncclResult_t (*open)(tt_port *port, const tt_port_env *env);
  // The communicator ends: no thread of the device's looks at the port from now on. No plan is left. Accepts a port
  // that was not opened. NULL: none would.
  void (*leave)(const tt_port *port);
  // Frees that. Accepts a port that `open` has failed on. No plan is left, and no thread of this process sleeps on the
  // page's bell afterwards.
  void (*close)(tt_port *port);
  // Makes link->handover: what the device needs so that tokens can go over the link, whose other members are filled.
  // Called by the transport, for a pair whose memory one can reach or both map. The thread that connects. It may wait
  // for a thread of the peer's port, which is open. Errors: ncclSystemError, ncclUnhandledCudaError; the port has been
  // stopped, now if the peer has gone.
  ncclResult_t (*connect)(const tt_port *port, tt_link *link, const tt_link_env *env);
  // Frees that, and unmaps what the link has mapped of the peer's memory. Nothing of the port runs. Accepts a link
  // without.
  void (*disconnect)(tt_link *link);

  // --- reports. Any thread, while others run the port.
  // Why the port's rank waits, and what another rank shows (false: nothing).
  void (*tell)(const tt_port *port, tt_verdict *out);
  bool (*view)(const tt_port *port, int rank, tt_rank_view *out);

  // --- work
  // A call of at least port->large bytes uses these buffers: the device may make their next use cheaper. The launching
  // thread.
  void (*use_buffers)(tt_port *port, const tt_buffer_use *buffers);
  // Runs the plan on the stream, after what stands there; it may be complete when this returns. Plan->recycle gives it
  // back, also after a failure. Errors, with which the port is stopped: of the device.
  ncclResult_t (*submit)(tt_plan *plan, tt_stream *stream);
  // Plans that the thread submits between `hold` and `unhold` run together, and may begin at `unhold` only: the calls
  // of a group, for several ranks of the process. Errors: as `submit`. NULL: that makes no difference.
  void (*hold)(void);
  ncclResult_t (*unhold)(void);
  // Can one-sided operations of function `what` be queued on the stream? NULL: always. Errors: ncclInvalidUsage (it is
  // captured, and the device cannot capture them).
  ncclResult_t (*check_rma)(tt_stream *stream, const char *what);
  // Queues one-sided operations, as `submit`, also between `hold` and `unhold`; b->recycle gives the batch back. NULL:
  // the device has no windows.
  void (*submit_rma)(tt_rma_batch *b, tt_stream *stream);
  // Has the peers map a window that is to be opened, as far as they do not when they need it, before they can find it
  // on the board; note->mem is 0 or TT_MEM_NONE afterwards if one of them cannot. NULL: nothing need be done. Waits for
  // threads of the device's alone. Errors: ncclInvalidArgument (the device does not reach the memory), those of a
  // stopped port.
  ncclResult_t (*show_window)(tt_rma *rma, tt_window_note *note);
  // tt_rma.place; NULL: windows are memory that the host writes.
  void (*place_put)(tt_rma_peer *peer, uint64_t window, uint64_t offset, const char *payload, size_t bytes);
  // Where the peer's window of this number lies in this process; NULL: its memory cannot be mapped. Good until the peer
  // closes the window. Any thread.
  char *(*window_address)(tt_rma_peer *peer, uint64_t number, const tt_window_note *note);
  // Frees what the device has mapped of a peer's windows. No batch is left.
  void (*forget_windows)(tt_rma_peer *peer);
  // Moves what can be moved, of all ports. True when anything did.
  bool (*progress)(void);
  // The port is stopped: afterwards no thread is in a plan that it found before this call, and plans and graphs that
  // had begun touch the user's buffers no more.
  void (*settle)(void);
  // Does work run, or wait to, that the program has launched as part of a graph, and not by calls of the port's? NULL:
  // there is none. Any thread.
  bool (*replays)(const tt_port *port);
  // Waits until ready(arg), moving what can be moved. `wake` makes these threads look again.
  void (*await)(bool (*ready)(void *arg), void *arg);
  void (*wake)(void);
  // Looks whether ready(arg), after moving what can be moved. Never waits; gives the core away to a thread that asks
  // again and again in vain.
  bool (*poll)(bool (*ready)(void *arg), void *arg);
  // Is the calling thread inside `await` or another wait of the device? Then it is in a signal handler or a plugin, and
  // must not wait for what that holds.
  bool (*awaiting)(void);
  // Has d->run called by a thread of the device's.
  void (*defer)(tt_deferred *d);
  // From now on fn(1) is called when a thread of a user's begins to move what ports have to move, fn(-1) when it stops
  // or falls asleep. One such function per process.
  void (*attend)(void (*fn)(int delta));

  const tt_shortcut_ops *shortcut; // NULL: no call is run by the calling thread
} tt_device_ops;

extern const tt_device_ops tt_device_host, tt_device_cuda;

// Can ranks on devices of this kind be in one communicator with those of others? Pure.
bool tt_device_mixes(const tt_device_id *id);

// Does the CUDA driver open, and has it a device? The first call opens it. Also true in the child of a fork whose
// parent has opened it, where each use of a GPU is an error. Any thread.
bool tt_device_cuda_opens(void);

// The row for this process's communicators: GPUs, if there are any, unless NCCL_HOST_DEVICES is set, or the program has
// asked for something of the host device before. The first call decides, and in the child of a fork the child's first.
// Any thread.
const tt_device_ops *tt_device_row(void);

// The program asks for something of the host device. Any thread.
void tt_device_want_host(void);

// Captures under way whose calls are recorded (tt_device_ops.record). Relaxed: a thread sees its own, and what others
// do meanwhile to its streams is the program's race.
extern TT_HIDDEN _Atomic int tt_captures;

// Could some stream be captured? Nothing else of captures need be asked if not.
static inline bool tt_capturing(void)
{
  return TT_UNLIKELY(atomic_load_explicit(&tt_captures, memory_order_relaxed) != 0);
}
