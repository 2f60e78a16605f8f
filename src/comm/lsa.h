// lsa.h: which ranks load from and store to each other's windows directly (NCCL's LSA team), and where a peer's window
// lies in this process (lsa.c).
#pragma once
#include "comm/register.h"

// The rank's team: `n` consecutive ranks, beginning with rank `first`. All teams of a communicator have one size.
typedef struct tt_lsa {
  int first, n;
} tt_lsa;

// The ranks of a machine are a team where they have consecutive numbers, the machines have equally many, and one-sided
// operations work; machines with unequal numbers are cut into teams of their greatest common divisor. Otherwise each
// rank is alone. Any thread.
tt_lsa tt_lsa_team(const struct ncclComm *comm);

// Where the window of rank `peer` that belongs to `w` lies in this process: *out; NULL where its memory cannot be
// mapped. The peer is in the team. Good until one of the two deregisters the window. Waits up to ten seconds for the
// peer to register; the caller has entered the communicator. `what` names the function. Errors: ncclInvalidUsage (not
// registered in time, or deregistered), ncclRemoteError (the peer has ended), that of a stopped communicator.
ncclResult_t tt_lsa_address(const struct ncclComm *comm, const char *what, const tt_window *w, int peer, char **out);
