#!/usr/bin/env bash
# gpu_session.sh BUILD: scripts/gpu_session goes to its end on the driver for tests: every stage runs, both files have the same figures and say which
# driver it was; a stage that fails and one that hangs stop nothing; a second run goes on where the first one stopped.
set -u
build=$(cd "${1:?usage: gpu_session.sh BUILD}" && pwd) || exit 1
{ [ -e "$build/cuda/step.ptx" ] && [ -x "$build/bin/all_reduce_perf" ]; } || { echo "this build has no CUDA device"; exit 77; }
[ -x "$build/tests/tests_cuda_probe_test" ] || { echo "this build has no tests"; exit 77; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || { echo "there is no python3"; exit 77; }
# The sanitizers' libraries must be loaded before the driver, which Python opens.
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || { echo "its programs have tests of their own"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
out=$work/out
export PYTHONDONTWRITEBYTECODE=1
failed=0

fault() { echo "FAILED: $*"; failed=1; }

session() { # session STATUS OPTIONS...
  local want=$1 got=0
  shift
  scripts/gpu_session --build "$build" --driver sim --out "$out" "$@" >"$work/said" 2>&1 || got=$?
  [ "$got" = "$want" ] || { fault "status $got, not $want: $*"; cat "$work/said"; }
}

# look EXPRESSION WHAT: an expression of Python over the results: r, stage by stage in s.
look() {
  python3 - "$out/RESULTS.json" "$1" <<'PY' || fault "$2"
import json, sys
r = json.load(open(sys.argv[1]))
sys.exit(not eval(sys.argv[2], {"r": r, "s": r["stages"]}))
PY
}

plant=(--extra 'planted_failure:20:echo out of luck; exit 3' --extra 'planted_hang:1:echo here; sleep 99 & sleep 100'
  --extra "planted_stop:600:[ -e '$work/second' ] || sleep 600")

# What hangs is ended at its limit with all that it has started; the third of them uses up the session's time.
session 75 "${plant[@]}" --budget 30
look 's["planted_failure"]["status"] == "failed" and s["planted_hang"]["status"] == "timeout"' "what was planted is not told"
look 's["planted_stop"]["status"] == "cut" and s["types"]["status"] == "not run"' "the budget does not count"
cp "$out/RESULTS.json" "$work/first.json"
touch "$work/second"

# The second run takes up the rest, and repeats nothing.
session 1 "${plant[@]}" --budget 3000
look 's["planted_failure"] == __import__("json").load(open("'"$work"'/first.json"))["stages"]["planted_failure"]' "a finished stage was repeated"
look 's["planted_stop"]["status"] == "passed"' "what the budget has cut is not run again"
look 'r["driver"]["simulated"] and r["driver"]["devices"][0]["name"].startswith("Simulated GPU")' "the driver is not told"
only_real='("torch", "sanitizer", "counters", "calibrate")'
look 'all(s[n]["status"] == ("skipped" if n in '"$only_real"' else "passed") for n in s if "planted" not in n)' "a stage did not run"
look 'all(c["figures"] for n in s if "planted" not in n for c in s[n]["commands"])' "a command has no figures"
look 'all(f["passed"] >= 1 and not f["failed"] for n in s for c in s[n]["commands"] for f in c["figures"] if f["kind"] == "tests")' "tests"
look 'sum(f["kind"] == "perf" and f["wrong"] == 0 for n in s for c in s[n]["commands"] for f in c["figures"]) > 100' "rows of perf programs"
names=$(scripts/gpu_session --list | awk '{ print $1 }' | tr '\n' ' ')
look 'list(s) == ["planted_failure", "planted_hang", "planted_stop"] + "'"$names"'".split()' "the list of stages"

# The page has each figure of the file, each stage, what failed, and on which driver.
python3 - "$out" <<'PY' || failed=1
import json, re, sys
r = json.load(open(sys.argv[1] + "/RESULTS.json"))
page = open(sys.argv[1] + "/RESULTS.md").read()
rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in page.splitlines() if line.startswith("|")]
faults = []
for name, stage in r["stages"].items():
    if not any(row[0] == name and stage["status"] in row for row in rows):
        faults.append(f"{name}: not in the table")
    for figure in (f for c in stage["commands"] for f in c["figures"]):
        if figure["kind"] == "probe" and not any(
                row[0] == figure["name"] and abs(float(row[1]) - figure["value"]) <= 1e-3 * figure["value"] for row in rows):
            faults.append(f"{figure['name']}: not in the table")
        if figure["kind"] == "perf" and not any(
                row[:2] == [figure["program"], str(figure["ranks"])] and row[2:5] == [figure["how"], figure["type"], figure["op"]]
                and abs(float(row[6]) - figure["us"]) <= 1e-3 * figure["us"] for row in rows):
            faults.append(f"{figure}: not in the table")
headings = [line for line in page.splitlines() if line.startswith("## ")]
faults += [f"{line}: no word of the driver" for line in headings if not line.endswith("(driver for tests)")]
faults += [f"no '{text}'" for text in ("no figure on this page is a GPU's", "out of luck", "planted_hang: extra was ended at its limit")
           if text not in page]
print("\n".join(faults))
sys.exit(bool(faults))
PY

# A third one has nothing to do, unless it is asked to.
cp "$out/RESULTS.json" "$work/second.json"
session 1 "${plant[@]}"
cmp -s "$out/RESULTS.json" "$work/second.json" || fault "a third run has changed the results"
session 1 "${plant[@]}" --again smoke,planted_failure
look 's["smoke"]["ended"] != __import__("json").load(open("'"$work"'/second.json"))["stages"]["smoke"]["ended"]' "--again"

# Without a driver nothing is written, nor is a figure of the driver for tests where those of a GPU belong.
scripts/gpu_session --build "$build" --driver "$work/none" --out "$work/none-out" >"$work/said" 2>&1 && fault "a session without a driver"
[ ! -e "$work/none-out" ] || fault "results without a driver"
scripts/gpu_session --build "$build" --driver sim --only machine >"$work/said" 2>&1 || fault "one stage alone"
{ grep -q "$build/gpu_session/RESULTS.md" "$work/said" && [ ! -e docs/gpu/RESULTS.json ]; } || fault "the folder of the driver for tests"
rm -rf "$build/gpu_session"

# What is carried to a machine that cannot build runs by itself.
scripts/gpu_session --build "$build" --pack "$work/packed" >"$work/said" || fault "--pack"
scripts/gpu_session --build "$work/packed" --driver sim --out "$work/packed-out" --only smoke,test_ipc >"$work/said" 2>&1 || {
  fault "a packed build"
  cat "$work/said"
}
echo "gpu_session: failed: $failed"
exit $failed
