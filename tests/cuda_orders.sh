#!/usr/bin/env bash
# cuda_orders.sh BUILD [NAME…]: each wait, post, copy and order that ranks on GPUs queue is needed: with one of the places of
# tests/cuda_orders/places left out, the test that stands there fails; with all of them in, it does not.
set -u
build=$(cd "$1" && pwd) here=tests/cuda_orders
shift
[ -x "$build/cuda_orders/orders_plan" ] || { echo "this build has no ranks on GPUs, or sanitizers"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export TUTTI_BUILD=$build
failed=0 places=0

# try PLACE DEADLOCK_MS TEST WHICH MODE: runs the test with the place left out; -: with none.
try() {
  local mode=${5#-}
  CUDA_LEFT_OUT=$1 CUDA_DEADLOCK_MS=$2 CUDA_PLAN_MODE=$mode CUDA_CAPTURE_MODE=$mode CUDA_COMM_MODE=$mode CUDA_IPC_MODE=$mode \
    CUDA_STREAMS_MODE=$mode timeout 120 "$build/cuda_orders/orders_$3" "$4" >"$work/out" 2>&1
}

# needed PLACE TEST WHICH MODE: fails without it, now and then at least: which thread comes first is not by the seed alone.
needed() {
  for _ in 1 2 3 4 5; do
    try "$1" 1000 "$2" "$3" "$4" || return 0
  done
  return 1
}

if grep -H 'not found' "$build"/cuda_orders/*.c; then
  echo "$here/places names lines that are not there"
  exit 1
fi
grep -E '^[a-z_]+ \| ' "$here/places" | sed 's/ *| */|/g' >"$work/places"
while IFS='|' read -r name _ test which mode; do
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  places=$((places + 1))
  if ! grep -qxF "$test|$which|$mode" "$work/fine" 2>/dev/null; then
    if ! try - 60000 "$test" "$which" "$mode"; then
      echo "$test $which, mode \"$mode\", fails with all places in:"
      tail -5 "$work/out"
      failed=1
    fi
    echo "$test|$which|$mode" >>"$work/fine"
  fi
  if ! needed "$name" "$test" "$which" "$mode"; then
    echo "$name: not needed by $test $which, mode \"$mode\""
    failed=1
  elif ! grep -q "$which" "$work/out"; then
    echo "$name: $test did not come to $which:"
    head -5 "$work/out"
    failed=1
  fi
done <"$work/places"
echo "$places places"
exit $failed
