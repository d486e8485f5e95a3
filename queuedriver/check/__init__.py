"""fsck for queues: every broken rule named, and mended without losing anything.

check.py    look twice, judge, mend. Read this first
survey.py   one look: facts, with nothing created or changed
rules.py    the rules, each a pure function from facts to findings
litter.py   those of them that are about what should have gone
notes.py    what somebody may want to know besides
mend.py     what to do about each rule
"""
