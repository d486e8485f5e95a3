#!/bin/sh
# Installs what the tests with machines or a Slurm of their own need (tests/testbed/), those of
# workers in other languages, of programs with which people drop files, of alerts (promtool), and of
# a browser, where that may be done: root, apt, and a run that is nobody's desk (CI=true). Elsewhere
# those tests skip, and say what is missing. Never fails.
packages="libzmq3-dev rsync openssh-client openssh-sftp-server curl prometheus"
guests="user-mode-linux uml-utilities nfs-kernel-server nfs-common kmod iproute2 e2fsprogs dmsetup"
browser="chromium chromium-driver"
slurm="iproute2 munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins"

[ "${CI-}" = true ] && [ "$(id -u)" = 0 ] || exit 0
[ "${QUEUEDRIVER_TEST_GUESTS-}" = 0 ] || packages="$packages $guests"
[ "${QUEUEDRIVER_TEST_BROWSER-}" = 0 ] || packages="$packages $browser"
[ "${QUEUEDRIVER_TEST_SLURM-}" = 0 ] || packages="$packages $slurm"
node=$(dirname "$0")/.node
if command -v npm >/dev/null && [ ! -d "$node/node_modules/zeromq" ]; then
    mkdir -p "$node" && timeout -k 10 60 npm install --silent --prefix "$node" zeromq >&2 || true
fi
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || exit 0
lacking=
for one in $packages; do
    dpkg-query -W -f '${Status}' "$one" 2>/dev/null | grep -q ' installed$' || lacking="$lacking $one"
done
[ -n "$lacking" ] || exit 0

# A mirror that hangs must not hold up everything else. The daemons are for the tests: none starts
# here.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
log=$(mktemp)
echo "testbed: installing$lacking" >&2
timeout -k 10 60 apt-get update >"$log" 2>&1
if ! timeout -k 10 180 apt-get install -y --no-install-recommends $lacking >>"$log" 2>&1; then
    echo "testbed: not installed, so the tests with guests, a Slurm or a browser skip: $(tail -n 1 "$log")" >&2
fi
rm -f "$log"
exit 0
