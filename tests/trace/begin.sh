# begin.sh, sourced with BUILD: the beginning of the tests of the bundled profiler and tutti-trace: a temporary folder, and what to say.
# shellcheck shell=bash disable=SC2034 # variables of whoever sources this
build=$(cd "$1" && pwd) || exit 1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset "${!NCCL_@}" "${!TUTTI_TRACE_@}"
export TUTTI_TRACE_WAIT=120 # time lines have to be whole, however busy the machine or its disk
failed=0

report() { # report NAME PROBLEM: an empty problem is a success
  if [ -z "$2" ]; then
    echo "ok: $1"
  else
    echo "FAILED: $1: $2"
    failed=1
  fi
}
