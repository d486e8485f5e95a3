"""The documents of the chaos, and what has to come of each, whoever is killed. Pure."""

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.crash.chaos_stages import SECOND, STAGES, first, second, third

# Where each stage takes its documents from, and where the last one publishes.
QUEUES = dict(zip(STAGES, ("input", "one", "two"), strict=True))
RESULTS = "three"
# How many of a thousand are of which kind; the others are good.
_PER_THOUSAND = {
    ("wrong", "one"): 4,
    ("wrong", "two"): 4,
    ("wrong", "three"): 4,
    ("twin", "one"): 40,
    ("none", "one"): 15,
    ("later", "one"): 10,
    ("flaky", "one"): 8,
    ("flaky", "two"): 8,
    ("flaky", "three"): 8,
    ("long", "one"): 6,
    ("long", "two"): 6,
    ("long", "three"): 6,
}
# One in so many of those that crash drivers, for each stage, and at least one.
_POISON_EVERY = 2000
# Those come early: the last ones would be tried again and again by drivers that have nothing else
# to do, and such drivers are started ever later.
_EARLY = 0.6


class Submission(NamedTuple):
    """A document, and what has to come of it."""

    docid: str
    content: bytes
    # Final names with their bytes; none for one that has no output, or is discarded.
    published: Mapping[str, bytes]
    # The queue in whose `discarded/` it ends, and the bytes that it has there; empty: nowhere.
    discarded_in: str = ""
    discarded: bytes = b""

    @property
    def is_poison(self) -> bool:
        return self.docid.startswith("poison-")


def submissions(count: int, seed: int) -> list[Submission]:
    """As many, in the order in which they are submitted."""
    dice = random.Random(f"{seed} documents")
    kinds = list(_PER_THOUSAND)
    weights = list(_PER_THOUSAND.values())
    kinds.append(("good", "any"))
    weights.append(1000 - sum(weights))
    chosen = dice.choices(kinds, weights, k=count)
    poisons = max(1, count // _POISON_EVERY)
    early = dice.sample(range(int(count * _EARLY)), poisons * len(STAGES))
    for at, place in enumerate(early):
        chosen[place] = ("poison", STAGES[at % len(STAGES)])
    return [_submission(f"{kind}-{stage}-{number}", dice)
            for number, (kind, stage) in enumerate(chosen)]  # fmt: skip


def _submission(docid: str, dice: random.Random) -> Submission:
    # Some longer than a page: half of one would be seen.
    lines = dice.choice((1, 3, 10, 200))
    content = b"".join(f"{docid} line {number}\n".encode() for number in range(lines))
    kind, stage, _ = docid.split("-")
    if kind in ("poison", "wrong"):
        queue = QUEUES[stage]
        return Submission(docid, content, {}, queue, {"input": content, "one": first(content),
                          "two": second(first(content))}[queue])  # fmt: skip
    return Submission(docid, content, dict(_published(kind, docid, content)))


def _published(kind: str, docid: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    if kind == "none":
        return
    yield f"{docid}.xml", third(second(first(content)))
    if kind == "twin":
        yield f"{docid}{SECOND}.xml", third(second(first(content[::-1])))
