#!/usr/bin/env bash
# nvidia_examples.sh BUILD [CHECKOUT]: NVIDIA's public NCCL examples (docs/examples 01 to 05, their C programs), unmodified, with their own
# Makefiles, against the headers and libraries of the build tree BUILD: each must build, exit with 0 and say so.
# CHECKOUT (or TUTTI_NCCL_CHECKOUT): a checkout of NVIDIA's NCCL repository; without one there is nothing to do. Nothing is written there.
#   git clone https://github.com/NVIDIA/nccl && tests/nvidia_examples.sh build nccl
# One example moves 1 GB and needs 8 GB of memory; with less it is left out.
set -euo pipefail
build=$(cd "$1" && pwd)
checkout=${2:-${TUTTI_NCCL_CHECKOUT:-}}
checkout=${checkout:+$(realpath -m -- "$checkout")}
cd "$(dirname "$0")/.."

skip() { echo "skipped: $*"; exit 77; }
[ -n "$checkout" ] || skip "no checkout of NVIDIA's NCCL repository given"
[ -d "$checkout/docs/examples" ] || skip "$checkout has no docs/examples"
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || skip "a sanitized library needs a sanitized program"
command -v "${CXX:=g++}" >/dev/null && command -v make >/dev/null || skip "needs $CXX and make"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp -r "$checkout/docs" "$checkout/makefiles" "$tmp/"
export LD_LIBRARY_PATH=$build/lib:$build/lib/cuda
settings=(CUDA_HOME="$build/lib/cuda" NCCL_HOME="$build" CXX="$CXX" NVCC=none)
failed=0

# example FOLDER WORDS DEVICES COMMAND...: builds what is in FOLDER, runs COMMAND on so many devices, and looks for WORDS in its output.
example() {
  local folder=$1 words=$2 devices=$3 log=$tmp/log
  shift 3
  (cd "$tmp/docs/examples/$folder/c" && make "${settings[@]}" ${mpi:+MPI=1 MPICXX="$mpi"} && echo "---- run" &&
    NCCL_HOST_DEVICES=$devices timeout 300 "$@") >"$log" 2>&1 && grep -qF "$words" "$log" &&
    sed '1,/^---- run/d' "$log" >"$tmp/said" && ! grep -qiE 'fail|error|warning|mismatch' "$tmp/said" &&
    { echo "ok: $folder${mpi:+ (MPI)}: $(grep -F "$words" "$log" | tail -1)"; return; }
  echo "FAILED: $folder${mpi:+ (MPI)}"
  tail -20 "$log"
  failed=1
}

mpi=
example 01_communicators/01_multiple_devices_single_process "SUCCESS: Multiple devices single process example completed!" 4 \
  ./multiple_devices_single_process
example 01_communicators/02_one_device_per_pthread "Success" 4 ./one_device_per_pthread
if [ "$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 12 ]; then
  example 02_point_to_point/01_ring_pattern "SUCCESS - All GPUs received correct data" 2 ./ring_pattern
else
  echo "left out: 02_point_to_point/01_ring_pattern needs 12 GB of memory to be safe"
fi
example 03_collectives/01_allreduce "Example completed successfully!" 4 ./allreduce
example 04_user_buffer_registration/01_allreduce "All NCCL communicators finalized successfully!" 4 ./allreduce_ub
example 05_symmetric_memory/01_allreduce "All NCCL communicators finalized successfully!" 4 ./allreduce_sm
example 05_symmetric_memory/02_allgather "All NCCL communicators finalized successfully!" 4 ./allgather_ce

# The same with one process per rank, for each MPI there is.
for flavour in openmpi mpich; do
  mpi=$(command -v "mpicxx.$flavour" || true)
  run=$(command -v "mpirun.$flavour" || true)
  [ -n "$mpi" ] && [ -n "$run" ] || { echo "not run with $flavour: it is not installed"; continue; }
  start=("$run" -np 4)
  if [ "$flavour" = openmpi ]; then
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  find "$tmp/docs/examples" -name '*.o' -delete
  example 01_communicators/03_one_device_per_process_mpi "All NCCL communicators created and cleaned up properly!" 4 \
    "${start[@]}" ./one_device_per_process_mpi
  example 04_user_buffer_registration/01_allreduce "All NCCL communicators finalized successfully!" 4 "${start[@]}" ./allreduce_ub
  example 05_symmetric_memory/01_allreduce "All NCCL communicators finalized successfully!" 4 "${start[@]}" ./allreduce_sm
  example 05_symmetric_memory/02_allgather "All NCCL communicators finalized successfully!" 4 "${start[@]}" ./allgather_ce
  (cd "$tmp/docs/examples" && find . -type f -perm -u+x -not -name '*.*' -path '*/c/*' -delete)
done
[ $failed = 0 ] && echo "nvidia_examples: all good"
exit $failed
