# ranks.sh: the perf programs over hosts or fake nodes, each process started with the variables that torchrun sets. Sourced, after lib.sh
# and job.sh.
# shellcheck shell=bash disable=SC2154 # job_dir is job.sh's

ranks_env=()    # NAME=VALUE, for every process
ranks_threads=1 # ranks per process, as its options say (-t, -g)
ranks_port=$((24576 + BASHPID * 13 % 6000)) # below the ports that the kernel hands out, and none of harness.h

# A port of this machine that nobody listens at.
ranks_next_port() {
  while
    ranks_port=$((ranks_port + 1))
    [ "$ranks_port" -lt 32000 ] || ranks_port=24576
    (exec 3<>"/dev/tcp/127.0.0.1/$ranks_port") 2>/dev/null
  do :; done
}

# ranks_start PLACES PROCESSES FAMILY PROGRAM OPTION…: so many processes on each place. FAMILY 4 or 6: the places are hosts of lib.sh.
# FAMILY none: they are fake nodes on this machine, told apart by NCCL_HOSTID alone.
ranks_start() {
  local places=$1 each=$2 family=$3 place nth rank variables master=127.0.0.1
  shift 3
  ranks_next_port
  [ "$family" = none ] || master=$(host_addr 0 0 "$family")
  for ((rank = 0; rank < places * each; rank++)); do
    place=$((rank / each)) nth=$((rank % each))
    variables=("${ranks_env[@]}" "RANK=$rank" "WORLD_SIZE=$((places * each))" "LOCAL_RANK=$nth" "LOCAL_WORLD_SIZE=$each"
      "MASTER_ADDR=$master" "MASTER_PORT=$ranks_port")
    if [ "$family" = none ]; then
      job_add "process$rank" here_exec env "NCCL_HOSTID=node$place" NCCL_SOCKET_IFNAME=lo "${variables[@]}" "$@"
    else
      job_add "process$rank" host_exec "$place" env "${variables[@]}" "$@"
    fi
  done
}

# ranks_judge RANKS: true when the table says that all ranks took part and nothing was wrong.
ranks_judge() {
  local listed
  listed=$(grep -c '^# *Rank ' "$job_dir/process0.out")
  [ "$listed" = "$1" ] || { echo "  $listed ranks took part, not $1"; return 1; }
  grep -q 'Out of bounds values : 0 OK' "$job_dir/process0.out" || { echo "  no word that all values are right"; return 1; }
}

# ranks_run SECONDS PLACES PROCESSES FAMILY PROGRAM OPTION…: start, wait, judge. False, and the outputs, when anything is wrong.
ranks_run() {
  local seconds=$1 res=0
  shift
  job_open || return 1
  ranks_start "$@"
  job_wait "$seconds" 15 || res=1
  [ "$res" != 0 ] || ranks_judge $(($1 * $2 * ranks_threads)) || res=1
  [ "$res" = 0 ] || job_tell
  job_close
  return $res
}
