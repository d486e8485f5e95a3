"""`unit`: a systemd unit for a pipeline."""

import math
import os
import pwd
import re
import shutil

from queuedriver.cli.words import option
from queuedriver.errors import BadArgument, ConfigError
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, checked_host, either
from watchdogd.cli.pipeline_argument import answering_file
from watchdogd.driver_ids import STATE_VARIABLE, state_of
from watchdogd.host import program
from watchdogd.pipeline.model import Pipeline
from watchdogd.pipeline.read import read
from watchdogd.stages import leaving_takes

# Where systemd looks for programs when nobody says otherwise.
_USUAL_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

_UNIT = """\
# Save it as /etc/systemd/system/{unit}.service, then:
#   systemctl daemon-reload && systemctl enable --now {unit}

[Unit]
Description={description}
RequiresMountsFor={root}
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={start}
ExecReload=/bin/kill -HUP $MAINPID
WorkingDirectory={directory}
User={user}
{state}Environment={environment}
WatchdogSec=30
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2 70 77 78
KillMode={kill_mode}
TimeoutStopSec={patience}
Delegate=yes

[Install]
WantedBy=multi-user.target
"""


def unit(
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
    user: str | None = option("USER", "Who runs it; else you."),
    host: str | None = option("NAME", "As for watchdogd run."),
) -> None:
    """Print a systemd unit that keeps a pipeline running.

    The watchdog is restarted if it fails or hangs, but not after what would only end it again, as a
    bug of ours. It reloads on `systemctl reload`, and has time enough to let its drivers finish.
    """
    found = read(os.path.abspath(answering_file(either(pipeline, option))), host)
    print(unit_of(found, user or pwd.getpwuid(os.getuid()).pw_name, program(), host).rstrip())


def unit_of(pipeline: Pipeline, user: str, words: list[str], host: str | None = None) -> str:
    """Return the text of the unit."""
    for path in (pipeline.file, pipeline.root, *words):
        if "\n" in path or not path.isprintable():
            raise BadArgument(f"{path!r} cannot stand in a unit; rename it")
    checked_host(host)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*\$?|[0-9]+", user):
        raise BadArgument(f"{user!r} cannot be a user's name")
    name = "watchdogd-" + re.sub(r"[^A-Za-z0-9_.-]+", "-", pipeline.name).strip("-.")
    # The very directory of what the user starts by hand: in it is the lock that lets only one run.
    state, kept = state_of(user), ""
    if state is None:
        state, kept = f"/var/lib/{name}", f"StateDirectory={name}\n"
    environment = [f"{STATE_VARIABLE}={state}"]
    if extra := _further_path(pipeline):
        environment.append("PATH=" + ":".join((*extra, *_USUAL_PATH)))
    arguments = [*words, "run", pipeline.file, *(("--host", host) if host else ())]
    return _UNIT.format(
        unit=name,
        description=_escaped(f"Pipeline {pipeline.name} ({pipeline.file})"),
        root=_quoted(pipeline.root),
        start=" ".join(_quoted(word, dollar=True) for word in arguments),
        # One path, not words: nothing is quoted here.
        directory=_escaped(pipeline.directory),
        user=user,
        state=kept,
        environment=" ".join(_quoted(one) for one in environment),
        kill_mode="process" if pipeline.adopt else "mixed",
        patience=math.ceil(leaving_takes(pipeline.stages)),
    )


def _further_path(pipeline: Pipeline) -> list[str]:
    """Return where programs are that systemd would not find, and whoever asks for the unit does."""
    found: dict[str, None] = {}
    for stage in pipeline.stages:
        if isinstance(stage.work, str) or not stage.work:
            continue
        path = None if "/" in stage.work[0] else shutil.which(stage.work[0])
        if path is None:
            continue
        directory = os.path.dirname(os.path.abspath(path))
        if ":" in directory:
            raise ConfigError(
                f"{directory!r} cannot be in PATH; give the whole path of {stage.work[0]}"
            )
        if directory not in _USUAL_PATH:
            found[directory] = None
    return list(found)


def _escaped(text: str) -> str:
    """Return a text in which systemd replaces nothing."""
    return text.replace("%", "%%")


def _quoted(text: str, *, dollar: bool = False) -> str:
    """Return one word of several. In a command line a dollar would name a variable."""
    plain = _escaped(text)
    if dollar:
        plain = plain.replace("$", "$$")
    if re.fullmatch(r"[A-Za-z0-9_./:=@%$+,-]+", plain):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
