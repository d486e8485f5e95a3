"""What people must know of a pipeline before they read numbers, and what to type then. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from queuedriver.format.units import format_count, format_duration, format_instant
from watchdogd.cli.seen import AMISS, SeenDriver, SeenWatchdog, View

# Of drivers that are not well for one reason, no more than this are named.
_NAMED = 5


class Words(NamedTuple):
    """One sentence; `bad` is what nothing mends by itself."""

    text: str
    bad: bool = True


class Typed(NamedTuple):
    """How commands are typed for this pipeline."""

    # watchdogd run FILE
    start: str
    # What follows each other command: " -p FILE", or nothing.
    option: str

    def command(self, words: str) -> str:
        return f"watchdogd {words}{self.option}"


def words_of(view: View, typed: Typed) -> list[Words]:
    """All there is to say, the most urgent first."""
    return [
        *_absence(view, typed),
        *_configuration(view, typed),
        *_troubles(view),
        *_pauses(view, typed),
        *_degraded(view),
        *_drivers(view, typed),
        *_notes(view),
    ]


def _absence(view: View, typed: Typed) -> Iterator[Words]:
    """Watchdogs that are not there, and drivers that are all the same."""
    for watchdog in view.watchdogs:
        since = format_instant(watchdog.at)
        if watchdog.standing == "silent":
            yield Words(
                f"the watchdog on {watchdog.host} is silent since {since}: its host is down, or "
                "does not reach the file system, or its clock is wrong"
            )
        elif watchdog.standing == "stopped" and watchdog.crash:
            why = _first_line(watchdog.crash)
            yield Words(f"the watchdog on {watchdog.host} crashed at {since}: {why}")
        elif watchdog.standing == "gone" and view.state == "running":
            yield Words(f"the watchdog on {watchdog.host} ended without a word after {since}")
    for path in view.unreadable:
        yield Words(f"what a watchdog says cannot be read: {path}")
    if view.state != "not running":
        return
    gone = [watchdog for watchdog in view.watchdogs if watchdog.standing == "gone"]
    how = "; ".join(
        f"the one on {watchdog.host} ended without a word after {format_instant(watchdog.at)}"
        for watchdog in gone
    )
    left = [one for one in view.drivers if one.pid]
    words = f"no watchdog runs{': ' + how if how else ''}; start it with {typed.start}"
    if left:
        verb = "runs" if len(left) == 1 else "run"
        words = (
            f"{format_count(len(left), 'driver')} {verb} without a watchdog, and nobody replaces "
            f"one that ends: {words}"
        )
    yield Words(words, bad=bool(gone or left))


def _configuration(view: View, typed: Typed) -> Iterator[Words]:
    reload = typed.command("reload")
    for watchdog in _alive(view):
        if watchdog.reload_error:
            yield Words(
                f"{watchdog.host} goes on with the pipeline as it was, because the file is not "
                f"right: {_first_line(watchdog.reload_error)}; mend it, then {reload}"
            )
    if view.file_error and not any(watchdog.reload_error for watchdog in _alive(view)):
        yield Words(
            f"{view.file} is not right any more, and so cannot be started again: "
            f"{_first_line(view.file_error)}"
        )


def _troubles(view: View) -> Iterator[Words]:
    for watchdog in _alive(view):
        if watchdog.state == "waiting-fs" or watchdog.trouble:
            why = f": {watchdog.trouble}" if watchdog.trouble else ""
            yield Words(
                f"{watchdog.host} waits for the file system of {view.root}{why}; no document is "
                "charged, and the work goes on by itself when that is well"
            )
        elif watchdog.state in ("draining", "stopping"):
            yield Words(
                f"{watchdog.host} is {watchdog.state}: its drivers finish what they have", bad=False
            )


def _pauses(view: View, typed: Typed) -> Iterator[Words]:
    if view.quit and view.state != "not running":
        yield Words("there is a QUIT: watchdogs leave, after the documents at hand", bad=False)
    if view.paused:
        yield Words(
            f"PAUSED: nothing is claimed in any stage before {typed.command('resume')}", bad=False
        )
        return
    for stage in view.stages:
        if stage.state == "paused":
            resume = typed.command(f"resume {stage.name}")
            yield Words(f"{stage.name} is PAUSED: nothing is claimed before {resume}", bad=False)
        elif stage.state == "tripped":
            resume = typed.command(f"resume {stage.name}")
            yield Words(f"{stage.name} has {stage.why} (or {resume})")
        elif stage.state == "quit":
            resume = typed.command(f"resume {stage.name}")
            yield Words(
                f"an input of {stage.name} has a QUIT, so its drivers leave; before {resume} none "
                "stays",
                bad=False,
            )


def _degraded(view: View) -> Iterator[Words]:
    for stage in view.stages:
        if stage.state == "degraded":
            yield Words(f"{stage.name} is degraded: {stage.why or 'see its drivers'}")


def _drivers(view: View, typed: Typed) -> Iterator[Words]:
    """Those that need somebody; several alike in one sentence."""
    alike: dict[tuple[str, str, str], list[SeenDriver]] = {}
    for one in view.drivers:
        if one.kept and one.state in AMISS:
            alike.setdefault((one.stage, one.state, one.why), []).append(one)
    several_hosts = len(list(_alive(view))) > 1
    for (stage, state, why), drivers in alike.items():
        names = [f"{one.name}@{one.host}" if several_hosts else one.name for one in drivers]
        shown = ", ".join(names[:_NAMED])
        if len(names) > _NAMED:
            shown += f" and {len(names) - _NAMED} more"
        verb = "is" if len(names) == 1 else "are"
        because = f": {_first_line(why)}" if why else ""
        which = names[0] if len(names) == 1 else stage
        rest = _what_then(state, which, min(one.until for one in drivers), view.at, typed)
        yield Words(f"{shown} {verb} {state}{because}{rest}", bad=state != "backoff")


def _what_then(state: str, which: str, until: float, now: float, typed: Typed) -> str:
    again = f"; tried again in {format_duration(until - now)}" if until > now else ""
    match state:
        case "crash-looped":
            logs, restart = typed.command(f"logs {which}"), typed.command(f"restart {which}")
            return f"{again}; {logs} tells more; when that is mended, {restart}"
        case "unkillable":
            return "; it waits in the kernel, mostly for a file system, and ends when that answers"
        case "hung":
            return "; it is ended now, with its stacks in the document's report"
    return again


def _notes(view: View) -> Iterator[Words]:
    several_hosts = len(list(_alive(view))) > 1
    for watchdog in _alive(view):
        for note in watchdog.notes:
            yield Words(f"{watchdog.host}: {note}" if several_hosts else note, bad=False)


def _alive(view: View) -> Iterator[SeenWatchdog]:
    return (watchdog for watchdog in view.watchdogs if watchdog.standing == "alive")


def _first_line(text: str) -> str:
    """The first of what may be many, and how many more."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return (lines[0] if lines else "").rstrip(".;") + more


def standing_line(watchdog: SeenWatchdog, now: float) -> str:
    """One line for each watchdog."""
    match watchdog.standing:
        case "alive":
            since = format_duration(now - watchdog.started_at)
            return (
                f"watchdog on {watchdog.host}: {watchdog.state} for {since}, process {watchdog.pid}"
            )
        case "stopped":
            how = "crashed" if watchdog.crash else "stopped"
            return f"watchdog on {watchdog.host}: {how} at {format_instant(watchdog.at)}"
        case "gone":
            return f"watchdog on {watchdog.host}: gone after {format_instant(watchdog.at)}"
    return f"watchdog on {watchdog.host}: silent since {format_instant(watchdog.at)}"
