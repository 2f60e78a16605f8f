#include "reduction.h"

#include <optional>

namespace tutti {

using RedOp = c10d::ReduceOp::RedOpType;

const char *reduction_name(RedOp op)
{
  static const char *const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return op < std::size(names) ? names[op] : "unknown";
}

static std::optional<ncclDataType_t> nccl_type(at::ScalarType type)
{
  switch (type) {
  case at::kChar: return ncclInt8;
  case at::kByte: return ncclUint8;
  case at::kInt: return ncclInt32;
  case at::kUInt32: return ncclUint32;
  case at::kLong: return ncclInt64;
  case at::kUInt64: return ncclUint64;
  case at::kHalf: return ncclFloat16;
  case at::kFloat: return ncclFloat32;
  case at::kDouble: return ncclFloat64;
  case at::kBFloat16: return ncclBfloat16;
  case at::kFloat8_e4m3fn: return ncclFloat8e4m3;
  case at::kFloat8_e5m2: return ncclFloat8e5m2;
  default: return std::nullopt;
  }
}

static std::optional<ncclRedOp_t> nccl_op(RedOp op)
{
  switch (op) {
  case RedOp::SUM: return ncclSum;
  case RedOp::AVG: return ncclAvg;
  case RedOp::PRODUCT: return ncclProd;
  case RedOp::MIN: return ncclMin;
  case RedOp::MAX: return ncclMax;
  case RedOp::BAND: return tuttiBitAnd;
  case RedOp::BOR: return tuttiBitOr;
  case RedOp::BXOR: return tuttiBitXor;
  case RedOp::PREMUL_SUM: return ncclSum; // scale() makes the operation
  default: return std::nullopt;
  }
}

static bool is_bitwise(RedOp op)
{
  return op == RedOp::BAND || op == RedOp::BOR || op == RedOp::BXOR;
}

Reduction::Reduction(const c10d::ReduceOp &op, at::ScalarType type, Comm &comm, const char *operation)
    : comm_(comm), outer_(type), inner_(type)
{
  const RedOp kind = op;
  TORCH_CHECK(kind < RedOp::UNUSED, "tutti: ", operation, ": there is no reduction ", static_cast<int>(kind));
  TORCH_CHECK(!is_bitwise(kind) || at::isIntegralType(type, true), "tutti: ", operation, ": ", reduction_name(kind),
              " is for integers and booleans, not for ", type, " (Cannot use ReduceOp.", reduction_name(kind),
              " with non-integral dtype)");
  choose(kind, type, operation);
  if (kind == RedOp::PREMUL_SUM) {
    scale(op, operation);
  }
}

Reduction::~Reduction()
{
  if (own_) {
    const CallsGuard guard(comm_.calls());
    lib().ncclRedOpDestroy(op_, comm_.handle());
  }
}

// Booleans are bytes of 0 and 1. Their sum is "any", their product "all".
static std::optional<ncclRedOp_t> bool_op(RedOp op)
{
  switch (op) {
  case RedOp::SUM:
  case RedOp::MAX:
  case RedOp::BOR: return ncclMax;
  case RedOp::PRODUCT:
  case RedOp::MIN:
  case RedOp::BAND: return ncclMin;
  case RedOp::BXOR: return ncclSum; // the lowest bit of the sum
  default: return std::nullopt;
  }
}

void Reduction::choose(RedOp op, at::ScalarType type, const char *operation)
{
  auto chosen = nccl_op(op);
  if (type == at::kBool) {
    chosen = bool_op(op);
    TORCH_CHECK(chosen.has_value(), "tutti: ", operation, ": Cannot use ReduceOp.", reduction_name(op),
                " with booleans");
    inner_ = at::kByte;
    parity_ = op == RedOp::BXOR;
  } else if (at::isComplexType(type)) {
    TORCH_CHECK(op == RedOp::SUM || op == RedOp::AVG || op == RedOp::PREMUL_SUM, "tutti: ", operation,
                " does not support ReduceOp.", reduction_name(op), " on complex tensors");
    inner_ = c10::toRealValueType(type);
  } else if (type == at::kShort || type == at::kUInt16) {
    inner_ = at::kInt; // wraps to the same 16 bits
  }
  const auto found = nccl_type(inner_);
  TORCH_CHECK(chosen.has_value() && found.has_value(), "tutti: ", operation, ": ", reduction_name(op), " of ", type,
              " is not supported; convert the tensor, to torch.float32 for example");
  type_ = *found;
  op_ = *chosen;
}

void Reduction::scale(const c10d::ReduceOp &op, const char *operation)
{
  const auto *supplement = dynamic_cast<Supplement *>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "tutti: ", operation, ": PREMUL_SUM has no factor");
  TORCH_CHECK(at::isFloatingType(inner_), "tutti: ", operation, ": PREMUL_SUM is for floating types, not for ", outer_);
  const double factor =
      supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
  at::Tensor scalar = at::full({1}, factor, at::TensorOptions().dtype(at::kDouble)).to(inner_);
  const CallsGuard guard(comm_.calls());
  comm_.check(lib().ncclRedOpCreatePreMulSum(&op_, scalar.data_ptr(), type_, ncclScalarHostImmediate, comm_.handle()),
              operation);
  own_ = true;
}

static at::Tensor reinterpret(const at::Tensor &tensor, at::ScalarType inner)
{
  if (tensor.is_complex() && !at::isComplexType(inner)) {
    return at::view_as_real(tensor.resolve_conj());
  }
  return tensor.scalar_type() == at::kBool && inner == at::kByte ? tensor.view(at::kByte) : tensor;
}

bool Reduction::in_place(const at::Tensor &tensor) const
{
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() && !parity_ &&
         (inner_ == outer_ || outer_ == at::kBool || at::isComplexType(outer_));
}

at::Tensor Reduction::enter(const at::Tensor &tensor) const
{
  if (inner_ == outer_ && tensor.is_contiguous() && !tensor.is_neg()) {
    return tensor;
  }
  return reinterpret(tensor.resolve_neg().contiguous(), inner_).to(inner_).contiguous();
}

static void reduction_write(const at::Tensor &tensor, const at::Tensor &result, bool parity)
{
  if (!parity && result.data_ptr() == tensor.data_ptr()) {
    return; // it was reduced in place
  }
  at::Tensor value = parity ? result.bitwise_and(1) : result;
  if (tensor.is_complex() && !value.is_complex()) {
    value = at::view_as_complex(value);
  }
  tensor.copy_(value.reshape(tensor.sizes()));
}

std::function<void()> Reduction::leaving(const at::Tensor &tensor, const at::Tensor &result) const
{
  return [tensor, result, parity = parity_] { reduction_write(tensor, result, parity); };
}

at::Tensor Reduction::fold(RedOp op, const std::vector<at::Tensor> &inputs)
{
  const at::Tensor result = inputs.at(0).clone(at::MemoryFormat::Contiguous);
  const bool bytes = is_bitwise(op) && result.scalar_type() != at::kBool; // as bytes, every integer has them
  const auto flat = [bytes](const at::Tensor &t) { return bytes ? t.reshape(-1).view(at::kByte) : t; };
  at::Tensor sum = flat(result);
  for (size_t i = 1; i < inputs.size(); i++) {
    const at::Tensor next = flat(inputs[i].contiguous());
    switch (op) {
    case RedOp::SUM: sum.add_(next); break;
    case RedOp::PRODUCT: sum.mul_(next); break;
    case RedOp::MIN: at::minimum_out(sum, sum, next); break;
    case RedOp::MAX: at::maximum_out(sum, sum, next); break;
    case RedOp::BAND: sum.bitwise_and_(next); break;
    case RedOp::BOR: sum.bitwise_or_(next); break;
    case RedOp::BXOR: sum.bitwise_xor_(next); break;
    default: TORCH_CHECK(false, "tutti: ", reduction_name(op), " of several tensors of one rank is not supported");
    }
  }
  return result;
}

} // namespace tutti
