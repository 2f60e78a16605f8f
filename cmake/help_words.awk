    # awk over the -h of a program: its options, and with `commands` its commands
    /^[ \t]*\[?-/ { line = $0; sub(/^[ \t]*\[?/, "", line); n = split(line, word, /[ ,\]<=]+/)
      for (i = 1; i <= n && word[i] ~ /^--?[A-Za-z]/; i++) print word[i] }
    commands && /^  [a-z]+  / { print $1 }
