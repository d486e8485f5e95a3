"""roundrobin: clients bring, a broker deals by free slots, workers answer. The tables. Pure.

    client → broker    EXEC or TRACKEXEC: what is to be done, for whichever worker
    broker → worker    the same, and documents of a queue as TRACKEXEC DOCUMENT
    worker → broker    REGISTER, DEREGISTER, INCREMENT (one slot is free again); RESPONSE
    broker → client    a worker's RESPONSE, as it came

What has addresses on top is only passed on. A worker is dealt to as long as it has free slots, the
one that was dealt to longest ago first. RESPONSE ends a document or a request, INCREMENT frees its
slot: they come one after the other, and each says nothing of the other.
"""

from queuedriver.doors import statuses
from queuedriver.doors.table import SAME, Row, Table, ours

SLOTS = 10
# What a RESPONSE to DOCUMENT begins with, as a command's exit code would.
DONE, FAILED, PERMANENT, LATER = (
    b"%d" % code for code in (statuses.DONE, statuses.FAILED, statuses.PERMANENT, statuses.LATER)
)
# Two frames each, and a message may have 64, eight hops included.
MAX_RESULTS = 24


UNKNOWN, REGISTERED, LEAVING = "unknown", "registered", "leaving"

_ANYBODY = f"{UNKNOWN} | {REGISTERED} | {LEAVING}"
_LISTED = f"{REGISTERED} | {LEAVING}"

# What goes to somebody else than a worker, or on a way that was not given, has no row.
BROKER = Table(
    "How the broker sees a peer",
    [
        Row(UNKNOWN, "REGISTER", "", "list it with its slots; RESPONSE", REGISTERED),
        ours(UNKNOWN, "REGISTER", "no room", "say so", UNKNOWN),
        Row(_LISTED, "REGISTER", "", "set its slots, less those taken; RESPONSE", REGISTERED),
        ours(
            _LISTED,
            "REGISTER",
            "connected again",
            "the same; set back what it does not name",
            REGISTERED,
        ),
        Row(f"{UNKNOWN} | {LEAVING}", "DEREGISTER", "", "ignore", SAME),
        Row(REGISTERED, "DEREGISTER", "", "strike it off", UNKNOWN),
        ours(REGISTERED, "DEREGISTER", "in hand", "deal it nothing more", LEAVING),
        Row(UNKNOWN, "INCREMENT", "", "ignore; ask it to register", UNKNOWN),
        Row(REGISTERED, "INCREMENT", "", "one slot is free, at most all", REGISTERED),
        Row(LEAVING, "INCREMENT", "", "ignore", LEAVING),
        ours(UNKNOWN, "RESPONSE", "late", "drop; ask it to register", UNKNOWN),
        ours(_LISTED, "RESPONSE", "late", "drop", SAME),
        ours(_LISTED, "RESPONSE", "in hand", "publish or set back", SAME),
        ours(LEAVING, "RESPONSE", "last", "publish or set back; strike it off", UNKNOWN),
        Row(_ANYBODY, "PING", "", "PONG", SAME),
        ours(_ANYBODY, "PONG", "", "it is there", SAME),
        Row(_ANYBODY, "request", "", "keep; deal when it is its turn", SAME),
        Row(UNKNOWN, "pass", "to a worker", "pass it on", UNKNOWN),
        Row(_LISTED, "pass", "given", "pass it on, unchanged", SAME),
        ours(_LISTED, "pass", "answer", "keep, finish, pass it on", SAME),
        ours(LEAVING, "pass", "last", "the same; strike it off", UNKNOWN),
        ours(_LISTED, "pass", "late", "drop", SAME),
        Row(REGISTERED, "deal", "", "EXEC or TRACKEXEC; one slot is taken", REGISTERED),
        ours(_LISTED, "each second", "busy", "PING, to see whether it is there", SAME),
        ours(_LISTED, "lost", "", "charge what it had, if just one", UNKNOWN),
        ours(REGISTERED, "lost", "not sent", "the same; give back what was not sent", UNKNOWN),
    ],
)

NEW, REGISTERING, GONE = "new", "registering", "gone"

WORKER = Table(
    "How a worker sees itself",
    [
        Row(NEW, "register", "", "REGISTER", REGISTERING),
        Row(NEW, "called", "", "ignore", NEW, ours=True),
        Row(NEW, "task", "", "do it", NEW),
        Row(NEW, "task ended", "", "RESPONSE, INCREMENT", NEW),
        Row(NEW, "leave", "", "", GONE),
        Row(NEW, "leave", "in hand", "finish what is in hand", LEAVING, ours=True),
        Row(REGISTERING, "RESPONSE", "", "", REGISTERED),
        Row(REGISTERING, "register", "", "REGISTER", REGISTERING),
        Row(REGISTERING, "time-out", "", "REGISTER again", REGISTERING, ours=True),
        Row(REGISTERING, "joined", "", "REGISTER again", REGISTERING, ours=True),
        Row(REGISTERING, "called", "", "ignore: it was sent", REGISTERING, ours=True),
        Row(REGISTERING, "task", "", "do it", REGISTERING),
        Row(REGISTERING, "task ended", "", "RESPONSE, INCREMENT", REGISTERING),
        Row(REGISTERING, "deregister", "", "DEREGISTER", NEW),
        Row(REGISTERING, "leave", "", "DEREGISTER", GONE),
        Row(REGISTERING, "leave", "in hand", "DEREGISTER; finish", LEAVING, ours=True),
        Row(REGISTERED, "RESPONSE", "", "", REGISTERED),
        Row(REGISTERED, "register", "", "REGISTER, with other slots", REGISTERING),
        Row(REGISTERED, "time-out", "", "REGISTER again", REGISTERED, ours=True),
        Row(REGISTERED, "joined", "", "REGISTER, and what is in hand", REGISTERED, ours=True),
        Row(REGISTERED, "called", "", "REGISTER again", REGISTERING, ours=True),
        Row(REGISTERED, "task", "", "do it", REGISTERED),
        Row(REGISTERED, "task ended", "", "RESPONSE, INCREMENT", REGISTERED),
        Row(REGISTERED, "deregister", "", "DEREGISTER", NEW),
        Row(REGISTERED, "leave", "", "DEREGISTER", GONE),
        Row(REGISTERED, "leave", "in hand", "DEREGISTER; finish", LEAVING, ours=True),
        Row(LEAVING, "called", "", "ignore", LEAVING, ours=True),
        Row(LEAVING, "task", "", "do it: it was on its way", LEAVING, ours=True),
        Row(LEAVING, "task ended", "", "RESPONSE, INCREMENT", LEAVING, ours=True),
        Row(LEAVING, "task ended", "last", "RESPONSE, INCREMENT", GONE, ours=True),
        Row(LEAVING, "leave", "in hand", "ignore", LEAVING, ours=True),
    ],
)

SENT, WAITING, READING, ANSWERED, GIVEN_UP = "sent", "waiting", "reading", "answered", "given up"

CLIENT = Table(
    "How a client sees one request",
    [
        Row(NEW, "ask", "EXEC", "EXEC; PING, to know when it has come", SENT),
        Row(NEW, "ask", "TRACKEXEC", "TRACKEXEC", WAITING),
        Row(SENT, "PONG", "", "count it", ANSWERED),
        Row(SENT, "time-out", "", "PING again", SENT, ours=True),
        Row(SENT, "time-out", "too often", "count it as failed", GIVEN_UP, ours=True),
        Row(WAITING, "RESPONSE", "", "count it", ANSWERED),
        Row(WAITING, "RESPONSE", "more to come", "mqs_more to that worker", READING),
        Row(WAITING, "RESPONSE", "bad", "count it as failed", GIVEN_UP),
        Row(WAITING, "TRACKADDRESS", "", "wait as long again", WAITING),
        Row(WAITING, "time-out", "", "the same again, with the same id", WAITING, ours=True),
        Row(WAITING, "time-out", "too often", "count it as failed", GIVEN_UP),
        Row(READING, "RESPONSE", "", "count it", ANSWERED),
        Row(READING, "RESPONSE", "more to come", "mqs_more to that worker", READING),
        Row(READING, "RESPONSE", "bad", "mqs_more that wants no more", GIVEN_UP),
        Row(READING, "TRACKADDRESS", "", "wait as long again", READING),
        Row(READING, "time-out", "", "ongoing: it still reads", READING),
        Row(READING, "time-out", "too often", "count it as failed", GIVEN_UP),
    ],
)
