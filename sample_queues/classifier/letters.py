"""The first stage: what somebody wrote, without what their mail program put around it."""

import html
import re

from queuedriver import Document, PermanentError

_TAG = re.compile(r"<[^>]+>")
_QUOTED = re.compile(r"^>.*\n?", re.M)


def clean(document: Document) -> str:
    """The text of a letter: no headers, no markup, no quoted letters, no signature."""
    return text_of(document.read().decode(errors="replace"))


def text_of(letter: str) -> str:
    head, _, body = letter.partition("\n\n")
    if "text/html" in head:
        body = html.unescape(_TAG.sub(" ", body))
    body, _, _ = body.partition("\n-- \n")
    words = _QUOTED.sub("", f"{body}\n").split()
    if not words:
        raise PermanentError("nobody wrote anything in it: all there is was quoted, or a signature")
    return " ".join(words) + "\n"
