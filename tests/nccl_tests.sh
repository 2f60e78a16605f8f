#!/usr/bin/env bash
# nccl_tests.sh BUILD [FOLDER]: the eleven programs of NVIDIA's nccl-tests over the libraries of the build tree BUILD, with their own check (-c 1), every
# type and operation: each must find no wrong value. A library that spoils one element must be found out.
# FOLDER (or TUTTI_NCCL_TESTS); without one there is nothing to do, and nothing is written there:
# - a checkout: its sources are copied, and built by its own Makefile with $CXX (g++) against our headers; no nvcc and no GPU are needed.
#     git clone https://github.com/NVIDIA/nccl-tests && tests/nccl_tests.sh build nccl-tests
# - programs that are built, by nvcc against NVIDIA's NCCL with a shared runtime and libverifiable.so.0, which we replace:
#     make -C nccl-tests DSO=1 NCCL_HOME=... && tests/nccl_tests.sh build nccl-tests/build
set -euo pipefail
build=$(cd "$1" && pwd)
folder=${2:-${TUTTI_NCCL_TESTS:-}}
folder=${folder:+$(realpath -m -- "$folder")}
cd "$(dirname "$0")/.."

skip() { echo "skipped: $*"; exit 77; }
[ -n "$folder" ] || skip "give a checkout of nccl-tests, or a folder with its programs, in TUTTI_NCCL_TESTS"
[ -f "$folder/src/common.cu" ] || [ -x "$folder/all_reduce_perf" ] || skip "$folder is no checkout of nccl-tests and has no all_reduce_perf"
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || skip "a sanitized library needs sanitized programs"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export LD_LIBRARY_PATH=$build/tests/nccl_tests:$build/lib:$build/lib/cuda
failed=0

# build_programs CHECKOUT: into $tmp/programs. libverifiable.so counts as made (make -o): theirs are kernels, the copy here is only linked with.
build_programs() {
  if ! command -v "${CXX:=g++}" >/dev/null || ! command -v make >/dev/null; then
    skip "a checkout is built with $CXX and make"
  fi
  local programs=$tmp/programs
  mkdir -p "$programs/verifiable"
  cp -r "$1/src" "$1/os" "$1/verifiable" "$tmp/"
  cp "$build/tests/nccl_tests/libverifiable.so.0" "$programs/verifiable/libverifiable.so"
  make -C "$tmp/src" build -j 2 -o "$programs/verifiable/libverifiable.so" BUILDDIR="$programs" DSO=1 NCCL_HOME="$build" \
    CUDA_HOME="$build/lib/cuda" NVCC="$PWD/tests/nccl_tests/nvcc" CXX="$CXX" >"$tmp/log" 2>&1 || { tail -40 "$tmp/log"; echo "FAILED: nccl-tests does not build"; exit 1; }
  echo "ok: built $(find "$programs" -name '*_perf' | wc -l) programs"
}

failure() { echo "FAILED: $*"; tail -20 "$tmp/log"; failed=1; }

if [ -f "$folder/src/common.cu" ]; then
  build_programs "$folder"
  folder=$tmp/programs
fi

# program NAME OPTION...: on 2 threads with 2 ranks each; its output in $tmp/log.
program() {
  local name=$1 ranks="-t 2 -g 2"
  shift
  # Its steps are groups, and each sends what the last one received. With several ranks in a thread one group is around them all.
  [ "$name" != hypercube_perf ] || ranks="-t 4 -g 1"
  # shellcheck disable=SC2086
  NCCL_HOST_DEVICES=4 timeout 300 "$folder/$name" $ranks -c 1 -n 2 -w 1 "$@" >"$tmp/log" 2>&1
}

# right NAME OPTION...: it ends well, has lines of results, and no wrong value in any.
right() {
  program "$@" && grep -qF '# Out of bounds values : 0 OK' "$tmp/log" && [ "$(grep -cE '^ +[0-9]+ +[0-9]+ ' "$tmp/log")" -ge 3 ] &&
    { echo "ok: $*: $(grep -cE '^ +[0-9]+ +[0-9]+ ' "$tmp/log") lines, no wrong value"; return; }
  failure "$*"
}

for name in all_reduce reduce_scatter reduce; do
  right "${name}_perf" -b 1K -e 256K -f 16 -d all -o all
done
for name in all_gather broadcast alltoall alltoallv scatter gather sendrecv hypercube; do
  right "${name}_perf" -b 1K -e 256K -f 16 -d all
done
right all_reduce_perf -b 1K -e 1M -f 8 -G 2

"${CC:-cc}" -shared -fPIC -Iinclude -o "$tmp/spoil.so" tests/nccl_tests/spoil.c
if LD_PRELOAD=$tmp/spoil.so program all_reduce_perf -b 1K -e 256K -f 16 -d all; then
  failure "all_reduce_perf: spoiled results are right"
elif grep -qE '^# Out of bounds values : [1-9][0-9]* FAILED' "$tmp/log"; then
  echo "ok: spoiled results: $(grep '^# Out of bounds' "$tmp/log")"
else
  failure "all_reduce_perf: ended badly, but not for spoiled results"
fi
[ $failed = 0 ] && echo "nccl_tests: all good"
exit $failed
