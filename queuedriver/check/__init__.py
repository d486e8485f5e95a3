"""fsck for queues: every broken rule named, and mended without losing anything.

check.py    look twice, judge, and mend until nothing is left that can be. Read this first
rules.py    the rules: what is broken, and beside it how that is mended
files.py    one look at a queue's files, with nothing created or changed
"""
