#!/usr/bin/env bash
# wheel.sh BUILD: the Python package's source distribution and wheel (python/tests_install). Builds the library anew, from the source distribution.
# The interpreter: python_with, with what python_venv installs.
set -u
build=$(cd "$1" && pwd) || exit 1
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root/python" || exit 1
unset "${!NCCL_@}" "${!OMPI_@}" "${!PMI_@}" "${!SLURM_@}" RANK WORLD_SIZE PYTHONPATH TUTTI_LIBRARY

grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt" || { echo "skipped: a wheel has no sanitizer"; exit 77; }
python=$("$root/tests/python_with" "$build" numpy pytest build scikit_build_core) || {
  echo "skipped: no Python with numpy, pytest, build and scikit-build-core (scripts/python_venv build/venv makes one; or set TUTTI_PYTHON)"; exit 77; }
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' ||
  { echo "skipped: the headers of $python are missing"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1 TUTTI_CACHE=${TUTTI_CACHE:-$build/torch} CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-1}
exec "$python" -m pytest -q --no-header -rs -p no:cacheprovider "$root/python/tests_install" "${@:2}"
