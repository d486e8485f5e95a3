#!/bin/sh
# A log ($1) without persons, once to be counted ($2) and once to be packed ($3).
sed -E -f "${0%/*}/anonymise.sed" "$1" >"$2" && cp "$2" "$3"
