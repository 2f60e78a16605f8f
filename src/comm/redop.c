// redop.c: see redop.h.
#include "comm/redop.h"

#include "base/result.h"
#include "comm/comm.h"

// A handle is ncclNumOps, a place and a tag above it. Tags tell apart the operations of a place, and those of other
// communicators; they end below the constants of tutti.h.
enum { PLACE_BITS = 22, TAGS = (int)tuttiBitAnd >> PLACE_BITS };

static ncclRedOp_t make_handle(struct ncclComm *comm, int place)
{
  uint64_t start = comm->hash + (uint64_t)comm->rank * 29, tag = (start + comm->userops.made++) % TAGS;
  return (ncclRedOp_t)(ncclNumOps + (int)tag * (1 << PLACE_BITS) + place);
}

// NULL: not a live handle of the communicator.
static tt_userop *userop_find(const struct ncclComm *comm, ncclRedOp_t op)
{
  int place = ((int)op - ncclNumOps) & ((1 << PLACE_BITS) - 1);
  tt_userop *u = place < comm->userops.n ? &comm->userops.ops[place] : NULL;
  return u != NULL && u->handle == op ? u : NULL;
}

// Takes a free place. -1: no memory, or too many.
static int userop_take_place(struct ncclComm *comm)
{
  tt_comm_userops *u = &comm->userops;
  if (u->first_free == 0) {
    return u->n < 1 << PLACE_BITS && tt_grow(&u->ops, u->n, 1, &u->room, sizeof *u->ops) ? u->n++ : -1;
  }
  int place = u->first_free - 1;
  u->first_free = u->ops[place].next_free;
  return place;
}

ncclResult_t tt_op_create(struct ncclComm *comm, const char *what, const tt_userop *u, ncclRedOp_t *op)
{
  int place = userop_take_place(comm);
  if (place < 0) {
    return tt_fail(ncclSystemError, "%s on rank %d: no memory for operation %d; at most %d can exist", what, comm->rank,
                   comm->userops.n, 1 << PLACE_BITS);
  }
  comm->userops.ops[place] = *u;
  *op = comm->userops.ops[place].handle = make_handle(comm, place);
  return ncclSuccess;
}

ncclResult_t tt_op_destroy(struct ncclComm *comm, ncclRedOp_t op)
{
  tt_userop *u = userop_find(comm, op);
  if (u == NULL) {
    return tt_fail(ncclInvalidArgument,
                   "ncclRedOpDestroy on rank %d: operation %d is not a live handle of this communicator", comm->rank,
                   (int)op);
  }
  *u = (tt_userop){.next_free = comm->userops.first_free};
  comm->userops.first_free = (int)(u - comm->userops.ops) + 1;
  return ncclSuccess;
}

static bool is_integer(ncclDataType_t type)
{
  static const uint8_t exponents[] = {
#define T(id, word, bytes, cls, exponent, ...) [nccl##id] = (exponent),
#include "base/types.def"
  };
  return exponents[type] == 0;
}

// Not all operations are there for all types.
static ncclResult_t check_type(const tt_task *t, const char *what, int code)
{
  if (!tt_opcode_is_bitwise(code) || is_integer(t->type)) {
    return ncclSuccess;
  }
  return tt_fail(
      ncclInvalidArgument,
      "%s on rank %d: operation %s is for integer types, not for %s; reduce the bits as integers of the same "
      "size, or use a logical operation",
      what, t->comm->rank, tt_opcode_name(code), tt_type_name((int)t->type));
}

ncclResult_t tt_op_take(tt_task *t, const char *what)
{
  const struct ncclComm *comm = t->comm;
  int op = (int)t->op, code = tt_opcode_of(t->op);
  if (code != TT_OP_SCALED) {
    return check_type(t, what, code);
  }
  const tt_userop *u = userop_find(comm, t->op);
  if (u == NULL) {
    return tt_fail(
        ncclInvalidArgument,
        "%s on rank %d: operation %d is neither one of ncclSum..ncclAvg and tuttiBitAnd..tuttiLogicalXor nor a live "
        "handle of this communicator",
        what, comm->rank, op);
  }
  if (u->fn == NULL && u->type != t->type) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: operation %d was created for %s, not for %s", what, comm->rank,
                   op, tt_type_name(u->type), tt_type_name(t->type));
  }
  t->scalar = u->scalar;
  t->device_scalar = u->device_scalar;
  t->fn = u->fn;
  t->arg = u->arg;
  t->kind = tt_kind_with_opcode(t->kind, u->code);
  return ncclSuccess;
}

void tt_op_resolve(const tt_task *t, tt_redop *out, const void **device_scalar)
{
  int code = tt_kind_opcode(t->kind);
  *device_scalar = code == TT_OP_SCALED ? t->device_scalar : NULL;
  if (code >= TT_OP_FUNCTION) {
    *out = (tt_redop){.type = (uint8_t)t->type, .fn = t->fn, .arg = t->arg};
    return;
  }
  tt_redop_builtin(out, t->type, t->op, t->comm->nranks);
  if (code == TT_OP_SCALED) {
    out->prescale = 1;
    out->scalar = t->scalar;
  }
}
