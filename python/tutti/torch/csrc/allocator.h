// allocator.h: large CPU tensors in memory that peers map, so that operations on them copy once less.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace tutti {

// From now on PyTorch's CPU tensors of `least` bytes and more lie in memory of ncclMemAlloc, in the whole process.
// Freed memory is used again; up to `cache` bytes of it keep their pages. Where the system gives no such memory,
// tensors come from the allocator that was there before, and one warning says so. A later call changes both numbers.
// Throws when the library is not open.
void use_shared_allocator(size_t least, size_t cache);

// A tensor with one dimension in such memory, where it has 256 KiB or more, or `least` bytes of use_shared_allocator,
// which need not have been called. Any thread.
at::Tensor shared_tensor(int64_t size, const at::TensorOptions &options);

// Gives freed memory back to the system, and tries again where it refused memory. Any thread.
void empty_cache();

// Bytes by name, and "segments", "refused" (1: the system has refused memory). Any thread.
std::map<std::string, int64_t> allocator_stats();

} // namespace tutti
