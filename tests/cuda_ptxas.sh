#!/usr/bin/env bash
# cuda_ptxas.sh BUILD: NVIDIA's assembler takes every module of kernels, for every architecture from Turing to the newest, and for Volta
# where it still knows that and clang made the modules. Skipped where there is no ptxas, or where the build has no modules.
set -u
build=$1
modules=("$build"/cuda/*.ptx)
[ -e "${modules[0]}" ] || { echo "this build has no kernels for GPUs"; exit 77; }
command -v ptxas >/dev/null || { echo "there is no ptxas"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# It must notice what is wrong, or the rest says nothing.
sed 's/ld\.global/ld.nowhere/' "$build/cuda/step.ptx" >"$work/wrong.ptx"
ptxas -arch=sm_75 -o "$work/out" "$work/wrong.ptx" 2>/dev/null && { echo "ptxas takes an instruction that does not exist"; exit 1; }

failed=0 known=0
# An array that a loop indexes lies in memory instead of registers.
for module in "${modules[@]}"; do
  ! grep -q '^\.local' "$module" || { echo "${module##*/}: an array lies in local memory"; failed=1; }
done
printf '.version 6.3\n.target sm_70\n.address_size 64\n' >"$work/empty.ptx"
least=$(sed -n 's/^\.target sm_\([0-9]*\).*/\1/p' "$build/cuda/step.ptx") # nvcc makes them for 75
[ -n "$least" ] || { echo "step.ptx names no target"; exit 1; }
for sm in 70 75 80 90 100 120; do
  [ "$sm" -ge "$least" ] || continue
  if ! ptxas -arch=sm_$sm -o "$work/out" "$work/empty.ptx" 2>/dev/null; then # older ones end before the newest, newer ones begin later
    echo "sm_$sm: this ptxas does not know it"
    continue
  fi
  known=$((known + 1))
  for module in "${modules[@]}"; do
    said=$(ptxas -arch=sm_$sm -v -o "$work/out" "$module" 2>&1) || { echo "sm_$sm: ${module##*/}: $said"; failed=1; }
    grep -q 'bytes spill stores' <<<"$said" || { echo "sm_$sm: ${module##*/}: ptxas names no kernel"; failed=1; }
  done
  echo "sm_$sm: ${#modules[@]} modules"
done
[ $known -ge 2 ] || { echo "of all architectures this ptxas knows $known"; exit 1; }
exit $failed
