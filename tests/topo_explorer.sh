#!/usr/bin/env bash
# topo_explorer.sh BUILD: tutti-topo: every command on several machines, against what is known of them; wrong options, bad files, outputs that
# cannot be written, colour, 16,384 nodes in 4 GiB.
set -u
build=$(cd "$1" && pwd) || exit 1
topo=$build/bin/tutti-topo
[ -x "$topo" ] || { echo "skipped: tutti-topo is not built"; exit 77; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset NO_COLOR "${!NCCL_@}"
export LC_ALL=C
known=$build/topologies/known
machines=tests/topologies/known
seed=$machines/seed_a100_sxm4_vm/input.xml
h100=$machines/hgx_h100_8gpu_nvswitch_8nic/input.xml
passed=0 failed=0 patience=120 # seconds
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || patience=900

report() { # report NAME PROBLEM: an empty problem is a success
  if [ -z "$2" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $1:$2"
    head -n 10 "$tmp/out" "$tmp/err"
  fi
}

# good NAME PATTERN ARGUMENT...: ends well, says nothing on standard error, and PATTERN is a line's part.
good() {
  local name=$1 pattern=$2 problem=""
  shift 2
  timeout -k 5 $patience "$topo" "$@" >"$tmp/out" 2>"$tmp/err" || problem=" status $?"
  [ ! -s "$tmp/err" ] || problem="$problem standard error"
  grep -Eqe "$pattern" "$tmp/out" || problem="$problem no '$pattern'"
  report "$name" "$problem"
}

# bad NAME STATUS PATTERN ARGUMENT...: ends with STATUS, PATTERN is in its one line on standard error.
bad() {
  local name=$1 status=$2 pattern=$3 problem="" got=0
  shift 3
  timeout -k 5 $patience "$topo" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || got=$?
  [ $got = "$status" ] || problem=" status $got"
  grep -Eqe "$pattern" "$tmp/err" || problem="$problem no '$pattern'"
  [ "$(wc -l <"$tmp/err")" = 1 ] || problem="$problem not one line"
  report "$name" "$problem"
}

same() { # same NAME FILE FILE
  local problem=""
  cmp "$2" "$3" >"$tmp/err" 2>&1 || problem=" differs"
  report "$1" "$problem"
}

# limit KIB: of address space, in a subshell; a sanitizer needs all of it for itself.
limit() {
  case $(nm "$topo" 2>/dev/null) in
  *__asan_init* | *__tsan_init*) ;;
  *) ulimit -v "$1" ;;
  esac
}

# ---- What is known ----

# same_as_known MACHINE NODES OPTION...: graphs byte by byte, rings and trees, choices.
same_as_known() {
  local machine=$1 nodes=$2 file=$known/$1/$2nodes
  shift 2
  [ -f "$file.graphs.xml" ] || { echo "FAILED: $machine: its results are not unpacked"; failed=$((failed + 1)); return; }
  good "$machine $nodes: graphs" '<graphs' graphs -N "$nodes" "$@" "$machines/$machine/input.xml"
  same "$machine $nodes: graphs" "$tmp/out" "$file.graphs.xml"
  good "$machine $nodes: channels" '^ring 0 : 0' channels -N "$nodes" --format plain "$@" "$machines/$machine/input.xml"
  grep -v '^#' "$file.channels.txt" >"$tmp/channels"
  same "$machine $nodes: channels" "$tmp/out" "$tmp/channels"
  good "$machine $nodes: tuning" '^model AllReduce' tuning -N "$nodes" --format=plain "$@" "$machines/$machine/input.xml"
  grep '^choice' "$tmp/out" >"$tmp/choices"
  grep '^choice' "$file.tuning.txt" | sed 's/ [0-9.]* \([0-9]* [0-9]*\)$/ \1/' >"$tmp/known"
  sed -i 's/ [0-9.]* \([0-9]* [0-9]*\)$/ \1/' "$tmp/choices" # times have more digits than are the same
  same "$machine $nodes: choices" "$tmp/choices" "$tmp/known"
}

same_as_known seed_a100_sxm4_vm 1
same_as_known hgx_h100_8gpu_nvswitch_8nic 1
same_as_known pcie_8gpu_2socket_2sw_each_gen3_v100_1nic 4
same_as_known mnnvl2_gb200_4gpu_nvswitch_4nic 1 --hosts 2

# The article's machine: 12 rings and 12 trees of 20 GB/s.
good "12 channels of 20 GB/s" '<graph id="0" pattern="4" crossnic="0" nchannels="12" speedintra="20" speedinter="20"' graphs "$seed"
good "12 trees of 20 GB/s" '<graph id="1" pattern="1" .*nchannels="12" speedintra="20" .*typeintra="NVL"' graphs "$seed"
good "as NCCL logs rings" '^Channel 11/24 : 0 3 2 1$' channels "$seed"
good "as NCCL logs trees" '^Trees \[0\] 1/-1/-1->0->-1 \[1\] ' channels "$seed"

# ---- Packed trees ----

amd=tests/topologies/amd
good "packed trees" '^8 trees of 24 GB/s: 192 together, at most 192 \(100.0 %\)$' graphs --packed $amd/topo_8p6l.xml
good "packed trees beside others" '^all-reduce, .*: rings 82.29 GB/s \(86 % of the bound, which is 96\), trees 72 \(75 %\), 8 packed trees 96' graphs --packed $amd/topo_8p6l.xml
good "packed trees are checked" '^checked link by link: the fullest carries 100.0 %' graphs --packed "$seed"
good "a packed tree" '^ +7 x  GPU0 \(GPU1 GPU2 GPU3\)$' graphs --packed "$seed"
good "ways of packed trees" '^    GPU0 NVL -> GPU1$' graphs --packed --ways --ascii $amd/topo_8p6l.xml
good "packed trees of 72 GPUs" '^[0-9]+ trees of .* together' graphs --packed --hosts 18 "$machines/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml"
bad "packed trees of several machines" 2 'packed trees are for ranks that reach each other without the network' graphs --packed -N 2 "$seed"
bad "packed trees of one GPU" 2 'one GPU has no trees' graphs --packed "$machines/pcie_1gpu_1nic_switch/input.xml"
for command in "graphs --table" explain; do
  # shellcheck disable=SC2086
  good "$command: far below" 'NCCL_ALGO=Packed uses packed trees' $command $amd/topo_8p_rome_vm1.xml
  # shellcheck disable=SC2086
  good "$command: near" 'RING' $command "$seed"
  grep -q 'Packed' "$tmp/out" && report "$command: near" " names packed trees"
done

# ---- Every command on several machines ----

for file in "$seed" "$h100" "$machines/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml" "$machines/pcie_1gpu_1nic_switch/input.xml" \
  "$machines/pcie_4gpu_2socket_sw/input.xml" tests/topologies/amd/topo_8p_942.xml tests/topologies/more/real_aws_aws-ofi-nccl__p5.48xl-topo.xml; do
  name=$(basename "$(dirname "$file")")/$(basename "$file")
  good "show $name" '^ *[|`]- GPU|GPU0' show "$file"
  good "show xml $name" '^<system version=' show --format xml "$file"
  good "show json $name" '"nodes"' show --format json "$file"
  good "show svg $name" '^<svg ' show --format svg "$file"
  good "show html $name" '<svg ' show --format html "$file"
  good "paths $name" '^GPU0 +NET0' paths --ways "$file"
  good "matrix $name" '^GPU0 +X' paths --matrix "$file"
  for nodes in 1 2 8; do
    [ "$nodes$file" != "1$machines/pcie_1gpu_1nic_switch/input.xml" ] || continue # one rank
    good "graphs $nodes $name" '^ring +RING' graphs --table -N $nodes "$file"
    good "channels $nodes $name" '^Trees ' channels -N $nodes "$file"
    good "json $nodes $name" '"nchannels":' channels --format json -N $nodes "$file"
    if command -v python3 >"$tmp/python"; then
      python3 -m json.tool "$tmp/out" >"$tmp/json" 2>"$tmp/err" || report "json $nodes $name" " is none"
    fi
    good "tuning $nodes $name" '^  Ring ' tuning -N $nodes -b 1K -e 1M "$file"
    good "explain $nodes $name" '^\* ' explain -N $nodes --bytes 64K "$file"
    for coll in allreduce allgather reduce_scatter Broadcast reduce_perf; do
      good "simulate $coll $nodes $name" '^# Avg bus bandwidth' simulate --coll $coll -N $nodes -b 8 -e 64M -f 8 "$file"
    done
  done
done
if command -v python3 >"$tmp/python"; then
  for arguments in "--bytes 8M" "--bytes 0 -N 2 --collnet" "--coll broadcast -N 16384 --bytes 1T" "--algo tree;allgather:ring --coll allgather"; do
    # shellcheck disable=SC2086 # words
    good "explain json $arguments" '"choice": [{]"algorithm": "' explain --format json $arguments "$h100"
    python3 -c '
import json, sys
x = json.load(open(sys.argv[1]))
times = [c["us"] for c in x["candidates"]]
best = x["candidates"][0]
assert times == sorted(times) and (best["algorithm"], best["protocol"]) == (x["choice"]["algorithm"], x["choice"]["protocol"])
assert abs(best["us"] - x["choice"]["us"]) < 1e-3 and abs(best["latency"] + best["transfer"] - best["us"]) < 1e-3 * best["us"]
assert "below" not in x or x["below"]["bytes"] < x["bytes"]
assert "above" not in x or x["above"]["bytes"] > x["bytes"]
for o in x["out"]:
  assert o["reason"] and not [c for c in x["candidates"] if (c["algorithm"], c["protocol"]) == (o["algorithm"], o["protocol"])]
' "$tmp/out" 2>"$tmp/err" || report "explain json $arguments" " does not agree with itself"
  done
fi
good "every size alike" 'the same choice at every size' explain --algo ring --proto ll "$h100"
bad "explain's formats" 2 'format xml: there are text and json' explain --format xml "$h100"
good "one rank" '^AllReduce of 1 MiB .* on 1 rank: one rank alone copies, nothing is chosen$' explain "$machines/pcie_1gpu_1nic_switch/input.xml"
report "one rank" "$([ "$(wc -l <"$tmp/out")" = 1 ] || echo " more is said")"
good "one rank, json" '"choice": null,' explain --format json "$machines/pcie_1gpu_1nic_switch/input.xml"
for coll in AllGatherV GatherV ScatterV AlltoAllV; do
  good "explain $coll" "^ *it is a message for each pair of ranks" explain --coll "tutti$coll" "$h100"
  good "host $coll" "^$coll: no algorithm is chosen for the call" host --coll "$coll"
done
good "explain ReduceScatterV" "by Oneshot, or" explain --coll reduce_scatter_v "$h100"
good "explain ReduceScatterV, json" '"function": "ReduceScatterV", "choice": null, "parts": "Reduce"' explain --format json --coll reducescatterv "$h100"
good "18 hosts in one domain" '^NVLS' graphs --table --hosts 18 "$machines/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml"

# All-to-all: the least that the links allow. One H100 sends 7/8 of a buffer at 370.8 GB/s; of four, 24/32 of it at its card's 48 GB/s.
h100_bound='GPU0 NVL (→|->) NVS [(]896 KiB at 370.8 GB/s[)]'
good "all-to-all, one node" "$h100_bound" explain --coll alltoall "$h100"
good "all-to-all, its time" '^at least 2.47 us: 423.8 GB/s, bus bandwidth 370.8 GB/s$' explain --coll alltoall "$h100"
good "all-to-all, four nodes" '^at least 1048.58 us: 64 GB/s, bus bandwidth 62 GB/s$' explain --coll alltoall -N 4 --bytes 64M "$h100"
good "all-to-all, what is sent" 'sends 14 MiB inside its node, 48 MiB over the network' explain --coll alltoall -N 4 --bytes 64M "$h100"
good "all-to-all, one rank" '^AllToAll on 1 rank: .*nothing is sent$' explain --coll alltoall "$machines/pcie_1gpu_1nic_switch/input.xml"
good "all-to-all, a table" '^ +64 MiB +1048.58 +64.00$' tuning --coll alltoall -N 4 -b 1M -e 64M "$h100"
good "all-to-all, plain" '^least AllToAll 67108864 1048.5760$' tuning --format plain -N 4 -b 1M -e 64M "$h100"
good "all-to-all, host memory" '^AlltoAll of 4 processes' host --coll alltoall --ranks 4 -e 64
for coll in allreduce allgather reducescatter broadcast reduce alltoall; do
  good "own runs, $coll" '^# Avg bus bandwidth' simulate --measured --coll $coll -b 8 -e 64M -f 8
  good "own runs on four machines, $coll" '^# Avg bus bandwidth' simulate --measured --coll $coll -N 4 --ranks 2 -n 5 -e 64M -f 8 \
    --link gbit=10,ms=0.5,way=60,idle=200,wake=40,work=2,kib=0.2,carry=4,carry_kib=0.5,fetch=4,own=0.05,sum=0.1,slice=20,cores=1
done
good "own runs over 16 machines" '^# Avg bus bandwidth' simulate --measured -N 16 -e 64M
good "own runs over 17 machines" '^# Avg bus bandwidth' simulate --measured -N 17 -e 1M -f 32
good "own runs of many ranks" "^# Avg bus bandwidth" simulate --measured --ranks 16 -e 64M -f 32
good "own runs of one rank" '^# Avg bus bandwidth' simulate --measured --ranks 1 -e 1M -f 32
bad "no such value of a link" 2 "'speed=1': name=number is expected" simulate --measured -N 2 --link speed=1
bad "a link's value is no number" 2 "'ms=fast': name=number" simulate --measured -N 2 --link gbit=1,ms=fast
bad "a link's value is negative" 2 "'ms=-1': name=number" simulate --measured -N 2 --link ms=-1
bad "a link's text goes on" 2 "name=number is expected" simulate --measured -N 2 --link ms=1,
bad "a link without --measured" 2 "link is not for predictions without --measured" simulate --link ms=1 "$h100"
bad "no such cost of memory" 2 "--memory 'speed=1': name=number is expected.* way work kib call call_kib step own$" simulate --measured --memory speed=1
bad "memory without --measured" 2 "memory is not for predictions without --measured" simulate --memory way=1 "$h100"
bad "a link of one machine" 2 "link, of one machine, is not for" simulate --measured --link ms=1
bad "a file of a machine, and --measured" 2 "a file of a machine is not for" simulate --measured "$h100"
bad "switches, and --measured" 2 "a switch is not for" simulate --measured -N 4 --rails
bad "too many ranks for --measured" 2 'at most 256 in all' simulate --measured -N 1048576 --ranks 1024
bad "an unknown type with --measured" 2 'bogus' simulate --measured -d bogus
bad "an unknown algorithm with --measured" 2 'is not known' simulate --measured --algo bogus

# own OPTION...: the time of the only line.
own() { timeout -k 5 $patience "$topo" simulate --measured "$@" | awk '$1 ~ /^[0-9]+$/ { print $4 }'; }
# more NAME A B FACTOR: A is at least FACTOR times B.
more() { report "$1" "$(awk -v a="$2" -v b="$3" -v f="$4" 'BEGIN { if (!(b > 0 && a >= f * b)) print " " a " is not " f " times " b }')"; }
more "memory that is slow" "$(own --ranks 2 -b 1M -e 1M --memory kib=1,call_kib=1)" "$(own --ranks 2 -b 1M -e 1M)" 3
more "messages that take long" "$(own --ranks 2 -b 8 -e 8 --memory way=10)" 10 1
wide=$(own -N 2 -b 64M -e 64M --link gbit=100)
more "a link that is slow" "$(own -N 2 -b 64M -e 64M --link gbit=1)" "$wide" 5
near=$(own -N 4 -b 8 -e 8 --link gbit=100)
more "a link that is long" "$(own -N 4 -b 8 -e 8 --link gbit=100,ms=5)" 5000 1
for cost in way=100 work=20 wake=50 carry=30 carry_kib=1000 rouse=40 fetch=40; do
  more "a link with $cost" "$(own -N 4 -b 8 -e 8 --link gbit=100,$cost)" "$near" 1.05
done
for cost in kib=5 own=5 sum=5; do
  more "more for each KiB, $cost" "$(own -N 2 -b 64M -e 64M --link gbit=100,$cost)" "$wide" 1.5
done
more "one core for all" "$(own -N 8 -b 64K -e 64K --link carry=1,cores=1)" "$(own -N 8 -b 64K -e 64K --link carry=1,cores=8)" 1.5
more "cores that change at once" "$(own -N 8 --coll broadcast -b 1M -e 1M --link carry=1,cores=1,change=50)" \
  "$(own -N 8 --coll broadcast -b 1M -e 1M --link carry=1,cores=1,change=50,slice=1000)" 1.2
more "changes of a core" "$(own -N 4 -b 8 -e 8 --link carry=1,change=200)" "$(own -N 4 -b 8 -e 8 --link carry=1,change=1)" 1.5
good "the library's own algorithms" ' Ring +LL ' simulate --measured -N 4 -e 8 --algo ring
good "an algorithm that NCCL does not know" ' RD +LL ' simulate --measured -N 4 -e 8 --algo rd
printf '# a job\ncoll,bytes,ranks,count,us\nallreduce,1048576,8,10,2000.5\nbroadcast,64,8,1,0\n' >"$tmp/job.csv"
good "a job" '^AllReduce +1048576 +8 +10 +200\.1 ' simulate --workload "$tmp/job.csv" -N 2 "$h100"
good "a job's sum" '^# all: 11 collectives took 2.001 ms' simulate --workload "$tmp/job.csv" --measured -N 8
printf 'allreduce,1048576,8,10\n' >"$tmp/short.csv"
bad "a job's line lacks a value" 2 'short.csv:1: coll,bytes,ranks,count,us is expected' simulate --workload "$tmp/short.csv" "$h100"
printf 'allreduce,-1,8,10,3\n' >"$tmp/negative.csv"
bad "a job's line has a wrong number" 2 'negative.csv:1: coll,bytes' simulate --workload "$tmp/negative.csv" "$h100"
printf 'allreduces,1,8,10,3\n' >"$tmp/unknown.csv"
bad "a job has an unknown collective" 2 'unknown.csv:1: this collective' simulate --workload "$tmp/unknown.csv" "$h100"
printf 'alltoall,64,8,10,3\nallreduce,64,8,10,30\n' >"$tmp/alltoall.csv"
good "a job's all-to-all has no model" '^# all: 10 collectives took 0.030 ms' simulate --workload "$tmp/alltoall.csv" "$h100"
good "ranks of a job that are not those of the machine" '^# \*: of another number of ranks than the 3' simulate --workload "$tmp/job.csv" --measured -N 3
printf '# %0300d\nallreduce,64,4,10,30\n' 0 >"$tmp/long.csv"
good "a job names its collectives itself" '^# all: 10 collectives' simulate --workload "$tmp/alltoall.csv" --coll alltoall "$h100"
good "a job's long comment" '^# all: 10 collectives' simulate --workload "$tmp/long.csv" --measured -N 4
head -c 1000 /dev/zero >"$tmp/zero.csv"
bad "a job's file is no text" 2 'zero.csv: there is no collective|no text' simulate --workload "$tmp/zero.csv" "$h100"
bad "a job's file is a folder" 2 'Is a directory' simulate --workload "$tmp" "$h100"
: >"$tmp/empty.csv"
bad "a job without collectives" 2 'there is no collective' simulate --workload "$tmp/empty.csv" "$h100"
bad "a job that is not there" 2 'nowhere.csv: No such file' simulate --workload "$tmp/nowhere.csv" "$h100"
bad "all-to-all is not simulated" 2 'no cost model for all-to-all' simulate --coll alltoall "$h100"
bad "tuning's formats" 2 'format xml: there are text, plain and json' tuning --format xml "$h100"
if command -v python3 >"$tmp/python"; then
  for nodes in 1 4; do
    good "tuning plain $nodes" '^choice' tuning --format plain -N $nodes "$h100"
    cp "$tmp/out" "$tmp/plain"
    good "tuning json $nodes" '"choices"' tuning --format json -N $nodes "$h100"
    python3 -c '
import json, sys
x = json.load(open(sys.argv[1]))
assert (x["nodes"], x["ranks"]) == (int(sys.argv[3]), 8 * int(sys.argv[3]))
lines = ["choice %s %d %s %s %.4f %d %d" % tuple(c[k] for k in ("function", "bytes", "algorithm", "protocol", "us", "channels", "threads"))
         for c in x["choices"]]
lines += ["least %s %d %.4f" % (c["function"], c["bytes"], c["us"]) for c in x["least"]]
model = ["model %s %s %s %.4f %.4f" % tuple(c[k] for k in ("function", "algorithm", "protocol", "latency", "bandwidth"))
         for c in x["model"] if "bound" in c]
known = open(sys.argv[2]).read().splitlines()
assert lines == [k for k in known if not k.startswith("model")], lines
assert model and set(model) <= set(known), model
assert all(c["bound"] if "bound" in c else c["out"] for c in x["model"])
' "$tmp/out" "$tmp/plain" $nodes 2>"$tmp/err" || report "tuning json $nodes" " says something else than plain"
  done
  good "show json, predictions" '^"predictions":' show --format json -N 4 "$h100"
  cp "$tmp/out" "$tmp/show"
  good "tuning json, all sizes" '"choices"' tuning --format json -N 4 -f 2 "$h100"
  python3 -c '
import json, sys
show, tuning = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
for c in tuning["choices"] + tuning["least"]:
  at = show["sizes"].index(c["bytes"])
  times = {(p["algorithm"], p["protocol"]): p["us"][at] for p in show["predictions"] if p["function"] == c["function"] and p["us"][at]}
  key = (c["algorithm"], c["protocol"]) if "algorithm" in c else ("links, at least", "")
  assert times[key] == min(times.values()) and abs(times[key] - c["us"]) <= 1e-3 * c["us"] + 1e-4, c
' "$tmp/show" "$tmp/out" 2>"$tmp/err" || report "predictions" " are not those of tuning"
  good "explain json, all-to-all" '"least": [{]"us": 16.3840, "algbw": 64.0000, "busbw": 62.0000[}]' explain --coll alltoall -N 4 --format json "$h100"
  python3 -m json.tool "$tmp/out" >"$tmp/json" 2>"$tmp/err" || report "explain json, all-to-all" " is none"
fi

# Files as such.
good "lint: nothing to say" '' lint "$h100"
sed 's/link_width="16"/link_width="8"/' "$h100" >"$tmp/narrow.xml"
"$topo" lint "$tmp/narrow.xml" >"$tmp/out" 2>"$tmp/err"
report "lint: trained down" "$([ $? = 1 ] && grep -q 'link_width' "$tmp/out" || echo " not found")"
good "diff: the same" '' diff "$h100" "$h100"
"$topo" diff "$h100" "$tmp/narrow.xml" >"$tmp/out" 2>"$tmp/err"
report "diff: narrower links" "$([ $? = 1 ] && grep -q 'link_width' "$tmp/out" || echo " not found")"
"$topo" gather -o "$tmp/capture.txt"
"$topo" lint "$tmp/capture.txt" >"$tmp/out" 2>"$tmp/err"
report "lint: a capture" "$([ $? -le 1 ] && grep -q 'capture.txt: no file of its own' "$tmp/out" && ! grep -q 'warning: <gpu>' "$tmp/out" || echo " not said")"
"$topo" show --format xml -o "$tmp/shown.xml" "$tmp/capture.txt"
good "diff: a capture and what it shows" 'no difference' diff "$tmp/capture.txt" "$tmp/shown.xml"
"$topo" lint - <"$tmp/narrow.xml" >"$tmp/out" 2>"$tmp/err"
report "lint: standard input" "$([ $? = 1 ] && grep -q '^standard input:[0-9]*: .*link_width' "$tmp/out" || echo " not found")"
bad "lint without file" 2 'one FILE' lint
bad "diff of one file" 2 'two FILEs' diff "$h100"
bad "lint of no file" 2 '^tutti-topo: .*nowhere' lint -o "$tmp/nothing" /nowhere.xml
bad "diff of no file" 2 '^tutti-topo: .*nowhere' diff "$h100" /nowhere.xml

# Channels of another run: its ranks do not matter.
sed 's/ rank="[0-9]*"/ rank="77"/' "$known/hgx_h100_8gpu_nvswitch_8nic/2nodes.graphs.xml" >"$tmp/other.xml"
good "graph file of another run" '^ring +RING' graphs --table -N 2 --graph-file "$tmp/other.xml" "$h100"

# What is written can be read again, from a file and from standard input.
good "graphs before" '<graphs' graphs "$h100"
cp "$tmp/out" "$tmp/graphs.xml"
: >"$tmp/out"
"$topo" show --format xml -o "$tmp/again.xml" "$h100" 2>"$tmp/err"
good "graphs again" '<graphs' graphs "$tmp/again.xml"
same "what was written is the same machine" "$tmp/out" "$tmp/graphs.xml"
"$topo" graphs - <"$h100" >"$tmp/out" 2>"$tmp/err"
same "from standard input" "$tmp/out" "$tmp/graphs.xml"
NCCL_TOPO_FILE=$h100 "$topo" graphs >"$tmp/out" 2>"$tmp/err"
same "from NCCL_TOPO_FILE" "$tmp/out" "$tmp/graphs.xml"
good "graphs from a file" 'graphs' graphs --graph-file "$tmp/graphs.xml" "$h100"
same "graphs from a file are the same" "$tmp/out" "$tmp/graphs.xml"

# A file that no run has filled in: ranks and numbers are given.
sed 's/ rank="[0-9]*"//; s/ gdr="[01]"//' "$h100" >"$tmp/plain.xml"
good "without ranks" '<graphs' graphs "$tmp/plain.xml"
same "without ranks: the same" "$tmp/out" "$tmp/graphs.xml"
# Ranks of the second machine of a run.
for r in 7 6 5 4 3 2 1 0; do echo "s/ rank=\"$r\"/ rank=\"$((r + 8))\"/"; done >"$tmp/sed"
sed -f "$tmp/sed" "$h100" >"$tmp/second.xml"
good "other ranks" '<graphs' graphs "$tmp/second.xml"
same "other ranks: the same" "$tmp/out" "$tmp/graphs.xml"

# ---- This machine, and captures ----

if ! [ -e /proc/driver/nvidia/gpus ]; then # no GPU: none is drawn, and nothing that nobody has measured
  good "this machine" '^this computer: no GPU, 3 ranks in host memory, ' show --ranks 3
  good "a rank in host memory" '^ *[|`]- RANK2  host memory$' show --ranks 3
  { "$topo" show && "$topo" show --format svg && "$topo" show --format json; } >"$tmp/out" 2>"$tmp/err" || report "this machine in each form" " status $?"
  report "no GPU, no NUMA node -1, no bandwidth of memory" "$(grep -E '[0-9] GPU|GPU[0-9]|CPU/-1|96 GB/s|PCI 96' "$tmp/out")"
fi
good "one of four machines" '8 GPUs, .*; one of 4 machines over the network$' show -N 4 "$h100"
for form in svg html; do
  good "one of four machines, $form" '<title>input.xml: 4 machines over the network, 32 ranks; one is drawn: 8 GPUs, ' \
    show --format $form -N 4 "$h100"
done
good "one of four machines, json" '^"machines":4,' show --format json -N 4 "$h100"
good "this machine's paths" '^(GPU0 +GPU1|RANK0 +RANK1) +(PHB|SYS)' paths --ranks 2
good "gather" '^tutti-machine 1$' gather
"$topo" gather -o "$tmp/capture" 2>"$tmp/err" || report "gather -o" " status $?"
"$topo" show --format xml --ranks 4 >"$tmp/here.xml" 2>"$tmp/err"
good "a capture" '<gpu ' show --format xml --ranks 4 "$tmp/capture"
same "the capture is this machine" "$tmp/out" "$tmp/here.xml"
good "a capture's choices" '^\* ' explain --ranks 4 "$tmp/capture"

NCCL_TOPO_FILE=$h100 good "where a machine comes from" '^tests/.*/input.xml .NCCL_TOPO_FILE.: 8 GPUs' show
mkdir -p "$tmp/folder/sys/devices/system/node"
bad "a folder without /sys" 2 'a copy of /sys is expected; there is no sys/bus/pci/devices' show "$machines"
good "a folder with /sys" ': no GPU, 3 ranks in host memory' show --ranks 3 "$tmp/folder"
for cores in "1 2" "3f 6" "3,ffffffff 8"; do # a rank for each core, 2 to 8
  mkdir -p "$tmp/folder/sys/devices/system/node/node0"
  echo "${cores% *}" >"$tmp/folder/sys/devices/system/node/node0/cpumap"
  good "ranks for cores $cores" ": no GPU, ${cores#* } ranks in host memory" show "$tmp/folder"
done
good "CPU by name" 'CPU/0  Intel Sapphire Rapids' show "$h100"
sed 's/modelid="143"/modelid="250"/' "$h100" >"$tmp/cpu.xml"
good "CPU by numbers" 'CPU/0  Intel family 6 model 250' show "$tmp/cpu.xml"

# ---- Options ----

good "options over the variable" 'RING' graphs --table --cross-nic 0 -N 2 "$h100"
grep -q ' no ' "$tmp/out" || report "--cross-nic" " has no effect"
good "algo" '^  Tree +NCCL_ALGO=ring leaves it out' explain --algo ring "$h100"
export NCCL_TUNER_PLUGIN=$build/lib/libnccl-tuner-csv.so NCCL_TUNER_CONFIG_FILE=$tmp/choices.csv
echo "allreduce,0,100000,tree,ll128,2,-1,8" >"$tmp/choices.csv"
good "tuner decided" 'tuner plugin CSV .v6.: decided: Tree LL128, 2 channels, predicted [0-9.]+ us' explain --bytes 64K "$h100"
good "tuner asked" 'tuner plugin CSV .v6.: asked, and leaves the choice as it is' explain --bytes 64M "$h100"
NCCL_TUNER_PLUGIN=/nowhere/x.so good "no such tuner" 'NCCL_TUNER_PLUGIN=/nowhere/x.so: there is no tuner plugin that could be asked' explain "$h100"
unset NCCL_TUNER_PLUGIN NCCL_TUNER_CONFIG_FILE
good "algo decided" 'NCCL_ALGO=tree: decided: without it NVLS' explain --algo=tree --bytes 64M "$h100"
good "proto" '^\* Ring Simple|^\* Tree Simple|^\* NVLS' explain --proto simple "$h100"
good "nothing set" 'no variable is set' explain "$h100"
NCCL_PROTO=LL good "variable" 'NCCL_PROTO=LL: ' explain "$h100"
good "operation" '^  NVLS +Simple +NVLink cannot reduce this' explain --op prod --type float "$h100"
good "one rank's trees" '^Trees \[0\] .*->5->' channels --rank 5 --channel 0 "$h100"
good "shortened" '<graphs' graphs --node 2 "$h100"
good "collnet" '^collnet chain +TREE' graphs --table --collnet -N 2 "$h100"
good "NVLS off" '^  NVLS +Simple +NCCL_NVLS_ENABLE=0 switches it off' explain -N 2 --nvls-enable 0 "$h100"
good "NVLS off, a table" '^  NVLSTree .*NCCL_NVLS_ENABLE=0 switches it off' tuning -N 2 --nvls-enable 0 "$h100"
good "no NVSwitch" '^  NVLS +Simple +the node has no NVSwitch' explain "$seed"
good "no collnet" '^  CollNetChain +the network does not reduce' explain -N 2 "$h100"
sed 's/<net /<net coll="1" /' "$machines/pcie_4gpu_2socket_sw/input.xml" | sed 's/ coll="0"//' >"$tmp/reduces.xml"
good "collnet not asked for" '^  CollNetChain +NCCL_COLLNET_ENABLE does not let the network reduce' explain -N 2 "$tmp/reduces.xml"
good "collnet with too few nodes" '^  CollNetChain +NCCL_COLLNET_NODE_THRESHOLD=3 wants more nodes' explain -N 2 --collnet --collnet-node-threshold 3 "$h100"
good "collnet and communicators" 'communicators of this library too, as their own cost model chooses' explain -N 2 --collnet "$h100"
good "collnet and communicators, a table" 'communicators of this library too, as their own cost model chooses' tuning -N 2 --collnet "$h100"
"$topo" explain -N 2 --collnet --collnet-enable 0 "$h100" >"$tmp/out" 2>"$tmp/err" || report "collnet forbidden" " status $?"
grep -q '^  CollNetChain *NCCL_COLLNET_ENABLE=0 does not let' "$tmp/out" || report "collnet forbidden" " not so"
grep -q -e '--collnet: NCCL_COLLNET_ENABLE=0 decides' "$tmp/err" || report "collnet forbidden" " not said"
good help '^usage' --help

bad "no command" 2 'unknown command .chanels.; the nearest is channels' chanels
bad "unknown option" 2 'unknown option --cros-nic; the nearest is --cross-nic' graphs --cros-nic 1 "$h100"
bad "another command's option" 2 'unknown option --bytes; only these have it: explain;' show --bytes 8 "$h100"
bad "another command's option that begins one of this" 2 'unknown option --rank; only these have it: graphs, channels' explain --rank 3 "$h100"
bad "ambiguous option" 2 'unknown option --net: it may be --net-gdr-level, .*--netdevs-policy' graphs --net 1 "$h100"
good "an option's begin" 'this computer: .*3 ranks|this computer: .*GPU' show --ran 3
bad "sizes as in the perf programs" 2 'unknown option -b: one size is explained, --bytes SIZE' explain -b 8 "$h100"
bad "ranks as in the perf programs" 2 '--nodes M takes M machines' simulate -g 8 "$h100"
bad "iterations as in the perf programs" 2 'nothing is run here' simulate --iters 20 "$h100"
bad "operation as in the perf programs" 2 "-o 'sum': a file to write is expected; the operation is --op" simulate -o sum "$h100"
[ ! -e sum ] || report "operation as in the perf programs" " a file is written"
bad "help of nothing" 2 "unknown command 'chanel'; the nearest is channels" help chanel
bad "help of two" 2 "help: unexpected argument 'paths': one command is expected" help show paths
bad "version of something" 2 "version: unexpected argument 'foo': nothing is expected" --version foo
for command in show paths graphs channels tuning explain simulate lint diff gather; do
  good "help $command" '^usage' help $command
  cp "$tmp/out" "$tmp/help"
  good "$command --help" '^usage' $command --help
  same "help $command is $command --help" "$tmp/out" "$tmp/help"
  [ "$(wc -L <"$tmp/out")" -le 132 ] || report "help $command" " longer lines than 132"
done
good "version" '^tutti-topo [0-9.]+, .* NCCL 2.30' --version
for name in ncclFloat32 float32 fp32 FLOAT; do good "type $name" '\(float, max\)' explain -d $name --op ncclMax "$h100"; done
good "type bfloat16" '\(bfloat16, avg\)' explain --type ncclBfloat16 --op ncclAvg "$h100"
good "function" '^ReduceScatter of 8 B' explain --coll ncclReduceScatter --bytes 8B "$h100"
for range in min-nchannels=100 min-nchannels=0 max-nchannels=65 max-ctas=-1 cross-nic=3 nvls-enable=9 collnet-enable=2 net-gdr-read=2 \
  collnet-node-threshold=-1; do
  bad "range $range" 2 "^tutti-topo: graphs: --${range%=*} '${range#*=}': a whole number from [01] to [0-9]+ is expected" graphs "--$range" "$h100"
done
bad "range of threads" 2 "^tutti-topo: explain: --nthreads '33': a multiple of 32 from 64 to 512 is expected" explain --nthreads 33 "$h100"
for most in x 0 65 4294967297 99999999999999999999 '' -1; do
  bad "policy of '$most'" 2 "--netdevs-policy 'MAX:$most': AUTO, ALL or MAX:n is expected, n from 1 to 64" graphs --netdevs-policy "MAX:$most" "$h100"
done
good "policy of 64" '<graphs' graphs --netdevs-policy max:64 "$h100"
NCCL_CROSS_NIC=7 good "out of range in the environment" '<graphs' graphs "$h100"
cp "$h100" "$tmp/mine.xml"
bad "the machine is no place to write" 2 "would write over a machine's description" explain -o "$tmp/mine.xml"
same "the machine is as it was" "$tmp/mine.xml" "$h100"
# What is no file is not read before it is written.
timeout -k 5 $patience "$topo" show -o /dev/stdout 2>"$tmp/err" | cat >"$tmp/out"
report "onto a pipe" "$(grep -q '^this computer: ' "$tmp/out" || echo " nothing came")"
mkfifo "$tmp/pipe"
timeout -k 5 $patience cat "$tmp/pipe" >"$tmp/out" &
timeout -k 5 $patience "$topo" show -o "$tmp/pipe" 2>"$tmp/err" || report "onto a named pipe" " status $?"
wait $!
report "onto a named pipe" "$(grep -q '^this computer: ' "$tmp/out" || echo " nothing came")"
for size in 0 1 7919 2147483649 1.5K 3M 8G 1T 1125899906842624; do
  good "size $size" '^\* ' explain --bytes $size "$h100"
  good "sizes from $size" '^# Avg bus' simulate -b $size -e $size "$h100"
done
for size in -1 9223372036854775808 99999999999999999999 nan inf K 8KK 1MX ''; do
  bad "size '$size'" 2 "--bytes '.*': a size is expected: a number up to 2\^50" explain "--bytes=$size" "$h100"
done
for nodes in -1 0 99999999 2.5 two ''; do
  bad "nodes '$nodes'" 2 "-N '.*': a whole number from 1 to 1048576 is expected" graphs -N "$nodes" "$h100"
done
good "given twice: the last counts" ' on 24 ranks, 3 nodes' explain -N 2 --nodes=3 "$h100"
bad "missing value" 2 'nodes: its value is missing' graphs --nodes
bad "wrong number" 2 'nodes .0.: a whole number from 1 to' graphs --nodes 0 "$h100"
bad "wrong number" 2 'N .2x.' graphs -N 2x "$h100"
bad "wrong size" 2 'bytes .-5.: a size' explain --bytes=-5 "$h100"
bad "sizes that cross" 2 'is more than' simulate -b 2M -e 1M "$h100"
bad "too many sizes" 2 'more than a million' simulate -b 0 -e 1T -f 1 -i 1 "$h100"
bad "flag with a value" 2 "^tutti-topo: graphs: --table '1': this option has no value" graphs --table=1 "$h100"
bad "a letter of two bytes" 2 "^tutti-topo: graphs: unknown option -ü; -h" graphs -ün "$h100"
bad "two files" 2 'unexpected argument' show "$h100" "$h100"
bad "function" 2 'the nearest is allreduce' explain --coll allreduc "$h100"
bad "type" 2 'unknown type' explain --type complex "$h100"
bad "operation" 2 'unknown operation' explain --op xor "$h100"
bad "format" 2 'nearest is xml' show --format xmll "$h100"
for form in svg html; do
  good "title $form" '<title>&lt;b&gt; &quot;R&amp;D&quot;' show --format $form --title '<b> "R&D"' "$h100"
  good "title of the file $form" '<title>input.xml' show --format $form "$h100"
done
good "title json" '"title":' show --format json --title '"one"' "$h100"
bad "title of a text" 2 'title is for .*; text has none' show --title x "$h100"
bad "level" 2 "--p2p-level 'FAR': LOC, NVL," paths --p2p-level FAR "$h100"
bad "variable's number" 2 "--cross-nic 'often': a whole number from 0 to 2" graphs --cross-nic often "$h100"
bad "algorithm" 2 'explain: --algo="rings": "rings" is not known' explain --algo rings "$h100"
bad "no such end" 2 'GPU9: the machine has no such' paths --from GPU9 "$h100"
bad "no such rank" 2 'rank 8: there are 8' channels --rank 8 "$h100"
bad "no such channel" 2 'channel 63: there are' channels --channel 63 "$h100"
bad "no algorithm left" 1 'no algorithm is left|NCCL_ALGO' simulate --coll broadcast --algo tree "$h100"
bad "too many ranks" 2 'more than [0-9]+ ranks' simulate -N 1048576 --hosts 18 "$machines/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml"

# ---- Files ----

: >"$tmp/empty.xml"
head -c 3000 "$h100" >"$tmp/cut.xml"
echo '<system version="1"><cpu numaid="0" arch="x86_64"/></system>' >"$tmp/nothing.xml"
sed 's/sm="90"/sm="many"/' "$h100" >"$tmp/wrong.xml"
sed 's/ rank="3"/ rank="2"/' "$h100" >"$tmp/twice.xml"
echo 'tutti-machine 1
x nonsense' >"$tmp/capture.bad"
{ printf x; head -c 200000 /dev/urandom; } >"$tmp/noise.xml" # the first byte is no line end
for command in show paths graphs channels tuning explain simulate; do
  bad "$command: missing" 2 'no.xml: cannot be read: No such file' $command "$tmp/no.xml"
  bad "$command: empty" 2 'empty.xml' $command "$tmp/empty.xml"
  bad "$command: truncated" 2 'cut.xml:[0-9]+' $command "$tmp/cut.xml"
  bad "$command: no GPU" 2 'nothing.xml: there is no GPU' $command "$tmp/nothing.xml"
  bad "$command: wrong value" 2 'wrong.xml:5: .*sm="many"' $command "$tmp/wrong.xml"
  bad "$command: rank twice" 2 'twice.xml:[0-9]+' $command "$tmp/twice.xml"
  bad "$command: noise" 2 'noise.xml:1' $command "$tmp/noise.xml"
  bad "$command: a graph" 2 'a machine begins with <system>' $command "$tmp/graphs.xml"
  bad "$command: a capture" 2 'capture.bad:2' $command "$tmp/capture.bad"
  bad "$command: a device" 2 'not a regular file' $command /dev/null
done

# Files of absurd size or form: an answer, in 2 GiB.
big() { # big NAME PROGRAM: awk's lines between <system> and </system>
  local name=$1
  shift
  { echo '<system version="1">'; awk "$@" </dev/null; echo '</system>'; } >"$tmp/$name.xml"
}
big gpus 'BEGIN { print "<cpu numaid=\"0\" arch=\"arm64\">"; for (i = 0; i < 10000; i++) printf "<pci busid=\"%04x:%02x:%02x.0\"><gpu dev=\"%d\" sm=\"90\" rank=\"%d\"><nvlink target=\"ffff:00:00.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>\n", i / 8192, i / 32 % 256, i % 32, i, i; print "</cpu>" }'
big ports 'BEGIN { print "<cpu numaid=\"0\" arch=\"arm64\"><pci busid=\"0:1:0.0\"><gpu dev=\"0\" sm=\"90\" rank=\"0\"/></pci><nic>"; for (i = 0; i < 100000; i++) printf "<net name=\"n%d\" dev=\"%d\"/>\n", i, i; print "</nic></cpu>" }'
big hosts 'BEGIN { for (i = 0; i < 50000; i++) printf "<cpu numaid=\"0\" host_hash=\"0x%x\" arch=\"arm64\"><pci busid=\"0:1:0.0\"><gpu dev=\"0\" sm=\"90\" rank=\"%d\"/></pci></cpu>\n", i + 1, i }'
big depth 'BEGIN { for (i = 0; i < 10000; i++) print "<pci busid=\"0:1:0.0\">"; for (i = 0; i < 10000; i++) print "</pci>" }'
big attributes 'BEGIN { printf "<cpu"; for (i = 0; i < 100000; i++) printf " a%d=\"1\"", i; print "/>" }'
big nested 'BEGIN { print "<system version=\"1\"/>" }'
printf '<system version="1">\n<cpu numaid="&#10;&#x9b;2J"/></system>' >"$tmp/command.xml"
dd if=/dev/zero of="$tmp/sparse.xml" bs=1 count=0 seek=100M 2>/dev/null
mkfifo "$tmp/fifo.xml"
for command in show simulate; do
  bad "$command: 10,000 GPUs" 2 'gpus.xml: 10002 GPUs' $command "$tmp/gpus.xml"
  bad "$command: 100,000 ports" 2 'ports.xml: 100002 GPUs' $command "$tmp/ports.xml"
  bad "$command: 50,000 hosts" 2 'hosts.xml: 100000 GPUs' $command "$tmp/hosts.xml"
  bad "$command: nested" 2 'nested.xml: there is no GPU' $command "$tmp/nested.xml"
  bad "$command: fifo" 2 'fifo.xml: not a regular file' $command "$tmp/fifo.xml"
done
# rows N CLASS DEVICE: N devices for either CPU, each below 119 switches of its own.
rows='function rows(n, class, device,  i, k) {
  for (i = c * n; i < (c + 1) * n; i++) {
    for (k = 1; k < 120; k++) printf "<pci busid=\"%04x:%02x:0.0\" class=\"0x060400\">\n", domain, k
    printf "<pci busid=\"%04x:ff:0.0\" class=\"0x%s\">", domain++, class
    printf device, i, i
    for (k = 0; k < 120; k++) print "</pci>"
  }
}'
big switches "$rows"' BEGIN { for (c = 0; c < 2; c++) { printf "<cpu numaid=\"%d\" arch=\"arm64\">\n", c
  rows(4, "030200", "<gpu dev=\"%d\" sm=\"80\" rank=\"%d\" gdr=\"1\"/>")
  rows(100, "020000", "<nic><net name=\"n%d\" dev=\"%d\" speed=\"100000\"/></nic>"); print "</cpu>" } }'
for nodes in 1 2; do
  good "25,000 switches, $nodes" '^ring +RING' graphs --table -N $nodes "$tmp/switches.xml"
done
for file in gpus ports hosts; do
  (limit 2097152; timeout -k 5 $patience "$topo" lint "$tmp/$file.xml") >"$tmp/out" 2>"$tmp/err"
  report "lint: $file" "$([ $? = 1 ] && grep -q "$file.xml:1: error: .*computed for at most 2048" "$tmp/out" || echo " not found")"
done
bad "lint: too deep" 2 'depth.xml:129: .*more than 128 deep' lint "$tmp/depth.xml"
bad "lint: too many attributes" 2 'attributes.xml:2: .*more than 64 attributes' lint "$tmp/attributes.xml"
bad "lint: too long" 2 'sparse.xml: 104857600 bytes' lint "$tmp/sparse.xml"
"$topo" lint "$tmp/command.xml" >"$tmp/out" 2>"$tmp/err"
report "lint: no commands to the terminal" "$([ $? = 1 ] && ! grep -q "$(printf '\302\233')" "$tmp/out" || echo " found")"

bad "empty standard input" 2 'standard input' show -
bad "a graph file that is none" 2 'h100|input.xml' graphs --graph-file "$h100" "$seed"

# 10,000 nodes: a message or a result, not gigabytes.
{
  echo '<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="1">'
  for ((i = 0; i < 10000; i++)); do
    printf '<pci busid="%04x:%02x:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="%d" sm="80" rank="%d" gdr="1"/></pci>\n' \
      $((i / 250)) $((i % 250 + 1)) "$i" "$i"
  done
  echo '</cpu></system>'
} >"$tmp/large.xml"
(limit 2000000; bad "10,000 GPUs" 2 'paths are computed for at most' graphs "$tmp/large.xml"; exit $((failed > 0))) || failed=$((failed + 1))

# ---- Output ----

status() { # status NAME WANTED GOT
  if [ "$2" = "$3" ]; then report "$1" ""; else report "$1" " status $3"; fi
}
"$topo" show "$h100" >&- 2>"$tmp/err"
status "closed standard output" 1 $?
grep -q 'standard output: cannot be written' "$tmp/err" || report "closed standard output" " no message"
if [ -w /dev/full ]; then
  "$topo" graphs "$h100" >/dev/full 2>"$tmp/err"
  status "full disk" 1 $?
  grep -q 'No space left' "$tmp/err" || report "full disk" " no message"
fi
{ "$topo" channels -N 500 "$h100" 2>"$tmp/err"; echo $? >"$tmp/status"; } | head -c 100 >"$tmp/out"
status "closed pipe" 1 "$(cat "$tmp/status")"
bad "a folder that is not there" 1 'cannot be written' show -o "$tmp/no/such" "$h100"
cp "$h100" "$tmp/self.xml"
"$topo" show --format xml -o "$tmp/self.xml" "$tmp/self.xml" 2>"$tmp/err" || report "onto itself" " status $?"
good "onto itself" '<graphs' graphs "$tmp/self.xml"
same "onto itself: the same machine" "$tmp/out" "$tmp/graphs.xml"
bad "nothing is written after an error" 2 'cut.xml' show -o "$tmp/self.xml" "$tmp/cut.xml"
good "the file is as it was" '<graphs' graphs "$tmp/self.xml"
status "nothing is left beside" "$tmp/self.xml" "$(echo "$tmp"/self.xml*)"
NCCL_DEBUG=INFO "$topo" graphs "$h100" >"$tmp/out" 2>"$tmp/err"
same "the log is not among the results" "$tmp/out" "$tmp/graphs.xml"

for command in show paths graphs channels tuning explain simulate gather; do
  file=$h100
  [ $command != gather ] || file=--ascii
  "$topo" $command "$file" >&- 2>"$tmp/err"
  status "$command: closed standard output" 1 $?
  if [ -w /dev/full ]; then
    "$topo" $command "$file" >/dev/full 2>"$tmp/err"
    status "$command: full disk" 1 $?
    [ "$(wc -l <"$tmp/err")" = 1 ] || report "$command: full disk" " not one line"
  fi
  { timeout -k 5 $patience "$topo" $command "$file" 2>"$tmp/err"; echo $? >"$tmp/status"; } | true
  [ "$(cat "$tmp/status")" -le 1 ] || report "$command: closed pipe" " status $(cat "$tmp/status")"
done

# The examples of the man page, as they are printed.
mkdir -p "$tmp/examples"
cp "$h100" "$tmp/examples/dgx.xml"
cp "$machines/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml" "$tmp/examples/gb200.xml"
mkdir "$tmp/examples/bin"
printf '#!/bin/sh\nshift\nexec "$@"\n' >"$tmp/examples/bin/ssh" # the other computer is this one
chmod +x "$tmp/examples/bin/ssh"
sed -n '/^.SH EXAMPLES/,/^.SH SEE/ { /^\.B / { s/^\.B //; s/\\-/-/g; p } }' docs/man/tutti-topo.1 >"$tmp/examples/list"
[ "$(wc -l <"$tmp/examples/list")" -ge 8 ] || report "examples" " are not found in the man page"
while IFS= read -r example; do
  problem=""
  (cd "$tmp/examples" && PATH="$PWD/bin:${topo%/*}:$PATH" timeout -k 5 $patience bash -o pipefail -c "$example") >"$tmp/out" 2>"$tmp/err" </dev/null ||
    problem=" status $?"
  [ -s "$tmp/out" ] && [ ! -s "$tmp/err" ] || problem="$problem no output, or an error"
  report "example: $example" "$problem"
done <"$tmp/examples/list"

escape=$(printf '\033')
good "no colour in a file" 'GPU0' show "$h100"
grep -q "$escape" "$tmp/out" && report colour " without a terminal"
good "colour when wanted" "$escape" show --color=always "$h100"
if script -qec true /dev/null >"$tmp/out" 2>&1; then # a terminal
  TERM=xterm script -qec "$topo show $h100" /dev/null >"$tmp/out" </dev/null 2>"$tmp/err"
  grep -q "$escape" "$tmp/out" || report "colour on a terminal" " none"
  NO_COLOR=1 TERM=xterm script -qec "$topo show $h100" /dev/null >"$tmp/out" </dev/null 2>"$tmp/err"
  ! grep -q "$escape" "$tmp/out" || report NO_COLOR " colour all the same"
fi
good "a row without end" 'NVSwitch.*GPU.* \.\.\.$' show --hosts 128 "$machines/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml"
good "width" '>$' show --width 40 "$h100"
[ "$(wc -L <"$tmp/out")" -le 40 ] || report width " longer lines"
for width in 40 60; do # tables keep their columns
  good "heading in $width columns" '^ +us +latency +transfer$' explain --width $width "$h100"
  good "row in $width columns" '^\* [A-Z].* +[0-9.]+ +[0-9.]+ +[0-9.]+$' explain --width $width "$h100"
done
for width in 80 100 132; do
  for command in explain tuning; do
    good "$command in $width columns" 'Ring' $command --width $width -N 16384 --collnet "$h100"
    [ "$(LC_ALL=C.UTF-8 wc -L <"$tmp/out")" -le $width ] || report "$command in $width columns" " longer lines"
    ! grep -q ' $' "$tmp/out" || report "$command in $width columns" " blanks at an end"
    tr -s ' \n' ' ' <"$tmp/out" >"$tmp/narrow"
    good "$command in a file" 'Ring' $command -N 16384 --collnet "$h100"
    tr -s ' \n' ' ' <"$tmp/out" >"$tmp/wide"
    same "$command in $width columns: the same words" "$tmp/narrow" "$tmp/wide"
  done
done
LC_ALL=C.UTF-8 good "lines" '^├─ CPU/0' show "$h100"
LC_ALL=C.UTF-8 good "ASCII" '^\|- CPU/0' show --ascii "$h100"

# ---- Links that machines share ----

good "no shared link is slower" 'Simple +16 +[0-9]+  -$' simulate -N 4 -b 1G -e 1G --oversubscription 1 "$h100"
good "uplinks 8:1" 'leaf (up|down) [0-9]+$' simulate -N 4 -b 1G -e 1G --leaf 2 --oversubscription 8 "$h100"
good "uplinks of rails" '4 machines below a leaf switch of each rail, uplinks oversubscribed 1.5:1' simulate -N 8 -b 1G -e 1G --rails --leaf 4 --oversubscription 1.5 "$h100"
good "explained" 'with the links that machines share .* bound by leaf' explain -N 4 --bytes 1G --leaf 2 --oversubscription 8 "$h100"
good "explained as JSON" '"shared": [{]"us": [0-9.]+, "link": "leaf ' explain --format json -N 4 --bytes 1G --leaf 2 --oversubscription 8 "$h100"
good "all-to-all" 'leaf up 0.0, which machines share' explain --coll alltoall -N 64 --rails --leaf 32 --oversubscription 4 "$h100"
good "all-to-all as JSON" '"shared": "leaf up 0"' explain --coll alltoall --format json -N 64 --leaf 32 --oversubscription 4 "$h100"
good "one machine shares nothing" 'no link that machines share' explain --leaf 2 "$h100"
good "one rank shares nothing" '"links": \[\]' explain --coll alltoall --format json --leaf 2 $machines/pcie_1gpu_1nic_switch/input.xml
! grep -q shared "$tmp/out" || report "one rank shares nothing" " a link that nothing loads"
awk '/<nic>/ {left_out = 1} !left_out {print} /<\/nic>/ {left_out = 0}' "$h100" >"$tmp/no_ports.xml"
bad "no ports as JSON" 1 'ranks have no network port' explain --format json -N 2 --leaf 2 "$tmp/no_ports.xml"
[ ! -s "$tmp/out" ] || report "no ports as JSON" " half an answer"
bad "no oversubscription" 2 "a number from 1 to 1000 is expected" simulate --oversubscription 0.5 "$h100"
bad "oversubscription without a number" 2 "a number from 1 to 1000 is expected" simulate --oversubscription 4:1 "$h100"
bad "tuning has no leaves" 2 'only these have it: explain, simulate' tuning --leaf 2 "$h100"

# ---- Scale: 131,072 ranks in 4 GiB; the time is printed, and limited generously ----

begin=$SECONDS
(
  limit 4194304
  good "16,384 nodes of 8" '131072 ranks on 16384 nodes' simulate -N 16384 -b 8 -e 8G -f 2 "$h100"
  for coll in allreduce allgather reducescatter broadcast reduce; do
    good "16,384 nodes of 8 below leaves, $coll" '^# Avg' simulate --coll $coll -N 16384 --rails --leaf 32 --oversubscription 4 "$h100"
  done
  exit $((failed > 0))
) || failed=$((failed + 1))
echo "16,384 nodes of 8 GPUs: $((SECONDS - begin)) s"

echo "topo_explorer: $passed passed, $failed failed"
[ $failed = 0 ]
