"""What happened to a document: the journal, and what else tells where the journal lost some."""

from queuedriver.claims.liveness import owner_of
from queuedriver.format import names
from queuedriver.format.event import Event
from queuedriver.format.records import Attempt
from queuedriver.operating.document_view import Dossier


def history(dossier: Dossier) -> list[Event]:
    """The journal's events, and what is known from elsewhere where it lost some."""
    events = list(dossier.journal.events)
    noted = {(one.token, _ends_attempt(one.event)) for one in events}
    report = dossier.report
    records = {one.token: one for one in (*dossier.attempts, *(report.attempts if report else ()))}
    for record in records.values():
        last = report is not None and record == report.attempts[-1]
        if (record.token, True) not in noted:
            events.append(_event_of(record, discarded=last))
    noted_claims = {one.token for one in events if one.event == "claimed"}
    hosts = {one.token: one.host for one in events if one.token}
    for place in dossier.places:
        if place.token and place.state != "writing":
            owner = owner_of(names.parse_token(place.token), dossier.known)
            hosts.setdefault(place.token, owner.host)
    for token, host in hosts.items():
        split = names.parse_token(token)
        # What its N tells; another program's bare number tells nothing.
        if split.serial and token not in noted_claims:
            events.append(
                Event(
                    at=split.claimed_at,
                    event="claimed",
                    docid=dossier.docid,
                    token=token,
                    host=host,
                    driver=split.driver,
                )
            )
    return sorted(events, key=lambda event: event.at)


def _ends_attempt(event: str) -> bool:
    return event in ("failed", "released", "discarded", "later", "published", "finished")


def _event_of(record: Attempt, *, discarded: bool) -> Event:
    word = "discarded" if discarded else "failed" if record.counted else "released"
    return Event(
        at=record.ended_at,
        event=word,
        docid=record.docid,
        token=record.token,
        host=record.host,
        driver=record.driver,
        attempt=record.attempt,
        seconds=record.ended_at - record.claimed_at,
        cause=record.failure.cause,
        message=record.failure.message,
    )
