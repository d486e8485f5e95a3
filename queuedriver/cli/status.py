"""`status`: what queues hold, what their drivers do, and what those agreed on. What it shows is
gathered by `overview`."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import msgspec

from queuedriver.claims.liveness import Observer, host_id
from queuedriver.cli import render
from queuedriver.cli.arguments import AS_JSON, QUEUES
from queuedriver.cli.render import SHARES, Paint, escape_name, table
from queuedriver.format.units import (
    format_count,
    format_duration,
    format_instant,
    format_rate,
    format_size,
)
from queuedriver.operating.queue import Queue
from queuedriver.operating.queue_view import DriverView, QueueView, overview

# Always shown, also when there is nothing in them.
_USUAL = ("ready", "failed", "working", "discarded")
_UNUSUAL = ("written", "writing")
_DRIVER_COLUMNS = ("DRIVER", "STATE", ">SINCE", "~AT HAND", ">DONE", *SHARES, ">RATE", ">MEMORY")


def status(queues: list[str] = QUEUES, as_json: bool = AS_JSON) -> None:
    """Count the documents in each state, and say what each driver does, and since when.

    Also: how fast it goes and when what waits will be done, whether the queue is paused or closed,
    which files are no items and why, and what its drivers agreed on.
    """
    with ExitStack() as opened:
        # All of them first: half an answer would be taken for the whole.
        found = [opened.enter_context(Queue.open(path)) for path in queues]
        observer = Observer()
        seen = [overview(queue, observer) for queue in found]
    if as_json:
        render.write_json({"queues": [_as_json(one) for one in seen]})
        return
    columns, paint = render.columns_of(sys.stdout), render.paint_for(sys.stdout)
    print("\n\n".join("\n".join(_queue(one, columns, paint)) for one in seen))


def _as_json(seen: QueueView) -> dict[str, object]:
    """Return one queue for programs: every field, also where it has its default."""
    plain: dict[str, object] = msgspec.to_builtins(seen)
    counts = msgspec.structs.asdict(seen.counts)
    plain |= {"next_due": counts.pop("next_due"), "counts": counts}
    plain |= {"rate": seen.rate, "eta": seen.eta}
    plain["drivers"] = [_driver_as_json(one) for one in seen.drivers]
    if seen.settings is not None:
        plain["settings"] = msgspec.to_builtins(msgspec.structs.asdict(seen.settings))
    return plain


def _driver_as_json(view: DriverView) -> Any:
    """Return what a driver says of itself, and beside it what can be seen."""
    seen = msgspec.structs.asdict(view)
    registration = seen.pop("registration")
    said = {} if registration is None else msgspec.structs.asdict(registration)
    looks = {name: getattr(view, name) for name in ("alive", "host", "pid", "rate")}
    return msgspec.to_builtins(said | seen | looks | {"registered": registration is not None})


def _queue(seen: QueueView, columns: int | None, paint: Paint) -> Iterator[str]:
    """Yield all of one queue, line by line."""
    yield paint.head(escape_name(seen.queue)) + _loud(seen, paint)
    for line in (_counts(seen, paint), _pace(seen), *_arrangements(seen), *_strange(seen)):
        yield f"  {line}"
    shown = [one for one in seen.drivers if one.state != "stopped" or one.at_hand]
    if shown:
        yield ""
        rows = [_driver(one, seen.at) for one in shown]
        head, *lines = table(_DRIVER_COLUMNS, rows, columns, without_empty=True)
        yield from (paint.head(head), *lines)
    if stopped := len(seen.drivers) - len(shown):
        yield f"{format_count(stopped, 'driver')} left before, as asked"


def _loud(seen: QueueView, paint: Paint) -> str:
    words = [f"{word}: {why}" for word, why in seen.controls.meanings(escape_name(seen.queue))]
    if seen.done and not seen.counts.unfinished:
        words[-1] = "closed, and drained: nothing more comes"
    elif seen.done and not seen.living:
        words.append("documents wait in a closed queue, and no driver is alive")
    if seen.tripped:
        words.append(f"TRIPPED: {escape_name(seen.tripped)}")
    return "".join(f"  {paint.loud(word)}" for word in words)


def _counts(seen: QueueView, paint: Paint) -> str:
    counts = seen.counts
    parts = [f"{state} {getattr(counts, state):,}" for state in _USUAL]
    if counts.discarded:
        parts[-1] = paint.bad(parts[-1])
    if counts.later:
        due = f"{counts.due:,} due" if counts.due else ""
        following = f"next at {format_instant(counts.next_due)}" if counts.next_due else ""
        parts.append(f"later {counts.later:,} ({', '.join(filter(None, (due, following)))})")
    parts += [f"{state} {getattr(counts, state):,}" for state in _UNUSUAL if getattr(counts, state)]
    if counts.failed_twice:
        parts.append(f"discarded by the original program {counts.failed_twice:,}")
    return "   ".join(parts)


def _pace(seen: QueueView) -> str:
    waiting = format_count(seen.counts.waiting, "document")
    pace = f"{format_rate(seen.rate)} over the last minute"
    if not seen.living:
        notice = f"; {escape_name(seen.notice)}" if seen.notice else ""
        return f"no driver is alive; {waiting} to do{notice}"
    if seen.eta is not None and seen.counts.waiting:
        return f"{waiting} to do in about {format_duration(seen.eta)}, at {pace}"
    alive = f"{waiting} to do, {format_count(len(seen.living), 'driver')} alive"
    return f"{alive}, {pace}" if seen.rate else alive


def _arrangements(seen: QueueView) -> Iterator[str]:
    """Yield what its drivers agreed on, and who feeds it."""
    if seen.trouble:
        yield f"settings: {escape_name(seen.trouble)}"
    settings = seen.settings
    if settings is not None:
        outputs = ", ".join(settings.outputs)
        again = format_count(settings.retries, "retry", "retries")
        parts = (
            f"to {outputs} as {settings.publish}" if outputs else "no outputs",
            f"{again} after {format_duration(delay)}" if (delay := settings.retry_delay) else again,
            "replaces what is there" if settings.existing == "replace" else "",
            f"inputs are kept in {settings.archive}" if settings.archive is not None else "",
            "durable" if settings.durable else "",
        )
        yield escape_name("; ".join(filter(None, parts)))
    if seen.feeds:
        yield "fed by " + ", ".join(escape_name(path) for path in seen.feeds)


def _strange(seen: QueueView) -> Iterator[str]:
    """Yield the files that are no items, and the items that nobody can claim."""
    count = seen.counts.foreign
    if count:
        verb = "is not a queue item" if count == 1 else "are not queue items"
        yield f"{format_count(count, 'file')} {verb}:"
        yield from (f"  {escape_name(one.name)}: {escape_name(one.why)}" for one in seen.foreign)
        if count > len(seen.foreign):
            yield "  …"
    for one in seen.unmovable:
        yield f"no driver can claim {escape_name(one.name)}: {one.why}"


def _driver(view: DriverView, now: float) -> tuple[str, ...]:
    since = min((one.since for one in view.at_hand if one.since), default=0.0)
    counters = view.counters
    # The ids that nobody chose say on which host a driver is.
    named = not view.host or view.id.startswith(host_id(view.host))
    return (
        escape_name(view.id if named else f"{view.id} on {view.host}"),
        escape_name(view.state),
        format_duration(now - since) if since else "",
        _at_hand(view),
        f"{counters.documents:,}" if view.registration is not None else "",
        *render.shares(counters.work, counters.wait, counters.block, counters.overhead),
        format_rate(view.rate),
        "" if view.memory is None else format_size(view.memory),
    )


def _at_hand(view: DriverView) -> str:
    """Return the document at hand; where there is none, why."""
    if not view.at_hand:
        return escape_name(view.why)
    more = f" and {len(view.at_hand) - 1} more" if len(view.at_hand) > 1 else ""
    why = f" ({view.why})" if view.why else ""
    return escape_name(f"{view.at_hand[0].docid}{more}{why}")
