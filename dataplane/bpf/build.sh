#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the BPF objects that are committed beside their sources and embedded into `dataplane`. The compiler is pinned
# (Debian 12's clang), so that the same sources give the same octets everywhere; no path of the machine gets in.
#
#   build.sh [FOLDER]   into FOLDER instead, to compare: `build.sh /tmp/x && cmp /tmp/x/director.bpf.o director.bpf.o`
set -eu
cd "$(dirname "$0")"
out=${1:-.}
clang=${CLANG:-clang-14}
version=$("$clang" -dumpversion)
case $version in
14.*) ;;
*) echo "build.sh: expected clang 14, found $version ($clang)" >&2; exit 1 ;;
esac
for source in *.bpf.c; do
	"$clang" -target bpfel -mcpu=v3 -O2 -Wall -Wextra -Werror -nostdinc -fno-ident \
		-c "$source" -o "$out/${source%.c}.o"
done
