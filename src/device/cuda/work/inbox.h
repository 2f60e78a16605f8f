// inbox.h: messages in memory of the receiver's GPU, between two resident ranks of this machine whose GPUs reach each
// other.
//
// Lines (LL128) take the place of the messages in the LL and TINY slots of a link, 128 bytes each. They have a place
// for each slot, and end with a flag each: the message's number, and 31 bits of a hash of its call. The sender's kernel
// writes them, and the receiver's takes each one when its flag is there. So nothing waits for a number of the message,
// and nothing is ordered by one. The slots of the link stay: the receiver counts in their head how many it has taken,
// and the sender writes their headers, for the host alone (waits.h).
//
// Payloads of SIMPLE slots lie here, too, if the port has peers in other processes of its machine: then plans use no
// buffers of peers (tt_gpu_walk_fifos_only). Their headers stay in the slots, and are written behind them as ever.
// Messages of captured operations are in neither.
//
// Of two ranks of this process, the one that connects first makes the memory of both directions. It stays until both
// ports are closed, and so longer than any kernel that writes it. Of ranks of two processes, each makes the memory of
// what it receives, and has the other one open it (ipc.h). There it stays as long as either of the two has it open:
// whatever has become of the receiver, the sender's kernels write into nobody else's memory.
#pragma once
#include "device/cuda/work/port_priv.h"

// The port is open: it can have inboxes from now on, if it is resident. Errors: ncclSystemError.
ncclResult_t tt_gpu_inbox_open(tt_gpu_port *p);
// The port closes. It is idle.
void tt_gpu_inbox_close(tt_gpu_port *p);

// Messages of the link go that way, if both ranks can have that. The first message comes later. Errors:
// ncclUnhandledCudaError, ncclSystemError; the port has been stopped, now if the peer has gone.
ncclResult_t tt_gpu_inbox_connect(tt_gpu_port *p, const tt_link *link);

// A rank of another process has made memory for messages of this one. False: this one does not write there. The thread
// "tutti ipc".
bool tt_gpu_inbox_take(tt_gpu_port *p, int peer, const char *memory);

// Where the next message of the link's FIFO `f` is; 0: in its slot. *lines: in lines, else its payload is there.
CUdeviceptr tt_gpu_inbox_at(const tt_gpu_port *p, int peer, const tt_fifo *f, bool *lines);

// Lines of a message of so many bytes.
static inline uint32_t gpu_lines_of(size_t bytes)
{
  return (uint32_t)TT_DIV_UP(bytes + sizeof(tt_cuda_call), (size_t)TT_CUDA_LINE_DATA);
}

// The flag of a FIFO's next message, which is not 0.
uint64_t tt_gpu_lines_flag(const tt_fifo *f, const tt_call *call);
