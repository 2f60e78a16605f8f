#!/usr/bin/env bash
# hostcuda_floats.sh BUILD: cuda_fp16.h, cuda_bf16.h and cuda_fp8.h in C++: every function gives for every number what CUDA's headers give on the host
# (hostcuda/floats.txt), and programs that leave conversions and operators out compile.
# With TUTTI_CUDA_INCLUDE, a folder of NVIDIA's headers, they are asked once more.
set -euo pipefail
cd "$(dirname "$0")/.."
cxx=${CXX:-c++}
command -v "$cxx" >/dev/null || { echo "skipped: needs a C++ compiler"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# compare FOLDER OPTION...: what floats.cc prints with the headers of FOLDER.
compare() {
  local folder=$1
  shift
  "$cxx" -O2 -I"$folder" "$@" -o "$tmp/floats" tests/hostcuda/floats.cc
  "$tmp/floats" >"$tmp/said"
  diff -u tests/hostcuda/floats.txt "$tmp/said" || { echo "FAILED: other results with the headers of $folder"; exit 1; }
  echo "ok: $(wc -l <"$tmp/said") functions with the headers of $folder"
}

compare include/hostcuda -std=c++11 -Wall -Wextra -Werror
[ -z "${TUTTI_CUDA_INCLUDE:-}" ] || compare "$TUTTI_CUDA_INCLUDE" -std=c++17

cat >"$tmp/bare.cc" <<'END'
#include <cuda_fp8.h>
int main()
{
  __half a = __float2half(1.5f);
  __nv_bfloat16 b = __float2bfloat16(2.5f);
  return __half2float(__hadd(a, a)) == 3 && __bfloat162float(__hmul(b, b)) == 6.25f ? 0 : 1;
}
END
"$cxx" -std=c++11 -Wall -Werror -Iinclude/hostcuda -D__CUDA_NO_HALF_OPERATORS__ -D__CUDA_NO_HALF_CONVERSIONS__ -D__CUDA_NO_HALF2_OPERATORS__ \
  -D__CUDA_NO_BFLOAT16_CONVERSIONS__ -D__CUDA_NO_BFLOAT16_OPERATORS__ -D__CUDA_NO_BFLOAT162_OPERATORS__ -DCUDA_NO_HALF -o "$tmp/bare" "$tmp/bare.cc"
"$tmp/bare"
echo "hostcuda_floats: all good"
