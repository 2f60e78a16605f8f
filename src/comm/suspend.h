// suspend.h: gives the memory of a communicator's messages back while nobody needs it (ncclCommSuspend), and how much
// memory it has.
//
// What goes are the pages of FIFOs and outboxes that this rank sends through to ranks of its machine, and of FIFOs to
// and from others, unless a message is still in one. What stays: the first page of each, which says how far its FIFOs
// are; FIFOs that a network has registered, or through which a neighbour sends; the structs. All addresses stay.
#pragma once
#include <stdint.h>

#include "comm/comm.h"

// Collective. Waits until the rank's operations are complete and all ranks have come, then gives memory back; the
// communicator becomes one that is suspended. Errors: those of tt_comm_flush and of the bootstrap.
ncclResult_t tt_comm_suspend(struct ncclComm *comm);
// Collective. Waits until all ranks have come; the communicator becomes usable again. Errors: those of the bootstrap.
ncclResult_t tt_comm_resume(struct ncclComm *comm);

// Bytes that a suspension gives back now; of a suspended communicator: that it gave back. Pages that exist, not
// addresses. The launching thread.
uint64_t tt_comm_suspendable(const struct ncclComm *comm);
// Bytes that stay.
uint64_t tt_comm_persistent(const struct ncclComm *comm);
