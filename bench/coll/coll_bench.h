// coll_bench.h: what the driver and the measuring processes of `make bench` share: the points, the messages between
// them, and the table that each library fills in.
//
// Every library's processes live through the whole run. Each is connected to the driver by a socket and sleeps in
// read() until it is told to measure one point; so the libraries are measured in turn, point by point, and whatever
// else the machine does meets them alike.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  COLL_ALL_REDUCE,
  COLL_REDUCE_SCATTER,
  COLL_ALL_GATHER,
  COLL_BROADCAST,
  COLL_REDUCE,
  COLL_ALL_TO_ALL,
  COLL_SEND_RECV, // a ring: send to the next rank, receive from the one before
  COLL_COUNT
} coll_kind;

#define COLL_ROOT 0
#define COLL_BLOCKS_MAX 32
#define COLL_LACKS (-1)                     // answer: the library has no such collective
#define COLL_BUFFER_ENV "COLL_BENCH_BUFFER" // bytes of each of a rank's two buffers
#define COLL_SOCKET_ENV "COLL_BENCH_SOCKET" // name of the driver's socket, in the abstract space

// One call: float32, sum, `count` floats per block (the whole buffer, or one rank's part of it where ranks have parts).
typedef struct coll_call {
  coll_kind kind;
  const float *in;
  float *out;
  size_t count;
} coll_call;

// One library. All functions return 0, or print why not and return another value, which ends the process.
typedef struct coll_library {
  unsigned lacks;                  // collectives that the library does not have, a bit per coll_kind
  int batch;                       // calls between two settles while time is taken; 0: as many as there are
  int same_buffer;                 // broadcast sends from the buffer it receives in, as MPI_Bcast does
  int (*call)(const coll_call *c); // one call; may return before it is complete
  int (*settle)(void);             // until every call so far is complete on this rank
  int (*barrier)(void);            // until every rank is here, and nothing of an earlier call needs this rank any more
  void *(*buffer)(size_t bytes);   // memory of the kind the library is to be measured with; NULL on failure
} coll_library;

enum { COLL_ORDER_CHECK, COLL_ORDER_TIME, COLL_ORDER_END };

// Driver to rank.
typedef struct coll_order {
  int32_t what, kind;
  int64_t bytes; // of the large buffer
  int32_t cold;  // walk through the buffers instead of using the same place again
  int32_t blocks;
  int64_t calls; // per block
} coll_order;

// Rank to driver: at first to say who it is (wrong: number of ranks), then after each order.
typedef struct coll_answer {
  int32_t rank;
  int32_t wrong;                   // elements, or COLL_LACKS
  double seconds[COLL_BLOCKS_MAX]; // per call, for each block
} coll_answer;

// The life of a measuring process: connects to the driver, obeys until the end. Returns the exit status.
int coll_obey(const coll_library *lib, int rank, int nranks);

#ifdef __cplusplus
}
#endif
