#!/usr/bin/env bash
# python.sh BUILD: the Python package with the library of BUILD: its tests, the examples in its texts and in docs/python.md, its types and its style.
# The interpreter: python_with.
set -u
build=$(cd "$1" && pwd) || exit 1
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root/python" || exit 1
unset "${!NCCL_@}" "${!OMPI_@}" "${!PMI_@}" "${!SLURM_@}" RANK WORLD_SIZE MASTER_ADDR MASTER_PORT TUTTI_LIBRARY

python=$("$root/tests/python_with" "$build" numpy pytest) || {
  echo "skipped: no Python with numpy and pytest (scripts/python_venv build/venv makes one; or set TUTTI_PYTHON)"; exit 77; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "skipped: $python is older than 3.10"; exit 77; }
symbols=$(nm -D "$build/lib/libnccl.so.2")
case $symbols in *__asan_init* | *__tsan_init*) echo "skipped: Python itself has no sanitizer"; exit 77 ;; esac
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' ||
  { echo "skipped: the headers of $python are missing"; exit 77; }

failed=0
step() { # step NAME COMMAND…
  local name=$1
  shift
  if timeout -s INT -k 5 600 "$@"; then
    echo "ok: $name"
  else
    echo "FAILED: $name"
    failed=1
  fi
}
# A folder of that name, such as the one where mypy keeps its notes, is no module.
has() {
  "$python" -c "import importlib.util, sys; spec = importlib.util.find_spec('$1'); sys.exit(spec is None or spec.origin is None)" ||
    { echo "skipped: $python has no $1"; return 1; }
}

export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$build/python
./develop "$build" "$python" || { echo "FAILED: the extension"; exit 1; }
# Where the package is built: Python looks in the current folder first, and python/tutti has no extension.
step tests env -C "$build/python" "$python" -m pytest -q -rs -p no:cacheprovider -o faulthandler_timeout=60 "$root/python/tests"
step examples env -C "$build/python" "$python" -m pytest -q -rs -p no:cacheprovider --doctest-modules --doctest-glob='*.md' \
  --ignore-glob='tutti/torch*' "$build/python/tutti" "$root/docs/python.md"
if has mypy; then
  step types "$python" -m mypy --cache-dir "$build/python/mypy"
  # By themselves: two of their files have the names of files in tests/. What PyTorch has is of any type.
  step 'types of the tests of PyTorch' env -C tests_torch MYPYPATH=..:../tests "$python" -m mypy --config-file ../pyproject.toml \
    --cache-dir "$build/python/mypy" --allow-subclassing-any .
fi
if has ruff; then
  step style "$python" -m ruff check --no-cache .
  step format "$python" -m ruff format --no-cache --check .
fi
exit "$failed"
