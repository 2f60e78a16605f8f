#!/usr/bin/env bash
# nccl_tests.sh BUILD [FOLDER]: the eleven programs of NVIDIA's nccl-tests over the libraries of the build tree BUILD, with their own check (-c 1), every
# type and operation: each must find no wrong value. A library that spoils one element must be found out.
# FOLDER (or TUTTI_NCCL_TESTS): where the programs are; without it there is nothing to do. They must load libnccl.so.2, libcudart.so.12 or .13
# and libverifiable.so.0 (nccl-tests' DSO=1): the last of these is replaced with ours, which computes on the host. Nothing is written there.
set -euo pipefail
build=$(cd "$1" && pwd)
folder=${2:-${TUTTI_NCCL_TESTS:-}}
folder=${folder:+$(realpath -m -- "$folder")}
cd "$(dirname "$0")/.."

skip() { echo "skipped: $*"; exit 77; }
[ -n "$folder" ] || skip "no folder with the programs of nccl-tests given (TUTTI_NCCL_TESTS)"
[ -d "$folder" ] || skip "$folder is no folder"
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || skip "a sanitized library needs sanitized programs"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export LD_LIBRARY_PATH=$build/tests/nccl_tests:$build/lib:$build/lib/cuda
failed=0
failure() { echo "FAILED: $*"; tail -20 "$tmp/log"; failed=1; }

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
