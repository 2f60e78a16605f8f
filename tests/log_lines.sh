#!/usr/bin/env bash
# log_lines.sh BUILD: lines of the log that NCCL's users look for, in NCCL's form; and what is said once in a job, or only where it was asked for.
set -euo pipefail
build=$(cd "$1" && pwd)
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0

# job NAME=VALUE…: four ranks in two processes, their log.
job() { env -u NCCL_DEBUG -u NCCL_DEBUG_FILE NCCL_NET_PLUGIN=none "$@" "$build/bin/all_reduce_perf" -P 2 -t 2 -b 8 -e 8 -n 1 -w 0 >"$out" 2>&1; }

# expect COUNT PATTERN: so many lines have it.
expect() {
  local count
  count=$(grep -cE "$2" "$out") || true
  [ "$count" = "$1" ] || { echo "FAILED: $count lines, not $1, with: $2"; failed=1; }
}

# bound CORES LINES: two processes, with the cores that taskset allows.
bound() {
  env -u NCCL_DEBUG_FILE NCCL_NET_PLUGIN=none NCCL_DEBUG=INFO taskset -c "$1" "$build/bin/all_reduce_perf" -P 2 -b 8 -e 8 -n 1 -w 0 "${@:3}" >"$out" 2>&1
  expect "$2" '^# Each process is bound to 1 core of its own'
}

# Ranks that are bound to a core each are no crowd; ranks that share a core are.
mapfile -t cores < <(for cpu in /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list; do sed 's/[,-].*//' "$cpu"; done | sort -nu)
if [ "${#cores[@]}" -ge 2 ] && taskset -c "${cores[0]},${cores[1]}" true 2>/dev/null; then
  bound "${cores[0]},${cores[1]}" 1
  expect 0 'crowded'
  bound "${cores[0]},${cores[1]}" 0 -B 0
  expect 2 'Init COMPLETE'
  expect 0 'crowded'
  bound "${cores[0]}" 0
  expect 2 'crowded'
else
  echo "not tried: processes bound to cores (two cores are needed)"
fi

for level in VERSION WARN INFO; do
  job NCCL_DEBUG=$level
  expect 1 'NCCL version 2\.'
done

job NCCL_DEBUG=INFO NCCL_RUNTIME_CONNECT=0
expect 4 'NCCL INFO comm 0x[0-9a-f]+ rank [0-3] nranks 4 cudaDev [0-3] nvmlDev [0-3] busId [0-9a-f]+ commId 0x[0-9a-f]+ - Init COMPLETE$'
expect 4 'NCCL INFO Channel 00/0 : [0-3]\[[0-3]\] -> [0-3]\[[0-3]\] via P2P/direct pointer$'
expect 8 'NCCL INFO Channel 00 : [0-3]\[[0-3]\] -> [0-3]\[[0-3]\] via SHM/(CMA|direct)$'
expect 0 '(TUNER|PROFILER|ENV)/Plugin'

job NCCL_DEBUG=INFO NCCL_RUNTIME_CONNECT=0 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
expect 12 'NCCL INFO Channel 00/0 : [0-3]\[[0-3]\] -> [0-3]\[[0-3]\] \[send\] via NET/Socket/[0-9]+$'
expect 12 'NCCL INFO Channel 00/0 : [0-3]\[[0-3]\] -> [0-3]\[[0-3]\] \[receive\] via NET/Socket/[0-9]+$'

job NCCL_DEBUG=INFO NCCL_TUNER_PLUGIN=nobody
expect 4 'TUNER/Plugin: NCCL_TUNER_PLUGIN asks for nobody, which is not there'

# Faults in settings are said once in a job, on standard error, where NCCL_DEBUG is not set.
job NCCL_DEBG=INFO TUTTI_TRACE_DRI=/tmp NCCL_BUFFSIZE=abc NCCL_TUNER_PLUGIN=nobody NCCL_PROFILER_PLUGIN="$build/lib/libnccl-profiler-trace.so" \
  TUTTI_TRACE_DIR="$out/none"
expect 1 '^NCCL WARN NCCL_DEBG \(environment\) is not known; did you mean NCCL_DEBUG\?$'
expect 1 '^NCCL WARN TUTTI_TRACE_DRI \(environment\) is not known; did you mean TUTTI_TRACE_DIR\?$'
expect 1 '^NCCL WARN NCCL_BUFFSIZE=abc \(environment\): expected a whole number'
expect 1 '^NCCL WARN TUNER/Plugin: NCCL_TUNER_PLUGIN asks for nobody, which is not there'
expect 1 '^NCCL WARN trace: rank 0: cannot create '
expect 1 '^NCCL WARN trace: rank 1: cannot create '
expect 6 'NCCL WARN'
job NCCL_NET_PLUGIN=nobody NCCL_TUNER_CONFIG_FILE="$out/none"
expect 1 '^NCCL WARN NET/Plugin: NCCL_NET_PLUGIN asks for nobody, which is not there'
expect 1 "^NCCL WARN TUNER/CSV: $out/none cannot be read"
expect 2 'NCCL WARN'
# Variables of a profiler, and none that reads them.
for level in NCCL_DEBUG= NCCL_DEBUG=WARN; do
  job $level TUTTI_TRACE_DIR=/tmp
  expect 1 'NCCL WARN TUTTI_TRACE_DIR is set, but no profiler plugin is there to read it'
  expect 1 'NCCL WARN'
done
job NCCL_PROFILE_EVENT_MASK=abc NCCL_NET_GDR_LEVEL=NEAR NCCL_CROSS_NIC=3
expect 1 '^NCCL WARN NCCL_PROFILE_EVENT_MASK=abc \(environment\): expected a whole number'
expect 1 '^NCCL WARN NCCL_NET_GDR_LEVEL=NEAR \(environment\): expected one of LOC, '
expect 1 '^NCCL WARN NCCL_CROSS_NIC=3 \(environment\): expected a number from 0 to 2; using the default 2$'
expect 3 'NCCL WARN'
job NCCL_DEBUG=
expect 0 'NCCL WARN'

# What is wrong with the log's own settings is said once in a job, at every level.
job NCCL_DEBUG=LOUD
expect 1 'NCCL WARN NCCL_DEBUG=LOUD is no level'
for level in NCCL_DEBUG= NCCL_DEBUG=WARN NCCL_DEBUG=INFO; do
  job $level NCCL_DEBUG_SUBSYS=FOO NCCL_DEBUG_TIMESTAMP_LEVELS=BAR
  expect 1 'NCCL WARN NCCL_DEBUG_SUBSYS: there is no subsystem FOO;'
  expect 1 'NCCL WARN NCCL_DEBUG_TIMESTAMP_LEVELS: there is no level BAR;'
  expect 2 'NCCL WARN'
done
job NCCL_DEBUG=INFO NCCL_DEBUG_FILE="$out/none"
expect 1 "NCCL WARN NCCL_DEBUG_FILE: cannot open $out/none"
expect 4 'Init COMPLETE$'
[ $failed = 0 ] && echo "log lines: all good"
exit $failed
