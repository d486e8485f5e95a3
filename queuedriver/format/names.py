"""How an item's file name is formed and parsed; the usual ones elsewhere, too, for speed.

    <docid>.ready                          waiting, never tried
    <docid>.failed[K]                      failed K times (the first has no digit); waiting again
    <docid>[.failed[K]].<N>.working        claimed by N
    <docid>[.failed[K]].<N>.written        claimed by N, outputs complete and being published
    <docid>[.failed[K]].<due>.later        not before <due>, hex seconds since the epoch
    <docid>.<N>.writing[.<ext>]            an output that N has not finished
    <docid>.failed_twice                   given up by the original program, contents gone

N is `<driver id>-<14 hex><4 hex>`: microseconds since the epoch, and a salt drawn at each start. It
is never used twice, so a name with an N is a fencing token. A bare number is an N of other
programs. Names are parsed from the right, and no docid may look like a name of the table, so
each name has one meaning. What has none is foreign, and nobody's business.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from queuedriver.errors import BadArgument, BadDocid

if TYPE_CHECKING:
    from queuedriver.disk.filesystem import Directory

READY = "ready"
FAILED = "failed"
WORKING = "working"
WRITTEN = "written"
WRITING = "writing"
LATER = "later"
FAILED_TWICE = "failed_twice"
# The states of documents that nobody has claimed.
WAITING = (READY, FAILED, LATER)
STATES = (READY, FAILED, WORKING, WRITTEN, WRITING, LATER, FAILED_TWICE)

DONE = "done"
PAUSE = "PAUSE"
QUIT = "QUIT"
CONTROLS = frozenset({DONE, PAUSE, QUIT})
PRIVATE = ".queuedriver"
# In there: the stage has stopped itself.
BREAKER = "breaker.json"
# What whoever starts its drivers wants those told who submit, or ask why something waits.
NOTICE = "notice"
DISCARDED = "discarded"
REPORT = ".report.json"
# Inside `.queuedriver/`: documents that are being submitted, and what happened to which.
INCOMING = "incoming"
JOURNAL = "journal"
# A claim made for an operator's command, not by a driver.
OPERATOR = "operator"
# Under which name an output is published, unless a stage says otherwise.
DEFAULT_PUBLISH = "{docid}.ready"

# 160 leaves room in a 255-byte name for `.failedNN`, N, a `~serial` and the longest extension.
MAX_DOCID = 160
MAX_DRIVER_ID = 32
# `.failed99` is the last attempt a name has room for.
MAX_RETRIES = 99

_DRIVER = r"[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)*"
# 51 bytes are the longest driver id, a dash and 18 digits; a number of 20 counts nanoseconds.
_TOKEN = rf"(?:(?![^.]{{52}}){_DRIVER}-[0-9a-f]{{18}}|[0-9]{{1,20}})"
_ATTEMPT = r"(?:\.failed([2-9]|[1-9][0-9])?)"
_CLAIMED = re.compile(
    rf"(?s)(?P<docid>.+?)(?P<failed>{_ATTEMPT})?\.(?P<token>{_TOKEN})\.(?P<state>working|written)"
)
_WRITING = re.compile(
    rf"(?s)(?P<docid>.+)\.(?P<token>{_TOKEN})\.writing(?:\.(?P<ext>[A-Za-z0-9]{{1,12}}))?"
)
_LATER = re.compile(rf"(?s)(?P<docid>.+?)(?P<failed>{_ATTEMPT})?\.(?P<due>[0-9a-f]{{1,16}})\.later")
_FAILED = re.compile(rf"(?s)(?P<docid>.+?){_ATTEMPT}")
# Docids as nearly all are: nothing in them could mean anything else, and no closer look is needed.
_PLAIN = (
    r"(?!done|PAUSE|QUIT)[A-Za-z0-9_-]+"
    r"(?:\.(?!ready|failed|working|writ|later|report)[A-Za-z0-9_-]+)*"
)
_plain = re.compile(_PLAIN).fullmatch
# Whether a name is that of an item that waits and was never tried, and needs no closer look.
is_plain = re.compile(rf"(?!.{{{MAX_DOCID + 1}}}){_PLAIN}\.ready").fullmatch
_SPLIT_TOKEN = re.compile(
    rf"(?![^.]{{52}})(?P<driver>{_DRIVER})-(?P<serial>[0-9a-f]{{14}})(?P<salt>[0-9a-f]{{4}})"
)
# What follows the serial in a second docid, so that `*.json.gz` finds it, too.
_EXTENSIONS = re.compile(r"(?:\.[A-Za-z0-9]{1,12}){0,2}\Z")
# No shorter number: `page~1` and `page~2` are docids of their own.
_SECOND = re.compile(
    rf"(?s)(?P<docid>.+)~(?:[0-9a-f]{{18}}|[0-9]{{19,20}})(?P<ext>{_EXTENSIONS.pattern})"
)
# How many names are tried for an item whose own is taken. Serials are unique, bare numbers are not.
_MOST_SECONDS = 1000
_EXT = re.compile(r"[A-Za-z0-9]{1,12}")
_STATE_WORD = re.compile(r"ready|failed(?:[2-9]|[1-9][0-9])?|working|written|writing|later")


class Item(NamedTuple):
    """One name of a queue: whose document, in which state."""

    docid: str
    state: str
    attempt: int = 0
    token: str = ""
    due: int = 0
    ext: str = ""

    @property
    def claimed(self) -> bool:
        """Return whether a driver has it in hand."""
        return self.state in (WORKING, WRITTEN)

    def waits(self, now: float) -> bool:
        """Return whether it may be tried. `now` is in seconds since the epoch."""
        return self.state in (READY, FAILED) or (self.state == LATER and self.due <= now)


class Token(NamedTuple):
    """An N taken apart. Another program's bare number has neither serial nor salt."""

    driver: str
    serial: int
    salt: str

    @property
    def claimed_at(self) -> float:
        """Return when the name was formed, seconds since the epoch on the claimer's clock."""
        return self.serial / 1e6


class Mint:
    """Forms the N of one driver: each later than the one before, none twice."""

    def __init__(self, driver: str, salt: str) -> None:
        self.driver = driver
        self.last = 0
        self.renew(salt)

    def renew(self, salt: str) -> None:
        """Begin another life of the driver: no N of it is one of the life before."""
        self.salt = salt
        # From a serial to its N, in one call.
        self.form = token_form(self.driver, salt)

    def next(self, now_us: int) -> str:
        """Return a new N that tells the time. The clock may step back; the serial does not."""
        if now_us <= self.last:
            now_us = self.last + 1
        self.last = now_us
        return self.form(now_us)


def life_name(driver: str, salt: str) -> str:
    """Return what tells one life of a driver id from all others: what a driver's commands carry in
    their environment, too."""
    return f"{driver}-{salt}"


def token_form(driver: str, salt: str) -> Callable[[int], str]:
    """Return what makes an N of a serial."""
    return f"{driver}-{{:014x}}{salt}".format


def waiting_name(docid: str, attempt: int) -> str:
    """Return `<docid>.ready`, `.failed`, `.failed2`, …"""
    return f"{docid}{_suffix(attempt)}" if attempt else f"{docid}.ready"


def working_name(docid: str, attempt: int, token: str) -> str:
    """Return `<docid>[.failed].<N>.working`."""
    return f"{docid}{_suffix(attempt)}.{token}.working" if attempt else f"{docid}.{token}.working"


def written_name(docid: str, attempt: int, token: str) -> str:
    """Return `<docid>[.failed].<N>.written`."""
    return f"{docid}{_suffix(attempt)}.{token}.written" if attempt else f"{docid}.{token}.written"


def later_name(docid: str, attempt: int, due: int) -> str:
    """Return `<docid>[.failed].<due>.later`."""
    return f"{docid}{_suffix(attempt)}.{due:x}.later"


def writing_name(docid: str, token: str, ext: str = "") -> str:
    """Return `<docid>.<N>.writing[.<ext>]`."""
    return f"{docid}.{token}.writing.{ext}" if ext else f"{docid}.{token}.writing"


def second_docid(docid: str, token: str, more: int = 0) -> str:
    """Return the docid under which the second of two equal ones is kept: `<docid>~<serial of N>`,
    with the extension at the end."""
    again = _SECOND.fullmatch(docid)
    first = again["docid"] + again["ext"] if again else docid
    # Nothing stands before the dot of a name that is all extension.
    found = _EXTENSIONS.search(first, 1)
    stem = first[: found.start()] if found else first
    serial = token.rpartition("-")[2].zfill(18)
    if more:
        serial = f"{(int(serial, 16) + more) % 16**18:018x}"
    return f"{stem}~{serial}{first[len(stem) :]}"


def names_to_try(final: str, token: str) -> Iterator[str]:
    """Yield the names under which a file goes on, until one is found that is not taken: both are
    kept. What follows the docid, be it a state, stays where it is."""
    base = final
    item = _match(final)
    if item is not None and item.state in WAITING:
        base = item.docid
    yield final
    for more in range(_MOST_SECONDS):
        yield second_docid(base, token, more) + final[len(base) :]


def first_docid(docid: str) -> str:
    """Return the docid that a second one was made of; any other is its own."""
    again = _SECOND.fullmatch(docid)
    return again["docid"] + again["ext"] if again else docid


def _suffix(attempt: int) -> str:
    if attempt <= 1:
        return ".failed" if attempt else ""
    return f".failed{attempt}"


def parse(name: str) -> Item | None:
    """Return what a file name says; None when it is foreign."""
    item = _match(name)
    return item if item is not None and objection(item.docid) is None else None


def _match(name: str) -> Item | None:
    """Return the row of the table that a name has the shape of, whatever its docid."""
    if name.endswith(".ready"):
        return Item(name[:-6], READY) if len(name) > 6 else None
    if name.endswith((".working", ".written")):
        if found := _CLAIMED.fullmatch(name):
            return Item(found["docid"], found["state"], _attempt(found["failed"]), found["token"])
    elif name.endswith(".later"):
        if found := _LATER.fullmatch(name):
            due = int(found["due"], 16)
            # One way only to write an instant, or two names would be one item.
            if f"{due:x}" == found["due"]:
                return Item(found["docid"], LATER, _attempt(found["failed"]), due=due)
    elif name.endswith(".failed_twice"):
        return Item(name[:-13], FAILED_TWICE) if len(name) > 13 else None
    elif found := _FAILED.fullmatch(name):
        return Item(found["docid"], FAILED, _attempt(name[len(found["docid"]) :]))
    if ".writing" in name and (found := _WRITING.fullmatch(name)):
        ext = found["ext"] or ""
        if not _STATE_WORD.fullmatch(ext):
            return Item(found["docid"], WRITING, token=found["token"], ext=ext)
    return None


def _attempt(suffix: str | None) -> int:
    return 0 if not suffix else int(suffix[7:] or 1)


def walk(directory: "Directory") -> Iterator[tuple[str, Item | None]]:
    """Yield each name of a directory with what it says; None when it is foreign."""
    for name in directory.names():
        yield name, Item(name[:-6], READY) if is_plain(name) else parse(name)


def items(directory: "Directory") -> Iterator[tuple[str, Item]]:
    """Yield each item of a directory with its name."""
    for name, item in walk(directory):
        if item is not None:
            yield name, item


def claims(listed: Iterable[str]) -> Iterator[tuple[str, Item]]:
    """Yield each claim among these names with what it says: of many that wait they are few."""
    for name in listed:
        if name.endswith((".working", ".written")):
            item = parse(name)
            if item is not None and item.claimed:
                yield name, item


def is_reserved(name: str) -> bool:
    """Return whether a name in a queue is the queue's own: no item, and not foreign either."""
    return name[0] == "." or name in CONTROLS or name == DISCARDED


def objection(docid: str) -> str | None:
    """Return why a string may not be a docid; None when it may."""
    if len(docid) <= MAX_DOCID and _plain(docid) is not None:
        return None
    if not docid:
        return "it is empty"
    if docid[0] == ".":
        return "it starts with a dot"
    try:
        length = len(docid.encode())
    except UnicodeEncodeError:
        return "it is not valid UTF-8"
    if length > MAX_DOCID:
        again = _SECOND.fullmatch(docid)
        length = len((again["docid"] + again["ext"]).encode()) if again else length
        if length > MAX_DOCID:
            return f"it is {length} bytes long, more than {MAX_DOCID}"
    if "/" in docid or "\0" in docid:
        return "it has a '/' or a NUL in it"
    # Everything below needs a dot or is one of three words.
    if "." not in docid:
        return "it is the name of a control file" if docid in CONTROLS else None
    if _match(docid) is not None:
        return "it looks like an item in a state"
    if docid.endswith(REPORT):
        return f"it ends in {REPORT}"
    return None


def why_foreign(name: str) -> str:
    """Return why a file of this name is no item, and what would make it one."""
    if (item := _match(name)) is not None:
        return f"what stands before its state cannot be a docid: {objection(item.docid)}"
    if (reason := objection(name)) is not None:
        return f"it cannot be submitted under this name: {reason}"
    return f"rename it to {name + '.ready'!r} to submit it"


def looks_like_item(name: str) -> bool:
    """Return whether a foreign name has an item's shape, so that somebody may wait for it."""
    return _match(name) is not None


def check_docid(docid: str) -> str:
    """Return the docid itself, or raise BadDocid."""
    if (reason := objection(docid)) is not None:
        raise BadDocid(docid, reason)
    return docid


def check_driver_id(driver: str) -> str:
    """Return the driver id itself, or raise BadArgument."""
    if not re.fullmatch(_DRIVER, driver) or len(driver) > MAX_DRIVER_ID:
        raise BadArgument(
            f"{driver!r} cannot be a driver id: letters, digits and '_', with single '-' "
            f"between them, {MAX_DRIVER_ID} bytes at most"
        )
    return driver


def check_ext(ext: str) -> str:
    """Return the extension of an unfinished output, or raise BadArgument."""
    if not _EXT.fullmatch(ext) or _STATE_WORD.fullmatch(ext):
        raise BadArgument(
            f"{ext!r} cannot be an extension: 1 to 12 letters or digits, and not a state's word"
        )
    return ext


def is_token(token: str) -> bool:
    """Tell whether a string can be an N."""
    return re.fullmatch(_TOKEN, token) is not None


def parse_token(token: str) -> Token:
    """Return an N taken apart."""
    if found := _SPLIT_TOKEN.fullmatch(token):
        return Token(found["driver"], int(found["serial"], 16), found["salt"])
    return Token(token, 0, "")
