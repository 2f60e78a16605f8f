// redop.c: operations that a program makes: pre-multiplied sums, and its own functions.
#include "api/api_priv.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/redop.h"
#include "tutti.h"

static ncclResult_t make_scaled(struct ncclComm *comm, ncclRedOp_t *op, const void *scalar, ncclDataType_t datatype,
                                ncclScalarResidence_t residence)
{
  size_t size = tt_type_size((int)datatype);
  if (op == NULL || scalar == NULL || size == 0 ||
      (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)) {
    return tt_fail(ncclInvalidArgument,
                   "ncclRedOpCreatePreMulSum on rank %d: op is %p, scalar is %p, datatype is %d, residence is %d",
                   comm->rank, (void *)op, scalar, (int)datatype, (int)residence);
  }
  tt_userop u = {.code = TT_OP_SCALED, .type = datatype};
  if (residence == ncclScalarHostImmediate) {
    memcpy(&u.scalar, scalar, size);
  } else {
    u.device_scalar = scalar;
  }
  return tt_op_create(comm, "ncclRedOpCreatePreMulSum", &u, op);
}

static ncclResult_t make_function(struct ncclComm *comm, ncclRedOp_t *op, tuttiRedOpFn_t fn, int commutes, void *arg)
{
  if (op == NULL || fn == NULL || (commutes != 0 && commutes != 1)) {
    return tt_fail(ncclInvalidArgument,
                   "tuttiRedOpCreateUser on rank %d: op is %p, fn is %s, commutes is %d; op and fn must be given, "
                   "commutes must be 0 or 1",
                   comm->rank, (void *)op, fn == NULL ? "NULL" : "given", commutes);
  }
  tt_userop u = {.code = commutes ? TT_OP_FUNCTION : TT_OP_ORDERED, .fn = fn, .arg = arg};
  return tt_op_create(comm, "tuttiRedOpCreateUser", &u, op);
}

TT_TWIN(ncclRedOpCreatePreMulSum);
TT_EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                                ncclScalarResidence_t residence, ncclComm_t comm)
{
  INSIDE(comm, "ncclRedOpCreatePreMulSum", true, make_scaled(comm, op, scalar, datatype, residence));
}

TT_EXPORT ncclResult_t tuttiRedOpCreateUser(ncclRedOp_t *op, tuttiRedOpFn_t fn, int commutes, void *arg,
                                            ncclComm_t comm)
{
  INSIDE(comm, "tuttiRedOpCreateUser", true, make_function(comm, op, fn, commutes, arg));
}

TT_TWIN(ncclRedOpDestroy);
TT_EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
  INSIDE(comm, "ncclRedOpDestroy", false, tt_op_destroy(comm, op));
}
