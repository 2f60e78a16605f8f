# build.sh: what run.sh and full.sh share: compiles the driver and each library's program into $out, and says what is not here. Sourced with
# $build (the library's build directory) and $out set, from the source root.
# shellcheck shell=sh disable=SC2154

sources=bench/coll
cflags="-std=gnu11 -O2 -g -Wall -Wextra"

have() { command -v "$1" >/dev/null 2>&1; }

compile() { # compile PROGRAM COMPILER ARGUMENT…
  program=$1
  shift
  "$@" -o "$out/$program" || { echo "bench: $program was not built" >&2; return 1; }
}

has_header() { # has_header HEADER COMPILER ARGUMENT…
  header=$1
  shift
  printf '#include <%s>\n' "$header" | "$@" -E - >/dev/null 2>&1
}

# The line about this machine, for the head of each table.
# shellcheck disable=SC2086
say_machine() {
  compile machine "${CC:-cc}" $cflags $sources/machine_main.c $sources/machine.c && "$out/machine"
}

# shellcheck disable=SC2086
build_driver() {
  compile coll_drive "${CC:-cc}" $cflags $sources/drive.c $sources/players.c $sources/report.c $sources/machine.c $sources/stats.c -lm
}

# shellcheck disable=SC2086
build_tutti() {
  compile coll_tutti "${CC:-cc}" $cflags -Iinclude -I"$build/include" $sources/coll_bench.c $sources/ranks.c $sources/backend_tutti.c \
    -L"$build/lib" -Wl,-rpath,"$build/lib" -lnccl -lpthread
}

# shellcheck disable=SC2086
build_floor() {
  compile coll_floor "${CC:-cc}" $cflags $sources/coll_bench.c $sources/ranks.c $sources/backend_floor.c -lpthread
}

# shellcheck disable=SC2086
build_mpi() { # build_mpi openmpi|mpich NAME PACKAGES: Open MPI or MPICH
  rm -f "$out/coll_$1"
  have "mpicc.$1" && have "mpirun.$1" && compile "coll_$1" "mpicc.$1" $cflags $sources/coll_bench.c $sources/backend_mpi.c && return
  echo "bench: $2 is not here (Debian, Ubuntu: $3)"
  return 1
}

# shellcheck disable=SC2086
build_ucc() { # UCC_HOME: where it is installed
  rm -f "$out/coll_ucc"
  home=${UCC_HOME:-/usr}
  if has_header ucc/api/ucc.h "${CC:-cc}" -x c -I"$home/include"; then
    compile coll_ucc "${CC:-cc}" $cflags -I"$home/include" $sources/coll_bench.c $sources/ranks.c $sources/backend_ucc.c -L"$home/lib" \
      -Wl,-rpath,"$home/lib" -lucc -lpthread && return
  fi
  echo "bench: UCC is not here (https://github.com/openucx/ucc; UCC_HOME says where it is)"
  return 1
}

# shellcheck disable=SC2086
build_gloo() {
  rm -f "$out/coll_gloo"
  cxx=${CXX:-c++}
  if have "$cxx" && has_header gloo/context.h "$cxx" -x c++ -std=c++17; then
    for file in coll_bench ranks; do
      "${CC:-cc}" $cflags -c -o "$out/$file.o" "$sources/$file.c" || return 1
    done
    compile coll_gloo "$cxx" -std=c++17 -O2 -g -Wall -Wextra $sources/backend_gloo.cc "$out/coll_bench.o" "$out/ranks.o" -lgloo -lpthread && return
  fi
  echo "bench: Gloo is not here (Debian, Ubuntu: libgloo-dev g++)"
  return 1
}
