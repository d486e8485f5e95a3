"""Which documents a command line names: by docid, by file, without the extension, or by a glob."""

import fnmatch
from collections.abc import Collection, Iterable, Sequence

from queuedriver.cli.arguments import lines_of
from queuedriver.errors import BadArgument
from queuedriver.format import names
from queuedriver.operating.document_view import docid_of, with_extension


def meant(given: Sequence[str] | None) -> list[str]:
    """Return the docids that a command line names, by whatever name of their files, each once;
    `-` stands for those on stdin, one a line."""
    if not given:
        raise BadArgument("which documents? name DOCIDs, or - to read them from stdin")
    found: dict[str, None] = {}
    for one in given:
        # What a shell makes of `discarded/*` will do: docids have no path, and no such ending.
        lines = lines_of("-") if one == "-" else [one]
        found |= {docid_of(line).removesuffix(names.REPORT): None for line in lines}
    return list(found)


def is_meant(text: str, docid: str) -> bool:
    """Return whether a text may stand for a docid: it is it, a glob for it, or lacks its end."""
    return docid == text or docid.startswith(f"{text}.") or fnmatch.fnmatchcase(docid, text)


def matching(given: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the docids that are meant, of those that are known: what is known by just this name,
    all that match a glob, or the one that has an extension more. Any other stays as it is."""
    found: dict[str, None] = {}
    for one in given:
        matched = [one] if one in known else fnmatch.filter(known, one)
        # What nothing matches is named as it was written.
        found |= dict.fromkeys(matched or [with_extension(one, known) or one])
    return list(found)


def by_glob(given: Sequence[str] | None, chosen: Collection[str]) -> bool:
    """Return whether any of what was chosen was not named one by one."""
    return any(one not in chosen and set(one) & set("*?[") for one in given or ())
