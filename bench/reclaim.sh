#!/usr/bin/env bash
# usage: bench/reclaim.sh PLIMSOLL FRAGMENT FILE   (as root; FILE is made as large as memory, with a hole in it, and removed)
# Fills this machine's memory with page cache in pieces and has `plimsoll reclaim` bring it back. Takes a minute; no program loses
# memory, but everybody's page cache is dropped.
set -euo pipefail
plimsoll=$1 fragment=$2 file=$3
thp=/sys/kernel/mm/transparent_hugepage
enabled=$(sed 's/.*\[\(.*\)\].*/\1/' $thp/enabled) defrag=$(sed 's/.*\[\(.*\)\].*/\1/' $thp/defrag)
restore() { rm -f "$file"; echo "$enabled" > $thp/enabled; echo "$defrag" > $thp/defrag; }
trap restore EXIT
whole() { "$plimsoll" reclaim --need 1MiB --contiguous 9 --dry-run --json | sed -n 's/^ *"whole": \([0-9]*\),*$/\1/p' | head -n 1; }

echo "### as good as a fresh boot: clean caches dropped, all compacted"
uname -r; "$plimsoll" reclaim-step write-and-drop-page-cache; "$plimsoll" reclaim-step compact
fresh=$(whole); cat /proc/buddyinfo; echo "$((fresh >> 20)) MiB in blocks of order 9 or larger"

echo "### filled, and in pieces"
"$fragment" fill "$file"; cat /proc/buddyinfo; grep -E 'MemFree|MemAvailable' /proc/meminfo
echo always > $thp/enabled; echo never > $thp/defrag
before=$("$fragment" hold 512 0)
echo "a request that gives up at once: $before"

echo "### 90 % of it again"
status=0; "$plimsoll" reclaim --need $((fresh / 1024 * 9 / 10 / 1024))MiB --contiguous 9 || status=$?
after=$(whole)
echo "the same request: $("$fragment" hold 512 0)"
echo "fresh $((fresh >> 20)) MiB, brought back to $((after >> 20)) MiB: $((after * 1000 / fresh)) thousandths; exit $status"
exit $status
