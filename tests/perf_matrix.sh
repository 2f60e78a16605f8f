#!/bin/sh
# perf_matrix.sh BUILD [full]: every perf program with every type and operation among 1 to 64 ranks: threads, processes, both mixed.
# Without `full`: large numbers of ranks with some types and operations only, and under a sanitizer with some programs only, so that it takes about two
# minutes on 2 cores.
set -u
build=${1:?usage: perf_matrix.sh BUILD [full]}
level=${2:-quick}
bin=$build/bin
blocks="all_gather_v reduce_scatter_v gather_v scatter_v alltoall_v" # of several lengths
programs="all_reduce reduce_scatter all_gather broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube"
some=$programs
programs="$programs $blocks"
log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT
passed=0 failed=0

# run N PROGRAM OPTION…: one program; every rank must end well and nothing may be wrong.
run() {
  program=$1
  shift
  if timeout 300 "$bin/${program}_perf" "$@" >"$log" 2>&1 && grep -q 'Out of bounds values : 0 OK' "$log"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: ${program}_perf $*"
    tail -n 5 "$log"
  fi
}

# run_with NAME=VALUE PROGRAM OPTION…: the same with a variable.
run_with() {
  variable=$1
  shift
  export "${variable?}"
  run "$@"
  unset "${variable%%=*}"
}

# shapes N: how N ranks can be spread, one per line.
shapes() {
  echo "-t $1"
  [ "$1" -gt 1 ] || return 0
  echo "-P $1"
  [ $(($1 % 2)) -ne 0 ] || echo "-P 2 -t $(($1 / 2))"
}

all="-d all -o all -b 4 -e 1028 -f 257 -n 1 -w 0 -c 1"
few="-d half -o avg -b 4 -e 16448 -f 257 -n 1 -w 0 -c 1"
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || some="all_reduce reduce_scatter broadcast alltoall sendrecv" # the ways through the code
for program in $programs; do # graphs: launched twice, and once for each check
  run "$program" -P 2 -t 2 -G 2 -b 4 -e 16448 -f 257 -n 3 -c 1
done
for program in hypercube all_reduce; do # each rank's NULL stream is that of its own device
  run "$program" -g 2 -y 1 -b 4 -e 16448 -f 257 -n 3 -c 1
done

# Other lengths: nearly equal ones, and those of a file, with empty blocks, ranks that give or get nothing, and a large one.
printf '0 64 0 4096\n0 0 0 0\n160 16 48 0\n65536 32 0 16\n' >"$log.matrix"
for program in alltoallv $blocks; do
  for shape in "-P 4" "-t 4" "-P 2 -t 2 -r all"; do
    # shellcheck disable=SC2086 # several words
    run_with NCCL_TESTS_ALLTOALLV_SPREAD=0.1 "$program" $shape -d all -b 1K -e 256K -f 16 -n 1 -w 0 -c 1
    # shellcheck disable=SC2086
    run_with NCCL_TESTS_ALLTOALLV_MATRIX_FILE="$log.matrix" "$program" $shape -d all -b 128K -e 128K -n 2 -w 0 -c 1
  done
done

for n in 1 2 3 4 7 8 16 64; do
  options=$all
  chosen=$programs
  [ "$level" = full ] || [ "$n" -le 4 ] || chosen=$some
  [ "$level" = full ] || [ "$n" -le 4 ] || options=$few
  for program in $chosen; do
    [ "$level" = full ] || [ "$n" -lt 64 ] || [ "$program" = all_reduce ] || [ "$program" = alltoall ] || continue
    shapes "$n" | while read -r shape; do echo "$shape"; done >"$log.shapes"
    while read -r shape; do
      # shellcheck disable=SC2086
      run "$program" $shape $options
    done <"$log.shapes"
  done
done
rm -f "$log.shapes"
echo "perf_matrix: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
