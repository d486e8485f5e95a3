"""What operators see of a pipeline, whichever way they look at it.

hosts      a pipeline that commands are about, and its watchdogs, by what each said last
view       what can be known of it at one moment; everything that shows it counts by this one look
sentences  what must be said of it before any number, and what to type then; pure
"""
