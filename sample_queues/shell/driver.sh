#!/bin/sh
# A driver in shell, written from docs/queue-on-disk.rst. README.rst beside it explains it.
#     sh driver.sh QUEUE OUTPUT ID COMMAND [ARGUMENT]...
# shellcheck disable=SC2086,SC2231  # $hex is a pattern, and meant as one
case $3 in '' | *[!A-Za-z0-9_]*) exit 2 ;; esac
case $2 in *[\"\\[:cntrl:]]*) exit 2 ;; esac
cd -- "$1" && [ -d "$2" ] || exit 66
queue=$PWD out=$2 id=$3 stop='' settings="{\"outputs\":[\"$2\"]}"
shift 3
hex='[0-9a-f][0-9a-f][0-9a-f]' && hex=$hex$hex$hex$hex$hex$hex

there() { [ -e "$1" ] || [ -L "$1" ]; }
# Rename, and never replace. A name with an N is gone only when it was renamed.
move() { mv -nT -- "$1" "$2" 2>/dev/null && ! there "$1"; }
# To a name that may be taken: then both are kept.
keep() { move "$1" "$2$3" || move "$1" "$2~${n##*-}$3"; }
# What the name of a claim says.
parse() { n=${1%.*} n=${n##*.} was=${1%.*.*} d=${was#./} d=${d%.failed} o=$out/$d.$n.writing; }
# At most 160 bytes of UTF-8, and like no other name of the table.
is_docid() {
    case $1 in done | PAUSE | QUIT | *.report.json | *.failed* | *.writ*) return 1 ;; esac
    case $1 in *.ready | *.working | *.later) return 1 ;; esac
    [ "$(printf %s "$1" | wc -c)" -le 160 ] && printf %s "$1" | iconv -f UTF-8 -t UTF-8
} >/dev/null 2>&1
# Committed: publish the output, also if somebody moved it aside, then drop the input.
finish() {
    parse "$1"
    for o in "$o" "$out/.queuedriver/orphans/${o##*/}"; do
        keep "$o" "$out/$d" .ready || [ ! -e "$o" ] || return
    done
    rm -f -- "$1"
}
# What JSON must not have in a string: control characters, quotes, backslashes.
plain() { printf %s "$1" | tr '\001-\037\042\134' '[?*]'; }
# Charged: to be tried again, or, the second time, set aside with the reason.
fail() {
    parse "$1" && rm -f -- "$o"
    [ "$was" != "./$d" ] || { keep "$1" "$was" .failed; return; }
    report=.queuedriver/attempts/$d.$(stat -c %i -- "$1") k=1
    while there "$report.$k.json"; do k=$((k + 1)); done
    report=$report.$k.json
    printf '{"docid": "%s", "queue": "%s", "discarded_at": %s, "driver": "%s", "host": "%s",
"failure": {"cause": "%s", "message": "%s"}, "attempts": []}\n' "$(plain "$d")" \
        "$(plain "${queue##*/}")" "$(date +%s)" "$id" "$(uname -n)" "$2" "$3" >"$report" || return
    move "$1" "discarded/$d" || { d=$d~${n##*-} && move "$1" "discarded/$d"; } || return
    mv -T -- "$report" "discarded/$d.report.json"
}

mkdir -p .queuedriver/attempts discarded
aside=.queuedriver/.aside-$id
printf %s "$settings" >"$aside" && sync "$aside"
move "$aside" .queuedriver/settings.json || rm "$aside"
# Show life as long as this very process is there: only then there is an `exe` in /proc/$$.
(cd "/proc/$$" && while sleep "${BEAT:-30}" && [ -e exe ]; do
    touch -ch -- "$queue"/*."$id"-$hex.working
done) >/dev/null 2>&1 &
trap 'stop=1' INT TERM
while [ ! "$stop" ] && [ ! -e QUIT ]; do
    # What carries our id now, an earlier life left.
    for w in ./*."$id"-$hex.written; do if there "$w"; then finish "$w"; fi; done
    for w in ./*."$id"-$hex.working; do
        if there "$w"; then fail "$w" crashed "its driver ended"; fi
    done
    idle=1
    for f in ./*.ready ./*.failed; do
        if [ "$stop" ] || [ -e QUIT ] || [ -e PAUSE ]; then break; fi
        d=${f#./}
        is_docid "${d%.*}" || continue
        n=$id-$(printf %014x "$(date +%s%6N)")$(od -An -N2 -tx1 /dev/urandom | tr -d ' ')
        w=${f%.ready}.$n.working
        move "$f" "$w"
        there "$w" || continue
        idle='' && parse "$w"
        if [ "$(cat .queuedriver/settings.json)" != "$settings" ]; then
            keep "$w" "./$d" ".${f##*.}"
            exit 78
        elif [ -f "$w" ] && [ ! -L "$w" ] && "$@" <"$w" >"$o"; then
            move "$w" "${w%working}written"
            if true 2>/dev/null <"${w%working}written"; then
                finish "${w%working}written"
            else
                rm -f -- "$o"
            fi
        elif code=$? && [ "$stop" ]; then
            rm -f -- "$o"
            keep "$w" "./$d" ".${f##*.}"
        else
            fail "$w" exit "its exit code was $code"
        fi
    done
    if [ "$idle" ]; then
        [ ! -e "done" ] || [ -e PAUSE ] || exit 0
        sleep 1
    fi
done
