"""The second stage: in which language is this? A program that learns it first, and then stays.

It speaks the protocol of docs/processors.rst and needs nothing of queuedriver: one line of JSON in,
one out. Before the first it learns from corpora/*.txt how often letters follow each other in each
language. How long the runs of letters should be, and how much weight to give to those it has never
seen, it finds out by asking itself about sentences it was not shown: a few seconds of work, and so
it is a server.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile

Sentences = dict[str, list[str]]

ORDERS = (1, 2, 3, 4, 5)
WEIGHTS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
# One line of each corpus at a time: the lines of all of them say the same, each in its language.
PARTS = 28
# With less than this a person decides.
SURE = 0.95


class Model:
    """Naive Bayes over runs of letters."""

    def __init__(self, sentences: Sentences, order: int, weight: float) -> None:
        self._order = order
        self._weight = weight
        self._counts = {
            language: Counter(run for text in texts for run in runs(text, order))
            for language, texts in sentences.items()
        }
        known = len(set().union(*self._counts.values()))
        self._totals = {
            language: math.log(counts.total() + weight * known)
            for language, counts in self._counts.items()
        }

    def guess(self, text: str) -> tuple[str, float]:
        """The likeliest language of a text, and how certain that is."""
        likely = dict.fromkeys(self._counts, 0.0)
        for run in runs(text, self._order):
            for language, counts in self._counts.items():
                likely[language] += math.log(counts[run] + self._weight) - self._totals[language]
        best = max(likely, key=lambda language: likely[language])
        return best, 1 / sum(math.exp(one - likely[best]) for one in likely.values())


def runs(text: str, order: int) -> Iterable[str]:
    """All runs of so many letters; what is no letter ends a word."""
    words = "".join(letter if letter.isalpha() else " " for letter in text.lower()).split()
    line = f" {' '.join(words)} "
    return (line[at : at + order] for at in range(len(line) - order + 1))


def right(sentences: Sentences, order: int, weight: float) -> float:
    """How sure such a model is of the right answer for sentences it did not learn from."""
    sure = 0.0
    for part in range(PARTS):
        learned = {
            language: [text for at, text in enumerate(texts) if at % PARTS != part]
            for language, texts in sentences.items()
        }
        model = Model(learned, order, weight)
        for language, texts in sentences.items():
            for text in texts[part::PARTS]:
                # The beginning has to do: letters may be short.
                guessed, certainty = model.guess(text[:25])
                sure += certainty if guessed == language else -certainty
    return sure


def learn(directory: Path) -> Model:
    sentences = {
        corpus.stem: corpus.read_text(encoding="utf-8").splitlines()
        for corpus in sorted(directory.glob("*.txt"))
    }
    tried = [(order, weight) for order in ORDERS for weight in WEIGHTS]
    order, weight = max(tried, key=lambda one: right(sentences, *one))
    print(f"runs of {order} letters, {weight} for new ones", file=sys.stderr)
    return Model(sentences, order, weight)


def answer(model: Model, question: dict[str, str]) -> dict[str, object]:
    """What came of one document: the first output queue gets it, or, by name, the other one."""
    text = Path(question["input"]).read_text(encoding="utf-8")
    language, certainty = model.guess(text)
    found = f"{language} {certainty:.3f}\n{text}"
    if certainty >= SURE:
        Path(question["output"]).write_text(found, encoding="utf-8")
        return {"ok": True}
    with NamedTemporaryFile("w", encoding="utf-8", delete=False) as file:
        file.write(found)
    return {"outputs": [{"path": file.name, "queue": "by-hand"}]}


def serve() -> None:
    model = learn(Path(__file__).parent / "corpora")
    print('{"ready": true}', flush=True)
    for line in sys.stdin:
        # Flushed, because the driver waits for this line before it sends the next.
        print(json.dumps(answer(model, json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()
