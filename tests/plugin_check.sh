#!/usr/bin/env bash
# plugin_check.sh BUILD: tutti-plugin says what is in a library, finds the rules that the bad one breaks, and none in good ones.
set -uo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 1
. tests/plugins/expect.sh

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

# Profilers.
for v in 1 2 3 4 5 6; do
  expect 0 check "$plugins/librecorder_v$v.so" -- "PROFILER version $v" "name: recorder" "calls of startEvent" "0 broken"
done
expect 0 check "$build/lib/libnccl-profiler-trace.so" -- "PROFILER version 6" "name: trace" "0 broken, 0 notes"
library=profiler_wrong
expect 0 check "$plugins/libprofiler_wrong.so" -- "name: TestWrong" "0 broken, 0 notes"
finds TEST_PROFILER_WRONG nothing "note: init: wants no events"
finds TEST_PROFILER_WRONG mask "note: init: sets bits 0x100000 of"
finds TEST_PROFILER_WRONG print "note: writes " "lines to standard output"
finds TEST_PROFILER_WRONG handler "note: has changed what becomes of signal 12"
finds TEST_PROFILER_WRONG init "init: returns 2 for rank 0 of 2"
finds TEST_PROFILER_WRONG folder "has changed the working directory to /"
finds TEST_PROFILER_WRONG parent "startEvent: the process ends: " "(parents without a handle)"
finds TEST_PROFILER_WRONG foreign "startEvent: the process ends: " "(parents in another process"
finds TEST_PROFILER_WRONG ranks "init: the process ends: Aborted (rank 99999 of 100000)"
finds TEST_PROFILER_WRONG threads "(events of one communicator from four threads)"
finds TEST_PROFILER_WRONG hang "finalize: the process ends: did not come back (two communicators)"
finds TEST_PROFILER_WRONG job "(a job of two ranks over sockets)"
finds TEST_PROFILER_WRONG stay "50 threads are there when the library has been closed" "leaves 40 descriptors open"
[ ! -r /proc/thread-self/schedstat ] || finds TEST_PROFILER_WRONG block "stopEvent: blocks for "
if grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt"; then
  finds TEST_PROFILER_WRONG grow "note: memory grows by about"
  finds TEST_PROFILER_WRONG leak "bytes behind each time"
fi

# Collective networks: what can be said without a peer.
library=collnet_wrong
expect 0 check "$plugins/libcollnet_wrong.so" -- "COLLNET version 12" "COLLNET version 8" "COLLNET version 6" "name: TestColl" "device 0: coll0" \
  "reduces 1 of 60 pairs" "0 broken, 0 notes"
finds TEST_COLLNET_WRONG none "note: devices: there is none on this machine"
finds TEST_COLLNET_WRONG memory "note: device 0 takes no host memory"
finds TEST_COLLNET_WRONG init "init: returns 2; so the plugin cannot be used"
finds TEST_COLLNET_WRONG many "devices: gives 1000; 0 to 256 can be"
finds TEST_COLLNET_WRONG devices "devices: returns 3"
finds TEST_COLLNET_WRONG properties "getProperties: returns 2 for device 0"
finds TEST_COLLNET_WRONG spill "getProperties: writes behind the structure of version 12" "the structure of version 6"
finds TEST_COLLNET_WRONG absurd "device 0 has no name" "device 0 has speed -1" "device 0 has maxComms 0" "device 0 has latency -1"
finds TEST_COLLNET_WRONG support "reduceSupport: says 7 for type 0, operation 0"
finds TEST_COLLNET_WRONG changes "reduceSupport: says 1 and then 0"
finds TEST_COLLNET_WRONG code "reduceSupport: returns 4 for type 0, operation 0"
finds TEST_COLLNET_WRONG finalize "finalize: returns 3"

expect 1 check "$plugins/libneeds_cuda.so" -- "loads, but not all it needs is here" "PROFILER version 4" "init is not set"
all_found
[ $failed = 0 ] && echo "plugin_check: all good"
exit $failed
