#!/usr/bin/env bash
# examples.sh BUILD: runs every program of examples/ and looks for the line that it ends with when all is right; compiles and runs those that
# use MPI with each MPI there is; builds, checks and uses the plugins of examples/plugins; compiles the programs of the tutorial; compiles all against NVIDIA's headers, where those are
# installed; and compares what examples/ci installs with what scripts/deps says that a build needs.
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc=${CC:-cc}
command -v "$cc" >/dev/null || cc=gcc
failed=0
ran=0

# expect LINE COMMAND...: it exits with 0 and its output ends with LINE.
expect() {
  local line=$1
  shift
  ran=$((ran + 1))
  if timeout 300 "$@" >"$tmp/log" 2>&1 && [ "$(tail -1 "$tmp/log")" = "$line" ]; then
    echo "ok: $*: $line"
  else
    echo "FAILED: $*"
    tail -20 "$tmp/log"
    failed=1
  fi
}

expect "all ranks have the sum" "$build/examples/one_process"
expect "all ranks have the maximum" "$build/examples/threads"
expect "all processes have everybody's part" "$build/examples/fork"
expect "every block is home again" "$build/examples/ring"
expect "all rounds are right" "$build/examples/registered"
expect "nobody waited for ever" "$build/examples/nonblocking"
expect "all blocks are right" "$build/examples/overlap"
expect "three processes have done all steps" "$build/examples/survive"
expect "all blocks have arrived" "$build/examples/one_sided"
expect "the late rank was named" "$build/examples/diagnose"
expect "each call was done as asked" "$build/examples/settings"
expect "both operations did as the loops do" "$build/examples/user_operation"
[ "$ran" = "$(find "$build/examples" -maxdepth 1 -type f -perm -u+x | wc -l)" ] || { echo "FAILED: a program of $build/examples is not in this list"; failed=1; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
if grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt"; then
  for flavour in openmpi mpich; do
    mpicc=$(command -v "mpicc.$flavour" || true)
    mpirun=$(command -v "mpirun.$flavour" || true)
    [ -n "$mpicc" ] && [ -n "$mpirun" ] || { echo "not run with $flavour: it is not installed"; continue; }
    "$mpicc" -Wall -Wextra -Iinclude/hostcuda -Iinclude -o "$tmp/mpi" examples/03_processes/mpi.c -L"$build/lib" -lhostcuda -lnccl \
      -Wl,-rpath,"$build/lib"
    expect "3 processes: all have the last one's data" "$mpirun" -np 3 "$tmp/mpi"
  done
fi

# Plugins: built with the headers that are installed and nothing else; they break no rule, and a job shows that it uses them.
# uses TEXT VARIABLE=VALUE... -- OPTION...: an all-reduce whose values are all right, and whose log says TEXT.
uses() {
  local text=$1
  local -a variables=()
  shift
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  if timeout 300 env NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL "${variables[@]}" "$build/bin/all_reduce_perf" -c 1 -n 2 -w 1 "$@" >"$tmp/log" 2>&1 &&
    grep -F "Out of bounds values : 0 OK" "$tmp/log" >/dev/null && grep -F "$text" "$tmp/log" >/dev/null; then
    echo "ok: $text"
  else
    echo "FAILED: '$text' with ${variables[*]}"
    tail -20 "$tmp/log"
    failed=1
  fi
}

mkdir -p "$tmp/installed" "$tmp/plugins"
cp -r include "$tmp/installed/include"
if env -u MAKEFLAGS make -s -C examples/plugins NCCL_HOME="$tmp/installed" OUT="$tmp/plugins" CC="$cc" CFLAGS="-std=gnu99 -pedantic -O2 -Wall -Wextra -Werror"; then
  [ "$(find "$tmp/plugins" -name '*.so' | wc -l)" = "$(find examples/plugins -name '*.c' | wc -l)" ] || { echo "FAILED: a plugin of examples/plugins is not built"; failed=1; }
  for plugin in "$tmp"/plugins/*.so; do
    if "$build/bin/tutti-plugin" check "$plugin" >"$tmp/log" 2>&1 && grep -F " 0 broken" "$tmp/log" >/dev/null; then
      echo "ok: tutti-plugin check $(basename "$plugin"): $(tail -1 "$tmp/log")"
    else
      echo "FAILED: tutti-plugin check $plugin"
      cat "$tmp/log"
      failed=1
    fi
  done
  if [ -x "$build/bin/all_reduce_perf" ]; then
    echo "NCCL_ALGO=Tree" >"$tmp/site.conf"
    uses "Using network Example" NCCL_NET_PLUGIN="$tmp/plugins/libnccl-net-example.so" NCCL_NET=Example NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 -- \
      -P 3 -b 8 -e 1M -f 32
    uses "collectives, " NCCL_PROFILER_PLUGIN="$tmp/plugins/libnccl-profiler-example.so" -- -P 2 -b 8 -e 8
    uses "Example (v6) decides AllReduce of 1048576 bytes: Ring" NCCL_TUNER_PLUGIN="$tmp/plugins/libnccl-tuner-example.so" -- -P 2 -b 1M -e 1M
    uses "NCCL_ALGO set by environment plugin Example (v2) to Tree" NCCL_ENV_PLUGIN="$tmp/plugins/libnccl-env-example.so" \
      EXAMPLE_ENV_FILE="$tmp/site.conf" -- -P 2 -b 8 -e 8
  fi
else
  echo "FAILED: examples/plugins cannot be built"
  failed=1
fi

# installs FILE FROM TO PATTERN: the first apt-get install between these lines of the file has a package that matches, all of it.
installs() {
  sed -n "/$2/,/$3/p" "$1" | sed -n '/apt-get install/,/[^\\]$/p' | tr -s ' \\' '\n' | grep -xE "$4" >/dev/null ||
    { echo "FAILED: $1 does not install $4, which scripts/deps asks for"; failed=1; }
}

needed=$(scripts/deps --list demo)
[ -n "$needed" ] || { echo "FAILED: scripts/deps lists nothing"; failed=1; }
for package in $needed; do
  installs examples/ci/Dockerfile '^FROM .* AS build' '^ARG' "$package"
  installs examples/ci/workflow.yml 'name: Packages' 'name: Tutti, from the cache' "$package"
  case $package in
    libc6-dev) ;;
    lib*-dev) installs examples/ci/Dockerfile '^FROM debian:[a-z-]*$' '^COPY' "${package%-dev}[-0-9.]*" ;; # what it needs when it runs
  esac
done

cuda=${CUDA_HOME:-/usr/local/cuda}
for file in examples/*/*.c; do
  mpi=
  if [ "$(basename "$file")" = mpi.c ]; then
    mpi=$(pkg-config --cflags ompi-c 2>/dev/null || pkg-config --cflags mpich 2>/dev/null) || continue
  fi
  # shellcheck disable=SC2086
  "$cc" -std=gnu99 -pedantic -Wall -Wextra -Werror -Iinclude/hostcuda -Iinclude $mpi -fsyntax-only "$file" || { echo "FAILED: $file as C99"; failed=1; }
  [ -f "$cuda/include/cuda_runtime.h" ] || continue
  # shellcheck disable=SC2086
  "$cc" -std=gnu11 -Wall -Wextra -Werror -isystem "$cuda/include" -Iinclude $mpi -fsyntax-only "$file" ||
    { echo "FAILED: $file with NVIDIA's headers"; failed=1; }
done

# The programs of the tutorial, each under the name in its first line.
mkdir "$tmp/tutorial"
awk -v dir="$tmp/tutorial" '/^```c$/ { on = 1; next } /^```$/ { on = 0; file = "" }
  on && file == "" && /^\/\/ [a-z_]+\.[ch]/ { file = $2; sub(":", "", file); file = dir "/" file } on && file != "" { print > file }' \
  docs/tutorial-programmer.md
[ "$(find "$tmp/tutorial" -name '*.c' | wc -l)" -ge 7 ] || { echo "FAILED: docs/tutorial-programmer.md has fewer programs than it had"; failed=1; }
for file in "$tmp"/tutorial/*.c; do
  "$cc" -std=gnu11 -Wall -Wextra -Werror -Iinclude -fsyntax-only "$file" || { echo "FAILED: $(basename "$file") of the tutorial"; failed=1; }
done
[ $failed = 0 ] && echo "examples: all good"
exit $failed
