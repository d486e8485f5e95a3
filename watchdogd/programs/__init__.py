"""What a watchdog starts, each as a process of its own.

io_helper   looks at the queues and does all other input and output below the root
warden      ends what a watchdog leaves that was killed
"""
