#!/usr/bin/env bash
# cuda_fences.sh BUILD: each barrier, each release and the fence of the kernels is needed: with one of them taken out of the PTX, cudasim_kernels_test
# or cudasim_lines_test fails; with all of them in, they do not. What the kernels do without (acquires), and why, says src/device/cuda/kernels/README.md.
set -u
build=$1
program=$build/tests/cudasim_kernels_test
{ [ -x "$program" ] && [ -e "$build/cuda/step.ptx" ]; } || { echo "this build has no kernels for GPUs"; exit 77; }
if ! grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt"; then
  echo "what the kernels need is a matter of their PTX: the plain build tells it"
  exit 77
fi
work=$(mktemp -d) || exit 1
ulimit -c 0
trap 'rm -rf "$work"' EXIT

# change MODULE KERNEL NUMBER FROM TO: in the folder, the NUMBERth line of the kernel that has FROM gets TO there.
change() {
  awk -v kernel="$2(" -v number="$3" -v from="$4" -v to="$5" '
    /\.entry/ { here = $NF == kernel }
    here && (at = index($0, from)) && ++seen == number {
      $0 = substr($0, 1, at - 1) to substr($0, at + length(from)); done = 1
    }
    { print }
    END { exit !done }' "$build/cuda/$1.ptx" >"$work/$1.ptx"
}

# count MODULE KERNEL TEXT: lines of the kernel that have it.
count() {
  awk -v kernel="$2(" -v text="$3" '/\.entry/ { here = $NF == kernel } here && index($0, text) { n++ } END { print n + 0 }' "$build/cuda/$1.ptx"
}

failed=0 changes=0
cp "$build"/cuda/*.ptx "$work"
# run FORM: the tests of it, with the modules in the folder.
run() {
  if [ "$1" = lines ]; then "$build/tests/cudasim_lines_test" "$work"; else "$program" "$work" "$1"; fi
}

for form in steps walks lines; do
  run $form >"$work/out" 2>&1 || { echo "the kernels as they are:"; cat "$work/out"; exit 1; }
done

# without MODULE KERNEL NUMBER FROM TO [FORM]: a test fails then.
without() {
  local form=steps
  [[ $1 != walk_* ]] || form=${6:-walks}
  changes=$((changes + 1))
  change "${@:1:5}" || { echo "$1: $2: cannot change '$4'"; failed=1; }
  # The first test that fails is enough.
  if (export CMOCKA_TEST_ABORT=1; run $form >"$work/out" 2>&1; exit $?) 2>/dev/null; then
    echo "$1: $2: $3. '$4': not needed by any test"
    failed=1
  fi
  grep -q 'error: Failure!' "$work/out" || { echo "$1: $2: $3. '$4': the program did not come to its tests:"; head -5 "$work/out"; failed=1; }
  cp "$build/cuda/$1.ptx" "$work"
}

# needed MODULE KERNEL FROM TO: at each place.
needed() {
  local number places
  places=$(count "$1" "$2" "$3")
  [ "$places" -gt 0 ] || { echo "$1: $2: there is no '$3'"; failed=1; }
  for ((number = 1; number <= places; number++)); do
    without "$1" "$2" "$number" "$3" "$4"
  done
}

barrier='bar.red.or.pred q,0,p;' apart='mov.pred q,p;'
release='st.release.sys' relaxed='st.relaxed.sys'
for kernel in "step copy" "Float32 combine"; do # one source for all kernels: one that copies, one that reckons
  # shellcheck disable=SC2086 # module and kernel
  needed $kernel "$barrier" "$apart"
  # shellcheck disable=SC2086
  needed $kernel "$release" "$relaxed"
done
needed step copy 'fence.sc.sys' 'fence.acq_rel.sys' # one source for all kernels
# What walks add: CTAs meet before a step of all of them (1, before step_begin) and behind it (the last). A walk waits behind a barrier (2). A group says
# that an item is over: barrier 3 and the first release, where the compiler puts them.
needed walk_step copy 'red.release.sys' 'red.relaxed.sys'
needed walk_step copy 'ld.acquire.sys.global.u64' 'ld.relaxed.sys.global.u64'
for place in 2 3 "$(count walk_step copy "$barrier")"; do
  without walk_step copy "$place" "$barrier" "$apart"
done
without walk_step copy 1 "$release" "$relaxed"
# Messages in lines: threads of a warp look together (1), and write together (2); what all threads have found (barrier 6).
without walk_step copy 1 'bar.warp.sync -1;' '' lines
without walk_step copy 2 'bar.warp.sync -1;' '' lines
without walk_step copy 6 "$barrier" "$apart" lines
for kernel in put take; do
  needed one_sided $kernel "$barrier" "$apart"
done
needed one_sided put 'red.release.sys' 'red.relaxed.sys'
needed one_sided put "$release" "$relaxed"
needed one_sided signal 'st.release.sys.global.u32' 'st.relaxed.sys.global.u32'
echo "$changes changes"
exit $failed
