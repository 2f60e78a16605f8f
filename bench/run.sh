#!/bin/sh
# run.sh [BUILD]: measures the library in BUILD (default: build) beside the machine's limits, Open MPI and MPICH. See README.md.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-${BUILD:-build}}
build=$(cd "$build" && pwd) || exit 1
out=$build/bench
mkdir -p "$out" || exit 1
# shellcheck source=bench/build.sh
. bench/build.sh

ranks=${BENCH_RANKS:-2}
build_driver && build_tutti || exit 1

# Both MPIs as their users start them: a core for each process, nothing else set.
set -- "tutti=exec $out/coll_tutti $ranks"
for variant in ${BENCH_VARIANTS:-}; do
  set -- "$@" "$variant=exec $out/coll_tutti $ranks $(echo "$variant" | tr + ' ')"
done
if [ "${BENCH_FLOOR:-0}" != 0 ] && [ "$ranks" -ge 2 ] && [ "$ranks" -le 64 ] && build_floor; then
  set -- "$@" "floor=exec $out/coll_floor $ranks"
fi
root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root
cores=$(nproc 2>/dev/null || echo 1)
if build_mpi openmpi "Open MPI" "openmpi-bin libopenmpi-dev"; then
  bind="--bind-to core"
  [ "$ranks" -le "$cores" ] || bind=--oversubscribe
  set -- "$@" "OpenMPI=exec mpirun.openmpi $root $bind -np $ranks $out/coll_openmpi"
fi
if build_mpi mpich MPICH "mpich libmpich-dev"; then
  bind="-bind-to core"
  [ "$ranks" -le "$cores" ] || bind=
  set -- "$@" "MPICH=exec mpirun.mpich $bind -np $ranks $out/coll_mpich"
fi

rounds=3 block=1
if [ "${BENCH_FULL:-0}" != 0 ]; then rounds=9 block=4; fi

say_machine
if [ "${BENCH_LIMITS:-1}" != 0 ] && [ -x "$out/limits" ]; then
  "$out/limits" | tee "$out/limits.txt"
fi
# shellcheck disable=SC2086
exec "$out/coll_drive" -n "$ranks" -r "${BENCH_ROUNDS:-$rounds}" -t $block -b "${BENCH_MIN:-8}" -e "${BENCH_MAX:-64M}" -m "${BENCH_MODE:-both}" \
  ${BENCH_COLLS:+-c "$BENCH_COLLS"} -l "$out/limits.txt" -o "$build/bench.json" "$@"
