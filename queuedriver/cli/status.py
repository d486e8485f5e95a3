"""How `status` looks. What it shows is gathered by `overview`."""

from collections.abc import Iterator, Sequence

import msgspec

from queuedriver.claims.liveness import host_id
from queuedriver.cli.cells import SHARES, eta, numbers, rate, shares, told
from queuedriver.cli.render import Column, Paint, escape_name, table
from queuedriver.format.units import format_count, format_duration, format_instant, format_size
from queuedriver.operating.queue_view import DriverView, QueueView

# Always shown, also when there is nothing in them.
_USUAL = ("ready", "failed", "working", "discarded")
_UNUSUAL = ("written", "writing")
_DRIVER_COLUMNS = (
    Column("DRIVER"),
    Column("STATE"),
    *numbers("SINCE"),
    Column("AT HAND", elastic=True),
    *numbers("DONE"),
    *SHARES,
    *numbers("RATE", "MEMORY"),
)
_QUEUE_COLUMNS = (
    Column("QUEUE"),
    Column("STATE"),
    *numbers("READY", "FAILED", "LATER", "WORKING", "DISCARDED", "DRIVERS", "RATE", "ETA"),
)


def as_json(seen: QueueView) -> dict[str, object]:
    """Return one queue for programs: every field, also where it has its default."""
    plain: dict[str, object] = msgspec.to_builtins(seen)
    plain["drivers"] = [_driver_as_json(one) for one in seen.drivers]
    counts = msgspec.structs.asdict(seen.counts)
    plain |= {"next_due": counts.pop("next_due"), "counts": counts}
    plain |= {"rate": seen.rate, "eta": seen.eta}
    if seen.settings is not None:
        plain["settings"] = msgspec.to_builtins(msgspec.structs.asdict(seen.settings))
    return plain


def _driver_as_json(view: DriverView) -> dict[str, object]:
    """Return what a driver says of itself, and beside it what can be seen."""
    registration = view.registration
    said = msgspec.structs.asdict(registration) if registration is not None else {}
    seen = msgspec.structs.asdict(view) | {
        "alive": view.alive,
        "registered": registration is not None,
        "host": view.host,
        "pid": view.pid,
        "rate": view.rate,
    }
    del seen["registration"]
    plain: dict[str, object] = msgspec.to_builtins(said | seen)
    return plain


def lines(seen: Sequence[QueueView], columns: int | None, paint: Paint) -> Iterator[str]:
    """Yield one line for each of several queues, then each in full."""
    if len(seen) > 1:
        yield from _headed(table(_QUEUE_COLUMNS, [_row(one) for one in seen], columns), paint)
    for index, one in enumerate(seen):
        if index or len(seen) > 1:
            yield ""
        yield from _queue(one, columns, paint)


def _headed(rows: list[str], paint: Paint) -> Iterator[str]:
    yield paint.head(rows[0])
    yield from rows[1:]


def _row(seen: QueueView) -> tuple[str, ...]:
    counts = seen.counts
    numbers = (counts.ready, counts.failed, counts.later, counts.working + counts.written)
    return (
        escape_name(seen.queue),
        _state(seen),
        *(f"{number:,}" for number in (*numbers, counts.discarded)),
        str(len(seen.living)),
        rate(seen.rate),
        eta(seen.counts.waiting, seen.eta),
    )


def _state(seen: QueueView) -> str:
    words = [word for word, _ in seen.controls.meanings("")]
    return " ".join([*words, "TRIPPED"] if seen.tripped else words)


def _queue(seen: QueueView, columns: int | None, paint: Paint) -> Iterator[str]:
    yield paint.head(escape_name(seen.queue)) + _loud(seen, paint)
    yield "  " + _counts(seen, paint)
    yield "  " + _pace(seen)
    yield from (f"  {line}" for line in _arrangements(seen))
    yield from (f"  {line}" for line in _foreign(seen))
    yield from (f"  {line}" for line in _unmovable(seen))
    shown = [one for one in seen.drivers if one.state != "stopped" or one.at_hand]
    if shown:
        yield ""
        rows = [_driver(one, seen.at) for one in shown]
        yield from _headed(told(_DRIVER_COLUMNS, rows, columns), paint)
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
    alive = sum(1 for one in seen.drivers if one.alive)
    if not alive:
        return f"no driver is alive; {waiting} to do"
    if seen.eta is None or not seen.counts.waiting:
        return f"{waiting} to do, {format_count(alive, 'driver')} alive" + (
            f", {rate(seen.rate)} over the last minute" if seen.rate else ""
        )
    return (
        f"{waiting} to do in about {format_duration(seen.eta)}, "
        f"at {rate(seen.rate)} over the last minute"
    )


def _arrangements(seen: QueueView) -> Iterator[str]:
    """Yield what its drivers agreed on, and who feeds it."""
    if seen.trouble:
        yield f"settings: {escape_name(seen.trouble)}"
    settings = seen.settings
    if settings is not None:
        outputs = ", ".join(escape_name(path) for path in settings.outputs)
        parts = [f"to {outputs} as {escape_name(settings.publish)}" if outputs else "no outputs"]
        parts.append(format_count(settings.retries, "retry", "retries"))
        if settings.retry_delay:
            parts[-1] += f" after {format_duration(settings.retry_delay)}"
        if settings.existing == "replace":
            parts.append("replaces what is there")
        if settings.archive is not None:
            parts.append(f"inputs are kept in {escape_name(settings.archive)}")
        if settings.durable:
            parts.append("durable")
        yield "; ".join(parts)
    if seen.feeds:
        yield "fed by " + ", ".join(escape_name(path) for path in seen.feeds)


def _foreign(seen: QueueView) -> Iterator[str]:
    count = seen.counts.foreign
    if count:
        verb = "is not a queue item" if count == 1 else "are not queue items"
        yield f"{format_count(count, 'file')} {verb}:"
        yield from (f"  {escape_name(one.name)}: {escape_name(one.why)}" for one in seen.foreign)
        if count > len(seen.foreign):
            yield "  …"


def _unmovable(seen: QueueView) -> Iterator[str]:
    for one in seen.unmovable:
        yield f"no driver can claim {escape_name(one.name)}: {one.why}"


def _driver(view: DriverView, now: float) -> tuple[str, ...]:
    since = min((one.since for one in view.at_hand if one.since), default=0.0)
    counters = view.counters
    return (
        escape_name(view.id if _names_host(view) else f"{view.id} on {view.host}"),
        escape_name(view.state),
        format_duration(now - since) if since else "",
        _at_hand(view),
        f"{counters.documents:,}" if view.registration is not None else "",
        *shares(counters.work, counters.wait, counters.block, counters.overhead),
        rate(view.rate),
        "" if view.memory is None else format_size(view.memory),
    )


def _names_host(view: DriverView) -> bool:
    """Return whether the id says on which host it is, as those that are not chosen do."""
    return not view.host or view.id.startswith(host_id(view.host))


def _at_hand(view: DriverView) -> str:
    """Return the document at hand; where there is none, why."""
    if not view.at_hand:
        return escape_name(view.why)
    more = f" and {len(view.at_hand) - 1} more" if len(view.at_hand) > 1 else ""
    why = f" ({view.why})" if view.why else ""
    return escape_name(f"{view.at_hand[0].docid}{more}{why}")
