// children.h: communicators that are made from others: by a split, a shrink or a growth; and how a communicator's
// operations are stopped for that.
#pragma once
#include "comm/init.h"

// The name of the function that makes such a communicator, for messages. Pure.
const char *tt_child_call(tt_origin origin);
// Makes `comm` a child of args->parent, together with the other ranks that the call needs: of a split all, of a shrink
// the members, of a growth all and the new ones. With NCCL_SPLIT_NOCOLOR `comm` stays as it was. The parent's turn is
// the caller's (turns.h). Errors: those of tt_comm_init; ncclInvalidArgument and ncclInvalidUsage where the ranks'
// arguments do not fit together.
ncclResult_t tt_child_create(struct ncclComm *comm, const tt_init_args *args);

// Ends the communicator's operations, begun or queued, with `code` and the text tt_last_error(), and all that come. Its
// peers that wait for this rank see `how`: 1, as after an abort; TT_REVOKED. Children that are being made end, too.
// Afterwards no thread is in a call on the communicator, and no buffer of its operations is read or written. The handle
// stays good. Any thread that is not in such a call. Never waits for peers, but for one that is writing into this
// rank's buffers.
void tt_comm_stop(struct ncclComm *comm, ncclResult_t code, uint32_t how);
