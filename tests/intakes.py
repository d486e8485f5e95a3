"""Intakes of a folder, turned by hand: with a clock of the test's own, and no process."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec

from queuedriver.claims.liveness import CRASHED, Observer, Roster
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.format.records import Registration
from queuedriver.intake.home import INSIDE, PRIVATE, Home
from queuedriver.intake.intake import put_together
from queuedriver.intake.options import IntakeOptions, Told
from queuedriver.intake.watcher import Watcher

SETTLE = 10.0


class Site:
    """A folder, a queue, and who takes from the one into the other. `elsewhere`: where the queue
    is, if not beside the folder."""

    def __init__(
        self, root: Path, at_end: contextlib.ExitStack, elsewhere: Path | None = None
    ) -> None:
        self.folder = root / "drops"
        self.queue = (elsewhere or root) / "queue"
        self.folder.mkdir()
        self.queue.mkdir()
        self.now = 1000.0
        self._at_end = at_end

    @property
    def home(self) -> Path:
        return self.folder / PRIVATE

    @property
    def inside(self) -> Path:
        return self.queue / INSIDE

    def drop(self, name: str, content: bytes = b"whole") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def intake(
        self, id: str = "one", salt: str = "0001", *, leases: bool = True, **given: Any
    ) -> Watcher:
        """An intake that has registered."""
        wanted = {"settle": SETTLE, "min_free": 0, **given}
        options = IntakeOptions(**wanted).check()
        folder, queue = (self._opened(path) for path in (self.folder, self.queue))
        where, name = (queue, INSIDE) if options.leaves else (folder, PRIVATE)
        directory = self._keep(where.subdirectory(name, create=True))
        intakes = self._keep(directory.subdirectory("intakes", create=True))
        roster = Roster(intakes, Observer(lambda: self.now))
        home = Home(directory, roster, names.Mint(id, salt))
        said = Registration(
            id=id,
            salt=salt,
            identity=roster.observer.me,
            inputs=(str(self.folder),),
            started_at=0.0,
            beat_at=0.0,
        )
        intakes.write_aside(f"{id}.json", msgspec.json.encode(said))
        told = Told(queue=queue.path, options=options, leases=leases, local=True)
        return put_together(folder, queue, home, told, self._at_end)

    def dies(self, id: str = "one", *, leaves: bool = False) -> None:
        """Let an intake have crashed."""
        path = (self.inside if leaves else self.home) / "intakes" / f"{id}.json"
        said = json.loads(path.read_bytes())
        path.write_text(json.dumps({**said, "last_word": CRASHED}))

    def turn(self, *intakes: Watcher, seconds: float = SETTLE, times: int = 1) -> None:
        """Let so much time pass, in steps in which each intake turns."""
        for _ in range(times):
            for _ in range(5):
                for one in intakes:
                    one.list_soon()
                    one.turn(self.now)
                self.now += seconds / 4
            self.now -= seconds / 4

    @property
    def entered(self) -> dict[str, bytes]:
        """The documents in the queue, each under its docid."""
        found = {}
        for path in self.queue.iterdir():
            if path.is_file() and path.name.endswith(".ready"):
                found[path.name.removesuffix(".ready")] = path.read_bytes()
        return found

    @property
    def left(self) -> list[str]:
        """What is in the folder, below it, too, but for what is the intake's."""
        found = (path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file())
        return sorted(str(path) for path in found if path.parts[0] != PRIVATE)

    def why(self, intake: Watcher, name: str) -> str:
        """What a file waits for."""
        return intake.files[name].waits.why

    def _opened(self, path: Path) -> Directory:
        return self._keep(Directory.open(path))

    def _keep(self, directory: Directory) -> Directory:
        self._at_end.callback(directory.close)
        return directory


def claimed(site: Site) -> list[str]:
    """The names of claims, and of what was given back."""
    return sorted(name for name in os.listdir(site.home) if names.parse(name) is not None)
