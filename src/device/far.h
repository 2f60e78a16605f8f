// far.h: FIFOs of captured operations (device/cuda/work/fifos.h) whose two ranks share no memory.
//
// Each rank has a FIFO in memory of its own, and the proxy is the other side of both (proxy/far.h): it takes what
// kernels of the sender have put into the one, and puts it into the other one for those of the receiver.
#pragma once
#include "device/link.h"

// What both sides of a captured operation's FIFO reckon, and must reckon alike.
typedef struct tt_fifo_shape {
  uint32_t slots; // a power of two
  uint32_t bytes; // of a payload
  uint32_t messages;
} tt_fifo_shape;

// One side.
typedef struct tt_far_end {
  int peer;
  uint8_t kind;    // tt_proto
  bool sends;      // this rank does
  uint32_t number; // of the operation, among those captured on this FIFO of the link
  tt_fifo fifo;
  tt_fifo_shape shape;
} tt_far_end;

// The two sides do not reckon alike: names both. Returns ncclInvalidUsage.
ncclResult_t tt_far_differs(int rank, int peer, uint32_t number, const tt_fifo_shape *own, const tt_fifo_shape *its);
