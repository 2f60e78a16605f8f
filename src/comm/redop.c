// redop.c: see redop.h.
#include "comm/redop.h"

#include "base/result.h"
#include "comm/comm.h"

// A handle is ncclNumOps and a number below NUMBERS; the handles end below the constants of tutti.h. Numbers are given
// in their order, and come again when all others have had their turn, but for those of living operations. The
// operation of number k is in place k & (room - 1), so those that live have numbers of different places.
enum { NUMBERS = (int)tuttiBitAnd - (int)ncclNumOps, ROOM_AT_FIRST = 8 };

static tt_userop *userop_place(const tt_comm_userops *u, ncclRedOp_t op)
{
  return &u->ops[((int)op - ncclNumOps) & (u->room - 1)];
}

// NULL: not a live handle of the communicator.
static tt_userop *userop_find(const struct ncclComm *comm, ncclRedOp_t op)
{
  tt_userop *u = (int)op >= ncclNumOps && comm->userops.room > 0 ? userop_place(&comm->userops, op) : NULL;
  return u != NULL && u->handle == op ? u : NULL;
}

// A communicator's first number. Ranks of a communicator begin as far apart as can be, so that a handle of one is soon
// none of another's.
static int first_number(const struct ncclComm *comm)
{
  uint64_t apart = (uint64_t)(NUMBERS / comm->nranks) * (uint64_t)comm->rank;
  return (int)((comm->hash + apart) % NUMBERS);
}

// Twice as many places. Two operations of different places have different ones in the new table, too. False: no memory.
static bool userop_grow(struct ncclComm *comm)
{
  const tt_comm_userops *old = &comm->userops;
  tt_comm_userops new = {.live = old->live, .room = old->room > 0 ? 2 * old->room : ROOM_AT_FIRST};
  new.next = old->room > 0 ? old->next : first_number(comm);
  new.ops = tt_calloc((size_t) new.room, sizeof *new.ops);
  if (new.ops == NULL) {
    return false;
  }
  for (int i = 0; i < old->room; i++) {
    if (old->ops[i].handle != 0) {
      *userop_place(&new, old->ops[i].handle) = old->ops[i];
    }
  }
  tt_free(old->ops);
  comm->userops = new;
  return true;
}

// The next number whose place is free: at least half of the places are.
static ncclRedOp_t userop_take_number(tt_comm_userops *u)
{
  ncclRedOp_t op;
  do {
    op = (ncclRedOp_t)(ncclNumOps + u->next);
    u->next = u->next + 1 < NUMBERS ? u->next + 1 : 0;
  } while (userop_place(u, op)->handle != 0);
  return op;
}

ncclResult_t tt_op_create(struct ncclComm *comm, const char *what, const tt_userop *u, ncclRedOp_t *op)
{
  tt_comm_userops *all = &comm->userops;
  if (all->live >= all->room / 2 && (all->room > TT_USEROPS_MOST || !userop_grow(comm))) {
    return tt_fail(ncclSystemError, "%s on rank %d: no memory for operation %d; at most %d can exist", what, comm->rank,
                   all->live, TT_USEROPS_MOST);
  }
  ncclRedOp_t handle = userop_take_number(all);
  tt_userop *place = userop_place(all, handle);
  *place = *u;
  place->handle = handle;
  all->live++;
  *op = handle;
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
  u->handle = (ncclRedOp_t)0;
  comm->userops.live--;
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
