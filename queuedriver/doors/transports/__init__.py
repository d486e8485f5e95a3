"""What carries frames.

base        what a transport is to a loop, and how it tells whom it did not let in
addresses   host and port, taken apart, and called in a thread
zmq         ROUTER and DEALER; curve: their keys
tcp         streams of bytes; tls: their keys
"""
