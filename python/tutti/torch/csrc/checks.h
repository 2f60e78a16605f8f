// checks.h: checks of lists of tensors, and what differs between the supported versions of PyTorch (2.9 and newer).
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/version.h>

namespace tutti {

// Functions that the base class has since 2.13, if not before.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
#define TUTTI_TORCH_OVERRIDES_SINCE_2_13
using Supplement = c10d::NCCLPreMulSumSupplement; // the factor of a PREMUL_SUM
inline constexpr auto reduce_scatter_tensor_coalesced_type = c10d::OpType::COALESCED;
#else
#define TUTTI_TORCH_OVERRIDES_SINCE_2_13 override
using Supplement = c10d::PreMulSumSupplement;
inline constexpr auto reduce_scatter_tensor_coalesced_type = c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#endif

// The checks throw with the operation's title. PyTorch's programs know the texts.
namespace checks {

inline void some_inputs(const char *title, size_t count)
{
  TORCH_CHECK(count > 0, title, ": requires non-empty input tensor list");
}

inline void as_many(const char *title, size_t outputs, size_t inputs)
{
  TORCH_CHECK(outputs == inputs, title, ": requires input/output tensor lists to have the same length");
}

inline void coalesced_outputs(const char *title, const std::vector<std::vector<at::Tensor>> &lists, size_t inputs,
                              int size)
{
  TORCH_CHECK(lists.size() == static_cast<size_t>(size), title, ": output lists should be equal to world size, ", size,
              ", not ", lists.size());
  for (const auto &list : lists) {
    TORCH_CHECK(list.size() == inputs, title, ": invalid output size: (expected length ", inputs, ", got ", list.size(),
                ")");
  }
}

// The root's list of one tensor for each rank. `what`: "input" or "output".
inline void one_per_rank(const char *title, const char *what, const std::vector<std::vector<at::Tensor>> &lists,
                         int size)
{
  TORCH_CHECK(lists.size() == 1, title, ": requires a single-element ", what, " list containing a list with ", size,
              " tensors.");
  TORCH_CHECK(lists[0].size() == static_cast<size_t>(size), title, ": Incorrect ", what, " list size ", lists[0].size(),
              ": should be ", size, ", same as size of the process group.");
}

inline void none_but_at_root(const char *title, const char *what, const std::vector<std::vector<at::Tensor>> &lists)
{
  TORCH_CHECK(lists.empty(), title, ": requires empty ", what, " on non-root");
}

inline void world_size(const char *title, const char *what, size_t count, int size)
{
  TORCH_CHECK(count == static_cast<size_t>(size), title, ": ", what, " tensor list size ", count,
              " does not match world size ", size);
}

} // namespace checks
} // namespace tutti
