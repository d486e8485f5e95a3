"""Where the drivers of one stage come from: each from a process that begins anew, or all as forks
of one that has loaded what they share (`preload`)."""

import os
import sys
from typing import NamedTuple

from queuedriver.driving.live_status import Board
from watchdogd.children import GRACE, Child, Children
from watchdogd.launch import code_of
from watchdogd.logs import open_log
from watchdogd.orders import Order, encode, keep
from watchdogd.pipeline.model import Pipeline, Stage
from watchdogd.preload import Load
from watchdogd.template import Failed, Ready, Refused, Spawned, Template

# For what was loaded to clean up, once nobody needs it any more; and to end when it was killed.
_LEAVING_TAKES = 10.0
_KILL_TAKES = 10.0


class Born(NamedTuple):
    """A driver runs in this slot."""

    name: str
    process: Child
    board: Board


class Stillborn(NamedTuple):
    """There is none, and why."""

    name: str
    why: str
    exit_code: int


class Nursery:
    """Starts the drivers of one stage. Nothing here waits."""

    def __init__(self, stage: Stage, pipeline: Pipeline, local: str, children: Children) -> None:
        self.stage = stage
        self._children = children
        # Bytes that all its drivers share.
        self.shared_memory = 0
        # What a user had better know of what is loaded.
        self.note = ""
        self._pipeline = pipeline
        self._local = local
        self._boards: dict[str, Board] = {}
        self._template: Template | None = None
        self._ends_at = 0.0
        # Told to leave, and not gone yet; and when each is ended.
        self._former: list[tuple[Template, float]] = []
        self._looked_at = 0.0
        # The request by which what is loaded was loaded anew.
        self._restart = ""

    # What it watches

    @property
    def fds(self) -> list[int]:
        """When one of these is readable, `receive` has something to do."""
        return [fd for template in self._templates for fd in template.fds]

    @property
    def settled(self) -> bool:
        """Whether nothing is loaded any more, but for what not even SIGKILL ends."""
        return self._template is None and all(
            self._looked_at >= ends_at + _KILL_TAKES for _, ends_at in self._former
        )

    def due_at(self, now: float) -> float | None:
        """When something will have taken too long to load, or to leave."""
        due = [ends_at for _, ends_at in self._former]
        if self._template is not None and self._template.state == "loading":
            due.append(self._ends_at)
        # What was ended, and is not gone yet, will be heard of.
        return min((at for at in due if at > now), default=None)

    @property
    def _templates(self) -> list[Template]:
        former = [template for template, _ in self._former]
        return [*([self._template] if self._template else []), *former]

    # Starts

    def start(self, order: Order, now: float) -> Born | Stillborn | None:
        """Start a driver with this order; None when it comes later, by `receive`."""
        try:
            board = Board.create(order.board)
            keep(self._local, order)
            if self.stage.preload:
                return self._request(order.name, encode(order), board, now)
            return Born(order.name, self._spawn(order), board)
        except OSError as error:
            return Stillborn(order.name, f"it cannot be started: {error}", code_of(error))

    def receive(self, now: float) -> list[Born | Stillborn]:
        """What has come of earlier starts."""
        self._looked_at = now
        for former, ends_at in self._former:
            if now >= ends_at:
                former.kill()
            former.receive()
        self._former = [one for one in self._former if one[0].processes]
        template = self._template
        if template is None:
            return []
        if template.state == "loading" and now >= self._ends_at:
            template.kill()
        found: list[Born | Stillborn] = []
        for event in template.receive():
            match event:
                case Ready():
                    self.shared_memory = event.pss
                    self.note = event.note
                case Spawned():
                    found.append(self._born(event))
                case Refused():
                    found.append(self._refused(event))
                case Failed():
                    self.shared_memory = 0
        return found

    def renew(self, stage: Stage, pipeline: Pipeline, now: float) -> None:
        """Start drivers of this stage from now on; what is loaded goes when it is not what it would
        be now."""
        self.stage, self._pipeline = stage, pipeline
        if self._template is not None and self._template.load != self._load():
            self.stop(now)

    def restart(self, serial: str, now: float) -> None:
        """Load anew what is loaded."""
        self._restart = serial
        self.renew(self.stage, self._pipeline, now)

    def stop(self, now: float) -> None:
        """What its drivers share is not needed any more, or is not what it was; starts that have
        not come about never will."""
        if self._template is not None:
            self._template.stop()
            self._former.append((self._template, now + _LEAVING_TAKES))
            self._template = None
        for board in self._boards.values():
            board.close()
        self._boards.clear()
        self.shared_memory = 0

    # Anew

    def _spawn(self, order: Order) -> Child:
        log = self._open_log(order.name)
        try:
            # The last word is for people who list processes.
            argv = (sys.executable, "-P", "-m", "watchdogd.hand", order.name)
            environ = {**os.environ, **order.env}
            return self._children.start(argv, environ, order=encode(order), stdout=log, stderr=log)
        finally:
            os.close(log)

    def _log_path(self, name: str) -> str:
        return os.path.join(self._local, "logs", f"{name}.log")

    def _open_log(self, name: str) -> int:
        return open_log(self._log_path(name), self.stage.log_size, self.stage.log_keep)

    # Forked

    def _request(
        self, name: str, order: bytes, board: Board, now: float
    ) -> Born | Stillborn | None:
        template = self._ready_template(now)
        self._boards[name] = board
        match template.request(name, order):
            case Spawned() as spawned:
                return self._born(spawned)
            case Refused() as refused:
                return self._refused(refused)
        return None

    def _ready_template(self, now: float) -> Template:
        """One that has loaded, or is about to. One that failed is tried again with each start,
        which the policy makes rarer and rarer."""
        template = self._template
        if template is not None and template.state in ("failed", "stopped"):
            self.stop(now)
            template = None
        if template is None:
            stage = self.stage
            template = self._template = Template(self._load(), self._children)
            log = self._open_log(f"{stage.name}-load")
            try:
                template.start(log)
            finally:
                os.close(log)
            self._ends_at = now + stage.startup_timeout
        return template

    def _load(self) -> Load:
        stage = self.stage
        return Load(
            stage=stage.name,
            directory=self._pipeline.directory,
            call=str(stage.work),
            function=stage.preload if isinstance(stage.preload, str) else "",
            watchdog=os.getpid(),
            env={**stage.env, GRACE: f"{stage.grace:g}"},
            restart=self._restart,
        )

    def _born(self, event: Spawned) -> Born:
        return Born(event.name, event.process, self._boards.pop(event.name))

    def _refused(self, event: Refused) -> Stillborn:
        self._boards.pop(event.name).close()
        return Stillborn(event.name, event.why, event.exit_code)
