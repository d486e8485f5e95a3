"""What a page shows to be typed."""

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Text of a page that is shown as it is.
_LITERAL = re.compile(r"::\n\n((?: {4}.*\n|\n)+)")


def blocks(page: str) -> list[str]:
    """Return what a page shows as it is, each block without its indentation."""
    found = (textwrap.dedent(block) for block in _LITERAL.findall((ROOT / page).read_text()))
    return [block.strip() for block in found]
