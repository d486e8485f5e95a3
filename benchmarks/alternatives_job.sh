#!/bin/sh
# All stages of one document, for xargs and GNU parallel: sh alternatives_job.sh DOCID
# What alternatives_work.py says of the environment holds here. A stage that was done is not done
# again, so that the same command can be given again after whatever went wrong.
set -eu
for stage in 1 2 3; do
    source=s$((stage - 1))/$1 target=s$stage/$1
    [ -e "$target" ] && continue
    [ -z "${WORK_LOG-}" ] || echo "begun $stage $1 $$" >>"$WORK_LOG"
    case $stage-$1 in
        2-poison) kill -KILL $$ ;;
        2-hang) sleep 3600 ;;
    esac
    [ -z "${WORK_SECONDS-}" ] || sleep "$WORK_SECONDS"
    cp "$source" "s$stage/.$1.$$"
    mv "s$stage/.$1.$$" "$target"
    [ -z "${WORK_LOG-}" ] || echo "ended $stage $1 $$" >>"$WORK_LOG"
done
