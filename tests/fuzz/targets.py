"""All targets by name."""

from tests.fuzz.files import FILES
from tests.fuzz.memory import MEMORY

TARGETS = {**MEMORY, **FILES}
