#!/bin/sh
# build.sh VERSION OUT: the library with the soname of ROCm 6 or 7.
set -e
here=$(dirname "$0")
exec cc -std=gnu11 -O1 -g -Wall -Werror -fPIC -fvisibility=hidden -shared -pthread \
    -Wl,-soname,"libamdhip64.so.$1" -Wl,--version-script="$here/hip.map" -Wl,-Bsymbolic-functions -Wl,--no-undefined \
    "$here/state.c" "$here/memory.c" "$here/vmm.c" "$here/runtime.c" -ldl -o "$2"
