"""`python -m queuedriver` is the command `queuedriver`."""

from queuedriver.cli import main

if __name__ == "__main__":
    main()
