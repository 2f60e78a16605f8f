#!/usr/bin/env bash
# hostcuda.sh BUILD: the CUDA runtime's names as a program meets them: sonames, symbols and their versions; a program that includes nccl.h
# alone, built against an installed copy in C99 and C++, with pkg-config, with find_package, with CUDA_HOME; and where there is nvcc, programs
# built against NVIDIA's runtime and driver.
# shellcheck disable=SC2154 # variables of begin.sh
set -euo pipefail
. "$(dirname "$0")/abi/begin.sh" "$1"

# names FILE: what it exports, without the name of its version.
names() { nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort; }

# has WORDS COMMAND...: the command's output has these words. (grep -q in a pipe would stop the command, which pipefail takes for a fault.)
has() {
  local words=$1
  shift
  "$@" >"$tmp/has"
  grep -qF "$words" "$tmp/has"
}

check_symbols() {
  local lib=$build/lib/libhostcuda.so.1 abi file
  has 'Library soname: [libhostcuda.so.1]' readelf -d "$lib" || fail "soname of $lib"
  for abi in 12 13; do
    file=$build/lib/cuda/libcudart.so.$abi
    has "Library soname: [libcudart.so.$abi]" readelf -d "$file" || fail "soname of $file"
    nm -D --with-symbol-versions --defined-only "$file" | awk '$2 == "T" { print $3 }' >"$tmp/versions"
    [ "$(grep -c "@libcudart.so.$abi\$" "$tmp/versions")" -gt 400 ] || fail "version of the symbols of $file"
    [ -z "$(grep -v "@libcudart.so.$abi\$" "$tmp/versions")" ] || fail "symbols without version in $file"
    cmp -s <(names "$lib" | grep -v '^cudaGetDeviceProperties') <(names "$file" | grep -v '^cudaGetDeviceProperties') || fail "$file has other names"
  done
  abi=$(awk '$1 == "#define" && $2 == "CUDART_VERSION" { print int($3 / 1000) }' include/hostcuda/cuda_runtime_api.h)
  [ "$(readlink "$build/lib/cuda/libcudart.so")" = "libcudart.so.$abi" ] || fail "libcudart.so is not of our headers' version $abi"
  for file in "$lib" "$build"/lib/cuda/libcudart.so.1?; do
    [ -z "$(names "$file" | grep -vE '^(__)?cuda[A-Z]')" ] || fail "$file exports other names"
  done
  lib=$build/lib/cuda/libcuda.so.1
  has 'Library soname: [libcuda.so.1]' readelf -d "$lib" || fail "soname of $lib"
  [ -z "$(names "$lib" | grep -v '^cu[A-Z]')" ] || fail "$lib exports other names"
  sed -nE 's/^[DTRQ]\(\w+, [0-9]+, (\w+)(, ([a-z]\w+|[0-9]+))?(, [0-9]+)?\)/\1 \3/p' hostcuda/driver.def | tr ' ' '\n' | sed '/^[0-9]*$/d' | sort -u >"$tmp/driver"
  [ "$(wc -l <"$tmp/driver")" -gt 300 ] || fail "no functions found in driver.def"
  comm -23 "$tmp/driver" <(names "$lib") >"$tmp/missing"
  [ ! -s "$tmp/missing" ] || fail "$lib does not export $(paste -sd' ' "$tmp/missing")"
  lib=$build/lib/libhostcuda.so.1
  # Every function that our header declares is there.
  "$cc" -E -P -Iinclude/hostcuda include/hostcuda/cuda_profiler_api.h | tr '\n' ' ' | tr ';{}' '\n\n\n' |
    awk '!/typedef/ && match($0, /cuda[A-Z][A-Za-z0-9_]* *\(/) { n = substr($0, RSTART, RLENGTH); sub(/ *\(/, "", n); print n }' |
    sort -u >"$tmp/declared"
  [ "$(wc -l <"$tmp/declared")" -gt 100 ] || fail "no declarations found"
  comm -23 "$tmp/declared" <(names "$lib") >"$tmp/missing"
  [ ! -s "$tmp/missing" ] || fail "not exported: $(paste -sd' ' "$tmp/missing")"
  check_cuda_h "$build/lib/cuda/libcuda.so.1"
  passed "symbols"
}

# cuda.h declares what the library at $1 exports, and all names that a program can ask it for.
check_cuda_h() {
  local streams
  for streams in -UCUDA_API_PER_THREAD_DEFAULT_STREAM -DCUDA_API_PER_THREAD_DEFAULT_STREAM; do
    "$cc" "$streams" -E -P -Iinclude/hostcuda include/hostcuda/cudaProfiler.h | sed -nE 's/^CUresult (cu[A-Z]\w+)\(.*/\1/p' | sort -u >"$tmp/declared"
    [ "$(wc -l <"$tmp/declared")" -gt 100 ] || fail "no declarations found in cuda.h"
    comm -23 "$tmp/declared" <(names "$1") >"$tmp/missing"
    [ ! -s "$tmp/missing" ] || fail "cuda.h declares what is not exported ($streams): $(paste -sd' ' "$tmp/missing")"
  done
  cat include/hostcuda/{cuda,cudaProfiler,hostcuda_cu_*}.h | sed -nE 's/^CUresult (cu[A-Z]\w+)\(.*/\1/p' | sort -u >"$tmp/declared"
  sed -nE 's/^[DT]\((\w+), .*/\1/p' hostcuda/driver.def | sort -u | comm -13 "$tmp/declared" - >"$tmp/missing"
  [ ! -s "$tmp/missing" ] || fail "cuda.h does not declare $(paste -sd' ' "$tmp/missing")"
  check_typedefs
}

# cudaTypedefs.h has a type for each form of each function that is declared (in $tmp/declared), and for nothing else.
check_typedefs() {
  sed -nE 's/^[DTRQ]\((\w+), ([0-9]+), .*/\1 \2/p' hostcuda/driver.def | sort -u | join - "$tmp/declared" | tr ' ' '_' | sort >"$tmp/forms"
  "$cc" -E -P -Iinclude/hostcuda include/hostcuda/cudaTypedefs.h | grep -oE 'PFN_cu\w+_v[0-9]+\b' | sed -E 's/^PFN_(.*)_v([0-9]+)$/\1_\2/' | sort -u >"$tmp/typed"
  [ "$(wc -l <"$tmp/forms")" -gt 180 ] || fail "no forms of functions found"
  diff "$tmp/forms" "$tmp/typed" || fail "cudaTypedefs.h has other forms than driver.def"
}

# run NAME PROGRAM [LIBRARIES]: with the libraries of the installed copy.
run() {
  if LD_LIBRARY_PATH=$libdir${3:+:$3} timeout 300 "$2"; then passed "$1"; else fail "$1 does not run"; fi
}

# With our own headers.
check_driver_program() {
  local p=$tmp/own_driver_program
  "$cc" -std=gnu99 -Wall -Werror -I"$libdir/cuda/include" -o "$p" tests/hostcuda/driver.c -L"$libdir/cuda" -lcuda -Wl,-rpath-link,"$libdir" &&
    run "driver, with our cuda.h" "$p" "$libdir/cuda"
}

check_pkg_config() {
  command -v pkg-config >/dev/null || { echo "no pkg-config: not checked"; return; }
  local flags libs
  export PKG_CONFIG_PATH=$libdir/pkgconfig
  flags=$(pkg-config --cflags hostcuda)
  libs=$(pkg-config --libs hostcuda)
  # shellcheck disable=SC2086
  "$cc" -std=c99 -pedantic -Wall -Werror $flags -o "$tmp/c99" tests/hostcuda/program.c $libs && run "C99 with pkg-config" "$tmp/c99"
  command -v "$cxx" >/dev/null || { echo "no C++ compiler: not checked as C++"; return; }
  # shellcheck disable=SC2086
  "$cxx" -std=c++11 -Wall -Werror $flags -x c++ tests/hostcuda/program.c -x none -o "$tmp/cxx" $libs && run "C++ with pkg-config" "$tmp/cxx"
}

check_find_package() {
  cmake -S tests/hostcuda -B "$tmp/cmake" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$tmp/moved" >"$tmp/log" 2>&1 &&
    cmake --build "$tmp/cmake" >>"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "find_package"; return; }
  run "find_package" "$tmp/cmake/program"
}

# As Makefiles for NVIDIA's toolkit do it: the program then asks for libcudart.so.12 and versioned symbols.
check_cuda_home() {
  local home=$libdir/cuda p=$tmp/home
  "$cc" -I"$home/include" -I"$tmp/moved/include" -o "$p" tests/hostcuda/program.c -L"$home/lib64" -L"$libdir" -lcudart -lnccl
  has 'Shared library: [libcudart.so.12]' readelf -d "$p" || fail "CUDA_HOME: the program does not ask for libcudart.so.12"
  has 'cudaGetDeviceProperties_v2@libcudart.so.12' nm -D --with-symbol-versions "$p" || fail "CUDA_HOME: versions of symbols"
  run "CUDA_HOME" "$p" "$home"
}

# What NVIDIA's cuda.h declares, and its stub for linking, are the same as ours.
check_driver() {
  local home p=$tmp/driver_program
  home=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
  [ -f "$home/include/cuda.h" ] && [ -f "$home/lib64/stubs/libcuda.so" ] || { echo "no cuda.h: the driver's functions are not checked against it"; return; }
  "$cc" -Wall -Werror -I"$home/include" -o "$p" tests/hostcuda/driver.c -L"$home/lib64/stubs" -lcuda && run "driver" "$p" "$libdir/cuda"
}

check_nvcc() {
  local flags p=$tmp/kernel
  command -v nvcc >/dev/null || { echo "no nvcc: programs built with NVIDIA's toolkit are not checked"; return; }
  for flags in "" "--default-stream per-thread"; do
    # shellcheck disable=SC2086
    nvcc -cudart shared $flags -o "$p" tests/hostcuda/kernel.cu >"$tmp/log" 2>&1 || { echo "nvcc does not work here: not checked"; return; }
    has '[libcudart.so.12]' readelf -d "$p" || has '[libcudart.so.13]' readelf -d "$p" || { echo "nvcc is of another version: not checked"; return; }
    run "built with nvcc $flags" "$p" "$libdir/cuda"
  done
  check_driver
}

check_symbols
DESTDIR=$tmp/dest cmake --install "$build" --prefix /opt/tutti >"$tmp/log" || { cat "$tmp/log"; exit 1; }
mv "$tmp/dest/opt/tutti" "$tmp/moved"
libdir=$(dirname "$(dirname "$(find "$tmp/moved" -name hostcuda.pc)")")
check_driver_program
check_pkg_config
check_find_package
check_cuda_home
check_nvcc
[ $failed = 0 ] && echo "hostcuda: all good"
exit $failed
