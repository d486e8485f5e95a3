#!/bin/sh
# ext4.sh up DIR [SIZE] | down DIR: a journaled ext4 of its own, on a loop device, mounted at DIR.
#
# A file system without a journal, or one that the rest of the machine writes to, gives numbers
# that vary severalfold from run to run. The image DIR.img is sparse: it takes what is written.
set -eu

usage() { echo "usage: ext4.sh up DIR [SIZE] | down DIR" >&2; exit 64; }
[ $# -ge 2 ] || usage
dir=$2 image=$2.img

case $1 in
up)
    [ "$(id -u)" = 0 ] || { echo "ext4.sh: mounting needs root" >&2; exit 77; }
    mkdir -p "$dir"
    truncate -s "${3:-24G}" "$image"
    # Not lazily: the kernel would initialise tables in the background of the measurements.
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$image"
    if ! mount -o loop "$image" "$dir"; then
        rm -f "$image"; rmdir "$dir"
        exit 77
    fi
    ;;
down)
    umount "$dir"
    rm -f "$image"
    rmdir "$dir"
    ;;
*)  usage ;;
esac
