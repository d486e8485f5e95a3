#!/bin/sh
# The checksum of a file ($1) under the name it will have in the archive ($2), for `sha256sum -c`.
sum=$(sha256sum <"$1") && printf '%s  %s\n' "${sum%% *}" "$2"
