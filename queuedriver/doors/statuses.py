"""How a document ended, as the code and the text that a worker says of it; as a command's exit
code would. Pure."""

from queuedriver.claims.outcomes import Failed, Postponed, Released, Setback
from queuedriver.errors import LATER, LATER_AFTER
from queuedriver.format.records import Failure

DONE = 0
FAILED = 1
PERMANENT = 65
# Bytes, or characters, of a text: a report is for reading.
MAX_TEXT = 8 * 1024


def setback(code: int, text: str) -> Setback:
    """Return what a code other than 0 means."""
    text = text[:MAX_TEXT] or "its worker did not say why"
    if code == LATER:
        return Postponed(LATER_AFTER, text)
    permanent = code == PERMANENT
    cause = "permanent" if permanent else "exit"
    return Failed(Failure(cause=cause, message=text, permanent=permanent, exit_code=code))


def status(how: Setback) -> tuple[int, str]:
    """Return the code and the text that say so."""
    match how:
        case Failed(failure=failure):
            code, text = PERMANENT if failure.permanent else FAILED, failure.message
        case Postponed(reason=text) | Released(reason=text):
            code = LATER
    return code, text[:MAX_TEXT]
