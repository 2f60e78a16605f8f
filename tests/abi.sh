#!/usr/bin/env bash
# abi.sh BUILD: what a program that was compiled against NCCL relies on. Exported names, soname, struct sizes and constants; then programs
# in C99 and C++ built against an installed copy with pkg-config and with find_package, in a temporary folder, and run.
# shellcheck disable=SC2154 # variables of begin.sh
set -euo pipefail
. "$(dirname "$0")/abi/begin.sh" "$1"

# Every list in tests/abi/: the header is nccl.h, or what a line "# include HEADER" names.
check_layout() {
  local list header
  for list in tests/abi/*sizes.txt; do
    header=$(sed -n 's/^# include //p' "$list")
    {
      echo "#include \"${header:-nccl.h}\""
      echo '#include <stddef.h>'
      sed -E '/^#/d; s/^(.*) (-?[0-9]+)$/_Static_assert((long long)(\1) == \2LL, "\1 is not \2");/' "$list"
    } >"$tmp/layout.c"
    if "$cc" -std=gnu11 -Iinclude -fsyntax-only "$tmp/layout.c"; then passed "layout: $list"; else fail "layout differs from $list"; fi
  done
}

check_soname() {
  local lib=$build/lib/libnccl.so.2 version
  version=$(sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) *\([0-9]*\).*/\2/p' include/nccl.h | paste -sd.)
  if readelf -d "$lib" | grep -F 'Library soname: [libnccl.so.2]' >/dev/null; then passed "soname"; else fail "soname is not libnccl.so.2"; fi
  if [ "$(basename "$(readlink -f "$lib")")" = "libnccl.so.$version" ]; then passed "file name"; else fail "$lib is not libnccl.so.$version"; fi
  if [ "$(readlink -f "$build/lib/libnccl.so")" = "$(readlink -f "$lib")" ]; then passed "libnccl.so"; else fail "libnccl.so is another file"; fi
  # An executable stack or text relocations make the loader of a hardened system refuse a library.
  if readelf -lW "$lib" | grep 'GNU_STACK.*RWE' >/dev/null; then fail "executable stack"; fi
  if readelf -d "$lib" | grep TEXTREL >/dev/null; then fail "text relocations"; fi
}

# run NAME PROGRAM: with the library of the installed copy.
run() {
  if LD_LIBRARY_PATH=$libdir timeout 60 "$2"; then passed "$1"; else fail "$1 does not run"; fi
}

check_pkg_config() {
  command -v pkg-config >/dev/null || { echo "no pkg-config: not checked"; return; }
  local flags libs
  export PKG_CONFIG_PATH=$libdir/pkgconfig
  flags=$(pkg-config --cflags nccl)
  libs=$(pkg-config --libs nccl)
  # shellcheck disable=SC2086
  "$cc" -std=c99 -pedantic -Wall -Werror $flags -o "$tmp/c99" tests/abi/program.c $libs && run "C99 with pkg-config" "$tmp/c99"
  local cxx
  for cxx in "${CXX:-}" c++ g++ clang++; do
    [ -n "$cxx" ] && command -v "$cxx" >/dev/null || continue
    # shellcheck disable=SC2086
    "$cxx" -std=c++11 -Wall -Werror $flags -x c++ tests/abi/program.c -x none -o "$tmp/cxx" $libs && run "C++ with pkg-config" "$tmp/cxx"
    return
  done
  echo "no C++ compiler: not checked as C++"
}

check_find_package() {
  local target
  for target in shared static tutti; do
    cmake -S tests/abi -B "$tmp/cmake" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$tmp/moved" >"$tmp/log" 2>&1 &&
      cmake --build "$tmp/cmake" --target "program_$target" >>"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "find_package: $target"; continue; }
    run "find_package, $target" "$tmp/cmake/program_$target"
  done
}

if scripts/check_exports "$build"; then passed "exports"; else fail "exports"; fi
check_layout
check_soname

# DESTDIR and a move afterwards: neither nccl.pc nor the CMake packages may remember where they were installed.
DESTDIR=$tmp/dest cmake --install "$build" --prefix /opt/tutti >"$tmp/log" || { cat "$tmp/log"; exit 1; }
mv "$tmp/dest/opt/tutti" "$tmp/moved"
libdir=$(dirname "$(dirname "$(find "$tmp/moved" -name nccl.pc)")")
check_pkg_config
check_find_package
[ $failed = 0 ] && echo "abi: all good"
exit $failed
