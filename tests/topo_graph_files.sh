#!/usr/bin/env bash
# topo_graph_files.sh BUILD: what `tutti-topo graphs` wrote, the same command line reads back with --graph-file, and comes to the same: all
# machines here, those among them whose ranks fall into several groups. Of a build with a sanitizer every fourth one.
set -u
build=$(cd "$1" && pwd) || exit 1
topo=$build/bin/tutti-topo
[ -x "$topo" ] || { echo "skipped: tutti-topo is not built"; exit 77; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset "${!NCCL_@}"
same=0 groups=0 failed=0 seen=0 every=1
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || every=4

again() { # again FILE OPTION...: once searched, once read
  local file=$1
  shift
  if "$topo" graphs "$@" "$file" >"$tmp/first" 2>"$tmp/err" &&
    "$topo" graphs "$@" --graph-file "$tmp/first" "$file" >"$tmp/second" 2>"$tmp/err" &&
    cmp -s "$tmp/first" "$tmp/second"; then
    same=$((same + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $* $file"
    head -n 3 "$tmp/err"
  fi
}

for file in tests/topologies/known/*/input.xml tests/topologies/more/*.xml tests/topologies/amd/*.xml; do
  ((seen++ % every == 0)) || continue
  case $file in
  *known*) again "$file" -N 2 ;;
  *) again "$file" -N 1 ;;
  esac
  last=$("$topo" graphs --table "$file" | sed -n 's/^group .* \([0-9]*\)$/\1/p' | tail -n 1) # a rank of the last group
  if [ -n "$last" ]; then
    groups=$((groups + 1))
    again "$file" --rank "$last"
  fi
done

# A file that is nobody's is an error still.
file=tests/topologies/known/pcie_4gpu_2socket_sw/input.xml
again "$file" -N 1
sed 's/<gpu dev="[^"]*"/<gpu dev="0x77"/' "$tmp/first" >"$tmp/wrong"
if "$topo" graphs --graph-file "$tmp/wrong" "$file" >/dev/null 2>"$tmp/err" ||
  [ "$(grep -c 'no such GPU' "$tmp/err")" = 0 ]; then
  failed=$((failed + 1))
  echo "FAILED: a file with GPUs that are not there"
  cat "$tmp/err"
fi

echo "$same files read back, of $groups machines with several groups; $failed failed"
[ "$failed" = 0 ] && [ "$groups" -gt $((10 / every)) ]
