#!/usr/bin/env bash
# plugin_check_net.sh BUILD: tutti-plugin finds the rules that bad network plugins break, and none in good ones.
set -uo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 1
. tests/plugins/expect.sh

# Networks: good ones; then each rule, by the plugin that breaks it.
for v in 6 7 8 9 10 11 12; do
  expect 0 check "$plugins/libnet_v$v.so" -- "NET version $v" "name: TestTcp" "device 1: tcp1, 25000 Mbit/s" "0 broken, 0 notes"
done
expect 1 check "$plugins/libnet_hollow.so" -- "getProperties is not set" "regMr is not set" "closeListen is not set"
expect 0 check "$plugins/libnet_late.so" -- "name: TestLate" "name after init: TestChosen" "device 1: tcp1, 25000 Mbit/s" "0 broken, 0 notes"
library=net_late
finds TEST_NET_LATE hollow "devices is not set" "isend is not set" "finalize is not set" "14 broken"
expect 2 check -t 0 "$plugins/libnet_v12.so" -- "usage:"

library=net_bad
noted=1 # its collective network is hollow
finds TEST_NET_BAD init "init: returns 2; so the plugin cannot be used"
finds TEST_NET_BAD code "init: returns 77; so the plugin cannot be used"
finds TEST_NET_BAD devices "devices: returns 3 after an init that succeeded"
finds TEST_NET_BAD none "note: devices: there is none on this machine"
finds TEST_NET_BAD negative "devices: gives -1; 0 to 256 can be"
finds TEST_NET_BAD many "devices: gives 1073741824; 0 to 256 can be"
finds TEST_NET_BAD properties "getProperties: returns 2 for device 1"
finds TEST_NET_BAD gpu "note: device 0 leaves work to a GPU"
finds TEST_NET_BAD memory "note: device 0 takes no host memory"
finds TEST_NET_BAD absurd "device 0 has no name" "device 0 has speed -3" "device 0 has maxComms 0"
library=net_faulty
noted=0
finds TEST_NET_MUM 1 "note: test: reports no sizes"
finds TEST_NET_LIE 1 "test: reports 4129 bytes for a message of 4096" "bytes for buffer 0 of 8, for which 37 were sent"
for name in listen connect accept regMr isend irecv; do finds TEST_NET_FAIL "$name:1:2" "$name: returns 2"; done
finds TEST_NET_FAIL test:1:77 "test: returns 77 for message 0 of 14" "test: returns 77, which is no result code" " fails"
library=net_wrong
finds TEST_NET_WRONG mask "leaves 1 signals blocked"
finds TEST_NET_WRONG folder "has changed the working directory to /"
finds TEST_NET_WRONG handler "note: has changed what becomes of signal 12"
finds TEST_NET_WRONG print "note: writes " "lines to standard output" "| the wrong plugin is here"
finds TEST_NET_WRONG stay "finalize: leaves 1 threads" "finalize: leaves 1 descriptors"
finds TEST_NET_WRONG parts "device 0 consists of 99 devices"
finds TEST_NET_WRONG latency "device 0 has latency -1"
finds TEST_NET_WRONG path "note: device 0: pciPath /sys/nothing/of/that/name is not there"
finds TEST_NET_WRONG spill "getProperties: writes behind the structure of version 12"
finds TEST_NET_WRONG handle "listen: writes more than 128 bytes into the handle"
finds TEST_NET_WRONG "no listener" "listen: gives no listener"
finds TEST_NET_WRONG notes "connect: writes behind the 128 bytes of the handle"
finds TEST_NET_WRONG never "gives no connection within $patience s" "note: what comes after \"messages of many sizes\" is not looked at"
[ ! -r /proc/thread-self/schedstat ] || finds TEST_NET_WRONG block "accept: blocks for "
finds TEST_NET_WRONG eager "accept: gives a connection, and nobody has come"
finds TEST_NET_WRONG dereg "deregMr: returns 5"
finds TEST_NET_WRONG stuck ": nothing moves for $patience s: "
finds TEST_NET_WRONG garble "is wrong from byte 1000 on"
finds TEST_NET_WRONG event "the profiler's callback is called"
finds TEST_NET_WRONG crash "isend: ends the process: Aborted (messages of many sizes)"
finds TEST_NET_WRONG overrun "message 0 (4096 bytes): something is written 33 bytes behind its buffer"
finds TEST_NET_WRONG tags "irecv: returns 4 and a request for 8 buffers"
export TEST_NET_FLUSH=1
expect 0 check "$plugins/libnet_v12.so" -- "0 broken, 0 notes"
finds TEST_NET_WRONG flush "iflush: returns 3"
finds TEST_NET_WRONG "flushed never" "test: a flush is never done"
finds TEST_NET_WRONG "no flush" "iflush: is not set, and the device asks for it"
unset TEST_NET_FLUSH
finds TEST_NET_WRONG silent "test: says nothing for $patience s after the peer's process was killed"
finds TEST_NET_WRONG "done" "test: says that a message has come whose sender was killed before"
finds TEST_NET_WRONG code "test: returns -5, which is no result code"
finds TEST_NET_WRONG close "closeSend: returns 2"
finds TEST_NET_WRONG hang "closeRecv: does not come back (messages of many sizes)"
# A sanitizer's report would take longer than the scene.
ASAN_OPTIONS=$ASAN_OPTIONS:handle_segv=0 TSAN_OPTIONS=handle_segv=0:atexit_sleep_ms=100 \
  finds TEST_NET_WRONG late "outside of its functions" "Segmentation fault (closed with requests under way)"
finds TEST_NET_WRONG "close listener" "closeListen: returns 2"
finds TEST_NET_WRONG finalize "finalize: returns 2"
finds TEST_NET_WRONG "leak descriptors" "closeRecv: 20 connections, one after the other, leave 20 descriptors open"
finds TEST_NET_WRONG "leak threads" "closeRecv: 20 connections, one after the other, leave 20 threads"
if grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt"; then
  finds TEST_NET_WRONG "leak memory" "closeSend: each connection leaves about"
fi
all_found
[ $failed = 0 ] && echo "plugin_check_net: all good"
exit $failed
