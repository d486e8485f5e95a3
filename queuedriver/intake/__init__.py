"""From a folder where others drop files into a queue: each drop once, and never half of one.

watcher      looks, waits, takes: read this first
intake       one intake from its start to its end
options      what it may be told
rules        when a file is taken, and why it is not yet: pure
folder       which files there are, and whether anybody writes one
examining    one look at one file, by the rules: whether it is whole, and whether it entered before;
             and why it waits, for whoever asks
handover     from a folder that may be written: each step is one rename
ledger       from a folder that stays as it is
home         the intakes of a folder, and who of them lives
"""
