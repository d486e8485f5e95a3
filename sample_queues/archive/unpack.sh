#!/bin/sh
# What arrived ($1) becomes a plain log ($2). 65 sets a file aside at once, because no other try will
# do; anything else, such as a disk that is full, is a failure, and tried again.
gzip -t <"$1" || exit 65
gzip -dc <"$1" >"$2" || exit
if grep -n -m 1 -v -E '^[0-9a-f.:]+ [^ ]+ [^ ]+ \[[^]]+\] "' "$2" >&2; then
    echo 'this line is not that of a log' >&2
    exit 65
fi
