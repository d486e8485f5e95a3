"""What is done to documents on a faulty file system; the docid's first word says what."""

from collections.abc import Iterator

from queuedriver.claims.document import Document, Output
from queuedriver.errors import PermanentError


def obey(document: Document) -> Iterator[Output]:
    """One output; or two, for which a plan is needed; or none, and a charge. One that was charged
    before shows it."""
    data = document.read() + b" again" * document.attempt
    word, *numbers = document.docid.split("-")
    if word == "bad":
        raise ValueError("this one never works")
    if word == "hopeless":
        raise PermanentError("no use")
    # What comes of them is not split again.
    if word == "many" and len(numbers) == 1:
        yield Output(data.upper(), docid=f"{document.docid}-a")
        yield Output(data.lower(), docid=f"{document.docid}-b")
    else:
        yield Output(data.upper())
