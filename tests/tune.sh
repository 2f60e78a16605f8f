#!/usr/bin/env bash
# tune.sh BUILD: tutti-tune writes a file that the library then loads by itself; bad options and bad places are named. Nothing is measured for its speed.
set -uo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 1
tool=$build/bin/tutti-tune
[ -x "$tool" ] && [ -x "$build/bin/all_reduce_perf" ] || { echo "skipped: no tutti-tune or no perf programs in this build"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }
export HOME=$tmp/home
mkdir "$HOME"

refused() {
  local status=$1 text=$2
  shift 2
  "$tool" "$@" >"$tmp/out" 2>&1
  [ $? = "$status" ] || fail "$*: not exit status $status"
  grep -F -- "$text" "$tmp/out" >/dev/null || { fail "$* does not say: $text"; cat "$tmp/out"; }
}
refused 2 "expected up to 8 numbers" --ranks 1
refused 2 "expected up to 8 numbers" --ranks 2,,x
refused 2 "a number from 1 to 86400" --seconds 0
refused 2 "a number from 64" --max-bytes lots
refused 2 "is no option" file
refused 0 "Exit status" --help
# Looked at before anything is measured: these end at once, whatever --seconds says.
refused 1 "cannot be written: No such file" --seconds 86400 --output "$tmp/no/where.csv"
refused 1 "cannot be written: Is a directory" --seconds 86400 --output "$tmp"
HOME="" refused 1 "HOME is not set" --seconds 86400
mv "$HOME" "$HOME.away"
refused 1 "cannot be made" --seconds 86400
mv "$HOME.away" "$HOME"

# The machine's figures: two numbers a line, all of them; found by the library where they are put by themselves, refused where they cannot be put.
export XDG_CACHE_HOME=$tmp/cache
HOME="" XDG_CACHE_HOME="" refused 1 "neither XDG_CACHE_HOME nor HOME" --machine
NCCL_HOST_FIGURES=none refused 1 "NCCL_HOST_FIGURES=none; use --output" --machine
# On a busy machine nothing may come out: it is tried for a while.
measured=no
for _ in 1 2 3 4 5 6 7 8; do
  if "$tool" --machine --output - >"$tmp/figures" 2>"$tmp/err" && "$tool" --machine >"$tmp/out" 2>"$tmp/err"; then measured=yes; break; fi
  grep 'could not be measured, and nothing is written' "$tmp/err" >/dev/null || { fail "--machine"; cat "$tmp/err"; }
done
if [ $measured = no ]; then
  echo "not tested: figures cannot be measured here: $(cat "$tmp/err")"
else
  : >"$tmp/plain"
  "$tool" --machine --output "$tmp/plain/below" >"$tmp/out2" 2>&1 && fail "a file below a file"
  if grep -vE '^#|^(cpu|kernel|host) = |^[a-z0-9_]+ = [0-9]+$' "$tmp/figures"; then fail "odd lines among the figures"; fi
  grep "figures of this machine in $XDG_CACHE_HOME/tutti/figures-" "$tmp/out" >/dev/null || { fail "--machine does not say where"; cat "$tmp/out"; }
  [ "$(find "$XDG_CACHE_HOME" -type f -perm 600 | wc -l)" = 1 ] || fail "--machine leaves other files than one of the user's own"
  NCCL_DEBUG=INFO timeout 300 "$build/bin/all_reduce_perf" -P 2 -b 8 -e 64K -f 4 -n 2 -w 1 >"$tmp/log" 2>&1 || { fail "all_reduce_perf with figures"; cat "$tmp/log"; }
  [ "$(grep -c "figures of rank 0's machine, measured" "$tmp/log")" = 2 ] || { fail "the figures are not used"; cat "$tmp/log"; }
fi
if [ $measured = yes ] && [ -x "$build/bin/tutti-topo" ]; then
  "$build/bin/tutti-topo" host -e 1M >"$tmp/out" || fail "tutti-topo host"
  grep "figures: measured ($XDG_CACHE_HOME/tutti/figures-" "$tmp/out" >/dev/null && grep -E '^ +512 B +Oneshot +LL ' "$tmp/out" >/dev/null || { fail "tutti-topo host"; cat "$tmp/out"; }
  echo "version = 1" >"$tmp/figures"
  NCCL_HOST_FIGURES=$tmp/figures "$build/bin/tutti-topo" host -e 8 >"$tmp/out" || fail "tutti-topo host with a bad file"
  grep "the library's own .*line_ps is missing" "$tmp/out" >/dev/null || { fail "tutti-topo host does not say what is wrong"; cat "$tmp/out"; }
fi
rm -rf "$XDG_CACHE_HOME"

# What is no file is not replaced by one.
mkfifo "$tmp/pipe"
cat "$tmp/pipe" >"$tmp/piped" &
reader=$!
"$tool" --ranks 2 --seconds 10 --max-bytes 64 --output "$tmp/pipe" >"$tmp/out" 2>&1 || fail "a pipe: $(cat "$tmp/out")"
if [ -p "$tmp/pipe" ]; then wait $reader; else kill $reader; fail "the pipe is a file now"; fi
grep '^# Choices that tutti-tune has measured' "$tmp/piped" >/dev/null || fail "nothing comes through a pipe"

# The log does not get between the choices, and another machine's file does not matter.
NCCL_DEBUG=INFO NCCL_TOPO_FILE=$tmp/no.xml NCCL_ENV_PLUGIN=$tmp/no.so "$tool" --ranks 2 --seconds 10 --max-bytes 64 --output - >"$tmp/out" 2>"$tmp/err" || fail "standard output"
grep 'NCCL INFO' "$tmp/err" >/dev/null || fail "no log on standard error"
grep -E 'no\.xml|no\.so' "$tmp/err" && fail "variables of the user's decide"
if grep -vE '^#|^[a-z]+,[0-9]' "$tmp/out"; then fail "more than choices on standard output"; fi

"$tool" --ranks 2 --seconds 20 --max-bytes 4096 >"$tmp/out" 2>"$tmp/err" || { fail "tutti-tune"; cat "$tmp/out" "$tmp/err"; }
[ -s "$tmp/err" ] && fail "standard error is not empty in a pipe"
grep 'choices in .*/.nccl/tuner.csv' "$tmp/out" >/dev/null || fail "it does not say what it wrote"
[ "$(find "$HOME/.nccl" -type f | wc -l)" = 1 ] || fail "more files than one"
grep '^# Choices that tutti-tune has measured' "$HOME/.nccl/tuner.csv" >/dev/null || fail "no head"
if grep -v '^#' "$HOME/.nccl/tuner.csv" | grep -vE '^[a-z]+,[0-9]+,[0-9]+,[a-z_]+,(ll|simple),-1,1,2,-1,-1$'; then fail "odd lines"; fi

# The library reads the file by itself, whatever was fastest; a line of our own is followed.
echo "allreduce,0,18446744073709551615,tree,simple,-1,1,2,-1,-1" >"$HOME/.nccl/tuner.csv"
NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING timeout 300 "$build/bin/all_reduce_perf" -P 2 -b 64 -e 64 -n 2 -w 1 >"$tmp/log" 2>&1 || fail "all_reduce_perf"
grep 'TUNER/Plugin: Using CSV (v6)' "$tmp/log" >/dev/null || { fail "the file is not used"; cat "$tmp/log"; }
grep 'CSV (v6) decides AllReduce of 64 bytes: Tree, Simple' "$tmp/log" >/dev/null || { fail "its line is not followed"; cat "$tmp/log"; }
for odd in pipe "home"; do # nobody writes into the pipe: nobody waits for it either
  NCCL_TUNER_PLUGIN=csv NCCL_TUNER_CONFIG_FILE=$tmp/$odd NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING timeout 300 "$build/bin/all_reduce_perf" -P 2 -b 64 -e 64 -n 2 -w 1 >"$tmp/log" 2>&1 || fail "all_reduce_perf with $odd as the file"
  grep "TUNER/CSV: $tmp/$odd cannot be read" "$tmp/log" >/dev/null || { fail "$odd is not refused"; cat "$tmp/log"; }
done
NCCL_TUNER_PLUGIN=none NCCL_DEBUG=INFO timeout 300 "$build/bin/all_reduce_perf" -P 2 -b 64 -e 64 -n 2 -w 1 >"$tmp/log" 2>&1 || fail "all_reduce_perf"
grep CSV "$tmp/log" && fail "none is not none"
[ $failed = 0 ] && echo "tune: all good"
exit $failed
