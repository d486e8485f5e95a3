"""A processor: how often each word occurs in a text.

queuedriver run texts --to counted --call words:count
"""

import re
from collections import Counter

from queuedriver import Document, PermanentError


def count(document: Document) -> str:
    """One line per word: how often, a tab, the word."""
    try:
        text = document.read().decode()
    except UnicodeDecodeError as error:
        # A second try would meet the same bytes, so do not ask for one.
        raise PermanentError(f"not a text: byte {error.start} is not UTF-8") from error
    counts = Counter(re.findall(r"[^\W\d_]+", text.lower()))
    return "".join(f"{times}\t{word}\n" for word, times in counts.items())
