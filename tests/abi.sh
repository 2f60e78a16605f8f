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
  if LD_LIBRARY_PATH=$libdir timeout 300 "$2"; then passed "$1"; else fail "$1 does not run"; fi
}

# build_and_run LANGUAGE SOURCE PACKAGE COMPILER OPTION...: with what pkg-config says of the package.
build_and_run() {
  local name="$2 as $1 with package $3" flags libs program=$tmp/$1-$3
  flags=$(pkg-config --cflags "$3")
  libs=$(pkg-config --libs "$3")
  # shellcheck disable=SC2086
  if "${@:4}" -Wall -Wextra -Werror $flags -x "$1" "tests/abi/$2" -x none -o "$program" $libs; then run "$name" "$program"; else fail "$name"; fi
}

check_pkg_config() {
  command -v pkg-config >/dev/null || { echo "no pkg-config: not checked"; return; }
  local cxx try source package
  export PKG_CONFIG_PATH=$libdir/pkgconfig
  for try in "${CXX:-}" c++ g++ clang++; do
    [ -z "$try" ] || ! command -v "$try" >/dev/null || { cxx=$try; break; }
  done
  [ -n "${cxx:-}" ] || echo "no C++ compiler: not checked as C++"
  for source in program.c device.c; do
    for package in nccl hostcuda; do
      build_and_run c "$source" "$package" "$cc" -std=c99 -pedantic
      [ -z "${cxx:-}" ] || build_and_run c++ "$source" "$package" "$cxx" -std=c++11
    done
  done
}

# Every name that NCCL exports, and its twin, are there for a program that is loaded with all its symbols bound at once.
check_names() {
  {
    sed -E '/^#/d; s/(.*)/extern char \1[], p\1[];/' tests/abi/names.txt
    echo 'char *all[] = {'
    sed -E '/^#/d; s/(.*)/\1, p\1,/' tests/abi/names.txt
    echo '}; int main(void) { return all[0] == 0; }'
  } >"$tmp/names.c"
  if "$cc" -Wno-builtin-declaration-mismatch "$tmp/names.c" -o "$tmp/names" -L"$libdir" -lnccl 2>"$tmp/log"; then
    LD_BIND_NOW=1 run "$(grep -vc '^#' tests/abi/names.txt) names of NCCL's library" "$tmp/names"
  else
    sed -n 's/.*undefined reference to/missing:/p' "$tmp/log"
    fail "names of NCCL's library"
  fi
}

check_find_package() {
  local target
  for target in shared static tutti variables; do
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
check_names
check_pkg_config
check_find_package
[ $failed = 0 ] && echo "abi: all good"
exit $failed
