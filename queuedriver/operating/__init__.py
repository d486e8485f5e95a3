"""Operating a queue: submitting, looking, and moving documents by hand.

queue.py           a queue: its items, its reports, its control files, and how documents enter.
                   Read this first
queue_view.py      what `status` tells of a queue
document_view.py   what `show`, `why`, `list` and `history` tell of a document
operations.py      retry, discard, recover
"""
