// host_only.hh: before each source of nccl-tests: what nvcc has and a host compiler has not, and no kernels. Those for NCCL's device API stand behind its
// version, so nccl.h counts as the last one without.
#pragma once
#include <algorithm>
#include <nccl.h>

using std::max;
using std::min;

#undef NCCL_VERSION_CODE
#define NCCL_VERSION_CODE NCCL_VERSION(2, 27, 7)
