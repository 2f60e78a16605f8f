#!/bin/sh
# table.sh [BUILD] [REPEATS]: the channels of every machine in tests/topologies beside what NCCL 2.30.7 finds, with bound and time; totals
# at the end. BUILD (default: build) must have been built. Fails when a graph is worse than the known one, or slower by the cost model. See README.md.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:-${BUILD:-build}}
build=$(cd "$build" && pwd) || exit 1
library=$build/lib/libnccl_static.a
results=$build/topologies/known
out=$build/bench
mkdir -p "$out" || exit 1
# shellcheck source-path=SCRIPTDIR source=../build.sh
. bench/build.sh

[ -f "$library" ] || { echo "table: $library is missing: build the project first" >&2; exit 1; }
[ -d "$results" ] || { echo "table: $results is missing: configuring the project unpacks the known results" >&2; exit 1; }

found() { # found NAME: the library that cmake found
  sed -n "s/^$1_LIBRARY:FILEPATH=//p" "$build/CMakeCache.txt"
}

say_machine || exit 1
# shellcheck disable=SC2046
"${CC:-cc}" -std=gnu11 -O2 -g -Wall -Wextra -Iinclude -Isrc -o "$build/bench/topo_table" bench/topo/table.c src/tools/model_choice.c src/tools/graph_bound.c "$library" \
  $(found sodium) $(found expat) -lpthread -ldl -lm || exit 1
exec "$build/bench/topo_table" "$results" "${2:-5}"
