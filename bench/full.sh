#!/bin/sh
# full.sh [BUILD [PART…]]: everything that can be measured beside the library in BUILD (default: build), in parts; what `make bench-full` calls.
# See full/README.md. PART: build, limits, pair-COLLECTIVE-CLASS, many-RANKS-COLLECTIVE, report; without one: all. list: their names.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-${BUILD:-build}}
build=$(cd "$build" && pwd) || exit 1
[ $# -eq 0 ] || shift
out=$build/bench
parts=$build/bench-full
mkdir -p "$out" "$parts" || exit 1
# shellcheck source=bench/build.sh
. bench/build.sh

colls=$(echo "${BENCH_COLLS:-all_reduce,reduce_scatter,all_gather,broadcast,reduce,alltoall,sendrecv}" | tr , ' ')
many=$(echo "${BENCH_MANY:-4,8,16}" | tr , ' ')
seconds=${BENCH_SECONDS:-75}
cores=$(nproc 2>/dev/null || echo 1)
root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root

bytes() { # bytes 64K
  case $1 in
    *K) echo $((${1%K} * 1024)) ;;
    *M) echo $((${1%M} * 1048576)) ;;
    *) echo "$1" ;;
  esac
}

# The sizes of a class of messages. Large ones are a part each, because a single call of every player takes seconds.
class_sizes() {
  case $1 in
    small) echo "8 512K" ;;
    middle) echo "2M 32M" ;;
    *) echo "$1 $1" ;;
  esac
}

# Sets $min and $max to what the options leave of a range; fails when nothing is left.
restrict() { # restrict MIN MAX
  min=$(bytes "$1") max=$(bytes "$2")
  least=$(bytes "${BENCH_MIN:-8}") most=$(bytes "${BENCH_MAX:-256M}")
  [ "$min" -ge "$least" ] || min=$least
  [ "$max" -le "$most" ] || max=$most
  [ "$min" -le "$max" ]
}

list() {
  echo limits
  for class in small middle 64M 128M 256M; do
    # shellcheck disable=SC2046
    restrict $(class_sizes $class) || continue
    for coll in $colls; do echo "pair-$coll-$class"; done
  done
  restrict 8 16M || return
  for n in $many; do
    for coll in $colls; do
      case $coll in all_reduce | reduce_scatter | all_gather | alltoall) echo "many-$n-$coll" ;; esac
    done
  done
}

build_all() {
  build_driver && build_tutti || exit 1
  build_mpi openmpi "Open MPI" "openmpi-bin libopenmpi-dev"
  build_mpi mpich MPICH "mpich libmpich-dev"
  build_ucc
  build_gloo
  cmake --build "$build" --target limits coll_full >"$parts/build.log" 2>&1 || { cat "$parts/build.log" >&2; exit 1; }
}

players=
add() { # add NAME COMMAND PROGRAM: unless BENCH_WITHOUT names it, or its program is not here
  case ",${BENCH_WITHOUT:-}," in *",$1,"* | *",${1%%:*},"*) return ;; esac
  [ -x "$out/$3" ] || return
  players="$players$1=exec $2
"
}

add_openmpi() { # add_openmpi NAME OPTION…
  name=$1
  shift
  add "$name" "mpirun.openmpi $root $bind $* -np $n $out/coll_openmpi" coll_openmpi
}

# What somebody would try who knows Open MPI's parameters: its collectives in shared memory, UCX below, larger messages without a handshake, no copies
# by the kernel, pipelines of segments.
tuned_openmpi() {
  add_openmpi OpenMPI:sm --mca coll_sm_priority 100
  add_openmpi OpenMPI:ucx --mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any
  add_openmpi OpenMPI:eager --mca btl_vader_eager_limit 32768
  add_openmpi OpenMPI:copies --mca btl_vader_single_copy_mechanism none --mca btl_vader_max_send_size 65536
  dynamic="--mca coll_tuned_use_dynamic_rules 1"
  for tree in allreduce:5 bcast:3 reduce:3; do
    dynamic="$dynamic --mca coll_tuned_${tree%:*}_algorithm ${tree#*:} --mca coll_tuned_${tree%:*}_algorithm_segmentsize 131072"
  done
  # shellcheck disable=SC2086
  add_openmpi OpenMPI:segments $dynamic
}

ours() {
  add tutti "$out/coll_tutti $n" coll_tutti
  add tutti:threads "$out/coll_tutti $n threads" coll_tutti
}

pair_players() {
  n=2 bind="--bind-to core"
  [ "$cores" -ge 2 ] || bind=--oversubscribe
  ours
  add tutti:registered "$out/coll_tutti $n registered" coll_tutti
  add_openmpi OpenMPI
  tuned_openmpi
  add MPICH "mpirun.mpich -bind-to core -np $n $out/coll_mpich" coll_mpich
  gather=
  for what in BCAST REDUCE ALLREDUCE; do gather="$gather MPIR_CVAR_${what}_POSIX_INTRA_ALGORITHM=release_gather"; done
  add MPICH:gather "env$gather mpirun.mpich -bind-to core -np $n $out/coll_mpich" coll_mpich
  add UCC "$out/coll_ucc $n" coll_ucc
  add Gloo "$out/coll_gloo $n" coll_gloo
  add Gloo:bcube "$out/coll_gloo $n bcube" coll_gloo
}

# With more ranks than cores MPICH spins, for milliseconds per call; Open MPI is told to yield.
many_players() {
  n=$1 bind="--oversubscribe --mca mpi_yield_when_idle 1"
  ours
  add_openmpi OpenMPI
  add_openmpi OpenMPI:sm --mca coll_sm_priority 100
}

drive() { # drive PART COLLECTIVE, with $n, $players, $min, $max
  newline='
'
  before=$IFS
  IFS=$newline
  set -f
  # shellcheck disable=SC2086
  set -- "$1" "$2" $players
  set +f
  IFS=$before
  part=$1 coll=$2
  shift 2
  "$out/coll_drive" -n "$n" -r "${BENCH_ROUNDS:-5}" -T "$seconds" -b "$min" -e "$max" -m "${BENCH_MODE:-both}" -c "$coll" \
    -o "$parts/$part.new" "$@" >"$parts/$part.log" && mv "$parts/$part.new" "$parts/$part.json"
}

run_part() {
  what=${1%%-*} rest=${1#*-}
  players=
  case $what in
    pair)
      # shellcheck disable=SC2046
      restrict $(class_sizes "${rest#*-}") || return 0
      pair_players
      drive "$1" "${rest%%-*}"
      ;;
    many)
      restrict 8 16M || return 0
      many_players "${rest%%-*}"
      drive "$1" "${rest#*-}"
      ;;
    *) echo "full.sh: no part '$1' (full.sh $build list)" >&2; return 2 ;;
  esac
}

report() {
  set -- "$parts"/*.json
  [ -f "$1" ] || { echo "full.sh: nothing was measured" >&2; return 1; }
  pictures=${BENCH_DOCS:-$parts}
  mkdir -p "$pictures" || return 1
  "$out/coll_full" -l "$parts/limits.txt" -o "$build/bench-full.json" -m "$pictures/tables.md" -p "$pictures" "$@"
}

one() {
  case $1 in
    build) build_all ;;
    limits) "$out/limits" sizes >"$parts/limits.txt" ;;
    report) report ;;
    *) run_part "$1" ;;
  esac
}

failed=0
if [ $# -gt 0 ]; then
  [ "$1" = list ] && list && exit
  for part; do one "$part" || failed=1; done
  exit $failed
fi
[ "${BENCH_KEEP:-0}" != 0 ] || rm -f "$parts"/*.json "$parts"/limits.txt
build_all
total=$(list | wc -l) number=0
echo "bench-full: $total parts, at most $seconds s each and the point that was begun"
for part in $(list); do
  number=$((number + 1))
  case $part in limits) file=limits.txt ;; *) file=$part.json ;; esac
  if [ "${BENCH_KEEP:-0}" != 0 ] && [ -s "$parts/$file" ]; then continue; fi
  echo "bench-full: $part ($number of $total)"
  one "$part" || failed=1
done
report || failed=1
exit $failed
