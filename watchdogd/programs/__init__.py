"""What a watchdog starts, each as a process of its own.

io_helper      looks at the queues and does all other input and output below the root
import_check   imports what a stage calls, to see whether it can be
warden         ends what a watchdog leaves that was killed
"""
