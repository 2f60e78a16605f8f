#!/usr/bin/env bash
# torch.sh BUILD: the back end of torch.distributed against the library of BUILD. Needs a Python with torch and pytest:
# TUTTI_PYTHON, else python3.
set -u
build=$(cd "$1" && pwd) || exit 1
here=$(cd "$(dirname "$0")/.." && pwd)
python=${TUTTI_PYTHON:-python3}
"$python" -c 'import torch.distributed, pytest' 2>/dev/null || { echo "skipped: $python has no torch or no pytest (TUTTI_PYTHON names another one)"; exit 77; }
if grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt"; then
  echo "skipped: a Python without sanitizers cannot open a library that has them"
  exit 77
fi
unset "${!NCCL_@}"
export TUTTI_LIBRARY=$build/lib/libnccl.so.2 TUTTI_CACHE=${TUTTI_CACHE:-$build/torch} OMP_NUM_THREADS=1
export PYTHONPATH=$here/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
"$python" -m tutti.torch || exit 1
cd "$here/python/tests_torch" && exec "$python" -m pytest -q --no-header --tb=short -p no:cacheprovider "${@:2}"
