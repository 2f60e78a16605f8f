# sum.awk: sums callgrind's parts of one run of counts. Arguments: stages, what counts printed, then the parts in order.
# Prints "total CASE INSTRUCTIONS LOCKED SYSCALLS" and "stage CASE STAGE INSTRUCTIONS LOCKED", per call, of the part of each case that has
# the fewest instructions. The program's own instructions are left out.

function begin_part() {
  part++
  split("", objects)
  split("", files)
  split("", ir)
  split("", locked)
  all_ir = all_locked = all_calls = 0
}

# Names are written once: "(12) name", then "(12)".
function named(names, text, id, end) {
  end = index(text, ")")
  id = substr(text, 1, end)
  if (length(text) > end)
    names[id] = substr(text, end + 2)
  return names[id]
}

# The stage of a source file of an object. Of other people's objects only the file's name counts.
function stage_of(object, file, path, i) {
  path = object
  sub(/.*\//, "", path)
  if (object ~ /\/libnccl[^\/]*$/ && match(file, /\/src\/[^?]*$/))
    path = substr(file, RSTART + 1)
  for (i = 1; i <= nstages; i++)
    if (index(path, prefix[i]) == 1)
      return stage[i]
  sub(/\/[^\/]*$/, "", path)
  return path
}

function end_part(name, n, s) {
  name = case_of[part]
  n = calls_of[part]
  if (name == "")
    return
  if (!(name in least))
    order[++ncases] = name
  else if (all_ir / n >= least[name])
    return
  least[name] = all_ir / n
  text[name] = sprintf("total %s %.0f %.1f %.2f\n", name, all_ir / n, all_locked / n, all_calls / n)
  for (s in ir)
    text[name] = text[name] sprintf("stage\t%s\t%s\t%.1f\t%.1f\n", name, s, ir[s] / n, locked[s] / n)
}

FNR == 1 && ++nfile > 2 {
  if (nfile > 3)
    end_part()
  begin_part()
}
nfile == 1 {
  if ($1 != "" && $1 !~ /^#/) {
    prefix[++nstages] = $1
    stage[nstages] = $0
    sub(/^[^ ]+ +/, "", stage[nstages])
  }
  next
}
nfile == 2 {
  case_of[FNR] = $1
  calls_of[FNR] = $2
  next
}
/^events: / && $0 !~ /^events: Ir Ge sysCount/ {
  print "sum.awk: " FILENAME " counts other events: " $0 > "/dev/stderr"
  exit 1
}
/^ob=/ { object = named(objects, substr($0, 4)) }
/^cob=/ { named(objects, substr($0, 5)) }
/^f[lie]=/ { file = named(files, substr($0, 4)) }
/^cf[il]=/ { named(files, substr($0, 5)) }
/^calls=/ { inclusive = 1; next } # the next line is what the called function costs: it is counted there
/^[0-9+*-]/ {
  if (!inclusive && object !~ /\/bench\/counts$/) {
    s = stage_of(object, file)
    ir[s] += $2
    locked[s] += $3
    all_ir += $2
    all_locked += $3
    all_calls += $4
  }
  inclusive = 0
}
END {
  end_part()
  for (i = 1; i <= ncases; i++)
    printf "%s", text[order[i]]
}
