// schedule.h: what a schedule says, as data. Written by src/coll, run by the executors, proved by the verifier.
//
// A schedule is one rank's part of one collective algorithm. It covers one pass over the message; the executor loops it
// until the message is done. It holds strands: lists of steps that run in order. Strands of one schedule run side by
// side.
//
// Addressing. A buffer is `blocks` equal blocks (all-reduce: 1 and 1; reduce-scatter: in n, out 1; all-gather: in 1,
// out n; all-to-all: n, n). In one pass every block gives `nsub` consecutive chunks of equal size. Chunk number = block
// * nsub + sub. All references of a step have the same sub, hence the same size.
//
// A step waits until every FIFO and token among its sources has arrived and every FIFO and token among its destinations
// has room. Then it combines its data sources in the order listed, writes the result to every data destination, frees
// what it received and publishes what it sent. Nothing else blocks. FIFOs and tokens between two ranks are first-in
// first-out, so the result depends on the schedule alone.
//
// A network that reduces is a peer of FIFO references, with a number behind the ranks'. It takes one message of every
// rank that has a connection with it, and gives each of them one, their sum by the call's operation (without scaling or
// division). Ranks give it their messages in the same order.
#pragma once
#include <stdint.h>

typedef enum {
  TT_IN,       // the call's input, chunk
  TT_OUT,      // the call's output, chunk
  TT_TMP,      // scratch private to the rank, chunk = slot number (size of one chunk each)
  TT_FIFO,     // source: next message from `peer`; destination: next message to `peer`
  TT_TOKEN,    // the same without data. Says "I am here": carries the addresses of the sender's buffers and its scalar,
               // and may offer a chunk (below)
  TT_PEER_IN,  // peer's input, read directly (allowed between a token from that peer and the token that lets it go on)
  TT_PEER_OUT, // peer's output, read or written directly
  TT_DRAIN, // source, no data: waits until `peer` has given back every token this rank has sent it, or else has copies
            // of what they offer
} tt_ref_kind;

// What a token offers: a chunk of the sender's memory, that stays as it is until the token is answered, and that the
// step which takes the token reads, once and whole. Then the data may come along with the token. A permission: an
// executor may ignore it.
enum { TT_OFFER_NONE, TT_OFFER_IN, TT_OFFER_OUT };

typedef struct tt_ref {
  uint8_t kind;   // tt_ref_kind
  uint8_t offer;  // of a token that is sent: TT_OFFER_…
  int32_t peer;   // rank; own rank for IN, OUT, TMP; FIFO: nranks + k is network k that reduces (below)
  uint32_t chunk; // see above; for FIFO: the chunk whose data passes; TOKEN: the chunk that it offers
} tt_ref;

enum {
  TT_STEP_REDUCE = 1, // combine with the call's operation (pre-scaling every TT_IN and TT_PEER_IN source); otherwise
                      // copy the one source
  TT_STEP_FINAL = 2,  // the sum is complete here: apply the final division of avg
  // Where a network can send from and receive into the user's buffers (coll/zerocopy.h). Permissions: an executor may
  // ignore them.
  TT_STEP_LEND = 4,           // what the step sends stays unchanged in IN or OUT until the call ends
  TT_STEP_PLACE = 8,          // the message the step copies to OUT may be written there as soon as the call has begun
  TT_STEP_LEND_IN_PLACE = 16, // the same for a call in place
  TT_STEP_PLACE_IN_PLACE = 32,
  // Where some ranks have mapped others' outputs and some have not. The writer decides, chunk by chunk, and says so
  // with the next token, which offers the same chunk: that of the input in a copy, that of the output in a sum which
  // goes there, too. A sum that goes to peers alone is made where it is put, or not at all. TT_PEER_OUT among the
  // destinations: those alone that this rank reaches as memory. Where no destination is left nothing is done.
  TT_STEP_PUT = 64,
  // Nothing where the last token of the peer whose memory is read says that it has written the result here already.
  TT_STEP_UNLESS_PUT = 128,
  // With TT_STEP_PUT: also those that the kernel must write, where the peer does not want copies (device/host/offer.h).
  TT_STEP_PUT_FAR = 256,
};

typedef struct tt_step {
  uint16_t flags; // TT_STEP_…
  uint16_t nsrc, ndst;
  uint16_t level;    // for devices that take a rank's steps one after the other: see coll/level.h. Else 0
  uint32_t sub;      // sub-chunk number all references share
  uint32_t src, dst; // index of the first source and destination in the schedule's refs
} tt_step;

// References of a step, for each of nranks + 2: the most. To each rank one message, one token and its memory on either
// side, and to networks and own memory.
#define TT_STEP_REFS 5

typedef struct tt_strand {
  uint32_t first, count; // steps
} tt_strand;

typedef struct tt_schedule {
  int nranks, rank;
  int in_blocks, out_blocks; // blocks of the input and output buffer
  int nsub;                  // chunks per block in one pass
  int ntmp;                  // scratch slots
  int nstrands, nsteps, nrefs;
  tt_strand *strands;
  tt_step *steps;
  tt_ref *refs;
} tt_schedule;
