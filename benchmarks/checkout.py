"""Another commit of this repository, laid out beside ours to be measured in the same rounds."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


class NoCommit(Exception):
    """There is no such commit; the message says what git says."""


@dataclass(frozen=True)
class Checkout:
    """A commit's files, below `benchmarks/.build`."""

    commit: str
    tree: Path

    def name_of(self, contender: str) -> str:
        """Return what a contender of ours is called when this commit runs it."""
        return f"{contender}, {self.commit}"


def lay_out(revision: str) -> Checkout:
    """Write the files of a commit, unless an earlier run has; return where they are."""
    commit = _git("rev-parse", "--short", "--verify", f"{revision}^{{commit}}").decode().strip()
    tree = HERE / ".build" / f"against-{commit}"
    if not tree.is_dir():
        unfinished = tree.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        archive = _git("archive", commit)
        subprocess.run(["tar", "-x", "-C", unfinished], input=archive, check=True)
        unfinished.rename(tree)
    return Checkout(commit, tree)


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=HERE.parent, capture_output=True, check=False)
    if done.returncode != 0:
        raise NoCommit(done.stderr.decode().strip())
    return done.stdout
