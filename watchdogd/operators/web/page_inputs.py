"""Names all that pages are drawn from: the last look, the site, the answer to a question."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from watchdogd.operators.batches import Batch
from watchdogd.operators.history import Moment
from watchdogd.operators.view import SeenDriver, View

# Seconds after which what is shown is called old.
OLD = 15.0
# Drivers in one part of an answer.
_PART = 200
# Of more documents than so many their number is to be typed.
_MANY = 100


class Question(NamedTuple):
    """Something that the process that looks is asked; `words` are the arguments of its function."""

    pipeline: str
    kind: str
    words: Mapping[str, Any] = {}


class Answer(NamedTuple):
    """The answer to a question: a value, or why there is none."""

    value: Any = None
    error: str = ""
    # 503 where the file system does not answer, 404 for what is not there.
    status: int = 200


class Past(NamedTuple):
    """The last two days of a stage, as far as anybody wrote them down."""

    until: float
    moments: list[Moment]


class Listed(NamedTuple):
    """Documents that would be tried again: a batch of the first of them, and how many they are."""

    batch: Batch
    total: int

    @property
    def asks(self) -> bool:
        """Return whether their number is to be typed."""
        return self.total > _MANY


class Seen(NamedTuple):
    """One look at a pipeline."""

    # Without what watchdogs say of drivers and stages, which is in it already.
    view: View
    # How the rate of each stage went.
    trends: Mapping[str, Sequence[float | None]]
    # Seconds that it took.
    took: float


def parts_of(answer: Answer) -> Iterator[Answer | tuple[SeenDriver, ...]]:
    """Yield an answer in parts, before it the drivers that a look has seen: who takes thousands at
    once needs several times the memory for that."""
    if isinstance(seen := answer.value, Seen):
        drivers = seen.view.drivers
        yield from (drivers[at : at + _PART] for at in range(0, len(drivers), _PART))
        answer = with_drivers(answer, ())
    yield answer


def with_drivers(answer: Answer, drivers: Iterable[SeenDriver]) -> Answer:
    """Return an answer with the drivers that came before it, if it is that of a look."""
    if not isinstance(seen := answer.value, Seen):
        return answer
    view = msgspec.structs.replace(seen.view, drivers=tuple(drivers))
    return answer._replace(value=seen._replace(view=view))


class Snapshot(NamedTuple):
    """The last look at a pipeline that brought anything, and the last error."""

    seen: Seen | None = None
    # The view whose queues answered last; that of `seen` where they do now.
    full: View | None = None
    # Why the latest look failed.
    error: str = ""
    # Seconds since `full` was seen, by a clock that nobody sets.
    age: float = 0.0

    def after(self, answer: Answer) -> "Snapshot":
        """Return what is known after another look."""
        if not isinstance(answer.value, Seen):
            return self._replace(error=answer.error)
        view = answer.value.view
        return Snapshot(answer.value, self.full if view.chosen.hung and self.full else view)


class Keys(NamedTuple):
    """The two tokens: whoever has the second may act, too."""

    read: str
    act: str


class Site(NamedTuple):
    """The settings of a server: they do not change."""

    keys: Keys
    # All addresses begin with it.
    prefix: str
    # What the page may be called besides localhost, with its port.
    hosts: tuple[str, ...] = ()
    # Whether there are buttons.
    acts: bool = False
    # Whether a proxy speaks with browsers for the port.
    behind_proxy: bool = False


class Facts(NamedTuple):
    """All that an answer is made of."""

    site: Site
    pipelines: Mapping[str, Snapshot]
    # Fresh digits that nobody can guess.
    nonce: str
    # When wrong tokens came from whoever asks, in the same seconds as now.
    wrong_at: tuple[float, ...] = ()
    # What the question brought that an earlier answer to this request asked.
    answer: Answer | None = None
