#!/bin/sh
# A letter ($1) whose first line begins with its language goes to the desk that speaks it.
read -r language _ <"$1"
case $language in
    de) desk=$2 ;;
    en) desk=$3 ;;
    es) desk=$4 ;;
    fr) desk=$5 ;;
    it) desk=$6 ;;
    nl) desk=$7 ;;
    *) echo "no desk speaks '$language'" >&2 && exit 65 ;;
esac
tail -n +2 "$1" | fold -s -w 72 >"$desk"
