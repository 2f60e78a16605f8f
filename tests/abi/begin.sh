#!/usr/bin/env bash
# begin.sh, sourced with BUILD: the beginning of tests with programs of a user's own. The source root, a temporary folder, and what to say.
# Exits with 77 where the library is sanitized.
# shellcheck disable=SC2034 # variables of whoever sources this
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit

if ! grep -q '^TUTTI_SANITIZE:STRING=$' "$build/CMakeCache.txt"; then
  echo "skipped: a sanitized library needs a sanitized program"
  exit 77
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc=${CC:-cc}
cxx=${CXX:-c++}
command -v "$cc" >/dev/null || cc=gcc
failed=0
fail() { echo "FAILED: $*"; failed=1; }
passed() { echo "ok: $*"; }
