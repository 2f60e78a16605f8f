# expect.sh: what the tests of tutti-plugin share. Sourced from the source root, with $build set.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of and for the file that sources this
tool=$build/bin/tutti-plugin
plugins=$build/tests/plugins
[ -x "$tool" ] || { echo "skipped: no tutti-plugin in this build"; exit 77; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
failed=0
# A sanitizer that finds the bad plugin's mistakes itself must not end the tool with a status of its own.
export ASAN_OPTIONS=detect_leaks=0:exitcode=9

# look FILE STATUS ARGUMENTS... -- TEXT...: runs the tool; each text is in what it writes, which FILE has afterwards.
look() {
  local file=$1 status=$2 got=0 res=0
  local -a call=()
  shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do call+=("$1"); shift; done
  shift
  "$tool" "${call[@]}" >"$file" 2>&1 || got=$?
  if [ "$got" != "$status" ]; then echo "FAILED: ${call[*]}: exit status $got, not $status"; cat "$file"; res=1; fi
  for text; do
    if ! grep -F -- "$text" "$file" >/dev/null; then echo "FAILED: ${call[*]} does not say: $text"; cat "$file"; res=1; fi
  done
  return $res
}

# expect STATUS ARGUMENTS... -- TEXT...
expect() { look "$tmp/out" "$@" || failed=1; }

# finds VARIABLE VALUE TEXT...: the plugin $library with this setting breaks the rules that the texts tell of. A note instead, with exit status $noted: the first
# TEXT begins with "note: ".
# Runs beside what comes next, because some plugins make the tool wait for its patience: all_found waits for them, and has to be called at the end.
finds() {
  local variable=$1 value=$2 status=1 library=$plugins/lib$library.so nth=$((asked + 1))
  shift 2
  case $1 in note:*) status=$noted ;; esac
  if [ "$running" -ge "${PLUGIN_JOBS:-2}" ]; then
    wait -n
    running=$((running - 1))
  fi
  (
    export "$variable=$value"
    said=$(look "$tmp/out.$nth" $status check -t "$patience" "$library" -- "$@") && : >"$tmp/found.$nth"
    [ -z "$said" ] || echo "$said"
  ) &
  running=$((running + 1))
  asked=$nth
}

# One that was ended by something has not found anything either.
all_found() {
  local i
  wait
  for ((i = 1; i <= asked; i++)); do
    if [ ! -e "$tmp/found.$i" ]; then echo "FAILED: look $i of $asked"; failed=1; fi
  done
}

patience=4
noted=0
running=0
asked=0
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || patience=8
