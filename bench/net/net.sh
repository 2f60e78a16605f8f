#!/bin/sh
# net.sh [BUILD]: the library over TCP (loopback, two processes) beside bare sockets, Open MPI and MPICH over TCP. See README.md.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:-${BUILD:-build}}
build=$(cd "$build" && pwd) || exit 1
out=$build/bench
mkdir -p "$out" || exit 1

# shellcheck source-path=SCRIPTDIR source=../build.sh
. bench/build.sh
build_driver || exit 1
build_tutti || exit 1
# shellcheck disable=SC2086
compile raw_sockets "${CC:-cc}" $cflags bench/net/raw_sockets.c bench/net/raw.c || exit 1
# shellcheck disable=SC2086
compile coll_raw "${CC:-cc}" $cflags $sources/coll_bench.c bench/net/backend_raw.c bench/net/raw.c || exit 1

# Everybody on the same sockets: TCP over the loopback, nothing shared. The library's settings are for its own processes alone.
ours="exec env NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo $out/coll_tutti 2"
set --
# A library without a network would take the run with it: the first column has to come.
if NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo "$build/bin/all_reduce_perf" -P 2 -b 8 -e 8 -n 1 -w 0 >"$out/net_probe.txt" 2>&1; then
  set -- "tutti=$ours" "sync=$ours sync" "tls=$ours encrypted"
else
  echo "net: the library does not run over the network here: left out ($(grep -m1 -o "cannot be connected.*" "$out/net_probe.txt"))"
fi
set -- "$@" "raw=exec $out/coll_raw"
if build_mpi openmpi "Open MPI" "openmpi-bin libopenmpi-dev"; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  tcp="--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo"
  set -- "$@" "OpenMPI=exec mpirun.openmpi $tcp --bind-to core -np 2 $out/coll_openmpi"
fi
# MPICH speaks UCX or libfabric, whichever it was built for.
if build_mpi mpich MPICH mpich; then
  tcp="MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self UCX_NET_DEVICES=lo FI_PROVIDER=tcp FI_TCP_IFACE=lo"
  set -- "$@" "MPICH=exec env $tcp mpirun.mpich -bind-to core -np 2 $out/coll_mpich"
fi

say_machine
"$out/raw_sockets" -q -r "${BENCH_RAW_ROUNDS:-9}" | tee "$out/net_limits.txt"

rounds=5 block=1
if [ "${BENCH_FULL:-0}" != 0 ]; then rounds=11 block=4; fi
"$out/coll_drive" -n 2 -r "${BENCH_ROUNDS:-$rounds}" -t $block -b "${BENCH_MIN:-8}" -e "${BENCH_MAX:-64M}" -m warm -c "${BENCH_COLLS:-all_reduce,sendrecv}" \
  -o "$build/bench_net.json" "$@" | tee "$out/net.txt"

# The two figures that count, from the tables: columns are "size unit time…" in the order of the head line.
awk '
  /^(all_reduce|sendrecv),/ { table = $1 }
  $1 == "size" { for (i = NF; i > 1; i--) column[$i] = 0; for (i = 2; i <= NF; i++) if (!column[$i]) column[$i] = i + 1 }
  $2 ~ /^(B|KiB|MiB)$/ { for (name in column) us[table, $1 $2, name] = $(column[name]) }
  function verdict(what, value, goal) { printf "%s: %.2f (goal: %s)\n", what, value, goal }
  END {
    a = "all_reduce,"; s = "sendrecv,"
    if (us[a, "8B", "tutti"] > 0 && us[a, "8B", "OpenMPI"] > 0) {
      verdict("8 bytes, Open MPI over ours", us[a, "8B", "OpenMPI"] / us[a, "8B", "tutti"], "at least 1")
      verdict("8 bytes, waiting after each call", us[a, "8B", "OpenMPI"] / us[a, "8B", "sync"], "at least 1")
    }
    if (us[a, "64MiB", "tutti"] > 0 && us[s, "64MiB", "raw"] > 0)
      verdict("64 MiB all-reduce, share of what raw sockets exchange", us[s, "64MiB", "raw"] / us[a, "64MiB", "tutti"], "at least 0.8")
  }' "$out/net.txt"
