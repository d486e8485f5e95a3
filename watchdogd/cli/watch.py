"""What `run` does once a helper is begun: a watchdog, from its pipeline's file to its exit code."""

import os
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from queuedriver.cli.program import explain
from queuedriver.errors import LATER, ConfigError
from queuedriver.format import names
from queuedriver.format.settings import check_path
from queuedriver.format.units import format_count
from watchdogd.check import Findings, examine
from watchdogd.children import Children
from watchdogd.cli.arguments import checked_host, numbers_of
from watchdogd.cli.pipeline_argument import answering_file
from watchdogd.cli.progress import Progress, ends
from watchdogd.driver_ids import local_directory
from watchdogd.events import Events
from watchdogd.helper import Helper
from watchdogd.helper_messages import Brief
from watchdogd.helper_process import HelperProcess
from watchdogd.lock import only_one, refuse_another
from watchdogd.requests import Signals
from watchdogd.stage_drivers import Context
from watchdogd.stages import LAST_COMMANDS
from watchdogd.supervisor import Supervisor
from watchdogd.systemd import Notifier


def watch(
    given: str | None,
    host: str | None,
    children: Children,
    begun: HelperProcess | None,
    *,
    drivers: Sequence[str],
    drain: bool,
    until: float | None,
    quiet: bool,
) -> int:
    """Keep the drivers of a pipeline alive until told to leave; return the exit code."""
    host = checked_host(host) or socket.gethostname()
    progress = Progress(quiet=quiet, drain=drain)
    numbers = {name: n for name, n in numbers_of(drivers).items() if n is not None}
    found = _checked(given, host, numbers, drain=drain)
    pipeline = found.pipeline
    local = _own_directory(pipeline.root, host)
    for note in found.notes:
        progress.tell(note)
    with closing(progress), only_one(pipeline.root, host, local):
        refuse_another(pipeline.root, host, progress.tell)
        look = f"watchdogd status{f' {shlex.quote(given)}' if given else ''}"
        progress.tell(f"{pipeline.name} runs on {host}; {look} says how it goes")
        # Nothing of ours may hold a file system that somebody wants to unmount, or wait for it.
        os.chdir("/")
        events = Events(local, host, pipeline.directory, children, progress.hear)
        events.command = pipeline.on_event
        brief = Brief(pipeline=pipeline, host=host, local=local, drivers=numbers)
        helper = Helper(brief, children, events.say, begun=begun)
        signals = Signals()
        signals.install()
        notifier = Notifier(os.environ, os.getpid())
        context = Context(host, local, helper.view, events.say, children, until)
        watchdog = Supervisor(pipeline, context, helper, events, signals, notifier, drain=drain)
        watchdog.reload.notes = found.notes
        watchdog.watch = _onlooker(watchdog, progress, children)
        try:
            fallen = _fallen(watchdog)
        finally:
            helper.abandon()
            events.close(LAST_COMMANDS)
            signals.restore(last=True)
            progress.clear()
        if fallen is not None:
            # Who lives on is told to leave by the kernel, and ended by the warden.
            words, code = fallen
            progress.say(words)
            return code
        children.close()
        return _close(watchdog, progress)


def _own_directory(root: str, host: str) -> str:
    """Make what the watchdog keeps on this host; return its path."""
    local = local_directory(root, host)
    check_path(local)
    os.makedirs(local, mode=0o700, exist_ok=True)
    return local


def _onlooker(
    watchdog: Supervisor, progress: Progress, children: Children
) -> Callable[[Supervisor, float], None]:
    """Return what looks on at each turn; of an element of Slurm's, its attendant is kept, too."""
    pipeline, host, local = watchdog.pipeline, watchdog.context.host, watchdog.context.local
    if pipeline.slurm is None or "SLURM_JOB_ID" not in os.environ:
        return progress
    from watchdogd.slurm.attendant import AttendantChild

    attendant = AttendantChild(pipeline.file, host, local, children)

    def look_on(watchdog: Supervisor, now: float) -> None:
        attendant.start_missing(now)
        progress(watchdog, now)

    return look_on


def _checked(given: str | None, host: str, numbers: Mapping[str, int], *, drain: bool) -> Findings:
    """Read the pipeline. All that could be said later is said now, before a driver is started."""
    found = examine(answering_file(given), host, drivers=numbers).check()
    if drain and not found.pipeline.inputs:
        raise ConfigError(
            "--drain: no stage of this pipeline has a queue, for workers take what a broker deals; "
            "leave --drain out, and stop them when that broker is through"
        )
    return found


def _fallen(watchdog: Supervisor) -> tuple[str, int] | None:
    """Have a watchdog run to its end; return what to say of an error that ended it, and the exit
    code."""
    try:
        watchdog.run()
    except Exception as error:  # noqa: BLE001 - the top of the command, but `status` is to name it
        fallen = explain(error)
        watchdog.crashed(fallen[0])
        return fallen
    return None


def _went_through(watchdog: Supervisor) -> int:
    """Return how many documents have left the pipeline at its ends."""
    pipeline, view = watchdog.pipeline, watchdog.helper.view
    if watchdog.drain:
        then, now = (
            sum(one.unfinished for name, one in queues.items() if name in pipeline.inputs)
            for queues in (view.at_first, view.queues)
        )
        brought = sum(one.totals.documents for one in watchdog.stages.intakes)
        # Results may be more: a pipeline may part.
        return max(0, then + brought - now - sum(view.discarded.values()))
    return sum(stage.totals.documents for stage in ends(watchdog))


def _close(watchdog: Supervisor, progress: Progress) -> int:
    """Say the last words; return the exit code."""
    pipeline = watchdog.pipeline
    discarded = watchdog.helper.view.discarded
    where = ", ".join(pipeline.path(name) for name in pipeline.results)
    went = f"{format_count(_went_through(watchdog), 'document')} went through"
    progress.tell(f"{went}: {where}" if where else went)
    for name in pipeline.inputs if watchdog.drain else ():
        # In the queues all the time, and no document: somebody may wait for it.
        seen = watchdog.helper.view.queues.get(name)
        if seen is not None and seen.foreign:
            path = pipeline.path(name)
            verb = "is no document and was" if seen.foreign == 1 else "are no documents and were"
            files = f"{format_count(seen.foreign, 'file')} in {path} {verb} left alone"
            progress.tell(f"{files}; queuedriver status {path} says why")
    for name, count in discarded.items():
        place = os.path.join(pipeline.path(name), names.DISCARDED)
        progress.tell(f"{format_count(count, 'document')} discarded, with the reason: {place}")
    if watchdog.drain and watchdog.drain.hopeless:
        progress.say(watchdog.drain.hopeless)
        return ConfigError.exit_code
    if watchdog.drain and not watchdog.stages.done:
        progress.tell("it had to leave before everything was through; run it again for the rest")
        return LATER
    return 1 if discarded and watchdog.drain else 0
