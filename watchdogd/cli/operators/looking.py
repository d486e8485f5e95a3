"""`python -m watchdogd.cli.operators.looking FILE FD`: looks at a pipeline for the page."""

import sys

from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators.web.looking import run

if __name__ == "__main__":
    file, fd = sys.argv[1:]
    run(int(fd), lambda: choose(file, hung_too=True))
