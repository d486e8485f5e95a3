"""`run`: a watchdog, from its command line on.

Its helper is begun before anything else, and loads while the rest of this process does.
"""

import resource
from contextlib import suppress

from queuedriver import interpreter
from queuedriver.cli.words import flag, option
from watchdogd.children import Children
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, either
from watchdogd.helper_process import begin

# Each driver takes two descriptors; more than this is of use to nobody.
_MOST_FILES = 65_536


def run(
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
    drain: bool = flag("End when all is through; the queues stay open."),
    until: float | None = option(
        "WHEN", "Be gone by then, and begin nothing that would take longer."
    ),
    host: str | None = option("NAME", "This host's name; else what it is called."),
    drivers: list[str] | None = option("STAGE=N", "So many drivers of a stage, here and now."),
    quiet: bool = flag("Say nothing but errors.", "--quiet", "-q"),
) -> int:
    """Keep the drivers of a pipeline alive on this host, until told to leave.

    WHEN is as in 2031-05-01T14:00, or in seconds since 1970, as $SLURM_JOB_END_TIME.

    \b
    Signals:
      TERM, INT   every driver finishes the document at hand, for at most its
                  grace, and leaves, stages from the first to the last;
                  a second one, or QUIT: documents are given back at once
      HUP         read the pipeline's file again; a bad one changes nothing
      USR2        write the watchdog's own stacks to stderr

    \b
    Exit codes:
      0   it was asked to leave, its time is up, or --drain: everything is through
      1   --drain: everything is through, but documents were discarded
      66  there is no such file
      69  another watchdog keeps this pipeline on this host
      75  --drain: it had to leave before everything was through
      77  not permitted          78  the file, or a stage, can never work
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    children = Children()
    begun = None
    with suppress(OSError):
        # Nothing is lost with one that cannot be started now.
        begun = begin(children)
    try:
        interpreter.import_msgspec()
        from watchdogd.cli.watch import watch

        file = either(pipeline, option)
        return watch(
            file,
            host,
            children,
            begun,
            drivers=drivers or [],
            drain=drain,
            until=until,
            quiet=quiet,
        )
    finally:
        if begun is not None:
            begun.end()
