# Makes the virtual environment of this checkout. Sourced, with $root set, by the scripts that are
# somebody's first command on a fresh machine; hence POSIX sh, and hence the trouble with Python.
#
#   install_project            the project, in $root/.venv; its bin is first in PATH afterwards
#   install_project test       the same with the extra `test`

venv=${root:?is set by the script that sources this}/.venv

install_project() {
    if ! fits "$venv/bin/python" 'import pip'; then
        find_python
        "$python" -m venv --clear "$venv" || give_up "$python could not make $venv; see above"
    fi
    # The installation is editable, so only a change of pyproject.toml asks for another. The path
    # is in the stamp because installed scripts begin with it. The stamp is written last, so an
    # installation that was interrupted is done again. Any extra has the project in it, hence the *.
    stamp=$venv/installed${1:+-$1}
    key="$venv $(cksum <"$root/pyproject.toml")"
    if ! grep -qsxF -e "$key" "$stamp"*; then
        echo "installing into $venv" >&2
        # A user's pip configuration may ask for --user, which a virtual environment refuses.
        PIP_USER=0 "$venv/bin/python" -m pip install -qq --disable-pip-version-check \
            --editable "$root${1:+[$1]}" || give_up "pip could not install into $venv; see above"
        echo "$key" >"$stamp"
    fi
    PATH=$venv/bin:$PATH
}

# The first Python that is new enough and can make an environment; else how to come by one.
find_python() {
    if [ -n "${PYTHON-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3 python3.11 python3.12 python3.13 python3.14
    fi
    bare='' unfit=''
    for python; do
        command -v "$python" >/dev/null || continue
        if fits "$python" 'import ensurepip, venv'; then
            return
        elif fits "$python" pass; then
            bare=${bare:-$python}
        else
            unfit=${unfit:-$python}
        fi
    done
    if [ -n "$bare" ]; then
        give_up "$bare has no ensurepip, so it cannot make a virtual environment. This mends it:" \
            "    $(mend "$bare")"
    fi
    give_up "Python 3.11 or newer is needed${unfit:+; $unfit is older, or does not run}." \
        "Install one, or say where it is:" \
        "    PYTHON=/path/to/python3.11 sh $0"
}

# Whether a Python runs, can do the given imports, and is new enough.
fits() {
    "$1" -c "import sys; $2; sys.exit(sys.version_info < (3, 11))" >/dev/null 2>&1
}

# The command that gives a Python its ensurepip. Debian and Ubuntu keep it in a package of its own.
mend() {
    version=$("$1" -c 'import sys; print("python{}.{}".format(*sys.version_info))')
    case $(command -v apt-get >/dev/null && command -v "$1") in
        /usr/bin/* | /bin/*)
            sudo=$([ "$(id -u)" = 0 ] || echo 'sudo ')
            echo "${sudo}apt-get update && ${sudo}apt-get install -y $version-venv"
            ;;
        *) echo "PYTHON=/path/to/a/complete/$version sh $0" ;;
    esac
}

give_up() {
    printf '%s\n' "$@" >&2
    exit 1
}
