"""What a process and all its forks are known by, whatever group and session they go to.

The environment that a child was started with names its life, and of a driver how long its documents
may take once it is to leave. Forks keep that. Nothing is imported here that is not needed: the
warden, which reads it, waits for as long as its watchdog lives.
"""

import os

LIFE = "WATCHDOGD_LIFE"
GRACE = "WATCHDOGD_GRACE"
# Of an environment: more than this belongs to nobody of ours.
_MOST = 1 << 20


def read_environment(pid: int) -> dict[str, str]:
    """What a process was started with; nothing when it has ended, or is not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read(_MOST).split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(word).partition("=") for word in words)
    return {name: value for name, _, value in pairs}
