"""`python -m watchdogd` is the command `watchdogd`."""

from watchdogd.cli import main

if __name__ == "__main__":
    main()
