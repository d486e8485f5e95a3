"""Submits documents to a queue of tasks: `python -m benchmarks.alternatives_client MODULE`.

Stdin names the documents, line by line; an empty line is the answer when one is submitted.
"""

import sys
from importlib import import_module


def main() -> None:
    submit = import_module(sys.argv[1]).submit
    for line in sys.stdin:
        submit(line.strip())
        print(flush=True)


if __name__ == "__main__":
    main()
