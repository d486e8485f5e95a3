"""Says what people must know of a pipeline before they read numbers, and may type then. Pure."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from queuedriver.format.units import format_count, format_duration, format_instant
from watchdogd.operators.hosts import Chosen, SeenHost
from watchdogd.operators.view import SeenDriver, SeenStage, View

# The states in which a driver, or what one would be, needs somebody to look after it.
AMISS = ("crash-looped", "hung", "unkillable", "backoff")
_LOUD = frozenset({"paused", "quit", "backoff", "blocked", "silent"})
_BAD = frozenset({"degraded", "tripped", "waiting-fs", *AMISS, "lost", "dead"} - _LOUD)
# Of drivers that are not well for one reason, no more than this are named.
_NAMED = 5

# The words for states, and what each means; docs/states.rst has more of it.
MEANINGS: Mapping[str, str] = {
    # Of drivers.
    "starting": "the process is there and loads; it claims nothing yet",
    "ready": "it is loaded, and there is nothing to claim",
    "busy": "a document is at hand",
    "draining": "it finishes the document at hand and leaves, because it was asked to",
    "stopped": "it has no process; beside it stands why",
    "blocked": "it waits for room in what it publishes into: the stage behind does not keep up",
    "backoff": "its last runs finished nothing, and it waits for a moment before the next",
    "waiting-fs": "the file system of the queues is not well; it goes on by itself when that is",
    "crash-looped": "run after run finished nothing: read its log, mend that, and restart it",
    "hung": "it took longer than its time-out, and is ended now, with its stacks in the report",
    "unkillable": "it was killed and has not ended: it waits in the kernel, mostly for a disk",
    "dead": "its process has ended, and what it had at hand was not taken back yet",
    "lost": "it has shown no life for its lease: its host is down, or cut off",
    "silent": "it is on another host, has shown no life for a while, and may live all the same",
    # Of stages.
    "degraded": "half of its drivers are crash-looped, or what they fork from cannot be killed",
    "paused": "what is at hand is finished, and nothing is claimed before somebody resumes it",
    "tripped": "documents failed one after the other for one cause, and it has stopped itself: "
    "mend that, and resume; it tries one now and then, and goes on when that is done",
    "quit": "there is a QUIT in one of its queues: its drivers leave, and resume has them back",
    "done": "its queues were closed, and are empty",
    "late": "what it would begin would not be done before the time of its watchdog ends",
    "at work": "documents are at hand",
    "waits": "files are in its folder, and are not taken yet",
    "idle": "nothing is at hand",
    "unknown": "that cannot be known from here",
}


class Sentence(NamedTuple):
    """One sentence; what is said of a state is `bad` where the state is."""

    text: str
    bad: bool = True


def sentences_of(view: View) -> Iterator[Sentence]:
    """Yield all there is to say, the most urgent first."""
    chosen = view.chosen
    alive = chosen.hosts.alive
    if chosen.hung:
        where = f"{chosen.pipeline.file}, or what is below {chosen.pipeline.root},"
        yield Sentence(f"{where} does not answer: this is what the watchdog here says")
    for host in chosen.hosts.seen:
        yield from _absent(host, view)
    for path in chosen.hosts.unreadable:
        yield Sentence(f"what a watchdog says cannot be read: {path}")
    if chosen.hosts.state == "not running":
        yield _nobody(view)
    yield from _slurm(view)
    yield from _configuration(chosen)
    for host in alive:
        yield from _trouble(host, chosen)
    if view.controls.quit and any(host.report.state == "stopping" for host in alive):
        text = "watchdogs that were there before it leave, after the documents at hand"
        yield Sentence(f"there is a QUIT: {text}", bad=False)
    if view.controls.paused:
        resume = chosen.command("resume")
        by = next((f", {one.why}" for one in view.stages if one.state == "paused" and one.why), "")
        yield Sentence(f"PAUSED{by}: nothing is claimed in any stage before {resume}", bad=False)
    for stage in view.stages:
        yield from _stage(stage, view)
    for result in view.results:
        if result.why:
            yield Sentence(f"{result.queue} cannot be looked at: {result.why}")
    yield from _drivers(view)
    for host in alive:
        before = f"{host.report.host}: " if len(alive) > 1 else ""
        yield from (Sentence(f"{before}{note}", bad=False) for note in host.report.notes)


def as_json(view: View) -> dict[str, object]:
    """Return one look for programs, with all there is to say."""
    return {**view.as_json(), "words": [one.text for one in sentences_of(view)]}


def standing_line(host: SeenHost, now: float) -> str:
    """Return one line for each watchdog."""
    report = host.report
    at, process = format_instant(report.at), f"process {report.pid}"
    how = {
        "alive": f"{report.state} for {format_duration(now - report.started_at)}, {process}",
        "hung": f"hung since {at}, {process}",
        "stopped": f"{'crashed' if report.crash else 'stopped'} at {at}",
        "gone": f"gone after {at}",
        "silent": f"silent since {at}",
    }[host.standing]
    return f"watchdog on {report.host}: {how}"


def loudness(state: str) -> Literal["", "loud", "bad"]:
    """Return how much a state of a stage or a driver is to be seen."""
    return "bad" if state in _BAD else "loud" if state in _LOUD else ""


def again_in(driver: SeenDriver, now: float) -> str:
    """Return in how long a driver is tried again; empty where that is not a matter of time."""
    return format_duration(driver.until - now) if driver.until > now else ""


def wanted_words(stage: SeenStage, watched: bool) -> str:
    """Return how many drivers it is to have; while no watchdog says, what the files say."""
    if stage.wanted or (watched and stage.drivers):
        return str(stage.wanted)
    if stage.scaled is not None:
        return str(stage.scaled)
    return str(stage.min) if stage.min == stage.max else f"{stage.min}–{stage.max}"


# Watchdogs


def _absent(host: SeenHost, view: View) -> Iterator[Sentence]:
    """Tell of a watchdog that is not there as it should be."""
    report = host.report
    who, at = f"the watchdog on {report.host}", format_instant(report.at)
    if host.standing == "silent":
        yield Sentence(
            f"{who} is silent since {at}: its host is down, or does not reach the file system, or "
            "its clock is wrong"
        )
    elif host.standing == "hung":
        yield Sentence(
            f"{who} is there, process {report.pid}, but has said nothing since {at}: it does not "
            f"turn, or cannot write; kill -USR2 {report.pid} has it write its stacks, kill -9 "
            f"{report.pid} ends it; then {view.chosen.start}"
        )
    elif host.standing == "stopped" and report.crash:
        yield Sentence(f"{who} crashed at {at}: {_first_line(report.crash)}")
    elif host.standing == "stopped" and report.hopeless:
        yield Sentence(f"{who} left before all was through: {_first_line(report.hopeless)}")
    elif host.standing == "gone":
        yield Sentence(f"{who} ended without a word after {at}")


def _slurm(view: View) -> Iterator[Sentence]:
    """Tell what waits in Slurm, and what it said last when it does not answer."""
    if view.slurm is not None:
        from watchdogd.slurm.elements import age_words, waiting_words

        text = waiting_words(view.slurm, view.at)
        if text or (age := age_words(view.slurm, view.at)):
            words = text or f"{format_count(len(view.slurm.elements), 'element')} in Slurm{age}"
            yield Sentence(words, bad=False)


def _nobody(view: View) -> Sentence:
    """Tell that no watchdog runs, and of drivers that do all the same."""
    pipeline = view.chosen.pipeline
    start = view.chosen.start
    if pipeline.slurm is not None:
        start = f"watchdogd slurm start {shlex.quote(view.chosen.given)}"
    text = f"no watchdog runs; start it with {start}"
    if left := sum(1 for one in view.drivers if one.pid):
        text = (
            f"{format_count(left, 'driver')} {'runs' if left == 1 else 'run'} without a watchdog, "
            f"and nobody replaces one that ends: {text}"
        )
    return Sentence(text, bad=left > 0)


def _configuration(chosen: Chosen) -> Iterator[Sentence]:
    """Tell of a file that has mistakes, or that a watchdog did not take."""
    reports = [one.report for one in chosen.hosts.alive]
    for report in reports:
        if report.reload_error:
            yield Sentence(
                f"{report.host} goes on with the pipeline as it was, because the file is not "
                f"right: {_first_line(report.reload_error)}; mend it, then "
                f"{chosen.command('reload')}"
            )
    if chosen.error and not any(report.reload_error for report in reports):
        yield Sentence(f"{chosen.pipeline.file} is not what runs: {_first_line(chosen.error)}")


def _trouble(host: SeenHost, chosen: Chosen) -> Iterator[Sentence]:
    report = host.report
    if report.state == "waiting-fs" or report.trouble:
        why = f": {report.trouble}" if report.trouble else ""
        yield Sentence(
            f"{report.host} waits for the file system of {chosen.pipeline.root}{why}; no document "
            "is charged, and the work goes on by itself when that is well"
        )
    elif report.state in ("draining", "stopping"):
        leaving = f"{report.host} is {report.state}: its drivers finish what they have"
        yield Sentence(leaving, bad=False)


# Stages and drivers


def _stage(stage: SeenStage, view: View) -> Iterator[Sentence]:
    name = stage.name
    resume = view.chosen.command(f"resume {name}")
    troubled = any(one.report.trouble for one in view.chosen.hosts.alive)
    if stage.waiting is None and not view.chosen.hung and not troubled:
        for queue in stage.inputs:
            if queue not in view.items:
                why = f"{view.chosen.pipeline.path(queue)}, which is not there; is it mounted?"
                if queue in view.unseen:
                    why = f"what cannot be looked at: {view.unseen[queue]}"
                yield Sentence(f"{name} takes from {why}")
    by = f", {stage.why}" if stage.why else ""
    words = {
        "degraded": f"{name} is degraded: {stage.why or 'see its drivers'}",
        "paused": f"{name} is PAUSED{by}: nothing is claimed before {resume}",
        "tripped": f"{name} has {stage.why} (or {resume})",
        "quit": f"an input of {name} has a QUIT, so its drivers leave; before {resume} none stays",
    }.get(stage.state)
    if words and not (stage.state == "paused" and view.controls.paused):
        yield Sentence(words, bad=stage.state in _BAD)
    asked = stage.max if stage.scaled is None else stage.scaled
    if not asked and not stage.wanted and stage.state != "done":
        said, then = (
            ("has drivers = 0", "1") if stage.scaled is None else ("is scaled to 0", "auto")
        )
        scale = view.chosen.command(f"scale {name}={then}")
        yield Sentence(f"{name} {said}: nothing is done in it before {scale}", bad=False)


def _drivers(view: View) -> Iterator[Sentence]:
    """Tell of those that need somebody; several alike in one sentence."""
    alike: dict[tuple[str, str, str], list[SeenDriver]] = {}
    for one in view.drivers:
        if one.kept and one.state in AMISS:
            alike.setdefault((one.stage, one.state, one.why), []).append(one)
    several_hosts = len(view.chosen.hosts.alive) > 1
    for (stage, state, why), drivers in alike.items():
        names = [f"{one.name}@{one.host}" if several_hosts else one.name for one in drivers]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        verb = "is" if len(names) == 1 else "are"
        because = f": {_first_line(why)}" if why else ""
        which = names[0] if len(names) == 1 else stage
        soonest = again_in(min(drivers, key=lambda one: one.until), view.at)
        again = f"; tried again in {soonest}" if soonest else ""
        rest = _what_then(state, which, again, view.chosen)
        told = f"{', '.join(names[:_NAMED])}{more} {verb} {state}{because}{rest}"
        yield Sentence(told, bad=state in _BAD)


def _what_then(state: str, which: str, again: str, chosen: Chosen) -> str:
    match state:
        case "crash-looped":
            logs, restart = chosen.command(f"logs {which}"), chosen.command(f"restart {which}")
            return f"{again}; {logs} tells more; when that is mended, {restart}"
        case "unkillable":
            return "; it waits in the kernel, mostly for a file system, and ends when that answers"
        case "hung":
            return "; it is ended now, with its stacks in the document's report"
    return again


def _first_line(text: str) -> str:
    """Return the first of what may be many, and how many more."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return (lines[0] if lines else "").rstrip(".;") + more
