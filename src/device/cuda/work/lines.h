// lines.h: messages in lines of 128 bytes (LL128), between two resident ranks of this machine whose GPUs reach each
// other.
//
// They take the place of the messages in the LL and TINY slots of a link. The lines lie in memory of the receiver's
// GPU, a place for each slot, and end with a flag each: the message's number, and 31 bits of a hash of its call. The
// sender's kernel writes them, and the receiver's takes each one when its flag is there. So nothing waits for a number
// of the message, and nothing is ordered by one. The slots of the link stay: the receiver counts in their head how many
// it has taken, and the sender writes their headers, for the host alone (waits.h). Messages of captured operations are
// not in lines.
//
// Of two ranks of this process, the one that connects first makes the memory of both directions. It stays until both
// ports are closed, and so longer than any kernel that writes it. Of ranks of two processes, each makes the memory of
// what it receives, and has the other one open it (ipc.h). There it stays as long as either of the two has it open:
// whatever has become of the receiver, the sender's kernels write into nobody else's memory.
#pragma once
#include "device/cuda/work/port_priv.h"

// The port is open: it can have messages in lines from now on, if it is resident and tt_port.ll128 says so. Errors:
// ncclSystemError.
ncclResult_t tt_gpu_lines_open(tt_gpu_port *p);
// It ends, and is idle.
void tt_gpu_lines_close(tt_gpu_port *p);

// Messages of the link go in lines, if both ranks can have them. The first message comes later. Errors:
// ncclUnhandledCudaError, ncclSystemError.
ncclResult_t tt_gpu_lines_connect(tt_gpu_port *p, const tt_link *link);

// A rank of another process has made lines for messages of this one. False: this one does not write such. The thread
// "tutti ipc".
bool tt_gpu_lines_take(tt_gpu_port *p, int peer, const char *lines);

// Where the next message of the link's FIFO `f` is in lines; 0: it is in its slot.
CUdeviceptr tt_gpu_lines_at(const tt_gpu_port *p, int peer, const tt_fifo *f);

// Lines of a message of so many bytes.
static inline uint32_t gpu_lines_of(size_t bytes)
{
  return (uint32_t)TT_DIV_UP(bytes + sizeof(tt_cuda_call), (size_t)TT_CUDA_LINE_DATA);
}

// The flag of a FIFO's next message, which is not 0.
uint64_t tt_gpu_lines_flag(const tt_fifo *f, const tt_call *call);
