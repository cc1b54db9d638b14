#!/usr/bin/env bash
# usage: bench/reclaim.sh PLIMSOLL FRAGMENT FILE   (as root; FILE is made as large as memory, with a hole in it, and removed)
# Fills this machine's memory with page cache in pieces and has `plimsoll reclaim` bring it back. Takes two minutes; no program loses
# memory, but everybody's page cache is dropped.
set -euo pipefail
plimsoll=$1 fragment=$2 file=$3
thp=/sys/kernel/mm/transparent_hugepage vm=/proc/sys/vm
enabled=$(sed 's/.*\[\(.*\)\].*/\1/' $thp/enabled) defrag=$(sed 's/.*\[\(.*\)\].*/\1/' $thp/defrag)
kept=$(cat $vm/min_free_kbytes) boost=$(cat $vm/watermark_boost_factor)
watermarks() { echo "$1" > $vm/min_free_kbytes; echo "$2" > $vm/watermark_boost_factor; }
holders=() held=0
restore() {
    kill "${holders[@]}" 2>&- || true; rm -f "$file" "$file.held"
    watermarks "$kept" "$boost"; echo "$enabled" > $thp/enabled; echo "$defrag" > $thp/defrag
}
trap restore EXIT
whole() { "$plimsoll" reclaim --need 1MiB --contiguous 9 --dry-run --json | sed -n 's/^ *"whole": \([0-9]*\),*$/\1/p' | head -n 1; }

echo "### as good as a fresh boot: clean caches dropped, all compacted"
uname -r; "$plimsoll" reclaim-step write-and-drop-page-cache; "$plimsoll" reclaim-step compact
fresh=$(whole); cat /proc/buddyinfo; echo "$((fresh >> 20)) MiB in blocks of order 9 or larger"

echo "### filled, and in pieces"
# As in bench/qemu/init: or the kernel keeps its last large blocks by dropping old page cache.
watermarks 1024 0; "$fragment" fill "$file" --within 240; watermarks "$kept" "$boost"
# What large blocks are left all the same go to a program that holds them in huge pages, and are nobody's to bring back.
echo always > $thp/enabled; echo never > $thp/defrag
left=$(($(whole) >> 20))
for try in 1 2 3 4 5 6 7 8 9 10 11 12; do
    [ $left -ge 16 ] || break
    "$fragment" hold $left 600 > "$file.held" & holders+=($!); held=$((held + left))
    until grep holding "$file.held"; do sleep 0.1; done
    left=$(($(whole) >> 20))
done
cat /proc/buddyinfo; grep -E 'MemFree|MemAvailable' /proc/meminfo
echo "$((left / 2)) blocks of order 9 are free"
[ $left -lt 16 ] || { echo "$0: 8 or more are left, so this would show nothing; run it again on a quiet machine" >&2; exit 2; }
before=$("$fragment" hold 512 0)
echo "a request that gives up at once: $before"
fresh=$((fresh - (held << 20)))

echo "### 90 % of the rest again"
status=0; "$plimsoll" reclaim --need $((fresh / 1024 * 9 / 10 / 1024))MiB --contiguous 9 || status=$?
after=$(whole)
echo "the same request: $("$fragment" hold 512 0)"
echo "fresh, less what is held, $((fresh >> 20)) MiB, brought back to $((after >> 20)) MiB: $((after * 1000 / fresh)) thousandths; exit $status"
exit $status
