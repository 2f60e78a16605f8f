#!/usr/bin/env bash
# torch.sh BUILD: the back end of torch.distributed against the library of BUILD. Needs a Python with torch and
# pytest (python_with).
set -u
build=$(cd "$1" && pwd) || exit 1
here=$(cd "$(dirname "$0")/.." && pwd)
python=$("$here/tests/python_with" "$build" torch.distributed pytest) || {
  echo "skipped: no Python with torch and pytest (scripts/python_venv build/venv torch makes one; or set TUTTI_PYTHON)"; exit 77; }
case $(nm -D "$build/lib/libnccl.so.2") in *__asan_init* | *__tsan_init*) echo "skipped: Python itself has no sanitizer"; exit 77 ;; esac
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' ||
  { echo "skipped: the headers of $python are missing"; exit 77; }
unset "${!NCCL_@}"
"$here/python/develop" "$build" "$python" || { echo "FAILED: the package was not built"; exit 1; }
export TUTTI_LIBRARY=$build/lib/libnccl.so.2 TUTTI_INCLUDE=$here/include TUTTI_CACHE=${TUTTI_CACHE:-$build/torch} OMP_NUM_THREADS=1
export PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
cd "$build/python" || exit 1
"$python" -m tutti.torch || exit 1
exec "$python" -m pytest -q -rs --no-header --tb=short -p no:cacheprovider "$here/python/tests_torch" "${@:2}"
