"""From the dossier of a document to the facts of which `why` makes its sentence."""

from queuedriver.claims.liveness import Registration, Verdict, whose
from queuedriver.format import names
from queuedriver.operating import why
from queuedriver.operating.document_view import Dossier
from queuedriver.operating.queue_view import state_now


def facts(dossier: Dossier) -> why.Facts:
    """What `why` makes its sentence of."""
    place = dossier.places[0] if dossier.places else None
    state = place.state if place else "foreign" if dossier.foreign else ""
    token = names.parse_token(place.token) if place and place.token else None
    report = dossier.report
    cause, message = _last_failure(dossier, state)
    event = dossier.journal.events[-1] if dossier.journal.events else None
    live = [one for one in dossier.places if one.state in ("ready", "failed", "later", "working")]
    return why.Facts(
        docid=dossier.docid,
        queue=dossier.queue,
        now=dossier.at,
        state=state,
        attempt=place.attempt if place else 0,
        due=place.due if place else 0,
        holder=_holder(dossier, token) if token else None,
        claimed_at=token.claimed_at if token else 0.0,
        untouched_for=dossier.at - place.modified_at if place else 0.0,
        kind=place.kind if place else "",
        again=len(live) > 1,
        others=dossier.others,
        paused=dossier.controls.paused,
        quit=dossier.controls.quit,
        drivers=tuple(_as_holder(dossier, *one) for one in dossier.known.values()),
        rate=sum(one.rate for one, verdict in dossier.known.values() if verdict == "alive"),
        cause=cause,
        message=message,
        attempts=len(report.attempts) if report else 0,
        discarded_at=report.discarded_at if report else 0.0,
        reported=report is not None,
        older=tuple(one.name for one in dossier.places[1:] if one.state == "discarded"),
        foreign=dossier.foreign,
        event=event.event if event else "",
        event_at=event.at if event else 0.0,
        event_driver=event.driver if event else "",
        outputs=(event.outputs or ()) if event else (),
        renamed=(event.renamed or "") if event and event.docid == dossier.docid else "",
        found=dossier.found,
    )


def _last_failure(dossier: Dossier, state: str) -> tuple[str, str]:
    """Cause and message of what was last said against it."""
    if state == "discarded" and dossier.report is not None:
        return dossier.report.failure.cause, dossier.report.failure.message
    counted = [one for one in dossier.attempts if one.counted]
    if state == "failed" and counted:
        return counted[-1].failure.cause, counted[-1].failure.message
    events = dossier.journal.events
    if state == "failed":
        events = [one for one in events if one.event == "failed"]
    elif state == "later":
        events = [one for one in events if one.event in ("later", "failed")]
    elif state:
        return "", ""
    return (events[-1].cause or "", events[-1].message or "") if events else ("", "")


def _holder(dossier: Dossier, token: names.Token) -> why.Holder:
    registration, verdict = whose(token, dossier.known)
    if registration is None or verdict is None:
        return why.Holder(driver=token.driver, verdict="unknown")
    return _as_holder(dossier, registration, verdict)


def _as_holder(dossier: Dossier, registration: Registration, verdict: Verdict) -> why.Holder:
    them = registration.identity
    return why.Holder(
        driver=registration.id,
        host=them.host,
        verdict=verdict,
        state=state_now(registration, at_work=registration.id in dossier.at_work),
        why=registration.why,
        silent=(them.boot, them.namespace) != dossier.here
        and dossier.at - registration.beat_at > registration.lease,
    )
