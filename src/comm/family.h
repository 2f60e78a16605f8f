// family.h: communicators that share with their parent (splitShare, shrinkShare) end when it is aborted or revoked. A
// communicator knows its parent and its children only for that, and only while both live.
#pragma once
#include "comm/comm.h"

// `child`, which has just come to life, was made from `parent`, which lives. Any thread.
void tt_family_join(struct ncclComm *parent, struct ncclComm *child);
// The communicator goes: its children have no parent afterwards. Before anything of it is freed. Any thread.
void tt_family_leave(struct ncclComm *comm);
// Ends the operations of all descendants with ncclInternalError, for good, and waits for nobody. Sets the last error of
// the calling thread where there are any. Any thread.
void tt_family_stop(struct ncclComm *comm);
