// sim.h: what the parts of the simulated CUDA driver share.
//
// Locks. `sim.lock` guards everything of the process here, unless a member says otherwise; each exported function takes
// it (SIM_CALL), the scheduler's thread has it but while it steps a kernel or sleeps. The mutex in the box (box.c)
// comes after it, and nothing is called with that one held. The thread of host functions (sched.c) calls the program
// without any lock.
#ifndef TUTTI_TESTS_CUDASIM_SIM_H
#define TUTTI_TESTS_CUDASIM_SIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda/types.h"
#include "ptx/ptx.h"

// The symbols of two names, as hostcuda_cu_names.h has them for others.
#define cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v3
#define cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_v2
#define cuGraphAddKernelNode cuGraphAddKernelNode_v2

// For tests that want to stop the devices at some moment. From now on the scheduler does so many steps, and stands
// then; negative: it does all. Any thread.
void cudasim_run(long steps);
// Does it stand?
bool cudasim_stands(void);
// How many steps have done something so far.
uint64_t cudasim_steps(void);
// How many calls of the function of that name there have been.
uint64_t cudasim_calls(const char *name);

// The exported functions of the driver.
#define CU(name, version, need, parameters) CUresult cu##name parameters;
#include "device/cuda/driver.def"
#undef CU

enum {
  SIM_DEVICES = 64,
  SIM_QUEUES = 64,
  SIM_TEXT = 512,
  SIM_PAGE = 4096,
  SIM_GRANULE = 64 << 10,     // of device memory; a guard granule lies behind each allocation
  SIM_VMM_GRANULE = 2 << 20,  // of cuMemCreate
  SIM_DRIVER_VERSION = 12080, // what cuDriverGetVersion says
};

// ---- The modes, chosen by CUDASIM (modes.c) ----

struct sim_modes {
  uint64_t seed;
  int visible[SIM_DEVICES]; // the numbers of the devices that the process may see: the first `devices`
  int devices;
  int queues;                // hardware queues of a device
  bool random;               // queues, nodes of graphs, CTAs and warps in random order
  bool stores, stale, lines; // PTX_STORE_BUFFERS, PTX_STALE_READS, PTX_WHOLE_LINES
  int launches;              // room of a queue; 0: no bound
  bool launches_all;         // a full one also holds up all other threads that submit
  uint64_t slice;            // instructions that a process has a device for, while others want it; 0: no slices
  bool blocking;             // each launch of a kernel waits for its end,
  long lag_ms;               // and returns so much later
  long fail;                 // the call that fails; 0: none
  int fail_code;
  bool count;       // say at the end how many calls there were
  long deadlock_ms; // without progress, then there is a report; 0: never
  bool peers;       // devices reach each other
  uint64_t memory;  // bytes of a device
  int sms;
  bool waits;    // calls that make, map or pin memory, or load code, wait for the device's kernel
  uint64_t step; // instructions of a kernel at a time
  char box[64];  // processes of one box share devices
};

// Reads CUDASIM. False: it names something unknown, as a text on stderr says.
bool sim_modes_read(struct sim_modes *modes);

// ---- Objects ----

// What a handle that the program has stands for. Handles are numbers, not addresses: one that has ended is recognised.
enum sim_kind {
  SIM_CONTEXT = 1,
  SIM_STREAM,
  SIM_EVENT,
  SIM_MODULE,
  SIM_FUNCTION,
  SIM_GRAPH,
  SIM_NODE,
  SIM_EXEC,
  SIM_USER_OBJECT,
};

struct sim_device;
struct sim_stream;
struct sim_op;
struct sim_graph;
struct sim_capture;

struct sim_context {
  void *handle;
  struct sim_device *device;
  int retained; // of the primary context
  unsigned flags;
  CUresult failed;        // a fault that ends the context: all later calls give it
  _Atomic uint64_t peers; // bit: the device whose memory it may use. Read without the lock, while kernels run
  unsigned long long id;
  struct sim_stream *legacy;
  struct sim_stream *streams; // all living ones
};

struct sim_stream {
  void *handle;
  struct sim_context *context;
  struct sim_stream *next;
  unsigned flags;
  int priority;
  bool legacy, ended;
  unsigned long long id;
  int queue;
  struct sim_op *first, *last; // submitted and not done, by next_in_stream
  // The capture that it belongs to, and the nodes that its next one depends on.
  struct sim_capture *capture;
  struct sim_node **after;
  size_t nafter;
};

enum { SIM_AHEAD = 1024 };

// Records of an event have numbers. One in another stream may be done before an earlier one is. Other processes may
// have these words too.
struct sim_event_words {
  _Atomic uint64_t recorded;              // the last one that was submitted
  _Atomic uint64_t done;                  // all up to this one are done,
  _Atomic uint64_t ahead[SIM_AHEAD / 64]; // and those of the next ones that have their bit, by number
};

struct sim_event {
  void *handle;
  struct sim_context *context;
  unsigned flags;
  bool ended;
  struct sim_event_words *words; // &own, or shared
  struct sim_event_words own;
  int fd;       // of the shared ones that this process made, else -1
  double at_ms; // when the last record was done
  // Recorded in a capture: the nodes that it stands for.
  struct sim_capture *capture;
  struct sim_node **after;
  size_t nafter;
};

struct sim_module {
  void *handle;
  struct sim_context *context;
  struct ptx_module *ptx;
  struct sim_function *functions;
  bool ended;
};

struct sim_function {
  void *handle;
  struct sim_function *next;
  struct sim_module *module;
  const struct ptx_kernel *kernel;
  struct ptx_kernel_info info;
  int dynamic_max;
  char name[128];
};

// ---- Work: what an operation of a stream, or a node of a graph, does ----

enum sim_work_kind {
  SIM_KERNEL,
  SIM_WORDS,
  SIM_COPY,
  SIM_SET,
  SIM_HOST,
  SIM_RECORD,
  SIM_WAIT,
  SIM_EMPTY,
  SIM_LAUNCH, // of a graph
};

struct sim_work {
  enum sim_work_kind kind;
  struct sim_context *context;
  union {
    struct {
      struct sim_function *function;
      unsigned grid[3], block[3];
      size_t shared;
      void *params; // owned
    } kernel;
    struct {
      unsigned count;
      CUstreamBatchMemOpParams *list; // owned
    } words;
    struct {
      uint64_t dst, src;
      size_t bytes;
      void *staged; // owned; NULL: from src
    } copy;
    struct {
      uint64_t dst;
      uint32_t value;
      size_t count;
      unsigned width;
    } set;
    struct {
      CUhostFn fn;
      void *data;
    } host;
    struct {
      struct sim_event *event;
      uint64_t number;
    } event;
    struct sim_exec *exec;
  };
};

enum sim_host_state { SIM_HOST_NONE, SIM_HOST_QUEUED, SIM_HOST_DONE };

// How far a piece of work is.
struct sim_item {
  const struct sim_work *work;
  bool done;
  unsigned at;     // of words: the next; of a graph: unused
  size_t bytes;    // of a copy or a set: done so far
  uint64_t number; // of an event's record or wait
  unsigned left;   // in a graph: nodes before it that are not done
  struct ptx_run *run;
  enum sim_host_state host; // set by the thread of host functions
  struct sim_item *next_host;
  struct sim_op *op;
};

struct sim_op {
  struct sim_work work;
  struct sim_stream *stream;
  struct sim_op *next_in_stream, *next_in_queue;
  uint64_t number; // in the context's order of submission
  struct sim_item item;
  uint64_t launch;        // of a graph: which one
  struct sim_item *items; // of its nodes
  size_t nitems, left;
};

struct sim_queue {
  struct sim_op *first, *last;
  int length;
};

struct sim_device {
  int ordinal;
  int physical; // its number where CUDA_VISIBLE_DEVICES shows only some: other processes know it by this one
  struct sim_context *primary;
  void *reset;  // the handle of a primary context that was reset and is not there again; NULL: none was
  int retained; // how often that one is
  struct sim_queue queue[SIM_QUEUES];
  int next_queue;          // of the next stream
  int turn;                // of the queue that is looked at first
  struct sim_item *kernel; // the one that runs
  uint64_t kernels;        // that have ended
  bool ours, asked;        // of the processes that share it, this one has it now, or wants it (slices)
  uint64_t used_slice;     // instructions since it got it
};

// ---- Memory ----

enum sim_range_kind {
  SIM_DEVICE_MEMORY,
  SIM_HOST_ALLOCATED,
  SIM_HOST_REGISTERED,
  SIM_IMPORTED,
  SIM_MAPPED,
  SIM_VARIABLE
};

struct sim_heap_entry {
  _Atomic uint32_t serial; // 0: free
  _Atomic uint32_t opens;  // how often other processes have it open
};

struct sim_range {
  uint64_t base;
  size_t bytes; // as asked for; accesses beyond are out of bounds
  enum sim_range_kind kind;
  int device;      // -1: host memory
  uint64_t access; // bit: the devices that may use mapped memory
  bool read_only;
  struct sim_context *context;
  unsigned long long id;
  uint64_t file, offset; // which memory it is, for all processes: inode and place
  void *owner;           // of the kind: an import, a mapping, a module
  struct sim_heap_entry *entry;
  uint32_t serial;
};

// Of mapped memory: the reservation that holds it, as what its allocation can be exported, and its allocation's number.
struct sim_mapping {
  uint64_t base;
  size_t bytes;
  unsigned types;
  unsigned long long id;
};
void sim_mapping_of(const struct sim_range *range, struct sim_mapping *out);

// All ranges at a moment, sorted. Immutable; counted.
struct sim_ranges {
  _Atomic int references;
  size_t count;
  struct sim_range range[];
};

// ---- The process ----

struct sim_waiter { // a call of the program that waits
  struct sim_waiter *next;
  const char *call;
  char what[96];
  bool (*done)(void *arg);
  void *arg;
  pthread_cond_t wake; // done, perhaps
};

extern struct sim {
  pthread_mutex_t lock;
  pthread_cond_t changed; // the scheduler's step has ended, or it may do more
  bool started;
  _Atomic pid_t pid; // of the process that initialised it; read without the lock, which a fork may have found held
  struct sim_modes modes;
  uint64_t random;
  struct sim_device device[SIM_DEVICES];
  struct sim_ranges *ranges;
  uint64_t numbers; // of operations
  unsigned long long ids;
  long calls;     // counted for fail
  long signal_at; // the call behind which `signal` is raised; 0: none
  int signal;
  bool stepping;   // the scheduler is in a kernel, without the lock
  int quiescing;   // callers that wait for the end of its step
  bool submitting; // launches_all: someone waits for room
  struct sim_waiter *waiters;
  uint64_t progress; // steps that did something
  int news;          // of these since other processes were told
  bool stuck;        // a deadlock was reported
  long run;          // steps that the scheduler may still do; negative: any number (cudasim_run)
} sim;

// ---- Calls (call.c) ----

// For tests: raises the signal in the thread that makes the `calls`th call from now on, when it has ended; 0: never.
// Returns how many calls there have been. Any thread.
long cudasim_signal(long calls, int signal);

// Begins an exported function `name`: initialised, not inside a host function, not the call that fails; then the lock
// is held. Else the error, without the lock.
CUresult sim_begin(const char *name);
// Is this the child of a fork of the process that has the driver? It may take no lock.
bool sim_is_forked(void);
// Ends it: gives back the lock and `result`.
CUresult sim_end(CUresult result);
// The name of the function that the calling thread is in.
const char *sim_call_name(void);

// Body of an exported function: everything between runs under the lock, and its value is the call's result.
#define SIM_CALL(name, expression)       \
  CUresult sim_error_ = sim_begin(name); \
  return sim_error_ != CUDA_SUCCESS ? sim_error_ : sim_end(expression)

// Says on stderr what is wrong with the call, and gives `code`.
CUresult sim_misuse(CUresult code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// A line on stderr that begins as those do.
void sim_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// The constant's name, as CUDA_ERROR_…; NULL for an unknown one.
const char *sim_error_name(CUresult error);

// Waits (the lock is given up meanwhile) until done(arg) or, false, until a deadlock was reported.
bool sim_await(bool (*done)(void *arg), void *arg, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// Something is done that callers may wait for: wakes those for which all is.
void sim_changed(void);
// Waits until the kernel that runs on the device, if one does, has ended.
void sim_kernel_await(struct sim_device *device);
// Waits until no kernel is being stepped, so that memory may go.
void sim_quiesce(void);
// The next number of the generator.
uint64_t sim_random(void);
// Marks the calling thread as one inside a host function, which may not call the driver.
void sim_in_host_function(bool in);
// Milliseconds of a clock that never goes back.
double sim_now_ms(void);

// ---- Handles (handle.c) ----

// A handle for a new object.
void *sim_handle_new(enum sim_kind kind, void *object);
// The object of a living handle, or NULL with a text.
void *sim_object(enum sim_kind kind, const void *handle);
// The handle is that of an object that has ended.
void sim_handle_end(const void *handle);
// From now on the handle stands for another object of the same kind.
void sim_handle_renew(const void *handle, void *object);

// ---- Contexts (context.c) ----

// The calling thread's context, or NULL with CUDA_ERROR_INVALID_CONTEXT in *error, or with the fault that ended it.
struct sim_context *sim_current(CUresult *error);
// Its device; NULL: there is none.
struct sim_device *sim_device_current(void);
// The device of this number, or NULL.
struct sim_device *sim_device_of(CUdevice device);
// The number here of a device of the machine; -1: this process does not see it.
int sim_device_seen(int physical);

// ---- Ranges (range.c) ----

// Adds a range. False: it overlaps another (*other).
bool sim_range_add(const struct sim_range *range, struct sim_range *other);
// Removes those that begin at base and have this owner (any when NULL). The scheduler may be inside a kernel: quiesce.
void sim_range_remove(uint64_t base);
void sim_range_remove_owner(const void *owner);
// The range that the address is in, or NULL; valid until the next change.
const struct sim_range *sim_range_find(const struct sim_ranges *ranges, uint64_t address);
// The list of this moment, which stays as it is until sim_ranges_drop gives it back.
struct sim_ranges *sim_ranges_take(void);
void sim_ranges_drop(struct sim_ranges *ranges);
// May the context's device read or write so? Else false with a text.
bool sim_range_allows(const struct sim_ranges *ranges, const struct sim_context *context, uint64_t address,
                      size_t bytes, bool write, char why[SIM_TEXT]);
// Sets the devices that may use mapped memory within an area; false: not all of it is mapped.
bool sim_range_access(uint64_t base, size_t bytes, uint64_t devices, bool write_too);
// Inode and offset of what is mapped at an address; a number of this process and the address for private memory.
void sim_range_file(const void *address, uint64_t *file, uint64_t *offset);
// Opens a file that process `pid` has as `fd`, for a handle of that process's. -1: it has none, may not be opened, or
// the numbers are those of another file by now, not of the inode `file`.
int sim_file_of(int pid, int fd, uint64_t file);

// ---- Device memory (memory.c, heap.c) ----

// Memory for a device of this process: bytes rounded up, a guard behind. NULL: none left. *range gets base, file,
// offset, entry, serial.
bool sim_heap_alloc(int device, size_t bytes, struct sim_range *range);
// Gives back what sim_heap_alloc gave; other processes that have it open see that.
void sim_heap_free(const struct sim_range *range);
// The file of the device's heap, for other processes; its map of entries.
int sim_heap_fd(int device);
enum { SIM_HEAP_TABLE = 16 << 20 }; // bytes of the table of entries at the file's beginning

// ---- Streams and their work (stream.c, work.c, sched.c) ----

// The stream of a handle, also 0, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD of the current context. NULL with *error.
struct sim_stream *sim_stream_of(CUstream handle, CUresult *error);
// Makes a stream.
struct sim_stream *sim_stream_new(struct sim_context *context, unsigned flags, int priority);
// Hands work to a stream, or to its capture. Takes what the work owns, also on an error.
CUresult sim_submit(struct sim_stream *stream, struct sim_work *work);
// A stream that was destroyed and has nothing more to do is none of its context's any more.
void sim_stream_unlink(struct sim_stream *stream);
// Waits for all that was submitted to it before.
CUresult sim_stream_drain(struct sim_stream *stream);
// The same for all streams of the context: what frees do.
CUresult sim_context_drain(struct sim_context *context);
// Has a stream or a context pending work?
bool sim_context_busy(const struct sim_context *context);
// Checks what is known when it is submitted; CUDA_SUCCESS or a misuse.
CUresult sim_work_check(const struct sim_work *work);
// Frees what the work owns.
void sim_work_free(struct sim_work *work);
// The work of a launch: checks sizes, takes the parameters.
CUresult sim_kernel_work(struct sim_work *work, CUfunction handle, const unsigned grid[3], const unsigned block[3],
                         size_t shared, void **params, void **extra);
// A copy of it with what it owns; false: no memory.
bool sim_work_copy(struct sim_work *to, const struct sim_work *from);
// "kernel combine", "wait for word 0x… >= 7 (now 3)": for reports.
void sim_work_text(const struct sim_item *item, char *text, size_t size);
// The word that it waits for: its file (0: none) and place.
uint64_t sim_work_word(const struct sim_item *item, uint64_t *offset);

enum sim_step { SIM_STEP_NONE, SIM_STEP_SOME, SIM_STEP_DONE, SIM_STEP_FAILED };
// Does a little of a piece of work. NONE: it cannot go on now.
enum sim_step sim_item_step(struct sim_item *item);
// Ends its kernel, if one runs.
void sim_item_end(struct sim_item *item);

// Could it have a step now?
bool sim_item_ready(const struct sim_item *item);

// Starts the scheduler's thread, and that of host functions.
bool sim_sched_start(void);
bool sim_host_start(void);
// Wakes the scheduler.
void sim_sched_wake(void);
// Tells other processes that something was done, if it was.
void sim_sched_tell(void);
// Puts an operation into its device's queue; the caller has waited for room.
void sim_sched_add(struct sim_op *op);
// Has the stream's queue room for an operation (launches=N)?
bool sim_sched_room(const struct sim_stream *stream);
// Is this record of the event done? 0: there was none.
bool sim_event_is_done(const struct sim_event_words *words, uint64_t number);
// It is. False: it is too far ahead of one that is not.
bool sim_event_done(struct sim_event_words *words, uint64_t number);
// Gives a piece of work to the thread of host functions.
void sim_host_add(struct sim_item *item);
// Has that thread call a function which is no work of a stream.
void sim_host_call(CUhostFn fn, void *data);
// A fault ends the context.
void sim_context_fail(struct sim_context *context, CUresult code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// ---- Captures and graphs (capture.c, graph.c) ----

struct sim_node {
  void *handle;
  struct sim_graph *graph;
  struct sim_work work;
  struct sim_node **after;
  size_t nafter;
  size_t index;         // in the graph
  CUgraphEdgeData edge; // what the captured stream's next node comes after; all wait for its end
};

struct sim_user_object {
  void *handle;
  void *ptr;
  CUhostFn destroy;
  unsigned references;
};

struct sim_user_reference {
  struct sim_user_object *object;
  unsigned count;
};

struct sim_graph {
  void *handle;
  struct sim_node **node;
  size_t nodes;
  struct sim_user_reference *user;
  size_t users;
  bool capturing, ended;
};

struct sim_exec {
  void *handle;
  struct sim_context *context;
  struct sim_graph *graph; // a copy of its own
  uint64_t launched, done; // launches, which run in the order in which they were made
  int launches;            // submitted and not done
  bool ended;
};

struct sim_capture {
  struct sim_capture *next;
  struct sim_stream *origin;
  struct sim_graph *graph;
  CUstreamCaptureMode mode;
  pthread_t thread;
  unsigned long long id;
  CUresult invalid; // why it is: 0 when it is not
};

// Adds a node to a graph; takes what the work owns. NULL: no memory.
struct sim_node *sim_node_add(struct sim_graph *graph, struct sim_work *work, struct sim_node *const *after,
                              size_t nafter);
// An empty graph. NULL: no memory.
struct sim_graph *sim_graph_new(void);
// Frees the graph with its nodes, and its references to user objects.
void sim_graph_free(struct sim_graph *graph);
// Work for a stream that is captured becomes a node. Takes what the work owns, also on an error.
CUresult sim_capture_add(struct sim_stream *stream, struct sim_work *work);
// The event stands for what the stream, which is captured, has done so far.
CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event);
// The stream waits for the event, where one of them belongs to a capture: it joins that.
CUresult sim_capture_join(struct sim_stream *stream, struct sim_event *event);
// The stream, which is captured, is destroyed: so ends a capture that began in it.
void sim_capture_leave(struct sim_stream *stream);
// The call may not be made while the calling thread's captures are of modes that forbid it: invalidates them.
CUresult sim_capture_unsafe(void);
// The call concerns a stream or context whose capture it breaks.
CUresult sim_capture_forbid(struct sim_stream *stream);
// Work for the legacy stream while streams that wait for it are captured.
CUresult sim_capture_implicit(struct sim_context *context);
// Makes the items of a launch.
bool sim_graph_items(struct sim_op *op);
// A node of a launch is done: those behind it may be next.
void sim_graph_done(struct sim_op *op, const struct sim_item *item);
// A launch has ended: the exec's next one may begin; the last one of an exec that was destroyed ends it.
void sim_exec_done(struct sim_op *op);

// ---- Processes that share devices (box.c), reports (deadlock.c) ----

enum { BOX_PROCESSES = 64, BOX_WAITS = 64, BOX_WRITERS = 1024 };

struct box_wait {
  char text[256];
  uint64_t file, offset; // of the word, 0: none
};

// Devices are those of this process; the box has the machine's.
bool box_open(void);
// Wakes this process's scheduler; or those of others that sleep, since something was done that they may wait for.
void box_ring(void);
void box_ring_others(void);
// Sleeps until box_ring is called after this box_bell, or another process rings, but so long (microseconds) at most; 0:
// until this process rings.
uint32_t box_bell(void);
void box_sleep(uint32_t bell, long us);
// Has this process the device now? Asks for it, when not.
bool box_take(int device);
// Gives the device to the next process that asks for it; asks for it no more.
void box_give(int device);
// Does another process ask for it?
bool box_wanted(int device);
// Tells the others how it stands: has it work, can it go on; a count that grows with progress.
void box_state(bool work, bool blocked, uint64_t progress);
// Tells the others what this process's streams and calls wait for, for reports.
void box_waits(const struct box_wait *waits, int count);
// Adds to the bytes of the device that this process has; and the sum over all processes.
void box_used(int device, int64_t bytes);
uint64_t box_used_by_all(int device);
// A stream, `who`, has written the word, for reports.
void box_wrote(uint64_t file, uint64_t offset, uint32_t value, const char *who);
// True: all processes with work are blocked. *sum: of their progress.
bool box_all_blocked(uint64_t *sum);
// Writes the waits of all processes on stderr. False: another process has done that.
bool box_report(void);

// Called by the scheduler when nothing can go on: looks for a deadlock.
void sim_deadlock_look(bool work);

#endif
