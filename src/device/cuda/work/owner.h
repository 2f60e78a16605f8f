// owner.h: when a rank that has stopped has its memory back: the counterpart of device/owner.h for kernels.
//
// Kernels of a rank read and write the memory of peers whose tokens have arrived. A peer that stops (abort, error)
// gives that memory back to its user. The two agree by two words in the line of the FIFO of the peer's tokens
// (tt_fifo_line):
//   user:  the kernel resolve writes `uses`, fence, looks at `ended`: set? then it reports the fault TT_CUDA_ENDED, and
//          the step does nothing. The kernel post, the last of the step, clears `uses` in any case.
//   owner: the host writes `ended`, fence, and only then looks at `uses`: set? then its streams and the end of its
//          plans wait for that.
// Either the user sees that the owner has ended, or the owner sees that its memory is in use, and waits until the step
// is over. Kernels wait for nothing, so that is soon. It needs nothing of the user's process, which may be stopped.
// FIFOs of captured operations have such lines, too.
// Exceptions: a process that has ended uses nothing; a use that does not end in time (OWNER_NS).
#pragma once
#include "device/cuda/work/port.h"

// The port is stopped. Tells the peers, and looks whether kernels of theirs use its memory. True: none does, and none
// will; or the one that does is waited for no longer, and a warning has named it. Never waits. Any thread.
bool tt_gpu_owner_free(tt_gpu_port *p);

// None of the port's own kernels runs, and none will do anything: it uses no memory of peers, whatever its kernels have
// left in the words. Any thread.
void tt_gpu_owner_leave(const tt_gpu_port *p);
