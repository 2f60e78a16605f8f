// reduction.h: how PyTorch's types and reductions become NCCL's.
#pragma once

#include <functional>

#include "checks.h"
#include "comm.h"

namespace tutti {

// One reduction of tensors of one type. A type that NCCL does not have is reduced as another one that gives the same
// result.
class Reduction {
public:
  // Throws, with the operation's and the type's name, where PyTorch defines no such reduction.
  Reduction(const c10d::ReduceOp &op, at::ScalarType type, Comm &comm, const char *operation);
  ~Reduction();
  Reduction(const Reduction &) = delete;
  Reduction &operator=(const Reduction &) = delete;

  ncclDataType_t type() const
  {
    return type_;
  }
  ncclRedOp_t op() const
  {
    return op_;
  }
  // `tensor` as the library may reduce it: contiguous, of a type that it has. It shares the memory where it can.
  at::Tensor enter(const at::Tensor &tensor) const;
  // Whether a result in the memory that enter() gives is the tensor's result: nothing is left to do.
  bool in_place(const at::Tensor &tensor) const;
  // A function that writes a result of the form of enter() to `tensor`. It may be used when this object has gone.
  std::function<void()> leaving(const at::Tensor &tensor, const at::Tensor &result) const;
  // Reduces tensors of this rank alone, in their order.
  static at::Tensor fold(c10d::ReduceOp::RedOpType op, const std::vector<at::Tensor> &inputs);

private:
  void choose(c10d::ReduceOp::RedOpType op, at::ScalarType type, const char *operation);
  void scale(const c10d::ReduceOp &op, const char *operation);

  Comm &comm_;
  at::ScalarType outer_; // the tensor's
  at::ScalarType inner_; // what the library reduces
  ncclDataType_t type_ = ncclUint8;
  ncclRedOp_t op_ = ncclSum;
  bool parity_ = false; // only the lowest bit counts
  bool own_ = false;    // op_ was made for this call
};

// The name of a reduction for texts: "BAND".
const char *reduction_name(c10d::ReduceOp::RedOpType op);

} // namespace tutti
