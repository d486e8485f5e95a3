"""How Sphinx builds these pages; `sh tests/run` does, with warnings as errors."""

import tomllib
from pathlib import Path

_project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

project = "queuedriver"
author = "the queuedriver authors"
copyright = f"2026, {author}"
release = _project["version"]

extensions: list[str] = []
exclude_patterns = ["_build"]
# A reference to a page or a label that does not exist is an error, not a word in italics.
nitpicky = True
smartquotes = False  # `--drain` is typed with two hyphens
html_theme = "alabaster"
html_theme_options = {"description": _project["description"]}
