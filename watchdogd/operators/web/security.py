"""Decides who may ask, by which name and from where; tells browsers what they may do. Pure.

A page on this host is in reach of every other page that its user opens: by requests that those send
here, by names that they have lead here, by cookies, which know no ports. So nothing is answered
because of where a request comes from. docs/security.rst says whom each rule keeps out.
"""

import hmac
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from watchdogd.operators.web.page_inputs import Keys, Site

COOKIE = "queuedriver"
# Of digits that are made of a key.
_DIGITS = 32
_LOOPBACK = re.compile(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?")
# So many wrong tokens in so many seconds, and none is looked at.
_MOST_WRONG = 10
_MINUTE = 60.0

# Geometry is in attributes, since no style in the page would be obeyed.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    # With no-referrer, Chromium would send `Origin: null` with our own forms.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)


class Session(NamedTuple):
    """The rights of who asks, and the digits that their forms must bring along."""

    # read, or act; empty of a stranger.
    role: str = ""
    nonce: str = ""
    form: str = ""


def is_called(host: str, site: Site) -> bool:
    """Return whether a Host is one of ours: a name that nobody else can have lead here."""
    host = host.lower()
    return _LOOPBACK.fullmatch(host) is not None or host in map(str.lower, site.hosts)


def is_from_here(headers: Mapping[str, str], scheme: str) -> bool:
    """Return whether a form was sent by a page of ours, as far as browsers say; programs and old
    ones say nothing."""
    origin = headers.get("origin")
    own = f"{scheme}://{headers.get('host', '')}"
    return origin in (None, own) and headers.get("sec-fetch-site") in (None, "same-origin")


def is_shut(wrong_at: Sequence[float], now: float) -> bool:
    """Return whether so many tokens were wrong that none is looked at."""
    # What is to come was noted before a clock was set back.
    return sum(0 <= now - at < _MINUTE for at in wrong_at) >= _MOST_WRONG


def role_of(token: str, keys: Keys) -> str:
    """Return what the owner of a token may do; both are compared whole, in constant time."""
    given = token.encode(errors="backslashreplace")
    acts = hmac.compare_digest(given, keys.act.encode())
    reads = hmac.compare_digest(given, keys.read.encode())
    return "act" if acts else "read" if reads else ""


def prefix_of(keys: Keys) -> str:
    """Return the path below which all pages are: no cookie of ours goes anywhere else."""
    return f"/{_made(keys.read, 'prefix')[:12]}"


def cookie(role: str, keys: Keys, nonce: str) -> str:
    """Return the cookie of a new session."""
    return f"{role}.{nonce}.{_made(getattr(keys, role), f'session {nonce}')}"


def session_of(headers: Mapping[str, str], keys: Keys) -> Session:
    """Return the session of a cookie, or a program's of a token; one without a role for neither."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        # No form can send it.
        return Session(role_of(token.strip(), keys))
    # All that is open on this host sets cookies, some that no standard allows, and maybe of this
    # name: none of them may hide ours. SimpleCookie gives up at the first.
    for one in headers.get("cookie", "").split(";"):
        name, _, said = one.strip().partition("=")
        if name == COOKIE and (session := _session(said, keys)).role:
            return session
    return Session()


def _session(said: str, keys: Keys) -> Session:
    """Return the session that a cookie opens; one without a role for a cookie that is not ours."""
    role, _, rest = said.partition(".")
    nonce = rest.partition(".")[0]
    if role not in Keys._fields:
        return Session()
    right = cookie(role, keys, nonce).encode()
    if not hmac.compare_digest(said.encode(errors="backslashreplace"), right):
        return Session()
    return Session(role, nonce, _made(getattr(keys, role), f"form {nonce}"))


def brings(form: str, session: Session) -> bool:
    """Return whether a form has what its session's forms bring along."""
    given = form.encode(errors="backslashreplace")
    return bool(session.form) and hmac.compare_digest(given, session.form.encode())


def _made(key: str, text: str) -> str:
    made = hmac.digest(key.encode(), text.encode(errors="backslashreplace"), "sha256")
    return made.hex()[:_DIGITS]
