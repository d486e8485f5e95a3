"""What happens in a run: a schedule is a list of interruptions, each at one step.

    switch    somebody else moves first; who sleeps has slept enough
    crash     who runs is killed, before it makes this call; a driver may be replaced, or not
    reboot    its whole host goes down, and comes back
    cut       the power fails everywhere: all restart on what the disk has kept
    pause     it stands still, until nobody else has anything to do, or until `wake`
    silence   so much time passes that leases expire
    lose      the call is carried out, and its reply is lost: it says ENOENT, or EIO
    fail      the call is not carried out: EIO, ENOSPC, ESTALE
    stale     a listing is an earlier one; a name that was looked for in vain before is still not
              to be seen, though it is there by now
    consume   somebody takes all outputs that are to be seen
    cancel    somebody cancels the jobs that are at work
    turn, replace, away
              somebody turns a symlink, or moves a directory (`outsiders.py`)
    fill      the disk is full, or nearly, for a while
    unwritten
              the disk does not take what was written and is not synced; who syncs it is told once

The same schedule gives the same run, always, and a shorter one is a simpler story.
"""

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from queuedriver.format.records import LEASE
from tests.simulation.disk import Inode, Listing
from tests.simulation.world import MOST_STEPS, Killed, Process, World

# What comes to be under one of these names is work done.
_ITEMS = (".ready", ".working", ".written", ".writing", ".failed", ".later", ".report.json")
# Whose reply may be lost with something done.
_CHANGES = frozenset(
    {"rename", "rename_noreplace", "unlink", "mkdir", "link", "fsync", "syncfs", "written"}
)
# Of these a file system that asks again may be told that nothing is there any more.
_REMOVALS = frozenset({"rename", "rename_noreplace", "unlink"})
_ERRORS = (errno.EIO, errno.ENOSPC, errno.ESTALE)
# What a story tells of, and in which words. Who only looks, or writes aside, is left out.
_TOLD = frozenset({"create", "write", "rename", "rename_noreplace", "unlink", "link", "fsync"})
_CALLS = {
    "rename_noreplace": "rename",
    "written": "close",
    "listed": "list",
    "fsync": "sync",
    "walk": "open",
}
_FAULTS = frozenset({"lose", "fail", "stale"})


class Interruption(NamedTuple):
    """At this step, or the next at which it makes sense, this happens."""

    step: int
    kind: str
    # Which one, of those that there are.
    which: int = 0


class Fault(NamedTuple):
    """What a call says that is not so. No error: a listing as it was so many changes ago."""

    note: str
    error: OSError | None
    done: bool = False
    ago: int = 0


class Happenings:
    """Lets a schedule happen to a world, and tells what did."""

    def __init__(self, world: World, schedule: Sequence[Interruption]) -> None:
        self.world = world
        # How often each kind came about.
        self.count: Counter[str] = Counter()
        # Who is there when power has come back; who replaces somebody that was killed.
        self.on_restart: Callable[[], None] = lambda: None
        self.on_killed: Callable[[Process, int], None] = lambda *_: None
        self.on_death: Callable[[Process, str], None] = lambda *_: None
        self.on_claim: Callable[[bytes], None] = lambda data: None
        # Whether what is visible is all of it.
        self.is_whole: Callable[[bytes], bool] = lambda data: data[-1:] == b">"
        # What others do, by its kind: each returns what is to be told of it.
        self.acts: Mapping[str, Callable[[int], str]] = {}
        # Who is asked at each step, and may end the run.
        self.watch: Callable[[], None] | None = None
        self.story: list[str] | None = None
        self._whole = False
        self._made_up: OSError | None = None
        self._schedule = schedule
        self._next = 0
        world.kernel.at_stop = self._at_stop
        world.disk.on_change = self._see
        world.on_leaving = self._say_how
        if any(one.kind == "cut" for one in schedule):
            world.disk.track()
        world.disk.remembers = any(one.kind == "stale" for one in schedule)
        self.look_ahead()

    def tell(self, whole: bool = False) -> None:
        """Write down what is done from here on; the whole of it, or what changes something."""
        self.story = []
        self._whole = whole
        self.look_ahead()

    @property
    def pending(self) -> bool:
        """Whether there is more to come."""
        return self._next < len(self._schedule)

    def look_ahead(self) -> None:
        """From which step on we have to be asked."""
        if self.story is not None or self.watch is not None:
            stop_at = 0
        else:
            stop_at = self._schedule[self._next].step if self.pending else MOST_STEPS
        self.world.kernel.stop_at = stop_at

    def _at_stop(self, method: Callable[..., Any], given: Any, named: Any) -> Any:
        if self.world.over:
            raise Killed
        if self.world.kernel.taken > MOST_STEPS:
            raise self.world.broken("it does not come to rest")
        if self.watch is not None:
            self.watch()
        fault = self._interrupt(method.__name__, given, named)
        return self._carry_out(method, given, named, fault)

    def _interrupt(self, call: str, given: Any, named: Any) -> Fault | None:
        """What is to happen before a call; and what is wrong with the call itself."""
        fault = None
        while self.pending:
            step, kind, which = self._schedule[self._next]
            if step > self.world.kernel.taken:
                break
            if kind in _FAULTS:
                if fault is not None or not self._makes_sense(kind, call, given, named):
                    self.world.kernel.stop_at = 0
                    return fault
                fault = self._fault(kind, call, str(*given[:1]), which)
            self._next += 1
            self.count[kind] += 1
            # Before: whoever runs next is to be stopped at the next one.
            self.look_ahead()
            if kind in self.acts:
                self._say(self.acts[kind](which))
            elif kind not in _FAULTS:
                getattr(self, f"_{kind}")(which)
        self.look_ahead()
        return fault

    def _carry_out(
        self, method: Callable[..., Any], given: Any, named: Any, fault: Fault | None
    ) -> Any:
        kernel, call = self.world.kernel, method.__name__
        error = fault.error if fault is not None else None
        self._made_up = error or self._made_up
        if fault is not None and error is not None and not fault.done:
            self._note(call, given, fault, error, None)
            raise error
        try:
            answer = method(kernel, *given, **named)
        except OSError as failure:
            self._note(call, given, fault, failure, None)
            raise
        if fault is not None and fault.ago:
            past = kernel.files[given[0]].inode.past
            answer = past[-min(fault.ago, len(past))] if past else answer
        self._note(call, given, fault, error, answer)
        if error is not None:
            if kernel.missed is not None and call.startswith("rename"):
                # Nobody here knows of the new name.
                kernel.missed.add(kernel.renamed)
            raise error
        return answer

    def made_up(self, error: OSError) -> bool:
        """Whether a call said what is not so."""
        return error is self._made_up

    # Faults

    def _makes_sense(self, kind: str, call: str, given: Any, named: Any) -> bool:
        if kind == "lose":
            return call in _CHANGES
        if kind == "fail" or call == "listed":
            return True
        looks = call == "open" and not given[1] & os.O_CREAT
        return looks and self.world.kernel.cannot_see(given[0], named.get("dir_fd"))

    def _fault(self, kind: str, call: str, name: str, which: int) -> Fault:
        if kind == "fail":
            return Fault("", _error(_ERRORS[which % len(_ERRORS)]))
        if kind == "stale":
            if call == "listed":
                return Fault("stale", None, ago=1 + which)
            return Fault("stale", _error(errno.ENOENT))
        gone = call in _REMOVALS and not which % 2
        # Whoever is told so believes that it failed; and for a file that is only written aside, it
        # is not worth a second look.
        self.count["fail"] += not gone or name.startswith(".")
        return Fault("reply lost", _error(errno.ENOENT if gone else errno.EIO), done=True)

    # Interruptions

    def _switch(self, which: int) -> None:
        world = self.world
        if others := world.others():
            world.chosen = chosen = others[which % len(others)]
            late = (chosen.wake_at or 0.0) - world.now
            # So long that a lease may expire of it.
            self.count["silence"] += late > LEASE / 4
            world.pass_time(late)
            self._say(f"{chosen.process.name} moves first")
            world.yield_()

    def die(self) -> NoReturn:
        """Who runs is killed by what it does."""
        self.count["crash"] += 1
        self._crash(1)
        raise AssertionError("the dead do not wake")

    def _crash(self, which: int) -> None:
        self._say("KILLED")
        self._kill([self.world.process], which, "crash")

    def _reboot(self, which: int) -> None:
        host = self.world.process.host
        self._say(f"HOST {host.name} GOES DOWN")
        host.reboot()
        self._kill([one for one in self.world.processes() if one.host is host], which, "reboot")

    def _kill(self, processes: Sequence[Process], which: int, kind: str) -> None:
        for process in processes:
            self.on_death(process, kind)
            self.world.kill(process)
            self.on_killed(process, which)
        self.world.yield_()

    def _cut(self, which: int) -> None:
        self._say("POWER CUT")
        world = self.world
        for process in world.processes():
            self.on_death(process, "cut")
            world.kill(process)
        for host in world.hosts.values():
            host.reboot()
        world.disk.cut(Chooser(which))
        for directory in world.disk.inodes():
            for name, inode in (directory.entries or {}).items():
                self._check_whole(name, inode)
        self.on_restart()
        world.yield_()

    def _pause(self, which: int) -> None:
        self._say("stands still")
        self.world.process.paused = True
        self.world.yield_()

    def _wake(self, which: int) -> None:
        paused = [task for task in self.world.tasks if task.process.paused]
        if paused:
            self._say("those go on that stood still")
            self.world.chosen = paused[which % len(paused)]
            self.world.wake_paused()
            self.world.yield_()

    def _silence(self, which: int) -> None:
        self._say(f"{LEASE + 20:g} s pass")
        self.world.pass_time(LEASE + 20.0)

    def _unwritten(self, which: int) -> None:
        self._say("THE DISK DOES NOT TAKE WHAT WAS WRITTEN")
        self.world.disk.lose_writes()

    # The promise that can be broken at any step

    def _see(self, directory: Inode, name: str, inode: Inode) -> None:
        if name.endswith(_ITEMS):
            self.world.done += 1
            if name.endswith(".working"):
                self.on_claim(inode.data)
            else:
                self._check_whole(name, inode)

    def _check_whole(self, name: str, inode: Inode) -> None:
        file = inode.entries is None
        if file and name.endswith(".ready") and not self.is_whole(inode.data):
            raise self.world.broken(f"half-written: {name} is visible, and has {inode.data!r}")

    # The story

    def _say(self, words: str) -> None:
        if self.story is not None:
            self.story.append(f"{self.world.process.name}: -- {words} --")

    def _say_how(self, process: Process) -> None:
        self._say(f"leaves: {getattr(process.outcome, 'word', process.outcome) or 'done'}")

    def _note(
        self, call: str, given: Any, fault: Fault | None, error: OSError | None, answer: object
    ) -> None:
        number = error.errno if error is not None else None
        if self.watch is not None:
            told = number or (tuple(answer) if isinstance(answer, Listing) else answer)
            if call == "open" and not number:
                # Nothing follows from the number of a descriptor.
                told = None
            task = self.world.task
            task.history = hash((task.history, call, told, self.world.now))
        if self.story is None:
            return
        words = [one for one in map(self._word, given) if one]
        if call == "rename_noreplace":
            old, new, here, there = words
            words = [old, new if here == there else f"{there}/{new}"]
        if call == "open" and given[1] & os.O_CREAT:
            call = "create"
        aside = bool(words) and words[0].startswith(".") and not number
        if fault is None and not self._whole and (call not in _TOLD or aside):
            return
        notes = [fault.note if fault else "", errno.errorcode[number] if number else ""]
        note = f"  ({told})" if (told := ", ".join(filter(None, notes))) else ""
        text = f"{_CALLS.get(call, call)} {' → '.join(words)}{note}"
        self.story.append(f"{self.world.process.name}: {text}")

    def _word(self, given: object) -> str:
        """A name without most of its serial; of a descriptor, the name it was opened by."""
        if isinstance(given, int) and given in self.world.kernel.files:
            given = self.world.kernel.files[given].name
        return _N.sub(r"\1-…\2", given.rpartition("/")[2]) if isinstance(given, str) else ""


class Chooser:
    """Choices made of one number: 0 picks the first of everything."""

    def __init__(self, number: int) -> None:
        self._state = number

    def __call__(self, options: int) -> int:
        if not self._state:
            return 0
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64) | 1
        return (self._state >> 33) % options


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


_N = re.compile(r"([A-Za-z0-9_-]+)-[0-9a-f]{12}([0-9a-f]{2})([0-9a-f]{4})")
