// task.h: an operation of the API: all of src/comm works on it.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/opcode.h"
#include "base/util.h"
#include "coll/coll.h"
#include "device/program.h"
#include "nccl.h"

struct tt_decision;
struct tt_task_events;
struct tt_blocks;

// An operation as the API received it, arguments checked.
typedef struct tt_task {
  tt_func func;
  ncclDataType_t type;
  const void *in; // apart from `out`: the two are written one by one, and a load of both at once would wait for that
  size_t count;   // elements of one block, of `type`; with `blocks` of all blocks of the longer buffer
  void *out;
  ncclRedOp_t op;
  int root; // root, or peer of SEND and RECV
  struct ncclComm *comm;
  cudaStream_t stream;
  const void *device_scalar; // of a user's `op` at the call (tt_op_take): at the launch its handle may be gone
  uint64_t scalar;           // the same,
  tuttiRedOpFn_t fn;         // and the function and its argument
  void *arg;
  struct tt_blocks *blocks;      // lengths of the blocks (blocks.h); NULL: all have the same
  struct tt_task_events *events; // of profilers; NULL: none (profile.h)
  uint64_t user_tag;             // ncclCollConfig_t.userProfilerTag; 0: none
  uint32_t place;                // group.c's: where it belongs in the group
  tt_program_state state;        // which steps tt_comm_run has run
  bool begun, over;              // it has been called; all of them
  uint64_t kind;                 // tt_task_kind
  struct tt_decision
      *decision; // found by tt_comm_recall; NULL: none. May be another task's by now (tt_task_is_decided)
} tt_task;

enum { TT_KIND_OPCODE_SHIFT = 16 };

// What a task does, without its number of elements, in 64 bits. Two tasks with checked arguments have the same kind
// only if these arguments are equal. Unchecked arguments never have the kind of other, checked ones.
static inline uint64_t tt_task_kind(tt_func func, ncclDataType_t type, ncclRedOp_t op, int root)
{
  return (uint64_t)func | (uint64_t)TT_MIN((unsigned)type, UINT8_MAX) << 8 |
         (uint64_t)tt_opcode_of(op) << TT_KIND_OPCODE_SHIFT |
         (uint64_t)(uint32_t)root << 32; // user-defined operations come and go, and are decided alike
}

// A tt_opcode.
static inline int tt_kind_opcode(uint64_t kind)
{
  return (int)(kind >> TT_KIND_OPCODE_SHIFT & 0xff);
}

static inline uint64_t tt_kind_with_opcode(uint64_t kind, int code)
{
  return (kind & ~(0xffull << TT_KIND_OPCODE_SHIFT)) | (uint64_t)code << TT_KIND_OPCODE_SHIFT;
}

// A kind also has the number of the call's options (options.h); 0: none.
enum { TT_KIND_OPTIONS_SHIFT = 24, TT_KIND_OPTIONS_MOST = 255 };

static inline unsigned tt_kind_options(uint64_t kind)
{
  return (unsigned)(kind >> TT_KIND_OPTIONS_SHIFT) & TT_KIND_OPTIONS_MOST;
}

static inline uint64_t tt_kind_with_options(uint64_t kind, unsigned number)
{
  return (kind & ~((uint64_t)TT_KIND_OPTIONS_MOST << TT_KIND_OPTIONS_SHIFT)) | (uint64_t)number
                                                                                   << TT_KIND_OPTIONS_SHIFT;
}

// Has the task nothing to do? Where blocks have lengths of their own peers may expect an empty one.
static inline bool tt_task_is_empty(const tt_task *t)
{
  return t->count == 0 && t->blocks == NULL;
}

// Bytes of an operation's larger buffer, as the perf programs show them (launch.c).
size_t tt_task_bytes(const tt_task *t);
