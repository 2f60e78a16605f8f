#!/bin/sh
# many.sh [BUILD]: ranks without a core of their own, and cores that ranks do not need, with the library in BUILD (default: build). See README.md.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:-${BUILD:-build}}
build=$(cd "$build" && pwd) || exit 1
out=$build/bench
mkdir -p "$out" || exit 1
# shellcheck source-path=SCRIPTDIR source=../build.sh
. bench/build.sh
many=$out/many
"${CC:-cc}" -std=gnu11 -O2 -g -Wall -Wextra -pthread -o "$many" bench/many/many.c bench/many/job.c -Iinclude -I"$build/include" \
  -L"$build/lib" -Wl,-rpath,"$build/lib" -lnccl || exit 1

# say LABEL ARGUMENT…
say() {
  printf '%-34s ' "$1"
  shift
  "$many" "$@" || exit 1
}

say_machine
for n in ${MANY_RANKS:-4 8 16 64}; do
  say "nothing but yields, $n processes" yield -n "$n" -c $((40000 / n))
  for mode in processes threads one; do
    for bytes in ${MANY_BYTES:-8 2048 16384}; do
      say "all-reduce $bytes B, $n $mode" latency -m $mode -n "$n" -b "$bytes" -c $((1600 / n))
    done
  done
done
for n in ${MANY_RANKS:-4 8 16 64}; do
  for kind in reduce_scatter all_gather broadcast reduce alltoall sendrecv; do
    say "$kind 2048 B, $n processes" latency -k $kind -n "$n" -b 2048 -c $((1600 / n))
  done
done
for n in 2 8 64; do
  say "idle, $n processes" idle -n $n -c 10
  say "idle, $n threads" idle -m threads -n $n -c 10
done
for n in 2 8; do
  say "a process beside $n processes" share -n $n -c 100
  say "overlap, $n processes" overlap -n $n -b 1048576 -c 1
done
for n in 2 64; do
  for mode in processes threads one; do
    say "init, $n $mode" init -m $mode -n $n -c 1
  done
done
