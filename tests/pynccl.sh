#!/usr/bin/env bash
# pynccl.sh BUILD [FOLDER…]: other people's Python wrappers of NCCL, unmodified, over the library of BUILD on host memory: every function that they
# have, by 2 and 3 processes, and every result checked (tests/public/pynccl.py, nccl4py.py). Nothing is written to their folders.
#   vLLM, SGLang  their pynccl_wrapper.py: of checkouts or unpacked wheels in FOLDER… (or TUTTI_PYNCCL, separated by colons), else of what the
#                 interpreter has installed. Needs an interpreter with torch.
#   nccl4py       NVIDIA's package, where an interpreter has it installed (TUTTI_NCCL4PY names another interpreter than that of the tests); with
#                 cuda-core and cuda-bindings its nccl.core too
set -u
build=$(cd "$1" && pwd) || exit 1
cd "$(dirname "$0")/.." || exit 1
shift
[ $# -gt 0 ] || IFS=: read -r -a given <<<"${TUTTI_PYNCCL:-}"
folders=("$@" "${given[@]-}")

skip() { echo "skipped: $*"; exit 77; }
grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || skip "Python itself has no sanitizer"
unset "${!NCCL_@}"
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=$build/lib:$build/lib/cuda
ran=0
failed=0

one() { # one WHAT COMMAND…
  local what=$1
  shift
  echo "$what"
  timeout -k 5 400 "$@" && ran=$((ran + 1)) && return
  echo "FAILED: $what"
  failed=1
}

if torch=$(tests/python_with "$build" torch.distributed); then
  installed=$("$torch" -c 'import importlib.util as u
for name in ("vllm", "sglang"):
    spec = u.find_spec(name)
    for place in (spec.submodule_search_locations or []) if spec else []:
        print(place.rpartition("/")[0])')
  mapfile -t -O ${#folders[@]} folders <<<"$installed"
  for folder in "${folders[@]}"; do
    for place in vllm python/sglang/srt sglang/srt; do
      wrapper=$folder/$place/distributed/device_communicators/pynccl_wrapper.py
      [ -n "$folder" ] && [ -f "$wrapper" ] && one "$wrapper" "$torch" tests/public/pynccl.py "$wrapper" "$build/lib/libnccl.so.2"
    done
  done
fi
if bindings=$(TUTTI_PYTHON=${TUTTI_NCCL4PY:-${TUTTI_PYTHON:-}} tests/python_with "$build" nccl.bindings numpy); then
  one "nccl4py of $bindings" "$bindings" tests/public/nccl4py.py
fi
[ $((ran + failed)) -gt 0 ] || skip "no Python with torch and a wrapper of vLLM or SGLang (TUTTI_PYNCCL), and none with nccl4py (TUTTI_NCCL4PY)"
[ $failed = 0 ] && echo "pynccl: all good ($ran)"
exit $failed
