// kernels.h: what the host and the kernels share: the arguments of the kernels, and what lies in memory that both see.
//
// All kernels have one form, a step of a schedule (tt_cuda_step), of which any part may be missing:
//   resolve  checks what has arrived, finds the addresses of all operands, and says whether the step may go on
//   combine  makes the result; here kernels differ: combine of a type, copy, bitwise, logical…
//   post     hands over the messages that the step has sent, gives back what it has received
//   arrive   writes this rank's tokens: where its buffers are
// A small step is one launch of one CTA, with as many warps as have something to do. A large one is a launch that
// resolves, launches of many CTAs that combine, and one that posts. Each looks at the port's stop word first, and does
// nothing if it is set.
//
// A kernel waits for nothing: the stream has waited before (cuStreamWaitValue32). The exception is a walk, where a port
// is resident (work/walk.h): one launch carries out lists of steps (tt_cuda_item) side by side, and waits itself.
//
// Plain C, of the part that C and C++ have in common. Addresses are uint64_t: of device memory, or of host memory that
// the driver has mapped for the device.
#pragma once
#include <stdint.h>

enum {
  TT_CUDA_THREADS = 256, // of a CTA, at most (tt_kernel_threads)
  TT_CUDA_WARP = 32,
  TT_CUDA_PACK = 16, // bytes that a thread moves at a time
  // A message in lines (work/inbox.h): its call (tt_cuda_call), and behind it the payload. Each line ends with the
  // flag.
  TT_CUDA_LINE = 128,
  TT_CUDA_LINE_DATA = 120
};

// Not compared in counts: TT_SIG_DECIDED of device/lane.h.
#define TT_CUDA_DECIDED (1ull << 63)

// The header of a message or token: tt_slot of device/fifo.h, as the device sees it.
typedef struct tt_cuda_slot {
  uint32_t seq, bytes;
  uint64_t sig, count;
  uint64_t in, out; // from here on: tt_desc, of a token
  uint32_t in_mem, out_mem;
  uint64_t scalar;
  uint32_t freed, along;
} tt_cuda_slot;

// The reader's line of a FIFO of tokens: tt_fifo_line of device/fifo.h.
typedef struct tt_cuda_line {
  uint32_t head;
  uint32_t uses;  // resolve sets it before the rank's kernels use the peer's memory, post clears it afterwards
  uint32_t ended; // the peer's memory must not be used
} tt_cuda_line;

// An allocation of a peer's, as its tokens name it, and where this rank has it. The last one of a list has `handle` 0.
typedef struct tt_cuda_map {
  uint64_t remote, bytes; // its address in the peer's process, and its size
  uint64_t here;          // its address in this one
  uint32_t handle, unused;
} tt_cuda_map;

// Where an operand is: an address, or a place in a buffer of the peer whose token has arrived in `slot`.
typedef enum { TT_CUDA_AT, TT_CUDA_PEER_IN, TT_CUDA_PEER_OUT } tt_cuda_where;

// An operand of a step, or something else that it waits for.
typedef struct tt_cuda_ref {
  uint64_t at;     // address, or offset into the peer's buffer
  uint64_t bytes;  // that the step uses of it
  uint64_t slot;   // address of the header that must have arrived; 0: none
  uint64_t maps;   // address of the peer's list of allocations; 0: the peer's addresses are this process's
  uint64_t scalar; // address of the factor of an own operand; 0: there is none. A peer's has come with its token
  uint64_t line;   // of an operand in a peer's memory: address of the line of the FIFO that its tokens come by; else 0
  uint64_t lines;  // of a message in lines: their flag, its number in the lower half; `at`: of the first line. Else 0
  uint64_t keep;   // of a token that later steps look at: where its header lies on when the slot is given back; else 0
  uint32_t seq;    // of that header
  int32_t peer;    // for the report of a fault
  uint8_t where;   // tt_cuda_where
  uint8_t scaled;  // multiply the operand by its factor first
  uint8_t data;    // it is an operand; else only its header counts
  uint8_t unused[5];
} tt_cuda_ref;

// An operand found: what combine reads.
typedef struct tt_cuda_operand {
  uint64_t at;
  uint64_t scalar; // the factor, in the bits of the type
  uint64_t lines;  // as in tt_cuda_ref
  uint32_t scaled;
  uint32_t fault; // tt_cuda_fault_code
} tt_cuda_operand;

typedef enum {
  TT_CUDA_FINE,
  TT_CUDA_NOT_THERE, // the header has another number: the stream was released before it came
  TT_CUDA_MISMATCH,  // the peer is in another call: `sig` and `count` are its own
  TT_CUDA_ENDED,     // the peer has stopped: its memory is its program's again
  TT_CUDA_UNMAPPED,  // this rank has no memory where the peer's token says: `sig` is the handle, `count` the address
  TT_CUDA_SHUT       // the peer has closed the window of a put: `sig` is its number
} tt_cuda_fault_code;

// The first fault of a port, in host memory. `code` is written last, and once.
typedef struct tt_cuda_fault {
  uint32_t code;
  int32_t peer;
  uint64_t sig, count;
  uint64_t own_sig, own_count; // of the call that the rank itself is in
  uint32_t claimed, unused;    // 1: a CTA is about to report. Groups of a walk may find faults at the same time
} tt_cuda_fault;

// What all kernels of a port look at.
typedef struct tt_cuda_port {
  uint64_t stop;  // address of the stop word: not 0: do nothing. Host memory
  uint64_t fault; // of its tt_cuda_fault
  uint64_t go;    // of a word of device memory, which resolve writes: 1: the step may go on
} tt_cuda_port;

typedef struct tt_cuda_call {
  uint64_t sig, count; // as in tt_slot
} tt_cuda_call;

// resolve. operands[i] belongs to refs[i].
typedef struct tt_cuda_resolve {
  uint64_t refs;         // address of the tt_cuda_ref
  uint32_t nrefs;        // 0: there is nothing to resolve
  uint32_t scalar_bytes; // of the type
} tt_cuda_resolve;

// tt_red_kind and tt_red_bit_kind of device/reduce.h.
typedef enum { TT_CUDA_SUM, TT_CUDA_PROD, TT_CUDA_MAX, TT_CUDA_MIN, TT_CUDA_FIRST } tt_cuda_kind;
typedef enum { TT_CUDA_AND, TT_CUDA_OR, TT_CUDA_XOR } tt_cuda_bit_kind;

// Sources first, then destinations. A destination may be identical to a source, never partly overlap one.
typedef struct tt_cuda_combine {
  uint64_t first; // bytes of each operand to leave out: a large step is several launches
  uint64_t count; // elements; of copy and of bitwise operations: bytes; 0: there is no data
  uint64_t mul;   // multiplier of the final division (div_make); 0: there is none
  uint32_t shift; // and its shift
  uint32_t nsrc, ndst;
  uint32_t kind;  // of combine tt_cuda_kind, of the others tt_cuda_bit_kind
  uint32_t lines; // of each message of the step that is in lines, 0: none is. Of walks, in steps of one CTA
  uint32_t unused;
  uint32_t cta, ctas; // of so many CTAs that make the data, this is the cta-th. Walks set them; 0: all of the launch
  uint64_t mask, one; // of logical operations: the bits that make an element true; the code of 1
} tt_cuda_combine;

// What arrive and post write.
typedef struct tt_cuda_post {
  uint64_t at;     // address of a header, or of a word
  uint32_t seq;    // of the header; value of the word
  uint32_t bytes;  // payload of the message
  uint32_t word;   // it is a word alone: the head of a FIFO
  uint32_t halted; // written also if the step must not go on
  uint32_t plain;  // nothing is ordered before it: of messages in lines
  uint32_t unused;
  uint64_t clear; // address of a word that is set to 0 before; 0: none is
} tt_cuda_post;

typedef struct tt_cuda_posts {
  uint64_t posts; // address of the tt_cuda_post
  uint32_t nposts;
  uint32_t unused;
} tt_cuda_posts;

// arrive. The same token for every peer; `bytes` of the posts are not looked at.
typedef struct tt_cuda_arrive {
  tt_cuda_posts to;
  uint64_t in, out; // as in tt_cuda_slot
  uint32_t in_mem, out_mem;
  uint64_t scalar;    // the factor,
  uint64_t scalar_at; // or the address where it is when the kernel runs, in `scalar_bytes`; 0: `scalar` is it
  uint32_t scalar_bytes;
  uint32_t freed;
} tt_cuda_arrive;

// The argument of every kernel but walks: one CTA, or any number of CTAs for a part of `combine` alone.
typedef struct tt_cuda_step {
  tt_cuda_port port; // `go` 0: no launch of the step resolves, and none asks
  tt_cuda_call call;
  uint64_t operands; // address of the tt_cuda_operand, device memory: resolve writes them, combine reads them
  tt_cuda_resolve resolve;
  tt_cuda_combine combine;
  tt_cuda_posts post;
  tt_cuda_arrive arrive;
  uint64_t start, stop; // addresses where a launch of one CTA that goes on writes when it began and when it ended, in
                        // nanoseconds of the GPU's clock; 0: nowhere
} tt_cuda_step;

// A word that a walk waits for, until it reaches or passes the value.
typedef struct tt_cuda_wait {
  uint64_t at;
  uint32_t value, unused;
} tt_cuda_wait;

// What a group of a walk's CTAs does one after the other. The first CTA carries out the step; or, of a part of
// `combine` alone, all CTAs of the group do.
typedef struct tt_cuda_item {
  tt_cuda_step step;
  uint64_t next;  // address of the next item; 0: it is the last one
  uint64_t waits; // address of the tt_cuda_wait
  uint32_t nwaits;
  uint32_t copies; // the data is copied; else the kernel makes it
  uint64_t meet;   // address of a count, in device memory, of how many of the group's CTAs have come, 0 before the
                   // launch: by it they meet before and behind a step of all of them; 0: the step is the first CTA's
  uint64_t over;   // address of a word of device memory, 0 before the launch, that is `number` when the item is over,
                   // for another group that waits for that; 0: none does
  uint64_t place;  // address of a word of the host that is `stands` while the walk waits, else 0; 0: there is none
  uint32_t number, stands;
} tt_cuda_item;

// The argument of a walk.
typedef struct tt_cuda_walk {
  uint64_t first; // address of the addresses of each group's first item; 0: the group has none
  uint32_t ctas;  // of a group, one behind the other
  uint32_t unused;
} tt_cuda_walk;

// put: data for a peer's window (device/one_sided.h). `operands`: the source, then the place in the window, which the
// host has found by then. Each CTA counts itself in `writing` while it may write.
typedef struct tt_cuda_put {
  tt_cuda_port port;
  uint64_t operands;     // address of two tt_cuda_operand
  uint64_t first, count; // bytes to leave out, and to write: a large put is several launches
  uint64_t open, number; // address of a word that is `number` as long as the window is open
  uint64_t writing;      // address of the count
  int32_t peer;
  uint32_t unused;
} tt_cuda_put;

// take: one CTA. Places payloads that have come over the network, one after the other.
typedef struct tt_cuda_payload {
  tt_cuda_operand operands[2]; // where it has come, and its place in the window
  uint64_t bytes;
} tt_cuda_payload;

typedef struct tt_cuda_take {
  tt_cuda_port port;
  uint64_t list; // address of the address of the payloads, and behind it of their number, 32 bits
} tt_cuda_take;

// signal: one CTA. Counts a peer's signal up, and gives the turn to the next operation with that peer.
typedef struct tt_cuda_signal {
  tt_cuda_port port;
  uint64_t count, value; // address of the count, and what it is now
  uint64_t turn;         // address of the number of operations that are over,
  uint32_t over;         // and that number
  uint32_t unused;
} tt_cuda_signal;
