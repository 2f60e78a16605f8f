# leave_out.awk: awk -v file=step.c -v out=OUT -f leave_out.awk places src/device/cuda/work/step.c: the source with a switch at each of its
# places, whose form `places` says. A place that is not there becomes a line "// not found: NAME".
FNR == 1 { files++ }

files == 1 && /^[a-z_]+ \| / {
  split($0, field, / *\| */)
  name = field[1]
  here = field[2] == file
  next
}
files == 1 && here && /^-[0-9]* / {
  nth = substr($1, 2)
  from[++n] = substr($0, length($1) + 2)
  of[n] = name
  left[n] = nth == "" ? 1 : nth
  only[n] = nth == ""
  next
}
files == 1 && here && /^\+ / {
  to[n] = substr($0, 3)
  gsub(/OUT/, "tt_left_out(\"" name "\")", to[n])
  next
}
files == 1 { next }

FNR == 1 { print "#line 1 \"" FILENAME "\"" >out }
{
  for (i = 1; i <= n; i++) {
    at = index($0, from[i])
    if (at && left[i] > 0 && --left[i] == 0) {
      $0 = substr($0, 1, at - 1) to[i] substr($0, at + length(from[i]))
    } else if (at && left[i] == 0 && only[i] && !index($0, "tt_left_out")) {
      again[i] = 1
    }
  }
  print >out
}
END {
  for (i = 1; i <= n; i++) {
    if (left[i] > 0 || again[i]) {
      print "// not found" (again[i] ? " once: " : ": ") of[i] >out
    }
  }
}
