"""`intake`: take what others drop into a folder."""

import os
from typing import Annotated, Any

from queuedriver.cli import program, say
from queuedriver.cli.arguments import QUEUE, QUIET, warn_of
from queuedriver.cli.settings import option_rows
from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import BadArgument, ConfigError
from queuedriver.format.names import check_driver_id
from queuedriver.format.units import format_count, visible
from queuedriver.intake.options import IntakeOptions
from queuedriver.operating.queue import Queue


def intake(
    folder: str = argument("FOLDER", "Where files are dropped."),
    queue: str = QUEUE,
    id: str | None = option("ID", "This intake's id; else <host>-<number>."),
    drain: bool = flag("Leave when nothing is left that settles."),
    quiet: bool = QUIET,
    **told: Annotated[Any, *option_rows(IntakeOptions)],
) -> int:
    """Take what others drop into a folder: each file once, and never half of one.

    A file is taken when it has stood still for a while, and nobody has it open for writing as far
    as that can be known. Its docid is its name. Any number of intakes may take from one folder, on
    any number of hosts; killed at any moment they lose nothing. queuedriver why FOLDER FILE says
    what a file waits for.

    \b
    Exit codes:
      0   it was asked to leave; --drain: nothing is left that settles
      2   wrong usage
      66  no such folder, or queue   69  another intake has the id
      74  the file system fails      77  not permitted
      78  this can never work: see the message
    """
    from queuedriver.intake.intake import Intake

    told |= {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
    told["refused"] = told["refused"] and os.path.abspath(told["refused"])
    try:
        options = IntakeOptions(**told).check()
    except ConfigError as error:
        raise BadArgument(str(error)) from None
    with Queue.open(queue) as opened:
        if not quiet:
            warn_of(opened)
            say(f"{visible(folder)} into {visible(queue)}; Ctrl-C to leave")
    one = Intake(folder, queue, options, id=id and check_driver_id(id), drain=drain)
    left = one.run(last=program.ends_process)
    for words in one.unnoted:
        say(words)
    if not quiet:
        say(f"{left.word}: {left.why}; {format_count(left.counters.documents, 'document')} taken")
    return left.exit_code
