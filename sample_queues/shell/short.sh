#!/bin/sh
# A driver in twenty lines, for documents whose docids are plain words. README.rst beside it says
# what it leaves to others.          sh short.sh QUEUE OUTPUT ID COMMAND [ARGUMENT]...
cd -- "$1" && queue=$PWD out=$2 id=$3 settings="{\"outputs\":[\"$2\"]}" && shift 3 || exit 66
(cd "/proc/$$" && while sleep 30 && [ -e exe ]; do touch -ch "$queue"/*."$id"-*.working; done) &
move() { mv -nT "$1" "$2$3"; [ ! -e "$1" ] || mv -nT "$1" "$2~${n##*-}$3"; } 2>/dev/null
while [ ! -e QUIT ] && sleep 1; do for ready in *.ready; do
    docid=${ready%.ready}; case $docid in done | PAUSE | QUIT | -* | *[!A-Za-z0-9_-]*) continue ;; esac
    if [ ${#docid} -gt 160 ] || [ -e PAUSE ] || [ -e QUIT ]; then continue; fi
    n=$id-$(printf %014x "$(date +%s%6N)")$(od -An -N2 -tx1 /dev/urandom | tr -d ' ')
    working=$docid.$n.working written=$docid.$n.written writing=$out/$docid.$n.writing
    mv -nT "$ready" "$working" 2>/dev/null || continue
    [ "$(cat .queuedriver/settings.json)" = "$settings" ] || { mv -nT "$working" "$ready"; exit 78; }
    if [ -f "$working" ] && [ ! -L "$working" ] && "$@" <"$working" >"$writing"; then
        mv -nT "$working" "$written"
    fi
    if true 2>/dev/null <"$written"; then
        [ -e "$writing" ] || writing=$out/.queuedriver/orphans/${writing##*/}
        move "$writing" "$out/$docid" .ready; [ -e "$writing" ] || rm "$written"
    else
        rm -f "$writing"; move "$working" "$docid" .failed
    fi
done; done
