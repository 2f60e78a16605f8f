// ras.h: a communicator in the reports of the RAS thread (src/ras).
#pragma once
#include "comm/comm.h"

// Starts the RAS thread unless it runs, and writes where it listens into what this rank tells its peers.
void tt_comm_ras_hold(struct ncclComm *c, tt_peer *me);
// The peers are known: reports show the rank from now on.
void tt_comm_ras_join(struct ncclComm *c);
// Reports show it no longer. The first step of taking a communicator down, also one that is half made.
void tt_comm_ras_leave(struct ncclComm *c);
