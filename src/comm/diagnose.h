// diagnose.h: what a communicator does just now, as a text for machines.
#pragma once
#include <stddef.h>

#include "nccl.h"

struct ncclComm;

// Writes the JSON of tuttiCommDiagnose. *text is freed with free(). Any thread, while others call. Errors:
// ncclSystemError (no memory).
ncclResult_t tt_comm_diagnose(const struct ncclComm *comm, char **text, size_t *length);
