#!/usr/bin/env bash
# gpu_session_faults.sh BUILD: scripts/gpu_session where something is wrong: its arguments, the folder of --pack, drivers
# and Pythons that do not answer, programs that do not start. It runs no program of BUILD: the scripts are copied to a
# folder, beside a build and drivers that are made up.
set -u
cc=${CC:-cc}
command -v "$cc" >/dev/null 2>&1 || { echo "there is no C compiler"; exit 77; }
python=$(python3 -c 'import sys; print(sys.executable if sys.version_info >= (3, 8) else "")' 2>/dev/null)
[ -n "$python" ] || { echo "there is no python3"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
failed=0
fault() { echo "FAILED: $*"; failed=1; }

# The tree: --pack would empty it, if it did not look.
tree=$work/above/tree
build=$tree/build
mkdir -p "$tree/scripts" "$build/bin" "$build/lib/cudasim" "$work/tmp"
cp -r scripts/gpu scripts/gpu_session "$tree/scripts"
echo library >"$build/lib/libnccl.so.2"

# Drivers with one device: one for tests, one that seems real, one that never answers; and a library that is no driver.
cat >"$work/driver.c" <<'C'
#include <string.h>
#include <unistd.h>
#ifdef NAME
int cuInit(unsigned flags) { while (flags == HANGS) pause(); return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, NAME, length); return device; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute; return device; }
#endif
C
driver() { "$cc" -shared -fPIC -o "$1" "${@:2}" "$work/driver.c" || exit 1; }
driver "$build/lib/cudasim/libcuda.so.1" '-DNAME="Simulated GPU"' -DHANGS=1
driver "$work/real.so" '-DNAME="Some GPU"' -DHANGS=1
driver "$work/hangs.so" '-DNAME="Some GPU"' -DHANGS=0
driver "$work/none.so"

# session STATUS OPTIONS...: no traceback, and nothing is left behind. path: its PATH, if that is another one.
path=$PATH
session() {
  local want=$1 got=0
  shift
  timeout -k 5 120 env "PATH=$path" "TMPDIR=$work/tmp" "PYTHONPATH=$work/modules" "$python" \
    "$tree/scripts/gpu_session" "$@" >"$work/said" 2>&1 </dev/null || got=$?
  [ "$got" = "$want" ] || { fault "status $got, not $want: $*"; cat "$work/said"; }
  ! grep -q Traceback "$work/said" || { fault "a traceback: $*"; cat "$work/said"; }
  [ -z "$(ls -A "$work/tmp")" ] || { fault "left behind: $(ls -A "$work/tmp"): $*"; rm -rf "$work"/tmp/*; }
}

# refused OPTION VALUE WHY OPTIONS...: one line has the option, its value, what is wrong with it, and what is expected.
refused() {
  local option=$1 value=$2 why=$3 text
  shift 3
  session 2 --build "$build" --driver sim "$option" "$value" "$@"
  [ "$(wc -l <"$work/said")" = 1 ] || { fault "not one line: $option $value"; cat "$work/said"; }
  for text in "$option" "$value" "$why" 'expected: '; do
    grep -qF -- "$text" "$work/said" || { fault "$option $value: there is no '$text'"; cat "$work/said"; }
  done
}

# ---- Arguments ----

out=$work/out
session 0 --build "$build" --driver sim --out "$out" --only one --extra 'one:20:echo "probe one 1 x"'
cp "$out/RESULTS.json" "$work/good.json"
head -c 300 "$work/good.json" >"$work/cut.json"
echo '{"results": [], "config": {}}' >"$work/foreign.json"
echo '[1, 2]' >"$work/list.json"
head -c 100 /dev/urandom | tr '\0-\177' '\200-\377' >"$work/binary.json"
refused --resume "$work/none.json" "No such file" --out "$work/unused"
for name in cut foreign list binary; do
  refused --resume "$work/$name.json" "not of gpu_session" --out "$work/unused"
done
refused --resume "$work" "directory" --out "$work/unused"
cp "$work/cut.json" "$out/RESULTS.json"
refused --out "$out" "RESULTS.json is cut off"
cmp -s "$work/cut.json" "$out/RESULTS.json" || fault "results that are not understood were written over"
mkdir -p "$tree/docs/gpu"
cp "$work/cut.json" "$tree/docs/gpu/RESULTS.json"
session 2 --build "$build" --driver "$work/real.so" --out "$work/unused"
grep -qF -- "--resume $tree/docs/gpu/RESULTS.json: RESULTS.json is cut off" "$work/said" || fault "results of docs/gpu"
rm -r "$tree/docs"
refused --out "$work/good.json" "exists"
refused --only smoke,smok "no stage 'smok'"
refused --only smoke, "no stage ''"
refused --again smoke,later "no stage 'later'"
for text in a:b a :1:true a:1: 'a b:1:true' a:1; do
  refused --extra "$text" "not of that form"
done
for seconds in soon 0 -1 nan inf ''; do
  refused --extra "a:$seconds:true" "is no time"
  refused --budget "$seconds" "is no time"
done
for name in smoke all failed; do
  refused --extra "$name:1:true" "'$name' is taken"
done
refused --extra a:1:true "'a' is taken" --extra a:1:true
refused --build "$work/no-build" "lib/libnccl.so.2: No such file"
refused --build "$work/no-build" "lib/libnccl.so.2: No such file" --pack "$work/packed"
session 2 --unknown
[ "$(wc -l <"$work/said")" = 1 ] || fault "an unknown option is not said in a line"
[ ! -e "$work/unused" ] && [ ! -e "$work/packed" ] || fault "something was made for arguments that are wrong"

# ---- The driver ----

refused --driver "$work/no-driver" "cannot open shared object"
refused --driver "$work/none.so" "cuInit"
refused --driver "$work/hangs.so" "no answer in " --budget 1

# ---- --pack ----

mkdir -p "$work/mine" "$work/empty" "$build/inside"
echo mine >"$work/mine/file"
ln -s "$build" "$work/link"
refused --pack "$work/mine" "is not empty"
refused --pack "$work/mine/file" "a file"
for to in "$build" "$work/link" "$build/inside" "$build/new" "$tree" "$work/above"; do
  refused --pack "$to" "is the build, or one of them is inside the other"
done
cp -r "$build" "$work/other-build"
for to in "$tree" "$work/above"; do
  refused --pack "$to" "the sources are there" --build "$work/other-build"
done
[ "$(cat "$work/mine/file")" = mine ] && [ -e "$build/lib/libnccl.so.2" ] && [ -e "$tree/scripts/gpu_session" ] &&
  [ ! -e "$build/new" ] || fault "--pack has touched a folder that it refuses"
for to in "$work/new/packed" "$work/empty"; do
  session 0 --build "$build" --pack "$to"
  touch "$to/lib/old"
  session 0 --build "$build" --pack "$to"
  [ -e "$to/lib/libnccl.so.2" ] && [ ! -e "$to/lib/old" ] || fault "--pack $to, twice"
done

# ---- Programs that do not start ----

# Of the perf programs one is not there, one may not be run, one is a text. Each is recorded, and the next one begins.
echo text >"$build/bin/all_gather_perf"
echo text >"$build/bin/reduce_scatter_perf"
printf '#!/bin/sh\n' >"$build/bin/alltoall_perf"
chmod +x "$build/bin/reduce_scatter_perf" "$build/bin/alltoall_perf"
rm -rf "$out"
session 1 --build "$build" --driver sim --out "$out" --only smoke,collectives,types,last --extra 'last:20:true'
"$python" - "$out" <<'PY' || failed=1
import json, sys
s = json.load(open(sys.argv[1] + "/RESULTS.json"))["stages"]
page = open(sys.argv[1] + "/RESULTS.md", encoding="utf-8").read()
faults = [f"{n}: {r['status']}" for n, r in s.items() if r["status"] != ("passed" if n == "last" else "failed")]
said = {c["label"]: (c["code"], c.get("tail", "")) for r in s.values() for c in r["commands"]}
for label, why in (("all_reduce group 2", "No such file"), ("all_gather group 2", "Permission denied"),
                   ("reduce_scatter group 2", "Exec format error")):
    code, tail = said[label]
    if code != "not started" or not tail.startswith("cannot be started: ") or why not in tail:
        faults.append(f"{label}: {code}: {tail}")
    if f"{label} was not started" not in page or why not in page:
        faults.append(f"{label}: not on the page")
if said["alltoall group 2"] != (0, "") or len(s["collectives"]["commands"]) != 10:
    faults.append(f"what follows a program that is not started: {said}")
if list(s) != ["last", "smoke", "collectives", "types"]:
    faults.append(f"stages: {list(s)}")
print("\n".join(faults))
sys.exit(bool(faults))
PY

# ---- PyTorch ----

# No python3 in PATH, one that cannot be started, one that never answers; the other Python has a PyTorch without CUDA.
mkdir "$work/bare" "$work/text" "$work/stopped" "$work/modules"
ln -s "$(command -v sh)" "$work/bare/sh"
echo text >"$work/text/python3"
# shellcheck disable=SC2016
printf '#!%s\nkill -STOP $$\n' "$(command -v sh)" >"$work/stopped/python3"
chmod +x "$work/text/python3" "$work/stopped/python3"
printf 'class cuda:\n    is_available = staticmethod(lambda: False)\n' >"$work/modules/torch.py"
for path in "$work/bare" "$work/text:$work/bare"; do
  rm -rf "$out"
  session 0 --build "$build" --driver "$work/real.so" --out "$out" --only torch
  grep -q 'no PyTorch with CUDA (python3: cannot be started' "$out/RESULTS.md" || fault "PyTorch, PATH=$path"
done

# The limit is the answer's own, or what is left of the session. A stage that had no time to find out is run later.
export PYTHONPATH=$work/modules
timeout 120 "$python" - "$tree/scripts" "$work/stopped:$PATH" "$work/hangs.so" <<'PY' || fault "limits of time"
import importlib.machinery, importlib.util, sys, types
sys.path.insert(0, sys.argv[1])
from gpu import ask, stages
loader = importlib.machinery.SourceFileLoader("gpu_session", sys.argv[1] + "/gpu_session")
main = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_session", loader))
loader.exec_module(main)

def session(left):
    return types.SimpleNamespace(env={"PATH": sys.argv[2]}, simulated=False, left=lambda: left)

class Hashed(types.SimpleNamespace):
    __hash__ = object.__hash__

def find(left):
    return stages.find_torch(Hashed(**vars(session(left))))

def driver(left):
    try:
        return ask.ask_driver(sys.argv[3], {}, left)
    except ask.NoAnswer as error:
        return str(error)

assert ask.LIMIT == 30
python, why = find(1.25)
assert python is None and "python3: no answer in 0.25 s" in why, why
assert driver(0.25) == "no answer in 0.25 s"
ask.LIMIT = 0.5
python, why = find(1000)
assert python is None and "python3: no answer in 0.5 s" in why, why
assert driver(1000) == "no answer in 0.5 s"
stage = stages.Stage("a", 20, "", None, lambda s: "no answer")
assert main.run_stage(session(0.5), stage)["status"] == "cut"
assert main.run_stage(session(100), stage)["status"] == "skipped"
PY

echo "gpu_session_faults: failed: $failed"
exit $failed
