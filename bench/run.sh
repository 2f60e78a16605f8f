#!/bin/sh
# run.sh [BUILD]: measures the library in BUILD (default: build) beside the machine's limits, Open MPI and MPICH. See README.md.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-${BUILD:-build}}
build=$(cd "$build" && pwd) || exit 1
out=$build/bench
mkdir -p "$out" || exit 1

ranks=${BENCH_RANKS:-2}
cflags="-std=gnu11 -O2 -g -Wall -Wextra"
sources=bench/coll

compile() { # compile PROGRAM COMPILER ARGUMENT…
  program=$1
  shift
  # shellcheck disable=SC2086
  "$@" -o "$out/$program" || { echo "bench: $program was not built" >&2; return 1; }
}

have() { command -v "$1" >/dev/null 2>&1; }

# shellcheck disable=SC2086
compile coll_drive "${CC:-cc}" $cflags $sources/drive.c $sources/players.c $sources/report.c -lm || exit 1
# shellcheck disable=SC2086
compile coll_tutti "${CC:-cc}" $cflags -Iinclude -I"$build/include" $sources/coll_bench.c $sources/backend_tutti.c \
  -L"$build/lib" -Wl,-rpath,"$build/lib" -lnccl || exit 1

# Both MPIs as their users start them: a core for each process, nothing else set.
set -- "tutti=exec $out/coll_tutti $ranks"
for variant in ${BENCH_VARIANTS:-}; do
  set -- "$@" "$variant=exec $out/coll_tutti $ranks $variant"
done
root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root
cores=$(nproc 2>/dev/null || echo 1)
# shellcheck disable=SC2086
if have mpicc.openmpi && have mpirun.openmpi && compile coll_openmpi mpicc.openmpi $cflags $sources/coll_bench.c $sources/backend_mpi.c; then
  bind="--bind-to core"
  [ "$ranks" -le "$cores" ] || bind=--oversubscribe
  set -- "$@" "OpenMPI=exec mpirun.openmpi $root $bind -np $ranks $out/coll_openmpi"
else
  echo "bench: Open MPI is not here (Debian, Ubuntu: openmpi-bin libopenmpi-dev)"
fi
# shellcheck disable=SC2086
if have mpicc.mpich && have mpirun.mpich && compile coll_mpich mpicc.mpich $cflags $sources/coll_bench.c $sources/backend_mpi.c; then
  bind="-bind-to core"
  [ "$ranks" -le "$cores" ] || bind=
  set -- "$@" "MPICH=exec mpirun.mpich $bind -np $ranks $out/coll_mpich"
else
  echo "bench: MPICH is not here (Debian, Ubuntu: mpich libmpich-dev)"
fi

rounds=3 block=1
if [ "${BENCH_FULL:-0}" != 0 ]; then rounds=9 block=4; fi

echo "$(uname -sr), $cores cores: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1); load $(cut -d ' ' -f 1 /proc/loadavg)"
if [ "${BENCH_LIMITS:-1}" != 0 ] && [ -x "$out/limits" ]; then
  "$out/limits" | tee "$out/limits.txt"
fi
# shellcheck disable=SC2086
exec "$out/coll_drive" -n "$ranks" -r "${BENCH_ROUNDS:-$rounds}" -t $block -b "${BENCH_MIN:-8}" -e "${BENCH_MAX:-64M}" -m "${BENCH_MODE:-both}" \
  ${BENCH_COLLS:+-c "$BENCH_COLLS"} -l "$out/limits.txt" -o "$build/bench.json" "$@"
