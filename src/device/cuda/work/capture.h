// capture.h: plans as parts of the program's graphs.
#pragma once
#include "device/cuda/work/submit.h"

// Records the plans of n ranks of this process and of one communicator, at most one of each, into the captures that
// their streams are in: of any mode, one for all or several. Then all lanes are done, and the plans can serve again:
// graphs keep nothing of them but the buffers of their calls and their factors in memory. They have scratch of their
// own, in memory of the device, which the peers' devices must be able to reach. FIFOs of links are as before.
//
// A replay is one run of the plans. Ranks replay their graphs, and make their other calls, in any order in time, but
// each of the graph's operations as often and in the same order as their peers do. All ranks of a communicator capture
// the same operations in the same order; one that throws a capture away has captured. Replays of one operation follow
// one another, also of two executable graphs made of one capture. Against other plans of the port they are not ordered.
//
// Ranks that share a GPU and have graphs of their own need streams that share no hardware queue: the graph of one
// stands behind the other's, and that waits for it. In one graph they may share everything.
//
// Called with no context in particular, by the thread that may submit to the streams. Errors, and then nothing has been
// recorded: ncclInvalidUsage (a stream is not captured, or its capture is invalid; the operation is a function of the
// program's; the peer has captured another operation). Others: ncclUnhandledCudaError, ncclSystemError; all n ports are
// stopped if something has been recorded.
ncclResult_t tt_gpu_capture(tt_gpu_work *works, int n);

// How many plans of the port are in graphs that the program has not yet destroyed. The driver tells of the end of a
// graph in a thread of its own, a little later.
int tt_gpu_port_captures(tt_gpu_port *p);

// Is any of them left? A graph whose end the driver has told of has none. Calls no function of the driver. Any thread.
bool tt_gpu_port_in_graphs(const tt_gpu_port *p);

// *any: does a replay run, or wait to? Any thread. Errors: ncclUnhandledCudaError: such work has failed.
ncclResult_t tt_gpu_port_replays(tt_gpu_port *p, bool *any);

// What a replay of the port waits for: for which rank, in which call, at which step. *mark: another value when the
// replay has moved since the last look. False: none waits. Calls no function of the driver. One thread at a time.
bool tt_gpu_port_waits(tt_gpu_port *p, tt_wait *wait, uint64_t *mark);
