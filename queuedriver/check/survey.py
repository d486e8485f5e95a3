"""One look at a queue, for the rules. Nothing is created or changed.

What may be a leftover is listed before what would excuse it (a plan before the claims, a report
before the documents), so that work in progress is not mistaken for one.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from queuedriver.check.discards import Discards
from queuedriver.check.facts import KEPT, Claim, Driver, Facts, Leftover, Odd, Unfinished
from queuedriver.check.feeding import feeding, orphans, strange_outputs
from queuedriver.check.items import Pass, Seen, age_of
from queuedriver.check.shelves import File, Shelves
from queuedriver.claims.attempts import ATTEMPTS, interrupted, parse
from queuedriver.claims.handoff import CLAIMS, ORPHANS
from queuedriver.claims.liveness import (
    DRIVERS,
    Observer,
    Owner,
    Registration,
    host_id,
    owner_of,
    process_ticks,
)
from queuedriver.claims.sweeping import SCRAPS
from queuedriver.disk.filesystem import Directory
from queuedriver.errors import ConfigError, is_trouble, leads_nowhere
from queuedriver.format import names
from queuedriver.format.decoding import decode
from queuedriver.format.records import Plan, Record
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import INCOMING, JOURNAL, Queue

# How `Queue.submit` names what is not in the queue yet.
_ASIDE = re.compile(r"(?P<host>[A-Za-z0-9_]+)-(?P<pid>[0-9]+)-[0-9]+-[0-9a-f]{8}")
_Record = TypeVar("_Record", Registration, Plan, Record)

# Containers may share the name of a host and not its processes: who writes on is there.
_QUIET = 60.0
# A file as young as this may still be at work for somebody who never registered.
_SETTLED = 3600.0


def survey(queue: Queue, observer: Observer, now: float) -> Facts:
    """Look once."""
    return _Look(queue, observer, now).facts()


class _Look:
    def __init__(self, queue: Queue, observer: Observer, now: float) -> None:
        self._queue = queue
        self._now = now
        self._shelves = Shelves(queue, now)
        self._settings, self._trouble = Settings(), ""
        self._known: dict[str, Owner] = {}
        self._drivers: dict[str, Driver] = {}
        if (private := self._shelves.open(names.PRIVATE)) is not None:
            self._shelves.listed(private, names.PRIVATE)
            private.close()
            self._read_settings()
            self._read_drivers(observer)

    def facts(self) -> Facts:
        missing = list(self._missing())
        plans = self._files(CLAIMS)
        attempts = self._files(ATTEMPTS)
        reports = self._interrupted()
        ages = dict(attempts)
        discards = Discards(self._shelves)
        unfinished = list(self._unfinished())
        seen = Pass(
            self._queue.directory,
            self._now,
            {file.docid for one in attempts if (file := parse(one.name))},
        ).run()
        claimed = {item.token: item.state for _, item, _ in seen.claims}
        feeds = feeding(self._queue, self._shelves)
        self._files(JOURNAL)
        controls = self._queue.controls()
        in_control = ((names.PAUSE, controls.paused), (names.QUIT, controls.quit))
        return Facts(
            damaged_registrations=tuple(self._damaged_registrations()),
            drivers=tuple(self._drivers.values()),
            claims=tuple(self._claims(seen)),
            settings=self._trouble or _lost_settings(self._settings, claimed),
            missing=tuple(missing),
            unfinished=tuple(one for token, one in unfinished if token not in claimed),
            strange_outputs=tuple(strange_outputs(seen, feeds)),
            plans=tuple(self._leftover_plans(plans, claimed)),
            damaged_plans=tuple(self._damaged_plans(plans, claimed)),
            interrupted=tuple(
                place
                for place, (name, token) in reports.items()
                if self._settled(token, ages.get(name, 0.0))
            ),
            unreported=tuple(one for one in discards.unreported() if one not in reports),
            damaged_reports=tuple(discards.damaged()),
            lone_reports=tuple(discards.lone_reports()),
            attempts=tuple(self._attempts(attempts, seen, {name for name, _ in reports.values()})),
            incoming=tuple(_incoming(self._files(INCOMING))),
            orphans=tuple(orphans(self._files(ORPHANS), feeds)),
            not_files=tuple(seen.not_files),
            unreadable=tuple(seen.unreadable),
            too_long=tuple(seen.too_long),
            impossible=tuple(seen.impossible),
            damaged_feeds=tuple(feeds.damaged),
            missing_feeds=tuple(feeds.missing),
            foreign=tuple(seen.foreign),
            foreign_count=seen.foreign_count,
            twice=tuple(seen.twice),
            overdue=seen.overdue,
            next_due=seen.next_due,
            given_up=seen.given_up,
            controls=tuple(name for name, there in in_control if there),
            closed_over=self._queue.listing(self._now).unfinished if controls.done else 0,
            wrong_types=tuple(self._shelves.wrong_types),
            elsewhere=tuple(self._shelves.elsewhere),
            scraps=(*self._shelves.scraps, *seen.scraps),
        )

    def _files(self, name: str) -> list[File]:
        return self._shelves.files(f"{names.PRIVATE}/{name}")

    # Settings, drivers, feeds

    def _read_settings(self) -> None:
        try:
            self._settings = self._queue.settings() or Settings()
        except ConfigError as error:
            self._trouble = str(error)

    def _read_drivers(self, observer: Observer) -> None:
        directory = self._shelves.open(f"{names.PRIVATE}/{DRIVERS}")
        if directory is None:
            return
        directory.close()
        self._known = self._queue.drivers(observer)
        for one in self._known.values():
            assert one.registration is not None  # noqa: S101 - a queue's drivers have registered
            beats_ago = self._now - one.registration.beat_at
            self._drivers[one.id] = Driver(one.id, one.verdict, one.host, beats_ago, one.silent)

    def _damaged_registrations(self) -> Iterator[Odd]:
        for name, _ in self._files(DRIVERS):
            if name[0] == "." or not name.endswith(".json") or name[:-5] in self._known:
                continue
            path = f"{names.PRIVATE}/{DRIVERS}/{name}"
            record = self._record(path, Registration)
            if not isinstance(record, str) and record.id == name[:-5]:
                # It has come since we looked.
                continue
            yield Odd(path, record if isinstance(record, str) else f"it is of {record.id}")

    def _record(self, path: str, kind: type[_Record]) -> _Record | str:
        """A record of ours; or why it cannot be read."""
        try:
            return decode(self._queue.directory.read(path), kind)
        except msgspec.DecodeError as error:
            return str(error)
        except OSError as error:
            if is_trouble(error):
                raise
            return error.strerror or str(error)

    # Claims, and what belongs to them

    def _claims(self, seen: Seen) -> Iterator[Claim]:
        for name, item, untouched in seen.claims:
            token = names.parse_token(item.token)
            owner = owner_of(token, self._known)
            driver = self._drivers.get(owner.id) if owner.registration is not None else None
            # A rename does not change the times of a file everywhere, but an N has its instant.
            age = min(untouched, self._now - token.claimed_at) if token.serial else untouched
            yield Claim(name, item.state, token.driver, driver, owner.verdict, age)

    def _missing(self) -> Iterator[str]:
        archive = self._settings.archive
        for path in (*self._settings.outputs, *([archive] if archive is not None else [])):
            try:
                self._open(path).close()
            except OSError as error:
                if not leads_nowhere(error):
                    raise
                yield path

    def _open(self, path: str) -> Directory:
        return Directory.open(os.path.join(self._queue.path, path))

    def _unfinished(self) -> Iterator[tuple[str, Unfinished]]:
        """What dead drivers did not finish, by the N whose claim would excuse it."""
        for path in self._settings.outputs:
            try:
                directory = self._open(path)
            except OSError as error:
                if not leads_nowhere(error):
                    raise
                continue
            try:
                for name in directory.names():
                    if name.startswith(SCRAPS):
                        self._see_scrap(directory, path, name)
                    elif ".writing" in name and (item := names.parse(name)) and item.token:
                        driver = self._dead(names.parse_token(item.token))
                        if driver is not None:
                            yield item.token, Unfinished(path, name, driver)
            finally:
                directory.close()

    def _see_scrap(self, directory: Directory, path: str, name: str) -> None:
        try:
            age = age_of(directory.inspect(name), self._now)
        except FileNotFoundError:
            return
        self._shelves.scraps.append(Leftover(f"{path}/{name}", age))

    def _dead(self, token: names.Token) -> Driver | None:
        """The driver of an N, if it registered here and is gone."""
        owner = owner_of(token, self._known)
        driver = self._drivers.get(owner.id) if owner.registration is not None else None
        return driver if driver is not None and driver.verdict != "alive" else None

    def _settled(self, token: str, age: float) -> bool:
        """Whether nobody can be at work on what belongs to this N any more."""
        owner = owner_of(names.parse_token(token), self._known)
        return age > _SETTLED if owner.registration is None else not owner.alive

    def _leftover_plans(self, plans: Iterable[File], claimed: dict[str, str]) -> Iterator[Leftover]:
        for name, age in plans:
            token = name.removesuffix(".json")
            wanted = token in claimed or not self._settled(token, age)
            yield Leftover(f"{names.PRIVATE}/{CLAIMS}/{name}", age, wanted)

    def _damaged_plans(self, plans: Iterable[File], claimed: dict[str, str]) -> Iterator[Odd]:
        for name, _ in plans:
            if claimed.get(name.removesuffix(".json")) == names.WRITTEN:
                path = f"{names.PRIVATE}/{CLAIMS}/{name}"
                record = self._record(path, Plan)
                if isinstance(record, str):
                    yield Odd(path, record)

    def _interrupted(self) -> dict[str, tuple[str, str]]:
        """The discarded documents whose reports are still in `attempts/`: under which names there,
        and by which N they were discarded."""
        shelves, path = self._shelves, f"{names.PRIVATE}/{ATTEMPTS}"
        with contextlib.ExitStack() as opened:
            found = [one for one in map(shelves.open, (path, names.DISCARDED)) if one is not None]
            for directory in found:
                opened.callback(directory.close)
            both = interrupted(*found) if len(found) == 2 else ()
            return {
                one.place: (str(file), tokens[-1] if tokens else "")
                for one, file in both
                if one.report is not None
                for tokens in [[attempt.token for attempt in one.report.attempts]]
            }

    def _attempts(
        self, attempts: Iterable[File], seen: Seen, reports: Iterable[str]
    ) -> Iterator[Leftover]:
        for name, age in attempts:
            file, path = parse(name), f"{names.PRIVATE}/{ATTEMPTS}/{name}"
            record = None if file is None else self._record(path, Record)
            ended = isinstance(record, Record) and record.discarded_at > 0
            wanted = (
                name in reports
                or (file is not None and file.docid in seen.present)
                # Not to see the document in `discarded/` proves nothing yet.
                or (ended and age <= KEPT)
            )
            yield Leftover(path, age, wanted)


def _lost_settings(settings: Settings, claimed: dict[str, str]) -> str:
    """What is committed has outputs, or it would be finished; so somebody knew where they are."""
    lost = names.WRITTEN in claimed.values() and not settings.outputs
    return "it names no outputs, and there are documents whose outputs are complete" if lost else ""


def _incoming(files: Iterable[File]) -> Iterator[Leftover]:
    """What is being submitted; not wanted is what a process of this host left when it ended."""
    here = host_id()
    for name, age in files:
        found = _ASIDE.fullmatch(name)
        gone = False
        if found is not None and found["host"] == here and age > _QUIET:
            gone = process_ticks(int(found["pid"])) is None
        yield Leftover(f"{names.PRIVATE}/{INCOMING}/{name}", age, not gone)
