// flight.h: the flight recorders of this process's communicators (device/flight.h): their names among the ranks of the
// job, and their dumps, which torch.distributed's fr_trace reads.
//
// A dump is what one rank of the job has recorded, in all of its communicators of this process. The rank of the job is
// that of the first communicator; communicators split off it keep it, and one that is made later on the same device
// takes it over.
#pragma once
#include "base/values.h"
#include "coll/coll.h"
#include "nccl.h"

struct ncclComm;

// One-sided operations as functions that are recorded, behind all others.
enum { TT_FLIGHT_PUT = TT_NCALLS, TT_FLIGHT_SIGNAL, TT_FLIGHT_WAIT, TT_FLIGHT_FUNCS };

// What is recorded as the kind of a one-sided operation. Its bytes have no type but their own.
static inline uint64_t tt_flight_rma_kind(unsigned func, int peer)
{
  return func | (uint64_t)ncclUint8 << 8 | (uint64_t)(uint32_t)peer << 32;
}
// Name of a function that is recorded: "AllReduce", "PutSignal"; "?": there is none of this number. Pure.
const char *tt_comm_flight_name(unsigned func);

// The communicator begins to record, and is dumped with the others. Its peers are known.
void tt_comm_flight_open(struct ncclComm *comm);
// It is dumped no more. It has no plans and no proxy any more. Also where it has never been opened.
void tt_comm_flight_close(struct ncclComm *comm);

// The rank in the job of a communicator that is not split off another one.
int tt_comm_flight_rank(const struct ncclComm *comm);

// Is this the first communicator of its rank of the job, whose dumps have the operations of the others too? False
// also where it does not record yet. Any thread.
bool tt_comm_flight_speaks(const struct ncclComm *comm);

// Writes what the communicator's rank of the job has recorded, at most `most` operations of each communicator. *text is
// freed with free(). Any thread, while others call. Errors: ncclSystemError (no memory).
ncclResult_t tt_comm_flight_text(const struct ncclComm *comm, tt_values_format format, size_t most, char **text,
                                 size_t *length);

// Writes a file `<prefix><rank of the job>` for each rank of the job in this process, in NCCL_FLIGHT_RECORDER_FORMAT.
// Any thread. Errors: ncclSystemError (a file cannot be written; the others are).
ncclResult_t tt_comm_flight_dump(const char *prefix);
