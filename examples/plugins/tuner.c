// tuner.c: a tuner: trees for small all-reduces, rings for large ones. Version 6 of the interface.
//
//   NCCL_TUNER_PLUGIN=/path/libnccl-tuner-example.so EXAMPLE_TUNER_BYTES=65536 ./program
//
// What is worth knowing before one writes a plugin of one's own:
//  - The table has a predicted time in microseconds for each algorithm (row) and protocol (column). The least wins, so
//  a plugin makes cheap what it wants.
//    NCCL_ALGO_PROTO_IGNORE says that an entry cannot be had here: it has to stay so.
//  - Every rank asks its own instance, and all must come to the same answer: decide from what is handed over, which is
//  the same on all ranks, and from
//    settings that are. Ranks that choose differently get an error.
//  - Calls with one context never overlap; those of different communicators may. The operation begins when the answer
//  is there: do not wait for anything.
//  - A plugin that changes nothing leaves the library's own choice alone.
#include <nccl/tuner.h>
#include <stdlib.h>

typedef struct context {
  size_t small; // bytes, at most
} context;

static ncclResult_t init(void **out, uint64_t comm, size_t ranks, size_t nodes, ncclDebugLogger_t log,
                         ncclNvlDomainInfo_t *domains, ncclTunerConstants_t *constants)
{
  const char *setting = getenv("EXAMPLE_TUNER_BYTES");
  (void)comm;
  (void)domains;
  (void)constants; // what the library's model of a described machine reckons with; it may be changed here
  context *c = malloc(sizeof *c);
  if (c == NULL) {
    return ncclSystemError; // the communicator does without this tuner
  }
  c->small = setting != NULL ? strtoull(setting, NULL, 10) : 65536;
  log(NCCL_LOG_INFO, NCCL_TUNING, __FILE__, __LINE__, "example tuner: %zu ranks on %zu nodes, trees up to %zu bytes",
      ranks, nodes, c->small);
  *out = c;
  return ncclSuccess;
}

static ncclResult_t choose(void *ctx, ncclFunc_t function, size_t bytes, int operations, float **table, int algorithms,
                           int protocols, int registered, int *channels)
{
  const context *c = ctx;
  // NumAlgo rows of numProto floats, in one piece.
  float(*costs)[NCCL_NUM_PROTOCOLS] = (float(*)[NCCL_NUM_PROTOCOLS])table;
  int row = bytes <= c->small ? NCCL_ALGO_TREE : NCCL_ALGO_RING;
  (void)operations;
  (void)registered;
  (void)channels; // 0 leaves their number to the library
  if (function != ncclFuncAllReduce || row >= algorithms || protocols != NCCL_NUM_PROTOCOLS) {
    return ncclSuccess;
  }
  for (int p = 0; p < protocols; p++) {
    if (costs[row][p] != (float)NCCL_ALGO_PROTO_IGNORE) {
      costs[row][p] = 0;
      break; // the first protocol that can be had is the one with the least latency
    }
  }
  return ncclSuccess;
}

static ncclResult_t finalize(void *ctx)
{
  free(ctx);
  return ncclSuccess;
}

// getChunkSize is left out: chunks are as the library cuts them.
const ncclTuner_t ncclTunerPlugin_v6 = {.name = "Example", .init = init, .getCollInfo = choose, .finalize = finalize};
