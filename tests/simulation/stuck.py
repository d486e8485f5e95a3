"""Items that cannot be moved, made for real: what Linux says of them, as JSON.

    unshare --mount python -m tests.simulation.stuck DIRECTORY

Below the directory a small file system is mounted, for this process alone. What cannot be made here
is left out.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

# Whose items lie in a directory that belongs to somebody else, and who looks at them.
OWNER, STRANGER = 65533, 65534

Answers = Mapping[str, str]


def answers(system: Any, root: str, name: str, directory: bool) -> dict[str, str]:
    """What is said of renaming an item, and of removing it; it is there again after each."""
    item, beside, away = f"{root}/in/{name}", f"{root}/in/{name}.x", f"{root}/out/{name}"
    other = f"{root}/in/{'other-directory' if directory else 'other'}"
    return {
        "beside": _said(lambda: system.rename(item, beside), lambda: system.rename(beside, item)),
        "away": _said(lambda: system.rename(item, away), lambda: system.rename(away, item)),
        "over": _said(lambda: system.rename(other, item)),
        "remove": _said(lambda: (system.rmdir if directory else system.unlink)(item)),
    }


def _said(act: Callable[[], object], undo: Callable[[], object] = lambda: None) -> str:
    try:
        act()
    except OSError as error:
        return type(error).__name__ + str(error.errno)
    undo()
    return "done"


def _real(base: str) -> dict[str, Answers]:
    _run("mount", "-t", "tmpfs", "none", base)
    found: dict[str, Answers] = {}
    root = _place(f"{base}/busy")
    _write(f"{root}/in/item")
    _run("mount", "--bind", f"{root}/in/item", f"{root}/in/item")
    found["busy"] = answers(os, root, "item", directory=False)
    for part in ("below/in/item", "below/out", "upper", "work", "lower"):
        os.makedirs(f"{base}/{part}")
    options = f"lowerdir={base}/below,upperdir={base}/upper,workdir={base}/work,redirect_dir=off"
    if _run("mount", "-t", "overlay", "overlay", "-o", options, f"{base}/lower", check=False):
        os.mkdir(f"{base}/lower/in/other-directory")
        found["lower"] = answers(os, f"{base}/lower", "item", directory=True)
    if os.geteuid() == 0 and _can_be_a_stranger():
        for kind, directory in (("theirs", False), ("locked", True)):
            # From within: strangers need not be let into what is above.
            os.chdir(base)
            root = _place(f"./{kind}")
            item = f"{root}/in/item"
            os.mkdir(item) if directory else _write(item)
            os.chown(item, OWNER, -1)
            # Sticky for the file; the directory lies where anybody may rename.
            os.chmod(f"{root}/in", 0o777 if directory else 0o1777)
            os.chmod(f"{root}/out", 0o777)
            os.chmod(base, 0o755)
            os.seteuid(STRANGER)
            found[kind] = answers(os, root, "item", directory)
            os.seteuid(0)
    return found


def _place(root: str) -> str:
    for name in ("in", "out", "in/other-directory"):
        os.makedirs(f"{root}/{name}")
    _write(f"{root}/in/other")
    return root


def _write(path: str) -> None:
    with open(path, "w"):
        pass


def _can_be_a_stranger() -> bool:
    try:
        os.seteuid(STRANGER)
    except OSError:
        return False
    os.seteuid(0)
    return True


def _run(*command: str, check: bool = True) -> bool:
    return subprocess.run(command, check=check, capture_output=True).returncode == 0


if __name__ == "__main__":
    print(json.dumps(_real(sys.argv[1])))
