#!/usr/bin/env bash
# public_plugins.sh BUILD [CHECKOUTS]: public plugins for NCCL, built from their own sources, unmodified, run over the libraries of the build tree BUILD, and what
# they tell compared with what the job did (tests/public/job.c: so many all-reduces, so many sends and receives, among two processes).
# CHECKOUTS (or TUTTI_PUBLIC_PLUGINS): a folder with checkouts of those that are to be tried; without one there is nothing to do. Sources are not written to.
#   nccl                     github.com/NVIDIA/nccl: its examples of all kinds, Inspector
#   CoMMA                    github.com/google/CoMMA with its submodule; cargo must be able to build it, or target/release/libnccl_profiler.so be there
#   nccl-fastsocket          github.com/google/nccl-fastsocket; needs the history of nccl, for the headers of NCCL 2.19
#   aws-ofi-nccl             github.com/aws/aws-ofi-nccl; needs CUDA's headers, libfabric, hwloc, autotools
#   nccl-rdma-sharp-plugins  github.com/Mellanox/nccl-rdma-sharp-plugins; needs CUDA's headers, libibverbs, autotools
# CUDA_HOME: NVIDIA's toolkit (default /usr/local/cuda), of which only headers are used.
set -euo pipefail
build=$(cd "$1" && pwd)
from=${2:-${TUTTI_PUBLIC_PLUGINS:-}}
from=${from:+$(realpath -m -- "$from")}
cd "$(dirname "$0")/.."
root=$PWD

skip() { echo "skipped: $*"; exit 77; }
[ -n "$from" ] || skip "no folder with checkouts of plugins given"
[ -d "$from" ] || skip "$from is no folder"
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || skip "a sanitized library needs sanitized programs"
command -v "${CXX:=g++}" >/dev/null && command -v "${CC:=gcc}" >/dev/null && command -v python3 >/dev/null || skip "needs $CC, $CXX and python3"
cuda=${CUDA_HOME:-/usr/local/cuda}
failed=0
ran=0

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
reduces=25 pairs=10 pieces=18 # an all-reduce of 1 MiB between two ranks is 18 messages each way
"$CC" -O1 -Iinclude -o "$tmp/job" tests/public/job.c -L"$build/lib" -lnccl
export LD_LIBRARY_PATH=$build/lib:$build/lib/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
network=(NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1)
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,TUNING,PROFILE,ENV

passed() {
  echo "ok: $*"
  ran=$((ran + 1))
}
failure() {
  echo "FAILED: $*"
  [ ! -s "$tmp/log" ] || tail -25 "$tmp/log"
  failed=1
}
has() { [ -d "$from/$1" ] || { echo "not run: there is no $1"; return 1; }; }

# built WHAT COMMAND...: runs it; when it fails the plugin is not tried, which is a failure.
built() {
  local what=$1
  shift
  "$@" >"$tmp/log" 2>&1 || { failure "$what does not build"; return 1; }
}

# job WHAT [VARIABLE=VALUE...]: runs the job; its output is in $tmp/log.
job() {
  local what=$1
  shift
  env "$@" timeout 300 "$tmp/job" $reduces $pairs >"$tmp/log" 2>&1 || { failure "$what: the job fails"; return 1; }
}

# said WHAT WORDS...: the log has each of the WORDS.
said() {
  local what=$1 words
  shift
  for words in "$@"; do
    grep -qF "$words" "$tmp/log" || { failure "$what: does not say: $words"; return 1; }
  done
  passed "$what: $(grep -m 1 -F "$1" "$tmp/log" | sed 's/.*NCCL INFO //' | cut -c1-150)"
}

# counted WHAT COUNTER FILES EXPECTED...: what tests/public/count.py finds in each of two files (one per rank) is EXPECTED, "name number" each.
counted() {
  local what=$1 counter=$2 pattern=$3 file files
  shift 3
  mapfile -t files < <(compgen -G "$pattern")
  [ ${#files[@]} = 2 ] || { failure "$what: ${#files[@]} files instead of 2: ${files[*]:-none}"; return 1; }
  for file in "${files[@]}"; do
    python3 tests/public/count.py "$counter" "$file" "$@" >"$tmp/log" 2>&1 || { failure "$what: wrong counts in $(basename "$file")"; return 1; }
  done
  passed "$what: $(cat "$tmp/log")"
}

# ---- NVIDIA's

nvidia_profiler() {
  local so=$1/profiler/example/libnccl-profiler-example.so pools=() p
  for p in GROUP_API COLL_API P2P_API KERNEL_LAUNCH GROUP COLL P2P PROXY_CTRL PROXY_DETACH; do pools+=("NCCL_PROFILE_${p}_POOL_SIZE=1024"); done
  local both=$((reduces + pairs)) expected
  expected=("AllReduce $((2 * reduces))" "Send $((2 * pairs))" "Recv $((2 * pairs))" "Group API $both" "KernelLaunch $both" "KernelCh $((reduces + 2 * pairs))")
  job "profiler/example" NCCL_PROFILER_PLUGIN="$so" NCCL_PROFILE_EVENT_MASK=4095 NCCL_PROFILE_DUMP_FILE="$tmp/shm" "${pools[@]}" &&
    counted "profiler/example, shared memory" chrome "$tmp/shm_*.json" "${expected[@]}" "SendWait 0" || true
  local steps=$((reduces * pieces + pairs))
  job "profiler/example" "${network[@]}" NCCL_PROFILER_PLUGIN="$so" NCCL_PROFILE_EVENT_MASK=4095 NCCL_PROFILE_DUMP_FILE="$tmp/net" "${pools[@]}" &&
    counted "profiler/example, sockets" chrome "$tmp/net_*.json" "${expected[@]}" "ScheduleSend $both" "ScheduleRecv $both" "ProgressSend $both" \
      "ProgressRecv $both" "SendGpuWait $steps" "SendPeerWait $steps" "SendWait $steps" "RecvWait $steps" "RecvFlushWait $steps" "RecvGpuWait $steps" || true
}

nvidia_inspector() {
  local so=$1/profiler/inspector/libnccl-profiler-inspector.so how where
  [ -f "$cuda/include/cuda.h" ] || { echo "not run: Inspector needs cuda.h, which is not in $cuda/include"; return; }
  built Inspector make -C "$1/profiler/inspector" CUDA_HOME="$cuda" CUDA_LIB="$build/lib/cuda" CXX="$CXX" || return 0
  for how in shm net; do
    where=()
    [ $how = shm ] || where=("${network[@]}")
    mkdir "$tmp/inspector-$how" # two ranks that make it at once are one too many for it
    # What it asks of timing holds for the first channel of a send or receive alone, so it would leave out those on others.
    job "Inspector" "${where[@]}" NCCL_PROFILER_PLUGIN="$so" NCCL_INSPECTOR_ENABLE=1 NCCL_INSPECTOR_DUMP_THREAD_ENABLE=1 \
      NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=0 NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0 NCCL_INSPECTOR_REQUIRE_KERNEL_TIMING=0 \
      NCCL_INSPECTOR_DUMP_DIR="$tmp/inspector-$how" &&
      counted "profiler/inspector, $how" inspector "$tmp/inspector-$how/*.log" "AllReduce $reduces" "Send $pairs" "Recv $pairs" "kernel_gpu $reduces" || true
  done
}

nvidia() {
  has nccl || return 0
  mkdir "$tmp/nccl"
  cp -r "$from/nccl/plugins" "$from/nccl/makefiles" "$tmp/nccl/"
  local p=$tmp/nccl/plugins kind
  for kind in profiler/example net/example tuner/example tuner/basic env/example; do
    built "$kind" make -C "$p/$kind" CUDA_HOME="$build/lib/cuda" NVCC=none CC="$CC" CXX="$CXX" || return 0
  done
  built mixed/example make -C "$p/mixed/example" NCCL_PLUGINS=../.. CUDA_HOME="$build/lib/cuda" NCCL_HOME="$build" CC="$CC" || return 0
  nvidia_profiler "$p"
  nvidia_inspector "$p"
  job net/example "${network[@]}" NCCL_NET_PLUGIN="$p/net/example/libnccl-net-example.so" &&
    said net/example "is not used: devices gives 0 with code 0" "Using network Socket" || true
  job mixed/example "${network[@]}" NCCL_NET_PLUGIN="$p/mixed/example/libnccl-mixed.so" NCCL_TUNER_PLUGIN="$p/mixed/example/libnccl-mixed.so" &&
    said mixed/example "TUNER/Plugin: Using" "is not used: devices gives 0" "Using network Socket" || true
  job tuner/basic NCCL_TUNER_PLUGIN="$p/tuner/basic/libnccl-tuner-basic.so" && said tuner/basic "TUNER/Plugin: Basic (v4) decides AllReduce of 1048576 bytes: Ring, Simple" || true
  printf 'allreduce,0,4294967295,ring,simple,-1,-1,-1,-1,-1\n' >"$tmp/tuner.conf"
  job tuner/example NCCL_TUNER_CONFIG_FILE="$tmp/tuner.conf" NCCL_TUNER_PLUGIN="$p/tuner/example/libnccl-tuner-example.so" &&
    said tuner/example "TUNER/Plugin: Example (v6) decides AllReduce of 1048576 bytes: Ring, Simple" || true
  job env/example NCCL_ENV_PLUGIN="$p/env/example/libnccl-env-example.so" NCCL_PROTO=LL && said env/example "NCCL_PROTO set by environment plugin ncclEnvExample (v2) to LL" || true
}

# ---- Google's

comma() {
  has CoMMA || return 0
  local so=$from/CoMMA/target/release/libnccl_profiler.so how
  if [ ! -f "$so" ]; then
    command -v cargo >/dev/null || { echo "not run: CoMMA needs cargo"; return; }
    cp -r "$from/CoMMA" "$tmp/CoMMA"
    # From the folder of the checkouts, whose .cargo/config.toml may say where crates come from.
    built CoMMA bash -c 'cd "$1" && cargo build --release --lib --manifest-path "$2/CoMMA/Cargo.toml"' _ "$from" "$tmp" || return 0
    so=$tmp/CoMMA/target/release/libnccl_profiler.so
  fi
  local all=(NCCL_PROFILER_PLUGIN="$so" NCCL_PROFILER_USE_GPUVIZ=false NCCL_PROFILER_SKIP_SMALL_COLLECTIVE=false NCCL_PROFILER_SMALL_MSG_THRESHOLD=0
    NCCL_PROFILER_SKIP_SMALL_COLLECTIVE_STEPS=false NCCL_PROFILER_P2P_RECV_SAMPLE_RATE=1 NCCL_PROFILER_TRACK_PROXYOP=true NCCL_PROFILER_TRACK_STEPS=true
    NCCL_PROFILER_TRACK_RECV_STEPS=true NCCL_PROFILER_AGGREGATE_STEPS=false)
  job CoMMA "${all[@]}" NCCL_PROFILER_LATENCY_FILE="$tmp/comma-shm-%p" &&
    counted "CoMMA, shared memory" comma "$tmp/comma-shm-*" "all_reduce $reduces" "send $pairs" "recv $pairs" "ProxyOp 0" "step 0" || true
  job CoMMA "${network[@]}" "${all[@]}" NCCL_PROFILER_LATENCY_FILE="$tmp/comma-net-%p" &&
    counted "CoMMA, sockets" comma "$tmp/comma-net-*" "all_reduce $reduces" "send $pairs" "recv $pairs" "ProxyOp $((2 * (reduces + pairs)))" \
      "step $((2 * (reduces * pieces + pairs)))" "bytes $((2 * (reduces * 1048576 + pairs * 65536)))" || true
}

fastsocket() {
  has nccl-fastsocket || return 0
  local so=$tmp/libnccl-net-fastsocket.so h
  mkdir "$tmp/v2.19"
  for h in nccl_net.h nccl_common.h net_device.h; do
    git -C "$from/nccl" show "v2.19.4-1:src/include/$h" >"$tmp/v2.19/$h" 2>/dev/null || { echo "not run: fastsocket needs $h of nccl's v2.19.4-1"; return; }
  done
  built fastsocket "$CXX" -std=c++17 -O2 -fPIC -shared -I"$tmp/v2.19" -Iinclude/hostcuda -Iinclude -o "$so" "$from"/nccl-fastsocket/{net_fastsocket,utilities}.cc -lpthread ||
    return 0
  job fastsocket "${network[@]}" NCCL_NET_PLUGIN="$so" NCCL_FLOW_PLACEMENT_ENABLE=0 && said fastsocket "Using network FastSocket" "via NET/FastSocket" || true
  perf fastsocket NCCL_NET_PLUGIN="$so" NCCL_NET=FastSocket NCCL_FLOW_PLACEMENT_ENABLE=0
}

# perf WHAT [VARIABLE=VALUE...]: every perf program with 3 processes over the network that the variables name (which must be used: NCCL_NET). Each
# checks its values.
perf() {
  local what=$1 program
  shift
  for program in "$build"/bin/*_perf; do
    local n=3
    [ "$(basename "$program")" != hypercube_perf ] || n=4
    env NCCL_DEBUG=WARN "${network[@]}" "$@" timeout 200 "$program" -P $n -b 8 -e 2M -f 16 -n 3 -w 1 >"$tmp/log" 2>&1 &&
      grep -q 'Out of bounds values : 0 OK' "$tmp/log" || { failure "$what: $(basename "$program")"; return 0; }
  done
  passed "$what: all perf programs, every value right"
}

# ---- Amazon's and Mellanox'

# autotools NAME LIBRARY [options of configure]: builds a copy, unless it was built before where it is; the library's path in $so.
autotools() {
  local name=$1 library=$2
  shift 2
  so=$from/$name/src/.libs/$library
  [ ! -f "$so" ] || return 0
  [ -f "$cuda/include/cuda.h" ] && command -v autoreconf >/dev/null || { echo "not run: $name needs cuda.h ($cuda/include) and autotools"; return 1; }
  cp -r "$from/$name" "$tmp/$name"
  built "$name" bash -c 'cd "$1" && shift && ./autogen.sh && ./configure "$@" && make' _ "$tmp/$name" --with-cuda="$cuda" "$@" || return 1
  so=$tmp/$name/src/.libs/$library
}

aws() {
  has aws-ofi-nccl || return 0
  local so
  autotools aws-ofi-nccl libnccl-net-ofi.so --enable-cudart-dynamic --disable-platform-aws --disable-tests || return 0
  job aws-ofi-nccl "${network[@]}" NCCL_NET_PLUGIN="$so" FI_PROVIDER=tcp && said aws-ofi-nccl "Using network Libfabric" "via NET/Libfabric" || true
  perf aws-ofi-nccl NCCL_NET_PLUGIN="$so" NCCL_NET=Libfabric FI_PROVIDER=tcp
}

sharp() {
  has nccl-rdma-sharp-plugins || return 0
  local so
  autotools nccl-rdma-sharp-plugins libnccl-net.so || return 0
  job nccl-rdma-sharp-plugins "${network[@]}" NCCL_NET_PLUGIN="$so" || return 0
  if [ -d /sys/class/infiniband ] && [ -n "$(ls /sys/class/infiniband)" ]; then
    said nccl-rdma-sharp-plugins "Using network IBext"
  else
    said nccl-rdma-sharp-plugins "is not used: devices gives 0" "P2P plugin v11 IBext_v11" "Using network Socket"
  fi
}

echo "plugins of $from over $root's library"
nvidia
comma
fastsocket
aws
sharp
[ $failed = 0 ] && [ $ran = 0 ] && skip "nothing of what is in $from can be tried here"
[ $failed = 0 ] && echo "public_plugins: all good ($ran)"
exit $failed
