"""`scale`, `pause`, `resume`, `restart`, `reload`, `stop`: ask something of the watchdogs.

Each makes files below `<root>/.watchdogd/`, or takes them away, and the watchdogs of all hosts
obey; docs/control-files.rst has the same moves for a shell.
"""

import time
from collections.abc import Callable, Iterable
from typing import Literal

from queuedriver.cli.arguments import YES, confirm
from queuedriver.cli.program import say
from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import LATER, ConfigError, QueueError
from queuedriver.format.units import format_count, format_duration
from watchdogd.cli.arguments import PIPELINE_FILE, numbers_of
from watchdogd.cli.pipeline_argument import check_host, choose, stage_named, targets
from watchdogd.operators import actions
from watchdogd.operators.actions import Asked
from watchdogd.operators.hosts import Chosen, Hosts, SeenHost, read_hosts

# How often one looks whether what was asked has been done.
_LOOK_EVERY = 0.2

# Seconds after which a request is looked at and an answer has come, however long a look at the
# queues takes; and the same with what a reload loads anew.
_HEARD_AFTER = 60.0
_READ_TAKES = 120.0

_STAGES = argument("[STAGE]...", "Only these; else the pipeline.")
_HOST = option("HOST", "Only on this host; else on each.")


class TooLong(QueueError):
    """What was asked is not done after all the time that it may take."""

    exit_code = LATER


def scale(
    numbers: list[str] = argument("STAGE=N...", "How many drivers; auto: as the file says."),
    host: str | None = _HOST,
    yes: bool = YES,
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Say how many drivers stages have, on each host or on one.

    It holds until it is said otherwise: STAGE=auto goes back to what the pipeline's file says.
    Surplus drivers leave after the documents at hand. More than 16 for each processor need --yes,
    or an answer on a terminal.
    """
    chosen = choose(pipeline)
    wanted = numbers_of(numbers)
    for name in wanted:
        stage_named(chosen, name)
    if host is not None:
        check_host(chosen, host)
    asked = [Asked("scale", name, host=host or "", number=one) for name, one in wanted.items()]
    if very_many := actions.many_drivers(chosen, asked):
        confirm(very_many, yes)
    _say(actions.carry_out(chosen, asked, actions.operator()))


def pause(stage: list[str] | None = _STAGES, pipeline: str | None = PIPELINE_FILE) -> None:
    """Let the drivers of a stage, or of all stages, claim nothing new.

    They finish the documents at hand, and wait until `resume`.
    """
    _ask_of_stages("pause", stage, pipeline)


def resume(stage: list[str] | None = _STAGES, pipeline: str | None = PIPELINE_FILE) -> None:
    """Undo `pause`.

    A stage that was paused by itself is resumed by itself, and so is one that has stopped itself.
    That also undoes `queuedriver quit` on the queues that it takes from.
    """
    _ask_of_stages("resume", stage, pipeline)


def restart(
    what: list[str] | None = argument(
        "[STAGE|DRIVER]...", "A stage, or a driver as in parse-2; else all."
    ),
    host: str | None = _HOST,
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Start drivers anew, those of a stage one after the other.

    Each finishes the document at hand. One that has crash-looped is tried again.
    """
    chosen = choose(pipeline)
    if host is not None:
        check_host(chosen, host)
    meant = [
        Asked("restart", one.stage.name, one.driver, one.host)
        for one in targets(chosen, what or (), host)
    ]
    asked = meant or [Asked("restart", host=host or "")]
    _say(actions.carry_out(chosen, asked, actions.operator()))


def reload(
    wait: bool = flag("Until all have; exit code 78: one refused."),
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Let the watchdogs read the pipeline's file again.

    Only what has changed is touched, one driver after the other. A file with mistakes changes
    nothing: they go on as before, and `status` says so.
    """
    chosen = choose(pipeline)
    if chosen.error:
        raise ConfigError(f"nothing is reloaded: {chosen.error}")
    request, told = actions.reload(chosen, actions.operator())
    _say(told)
    if not wait:
        return
    hosts = _wait(
        chosen, lambda one: request.serial not in one.report.served, "read the file", _READ_TAKES
    )
    refused = [one.report for one in hosts.alive if one.report.reload_error]
    if refused:
        words = (f"{one.host} goes on as before: {one.reload_error}" for one in refused)
        raise ConfigError("\n".join(words))


def stop(
    now: bool = flag("Give the documents at hand back, uncounted."),
    wait: bool = flag("Until they have left."),
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Let the watchdogs of all hosts leave, with their drivers.

    Drivers finish the documents at hand, for at most their stage's grace. On one host alone:
    send its watchdog TERM.
    """
    chosen = choose(pipeline)
    before = {one.report.identity for one in chosen.hosts.alive}
    _say(actions.stop(chosen, actions.operator(), now=now))
    if wait:
        from watchdogd.stages import leaving_takes

        takes = leaving_takes(chosen.pipeline.stages) + _HEARD_AFTER
        _wait(chosen, lambda one: one.report.identity in before, "leave", takes)


def _ask_of_stages(
    do: Literal["pause", "resume"], names: list[str] | None, pipeline: str | None
) -> None:
    """Ask it of some stages, or of the pipeline."""
    chosen = choose(pipeline)
    asked = [Asked(do, stage_named(chosen, name).name) for name in names or ()]
    _say(actions.carry_out(chosen, asked or [Asked(do)], actions.operator()))


def _say(told: Iterable[str]) -> None:
    for words in dict.fromkeys(told):
        say(words)


def _wait(chosen: Chosen, left: Callable[[SeenHost], bool], to: str, takes: float) -> Hosts:
    """Wait until nobody who lives is left to do it; return what all say then. TooLong after so many
    seconds."""
    ends_at = time.monotonic() + takes
    said = False
    while True:
        hosts = read_hosts(chosen.pipeline.root)
        remaining = [one.report.host for one in hosts.alive if left(one)]
        if not remaining:
            return hosts
        if time.monotonic() >= ends_at:
            status = chosen.command("status")
            within = format_duration(takes)
            raise TooLong(f"{', '.join(remaining)} did not {to} within {within}; see {status}")
        if not said:
            say(f"waiting for {format_count(len(remaining), 'watchdog')} to {to}")
            said = True
        time.sleep(_LOOK_EVERY)
