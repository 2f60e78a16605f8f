// waits.h: what the streams of a port wait for, in the order of submission: so it is known at which wait they stand;
// and what a link lacks.
//
// The thread that submits adds waits; the one that looks after the port (rank.c) reads them, and drops those that are
// over. Those of captured operations are kept by their capture (capture_priv.h).
#pragma once
#include "device/cuda/work/port_priv.h"

// A wait for a word.
typedef struct gpu_wait {
  const _Atomic uint32_t *word;
  uint32_t value;      // that the word reaches, or passes
  uint32_t number;     // of the work that it belongs to (tt_gpu_port_submitted)
  uint64_t sig, count; // of the call
  uint32_t peer, how;  // as in tt_wait
} gpu_wait;

// Adds one. Without memory for it nothing is known of it. The thread that submits.
void tt_gpu_waits_add(tt_gpu_port *p, const gpu_wait *wait);

// The first wait that is not over: the streams stand there, or will. Drops those before. False: none is known. One
// thread.
bool tt_gpu_waits_first(tt_gpu_port *p, gpu_wait *out);

// Frees all, when the port is closed.
void tt_gpu_waits_free(tt_gpu_port *p);

// A message that a stream waits for has not arrived on the link, or the peer has not taken one for whose slot a stream
// may wait. `blocked`: a thread may stand in the submission of a step, and wait for one more than what counts. Any
// thread.
bool tt_gpu_link_lacks(const tt_gpu_port *p, const tt_link *link, bool blocked);
// Another value when this rank, or the peer, has taken a message of the other. Any thread.
uint64_t tt_gpu_link_mark(const tt_link *link);
