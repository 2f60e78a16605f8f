#!/usr/bin/env bash
# plugin_check.sh BUILD: tutti-plugin says what is in a library, finds the rules that the bad one breaks, and none in good ones.
set -uo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 1
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

expect 0 --help -- "usage: tutti-plugin check" "Exit status"
expect 2 -- "usage:"
expect 2 chek x -- "usage:"
expect 2 check "$tmp/nothing.so" -- "is not there"
echo "a letter" >"$tmp/letter.so"
expect 2 check "$tmp/letter.so" -- "cannot be loaded"
if command -v cc >/dev/null; then
  # Constructors that end the process, by a signal or in good order; a plugin that never comes back and lets no signal end it.
  echo '__attribute__((constructor)) static void begin(void) { __builtin_trap(); }' >"$tmp/trap.c"
  echo '#include <unistd.h>
__attribute__((constructor)) static void begin(void) { _exit(0); }' >"$tmp/exit.c"
  echo '#include <signal.h>
#include <unistd.h>
static const char *name(void) { return 0; }
static int begin(unsigned char n, void *log) { (void)n; (void)log; for (int s = 1; s < 65; s++) { signal(s, SIG_IGN); } for (;;) { sleep(1); } }
const struct { const char *name; void *init, *finalize, *get; } ncclEnvPlugin_v1 = {"Stays", (void *)begin, (void *)name, (void *)name};' >"$tmp/stays.c"
  for name in trap exit stays; do cc -shared -fPIC -w -o "$tmp/$name.so" "$tmp/$name.c" || failed=1; done
  expect 2 check "$tmp/trap.so" -- "cannot be loaded: its constructors"
  expect 2 check "$tmp/exit.so" -- "cannot be loaded: its constructors"
  expect 1 check "$tmp/stays.so" -- "the plugin ended the process: did not come back"
fi
expect 1 check libm.so.6 -- "no plugin"
for v in 3 4 5 6; do
  expect 0 check "$plugins/libtuner_v$v.so" -- "TUNER version $v" "name: Test" "0 broken" "good:"
done
expect 0 check "$plugins/libtuner_v2.so" -- "TUNER version 2" "good:"
for v in 1 2; do
  expect 0 check "$plugins/libenv_v$v.so" -- "ENV version $v" "name: TestEnv" "sets 0 of"
done
export TEST_ENV_NCCL_ALGO=Ring TEST_ENV_NCCL_PROTO=LL # one buffer for both
expect 1 check "$plugins/libenv_v2.so" -- "sets 2 of" "2 texts of getEnv change when other variables are asked for"
unset TEST_ENV_NCCL_ALGO TEST_ENV_NCCL_PROTO
expect 0 check "$build/lib/libnccl-tuner-csv.so" -- "TUNER version 6" "TUNER version 2" "name: CSV" "good:"
expect 1 check "$plugins/libtuner_bad.so" -- "init is not set" "getCollInfo is not set" "destroy is not set" "the plugin ended the process" \
  "writes outside of the table of 7 x 3 costs" "that are NCCL_ALGO_PROTO_IGNORE" "that are no numbers, or negative" "answers two ranks differently" \
  "broken:"
if grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt"; then # a sanitizer's memory is not counted
  expect 1 check "$plugins/libtuner_bad.so" -- "bytes behind"
fi
[ "$(grep -c 'answers two ranks differently' "$tmp/out")" -le 4 ] || { echo "FAILED: the same is told again and again"; failed=1; }
expect 1 check "$plugins/libtwo_kinds.so" -- "NET version 5: not known here, not used" "TUNER version 3"
expect 0 check "$plugins/libneeds_cuda.so" -- "loads, but not all it needs is here" "PROFILER version 4"
[ $failed = 0 ] && echo "plugin_check: all good"
exit $failed
