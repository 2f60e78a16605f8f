#!/usr/bin/env bash
# toy_algorithm.sh BUILD: the recipe for a new algorithm in docs/contributing.md, followed on a copy of the sources: its file, its row, its rule. Then the few
# objects that change are compiled, linked with those of the build, proved, and run. No file but those that the recipe names may change.
set -euo pipefail
build=$(cd "$1" && pwd)
grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" && { echo "skipped: sanitizers see these sources in other tests"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
page=docs/contributing.md

# block FILE: the code block of the page whose first line is a comment that begins with the file's name.
block() {
  awk -v head="// $1" 'inside && /^```/ { exit } start && index($0, head) == 1 { inside = 1 } inside { print } { start = /^```c$/ }' "$page"
}

mkdir "$tmp/tree"
cp -r src include docs scripts "$tmp/tree"
block src/coll/toy.c >"$tmp/tree/src/coll/toy.c"
block src/coll/algorithms.def | sed 1d >"$tmp/row"
block src/comm/tuning_table.c | sed 1d >"$tmp/rule"
for part in tree/src/coll/toy.c row rule; do [ -s "$tmp/$part" ] || fail "$page has no block for $part"; done
sed -i -e "/^#undef A\$/{
  e cat '$tmp/row'
}" "$tmp/tree/src/coll/algorithms.def"
sed -i "/^static const tt_algo_rule algo_rules/r $tmp/rule" "$tmp/tree/src/comm/tuning_table.c"
differing=$(for folder in src include docs scripts; do diff -rq $folder "$tmp/tree/$folder" || :; done)
[ "$(printf '%s\n' "$differing" | wc -l)" = 3 ] || fail "not the 3 files of the recipe: $differing"

# compile FILE OBJECT [OPTION...]: as the build compiles the table of algorithms, but without optimisation.
command=$(sed -n 's/.*"command": "\(.* -o \)[^ ]*coll\/table.c.o .*/\1/p' "$build/compile_commands.json")
[ -n "$command" ] || fail "the build has no command for coll/table.c"
read -ra command < <(printf '%s\n' "$command" | sed "s|-I$PWD/|-I$tmp/tree/|g; s| -O2 | -O0 |; s| -o \$||")
compile() { "${command[@]}" -Werror "${@:3}" -o "$tmp/$2" -c "$1" || fail "$1 does not compile"; }

# Whatever counts algorithms is compiled anew.
objects=
for file in src/coll/toy.c src/coll/table.c $(cd "$tmp/tree" && grep -lrE 'TT_NALGOS|tt_algo_rules' src --include='*.c' | grep -v _test.c); do
  object=$(echo "$file" | tr / _).o
  [ -e "$tmp/$object" ] || objects="$objects $tmp/$object"
  [ -e "$tmp/$object" ] || compile "$tmp/tree/$file" "$object"
done
compile tests/toy_algorithm.c main.o -I"$tmp/tree/src"
libraries=$(grep -oE '[^ ]*/lib(sodium|expat)\.(so|a)[^ ]*' "$build/CMakeCache.txt" | sed 's/.*=//' | sort -u)
# shellcheck disable=SC2086
${CC:-cc} -rdynamic -o "$tmp/toy" "$tmp/main.o" $objects "$build/tools/libtutti-tools.a" "$build/lib/libnccl_static.a" $libraries -lpthread -ldl -lm \
  || fail "does not link"
timeout 300 "$tmp/toy" || fail "by its rule: $?"
NCCL_ALGO=Toy timeout 300 "$tmp/toy" || fail "by NCCL_ALGO: $?"

# The page of the rules is made anew, and the name is known nowhere else.
cd "$tmp/tree"
scripts/check_docs --fix >"$tmp/docs" || { cat "$tmp/docs"; fail "scripts/check_docs --fix"; }
grep -q '^| all-reduce | three or more ranks | size ≤ TINY | Toy |$' docs/tuning.md || fail "docs/tuning.md has no rule of Toy"
echo "toy_algorithm: passed"
