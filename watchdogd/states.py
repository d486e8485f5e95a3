"""The states of a slot, as a table: what the watchdog does about which event. `policy.py` decides
so; the tests step each row, and docs/states.rst prints them. Data, and pure."""

from queuedriver.doors.table import Row, Table

_NONE = "nothing"
_LEAVE = "SIGTERM: it finishes the document at hand, within its grace"
_STACKS = "SIGUSR2: it shows its stacks"
_KILL = "SIGKILL, to its group"
_COUNTED = "the run is counted: 0, 0, 1, 2, 4 … 60 s until the next"
_AT_ONCE = "the next one starts at once"
_SAME = "the next one starts as if this one had not been"
_TRIAL = "a trial in 15 min"
_FS_LOST = "the file system does not answer"
_STANDS_STILL = "its limits stand still"

SLOT = Table(
    "A slot, and the driver in it",
    [
        Row("stopped", "wanted, and there is work", "", "a driver is started", "starting"),
        Row("stopped", _FS_LOST, "", "none is started", "waiting-fs"),
        Row("backoff", "its time has come", "", "a driver is started", "starting"),
        Row("backoff", _FS_LOST, "", "none is started", "waiting-fs"),
        Row("backoff", "not wanted", "", _NONE, "stopped"),
        Row("crash-looped", "its time has come", "", "a driver is started, as a trial", "starting"),
        Row("crash-looped", _FS_LOST, "", _NONE, "crash-looped"),
        Row("crash-looped", "not wanted", "", _NONE, "stopped"),
        Row("waiting-fs", "the file system answers", "", "a driver is started", "starting"),
        Row("waiting-fs", "not wanted", "", _NONE, "stopped"),
        Row("starting", "ready", "", _NONE, "ready"),
        Row("starting", "not wanted", "", _LEAVE, "draining"),
        Row("starting", "startup_timeout over", "", _STACKS, "hung"),
        Row("starting", _FS_LOST, "", _STANDS_STILL, "waiting-fs"),
        Row("ready", "a document begun", "", _NONE, "busy"),
        Row("ready", "its last word", "", _NONE, "draining"),
        Row("ready", "not wanted", "", _LEAVE, "draining"),
        Row("ready", "too much memory", "", _KILL, "hung"),
        Row("ready", _FS_LOST, "", _NONE, "waiting-fs"),
        Row("busy", "the document ended", "", _NONE, "ready"),
        Row("busy", "its last word", "", _NONE, "draining"),
        Row("busy", "not wanted", "", _LEAVE, "draining"),
        Row("busy", "hard limit over", "", _STACKS, "hung"),
        Row("busy", "too much memory", "", _KILL, "hung"),
        Row("busy", _FS_LOST, "", _STANDS_STILL, "waiting-fs"),
        Row("draining", "wanted again", "", "it goes on leaving", "draining"),
        Row("draining", "a second wish", "", "SIGTERM: it gives the document back", "draining"),
        Row("draining", "its time over", "after the first wish", _STACKS, "hung"),
        Row("draining", "its time over", "after the second wish: 5 s", _KILL, "hung"),
        Row("draining", "hard limit over", "", _STACKS, "hung"),
        Row("draining", "too much memory", "", _KILL, "hung"),
        Row("hung", "its reason gone", "after its stacks", "it is left to its work", "ready"),
        Row("hung", _FS_LOST, "after its stacks", "it is left alone", "waiting-fs"),
        Row("hung", "its time over", "after its stacks: 2 s", "SIGTERM, to its group", "hung"),
        Row("hung", "its time over", "after SIGTERM: 5 s", _KILL, "hung"),
        Row("hung", "its time over", "after SIGKILL: 10 s", "another stands in", "unkillable"),
        Row("busy", "its end", "a document finished", _AT_ONCE, "starting"),
        Row("busy", "its end", "none finished, twice in a row", _AT_ONCE, "starting"),
        Row("busy", "its end", "none finished", _COUNTED, "backoff"),
        Row("busy", "its end", "none finished, eight in a row", _TRIAL, "crash-looped"),
        Row("starting", "its end", "a start mends nothing: 78", "it is left alone", "crash-looped"),
        Row("starting", "its end", "later: 75", "it waits as long as that has lasted", "backoff"),
        Row("starting", "its end", "the file system: 74", "10 s", "waiting-fs"),
        Row("draining", "its end", "restart", _AT_ONCE, "starting"),
        Row("draining", "its end", "scale, stop", _SAME, "stopped"),
        Row("hung", "its end", "", _COUNTED, "backoff"),
        Row("unkillable", "its end", "", _COUNTED + "; who stands in leaves", "backoff"),
    ],
)
