"""All targets by name."""

from tests.fuzz.files import FILES
from tests.fuzz.frames import FRAMES
from tests.fuzz.memory import MEMORY
from tests.fuzz.pages import PAGES

TARGETS = {**MEMORY, **FILES, **FRAMES, **PAGES}
