"""What a watchdog starts, each as a process of its own.

driver         takes documents through, as its order says, or deals them to workers elsewhere
template       loads what the drivers of a stage have in common, and forks them
io_helper      looks at the queues and does all other input and output below the root
import_check   imports what a stage calls, to see whether it can be
warden         ends what a watchdog leaves that was killed
"""
