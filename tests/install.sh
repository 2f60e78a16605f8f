#!/usr/bin/env bash
# install.sh BUILD: make install and uninstall, manual pages, completion in bash and zsh, the Debian packages: installed, used and removed again.
set -euo pipefail
build=$(cd "$1" && pwd)
grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" && { echo "skipped: a build with sanitizers is not installed"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }
bin=$tmp/dest/opt/tutti/bin
share=$tmp/dest/opt/tutti/share

# Nothing is measured, and the user's folder stays as it was.
mkdir "$tmp/home"
HOME=$tmp/home XDG_CACHE_HOME='' make -s install BUILD="$build" PREFIX=/opt/tutti DESTDIR="$tmp/dest" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
[ -z "$(ls -A "$tmp/home")" ] || fail "make install writes into HOME: $(ls -A "$tmp/home")"

# Every program has a page and a completion.
for program in "$bin"/*; do
  name=${program##*/}
  [ -s "$share/man/man1/$name.1" ] || fail "$name has no manual page"
  [ -s "$share/bash-completion/completions/$name" ] || fail "$name has no completion"
done
for word in $("$bin/all_reduce_perf" -h 2>/dev/null | awk -f cmake/help_words.awk | grep '^--'); do
  grep -F -- "\\-\\-${word#--}" "$share/man/man1/tutti-perf.1" >/dev/null || fail "tutti-perf.1 does not have $word"
done
if command -v groff >/dev/null; then
  for page in "$share"/man/man?/*; do
    [ -z "$(cd "$share/man" && groff -man -s -ww -Tutf8 "$page" 2>&1 >/dev/null)" ] || fail "$page: groff has something to say"
  done
fi

# complete WORD…: what bash offers for the last word.
complete_words() {
  PATH=$bin:$PATH bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tutti; printf "%s\n" "${COMPREPLY[@]}"' "$share/bash-completion/completions/tutti" "$@"
}
[ "$(complete_words tutti-topo tun)" = tuning ] || fail "tutti-topo tun: $(complete_words tutti-topo tun)"
complete_words tutti-topo show --f | grep -x -- --format >/dev/null || fail "tutti-topo show --f is not completed"
complete_words all_reduce_perf --minb | grep -x -- --minbytes >/dev/null || fail "all_reduce_perf --minb is not completed"
[ "$(complete_words tutti-trace report "$tmp/ho")" = "$tmp/home" ] || fail "no files are completed"
if command -v zsh >/dev/null; then
  zsh -n "$share/zsh/site-functions/_tutti" || fail "zsh cannot read its completion"
fi

# compile_readme LIB: the README's first program, as it says.
compile_readme() {
  awk '/^```c$/ { inside = 1; next } /^```$/ && inside { exit } inside' README.md >"$tmp/sum.c"
  # shellcheck disable=SC2046
  ${CC:-cc} -Wall -Werror "$tmp/sum.c" $(PKG_CONFIG_PATH=$1/pkgconfig pkg-config --cflags --libs hostcuda nccl) -Wl,-rpath,"$1" -o "$tmp/sum"
  [ "$("$tmp/sum")" = "3 3" ] || fail "the README's program with $1"
}
compile_readme "$tmp/dest/opt/tutti/lib"

make -s uninstall BUILD="$build" PREFIX=/opt/tutti DESTDIR="$tmp/dest" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
left=$(cd "$tmp/dest" && find . ! -type d)
[ -z "$left" ] || fail "make uninstall leaves $left"

# Packages. A folder is the system; dpkg wants to be root for that. The dependencies are the system's own, and not in the folder.
if ! command -v dpkg-deb >/dev/null || ! command -v dpkg-shlibdeps >/dev/null || ! command -v file >/dev/null || [ "$(id -u)" != 0 ] || ! [ -f "$build/CPackConfig.cmake" ]; then
  echo "not tried: Debian packages (dpkg-dev, file, CMake 3.20 and root are needed)"
else
  (cd "$build" && cpack -B "$tmp/deb" >"$tmp/log" 2>&1) || { cat "$tmp/log"; exit 1; }
  root=$tmp/root
  mkdir -p "$root"/var/lib/dpkg/{updates,info,triggers}
  touch "$root/var/lib/dpkg/status"
  at_root() { dpkg --root="$root" --log="$tmp/dpkg.log" --force-depends --force-script-chrootless "$@" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }; }
  at_root -i "$tmp"/deb/*.deb
  dpkg-deb -f "$tmp"/deb/tutti_*.deb Depends | grep libsodium >/dev/null || fail "the library's package does not depend on libsodium"
  "$root/usr/bin/all_reduce_perf" -P 2 -b 8 -e 1K -n 1 -w 0 >"$tmp/log" 2>&1 || { fail "the installed perf program:"; cat "$tmp/log"; }
  compile_readme "$root/usr/lib"
  # shellcheck disable=SC2046
  at_root -P $(cd "$tmp/deb" && printf '%s\n' *.deb | cut -d_ -f1)
  left=$(find "$root/usr" ! -type d 2>/dev/null || true)
  [ -z "$left" ] || fail "removed packages leave $left"
fi
[ $failed = 0 ] && echo "installation: all good"
exit $failed
