# expect.sh: what the tests of tutti-plugin share. Sourced from the source root, with $build set.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for the file that sources this
tool=$build/bin/tutti-plugin
plugins=$build/tests/plugins
[ -x "$tool" ] || { echo "skipped: no tutti-plugin in this build"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
# A sanitizer that finds the bad plugin's mistakes itself must not end the tool with a status of its own.
export ASAN_OPTIONS=detect_leaks=0:exitcode=9

# expect STATUS ARGUMENTS... -- TEXT...: runs the tool; each text is in what it writes.
expect() {
  local status=$1 got=0
  local -a call=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do call+=("$1"); shift; done
  shift
  "$tool" "${call[@]}" >"$tmp/out" 2>&1 || got=$?
  if [ "$got" != "$status" ]; then echo "FAILED: ${call[*]}: exit status $got, not $status"; cat "$tmp/out"; failed=1; fi
  for text; do
    if ! grep -F -- "$text" "$tmp/out" >/dev/null; then echo "FAILED: ${call[*]} does not say: $text"; cat "$tmp/out"; failed=1; fi
  done
}

# finds VARIABLE VALUE TEXT...: the plugin $library with this setting breaks the rules that the texts tell of. A note instead, with exit status $noted: the first
# TEXT begins with "note: ".
# Runs beside what comes next, because some plugins make the tool wait for its patience: all_found waits for them, and has to be called at the end.
finds() {
  local variable=$1 value=$2 status=1 library=$plugins/lib$library.so
  shift 2
  case $1 in note:*) status=$noted ;; esac
  if [ "$running" -ge "${PLUGIN_JOBS:-3}" ]; then
    wait -n
    running=$((running - 1))
  fi
  (
    all=$tmp tmp=$(mktemp -d -p "$tmp")
    failed=0
    export "$variable=$value"
    expect $status check -t "$patience" "$library" -- "$@" >"$tmp/said"
    cat "$tmp/said"
    [ $failed = 0 ] || : >"$all/failed"
  ) &
  running=$((running + 1))
}

all_found() {
  wait
  [ ! -e "$tmp/failed" ] || failed=1
}

patience=4
noted=0
running=0
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || patience=8
