"""What a queue's outputs are: written down before the first claim, so recovery needs nothing else.

`.queuedriver/settings.json`; paths in it are relative to the queue, because hosts may mount one
tree in different places.
"""

import os
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from queuedriver.errors import BadDocid, CannotUse, ConfigError, NotRegular
from queuedriver.format import names
from queuedriver.format.records import decode

if TYPE_CHECKING:
    from queuedriver.disk.filesystem import Directory

FILE = "settings.json"
DEFAULT_PUBLISH = names.DEFAULT_PUBLISH

_FIELD = re.compile(r"\{([^{}]*)\}")


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the claims of one queue end, the same for all its drivers."""

    outputs: tuple[str, ...] = ()
    publish: str = DEFAULT_PUBLISH
    existing: Literal["keep", "replace"] = "keep"
    retries: int = 1
    retry_delay: float = 0.0
    archive: str | None = None
    durable: bool = False

    def __post_init__(self) -> None:
        if any("\0" in path for path in (*self.outputs, self.archive or "")):
            raise ValueError("a path in it has a NUL")


class Publication(NamedTuple):
    """The names under which outputs become visible."""

    template: str

    @property
    def is_queue(self) -> bool:
        """Return whether it publishes items, rather than files of an ordinary directory."""
        return self.template.endswith(".ready")

    def name(self, docid: str) -> str:
        """Return the final name of an output, or raise BadDocid."""
        if self.template == DEFAULT_PUBLISH:
            return f"{docid}.ready"
        fields = {"docid": docid, "stem": os.path.splitext(docid)[0]}
        final = _FIELD.sub(lambda field: fields[field[1]], self.template)
        names.check_docid(final.removesuffix(".ready"))
        return final


def check_publish(template: str) -> str:
    """Return the template itself, or raise ConfigError."""
    used = set(_FIELD.findall(template))
    if unknown := used - {"docid", "stem"}:
        raise ConfigError(
            f"--publish {template!r}: no field {{{unknown.pop()}}}; it may use {{docid}} "
            "and {stem}"
        )
    if not used:
        raise ConfigError(f"--publish {template!r} names all outputs alike; put {{docid}} in it")
    try:
        Publication(template).name("x")
    except BadDocid as error:
        raise ConfigError(
            f"--publish {template!r} does not give a file name: {error.reason}"
        ) from None
    return template


def load(private: "Directory", queue: str) -> Settings | None:
    """Return the settings of a queue; None before its first driver."""
    try:
        return decode(private.read(FILE), Settings)
    except FileNotFoundError:
        return None
    except (NotRegular, msgspec.DecodeError) as error:
        why = error.strerror if isinstance(error, NotRegular) else error
        raise ConfigError(
            f"{private.path}/{FILE} cannot be read ({why}); if no driver of {queue} runs and "
            "it has no .working or .written files, delete it"
        ) from None


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise CannotUse for what no settings and no registration, which are JSON, could name."""
    whole = os.path.abspath(path)
    try:
        whole.encode()
    except UnicodeEncodeError:
        raise CannotUse(f"{whole!r} is not valid UTF-8; rename it, or use another") from None


def relative(path: str, queue: str) -> str:
    """Return a path as settings have it: the same for all who name the queue, or what is above
    the directory, through symlinks. If it is one itself, it is kept: it may be turned."""
    above, name = os.path.split(os.path.abspath(path))
    return os.path.relpath(os.path.join(os.path.realpath(above), name), os.path.realpath(queue))


def resolve(queue: str, path: str) -> str:
    """Return where a path of the settings of a queue leads, however the queue was named."""
    return os.path.normpath(os.path.join(os.path.realpath(queue), path))


def save(private: "Directory", settings: Settings) -> None:
    """Write the settings, durable before it returns: a claim made under it may outlive a power cut.

    What is at its default is left out, so that simple drivers need only compare bytes.
    """
    usual = msgspec.structs.asdict(Settings())
    known = msgspec.structs.asdict(settings).items()
    said = {key: value for key, value in known if value != usual[key]}
    private.write_aside(FILE, msgspec.json.encode(said), durable=True)
