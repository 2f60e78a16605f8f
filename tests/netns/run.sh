#!/usr/bin/env bash
# run.sh: a perf program over several hosts made for it, one process per rank.
#
#   run.sh [-H hosts] [-r processes per host] [-i interfaces] [-f 4|6|46] [-s seconds] [-e NAME=VALUE]…
#          [-w GBIT,MS[,CORE]] PROGRAM [OPTION…]
#   tests/netns/run.sh -H 4 -i 2 -e NCCL_DEBUG=INFO build/bin/all_reduce_perf -b 8 -e 64M -f 8
#
# -f 46: both families have addresses, the processes meet over IPv4. -f 0: no hosts but fake nodes on this machine, told apart by
# NCCL_HOSTID (needs no root). -w: hosts that lie far apart (wire.c), GBIT Gbit/s and MS milliseconds each way;
# what plays the wires has CORE to itself.
# Prints what rank 0 printed; on failure what each rank printed, and ends with status 1.
# shellcheck disable=SC2154 # job_dir is job.sh's
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
. "$here/job.sh"
. "$here/ranks.sh"

hosts=2 each=2 interfaces=1 family=4 seconds=120 far=
while getopts H:r:i:f:s:e:w: option; do
  case $option in
    H) hosts=$OPTARG ;;
    r) each=$OPTARG ;;
    i) interfaces=$OPTARG ;;
    f) family=$OPTARG ;;
    s) seconds=$OPTARG ;;
    w) far=$OPTARG ;;
    e) ranks_env+=("$OPTARG") ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# leave_core CORE: this shell, and what it starts from now on, run on the others.
leave_core() {
  local all others
  all=$(nproc --all)
  others=$(seq 0 $((all - 1)) | grep -vx "$1" | paste -sd,)
  taskset -cp "$others" $$ >/dev/null 2>&1
}

trap 'job_close; hosts_remove; [ -n "${TUTTI_WIRE:-}" ] || rm -f "${wire:-}"' EXIT
trap 'exit 130' INT TERM
meet=none
if [ -n "$far" ]; then
  [[ $far =~ ^[0-9.]+,[0-9.]+(,[0-9]+)?$ ]] || { echo "run.sh: -w $far: GBIT,MS or GBIT,MS,CORE is expected" >&2; exit 2; }
  hosts_possible || exit 77
  wire=${TUTTI_WIRE:-$(mktemp)}
  [ -n "${TUTTI_WIRE:-}" ] || "${CC:-cc}" -std=gnu11 -O2 -o "$wire" "$here/wire.c" || exit 1
  IFS=, read -r gbit ms core <<<"$far"
  hosts_make_wired "$hosts" "$gbit" "$ms" "$wire" "$core" || { echo "run.sh: the hosts could not be wired" >&2; exit 1; }
  ranks_env+=(NCCL_SOCKET_IFNAME=eth0)
  meet=4
  [ -z "$core" ] || leave_core "$core" || { echo "run.sh: no core is left beside core $core" >&2; exit 1; }
elif [ "$family" != 0 ]; then
  hosts_possible || exit 77
  hosts_make "$hosts" "$interfaces" "$family" || { echo "run.sh: the hosts could not be made" >&2; exit 1; }
  meet=${family:0:1}
fi
job_open || exit 1
ranks_start "$hosts" "$each" "$meet" "$@"
if job_wait "$seconds" 15; then
  cat "$job_dir/process0.out"
else
  job_tell 40
  exit 1
fi
