#!/bin/sh
# counts.sh [BUILD]: instructions of small calls in the build BUILD (default: build), counted by callgrind, beside bench/counts/table.
# Fails when a case takes 15% more instructions than the table says, more locked ones, or a system call; says when it takes 15% less.
# Fails when calls of several kinds in turn take 20% more than calls of one kind.
#   --update   writes the table anew
#   --growth   counts many objects of each kind instead (counts/growth.c, counts/inside.c): four times as many may take 6 times the instructions at most
#   --stages   prints which stage takes how many, as a table for docs/notes/performance-log.md (COUNTS_CASES: of which cases)
# Nothing here depends on a clock. Exits with 77 where there is no valgrind, or one core, for which other algorithms are chosen.
set -u
cd "$(dirname "$0")/.." || exit 1
mode=compare
build=${BUILD:-build}
for arg; do
  case $arg in
    --update) mode=update ;;
    --stages) mode=stages ;;
    --growth) mode=growth ;;
    -*) echo "counts: no option '$arg' (--update, --stages, --growth)" >&2 && exit 2 ;;
    *) build=$arg ;;
  esac
done
table=bench/counts/table
program=$build/bench/counts
[ $mode = growth ] && program=$build/bench/growth

command -v valgrind >/dev/null 2>&1 || { echo "counts: valgrind is not here (Debian, Ubuntu: valgrind): skipped"; exit 77; }
valgrind -q --tool=callgrind --callgrind-out-file=/dev/null true >/dev/null 2>&1 || { echo "counts: valgrind does not run here: skipped"; exit 77; }
[ "$(nproc)" -ge 2 ] || { echo "counts: two ranks want two cores, here is one: skipped"; exit 77; }
for p in "$program" "$build/bench/inside"; do
  [ -x "$p" ] || { echo "counts: $p is not built (cmake --build $build --target ${p##*/})" >&2; exit 1; }
done
program=$(cd "$build" && pwd)/bench/${program##*/}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# run NAME ARGUMENT...: runs the program under callgrind: a dump $tmp/NAME.out.N after each part. Settings of the caller's must not change what is counted.
run() {
  name=$1 && shift
  # shellcheck disable=SC2046
  env $(env | sed -n 's/^\(\(NCCL\|TUTTI\)_[A-Z0-9_]*\)=.*/-u \1/p') valgrind -q --tool=callgrind --max-threads=5000 --toggle-collect=counted \
    --dump-after=counted --collect-bus=yes --collect-systime=yes --callgrind-out-file="$tmp/$name.out" "$program" "$@" \
    >"$tmp/$name.cases" 2>"$tmp/$name.said" || { echo "counts: ${program##*/} $* failed under valgrind:" >&2; cat "$tmp/$name.said" >&2; exit 1; }
  [ -f "$tmp/$name.out.1" ] || { echo "counts: callgrind has not found the function counted of $program" >&2; exit 1; }
}

# The parts of each case of a set come in pairs: n objects, and four times as many.
if [ $mode = growth ]; then
  run growth
  run watched watched
  program=${program%/*}/inside
  run inside
  parts=$(for set in growth watched inside; do awk '{ printf " %s.out.%d", set, NR }' set="$tmp/$set" "$tmp/$set.cases"; done)
  cat "$tmp/watched.cases" "$tmp/inside.cases" >>"$tmp/growth.cases"
  # shellcheck disable=SC2086
  awk '
    NR == FNR { name[NR] = $1; n[NR] = $2; parts = NR; next }
    /^totals:/ {
      if (++part % 2 == 1) { few = $2; next }
      ratio = $2 / few
      verdict = ratio <= 6 ? "" : ": grows too fast"
      bad += ratio > 6
      printf "%-24s %9.0f instructions for %d, %10.0f for %d: %.1f times as many%s\n", name[part], few, n[part - 1], $2, n[part], ratio, verdict
    }
    END {
      printf "counts: %d kinds of objects, %d too dear\n", part / 2, bad
      exit part == 0 || part != parts || bad > 0
    }' "$tmp/growth.cases" $parts
  exit
fi

# One run for each set of cases.
count() {
  run "$1" "$1"
  parts=$(awk '{ printf " %s.out.%d", set, NR }' set="$tmp/$1" "$tmp/$1.cases")
  # shellcheck disable=SC2086
  awk -f bench/counts/sum.awk bench/counts/stages "$tmp/$1.cases" $parts >>"$tmp/sums" || exit 1
}

for set in one two shm four queue4 queue8; do
  count $set
done
awk '$1 == "total" { printf "%-24s %6d %8.1f\n", $2, $3, $4 }' "$tmp/sums" >"$tmp/table"

case $mode in
  update)
    {
      echo "# Instructions and locked instructions of one rank's warm call of 8 bytes, with its share of the group and the wait; bench/counts.sh"
      echo "# compares, bench/counts.sh --update writes this file. one: one rank; two: two ranks of a process; shm: as ranks of two processes;"
      echo "# four: ranks of a process; queue4, queue8: ranks of a process on two cores, by way of queues."
      cat "$tmp/table"
    } >$table.new && mv $table.new $table && cat $table
    ;;
  stages)
    # Rows in the order of bench/counts/stages, then what it does not name.
    awk -v cases="${COUNTS_CASES:-one/all_reduce shm/all_reduce shm/all_reduce_new shm/broadcast shm/send_recv}" '
      function cell(instructions, locked) { return sprintf(" %.0f%s |", instructions, locked > 0 ? sprintf(" (%.3g)", locked) : "") }
      function known(name) { if (!(name in place)) { row[++rows] = name; place[name] = rows } }
      BEGIN { n = split(cases, name, " ") }
      NR == FNR { if (!/^#/ && sub(/^[^ ]+ +/, "")) known($0); next }
      $1 == "stage" { split($0, f, "\t"); known(f[3]); ir[f[3], f[2]] = f[4]; locked[f[3], f[2]] = f[5]; next }
      { all[$2] = cell($3, $4); calls[$2] = $5 }
      END {
        line = "| stage |"; rule = "|---|"; last = "| all |"; made = "| system calls |"
        for (k = 1; k <= n; k++) {
          if (!(name[k] in all)) { print "counts: no case \"" name[k] "\"" > "/dev/stderr"; exit 1 }
          line = line " " name[k] " |"; rule = rule "---|"; last = last all[name[k]]; made = made sprintf(" %g |", calls[name[k]])
        }
        print line "\n" rule
        for (i = 1; i <= rows; i++) {
          line = "| " row[i] " |"; used = 0
          for (k = 1; k <= n; k++) { line = line cell(ir[row[i], name[k]], locked[row[i], name[k]]); used += ir[row[i], name[k]] }
          if (used >= 0.5) print line
        }
        print last "\n" made
      }' bench/counts/stages "$tmp/sums"
    ;;
  compare)
    awk '
      NR == FNR { if ($1 !~ /^#/) { ir[$1] = $2; locked[$1] = $3 } next }
      $1 == "total" {
        n++
        seen[$2] = 1
        verdict = ""
        if (!($2 in ir)) { verdict = "is not in the table"; bad++ }
        else if ($3 > 1.15 * ir[$2]) { verdict = "too many"; bad++ }
        else if ($4 > locked[$2] + 0.05) { verdict = "too many locked"; bad++ }
        else if ($3 < 0.85 * ir[$2]) { verdict = "fewer than the table says: bench/counts.sh --update"; less++ }
        if ($5 > 0) { verdict = verdict sprintf("%s%g system calls", verdict == "" ? "" : ", ", $5); bad++ }
        count[$2] = $3
        printf "%-24s %6d instructions (table: %s), %4.1f locked (%s)%s\n", $2, $3, $2 in ir ? ir[$2] : "none", $4, $2 in locked ? locked[$2] : "none", verdict == "" ? "" : ": " verdict
      }
      END {
        fixed["four/send_three"] = "four/send_one"
        turns = split("varied two kinds", turn, " ")
        for (c in seen) for (i = 1; i <= turns; i++) if ((c "_" turn[i]) in seen) fixed[c "_" turn[i]] = c
        for (c in fixed) {
          ratio = count[c] / count[fixed[c]]
          bad += dear = ratio > 1.2
          printf "%-24s %.2f times %s%s\n", c, ratio, fixed[c], dear ? ": too many" : ""
        }
        for (c in ir) if (!(c in seen)) { printf "%s: in the table, but not measured\n", c; bad++ }
        printf "counts: %d cases, %d with more than the table allows, %d with far fewer\n", n, bad, less
        exit n == 0 || bad > 0
      }' $table "$tmp/sums"
    ;;
esac
