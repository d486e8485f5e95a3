"""What carries frames.

base        what a transport is to a loop; refusals: whom it did not let in
addresses   host and port, taken apart, and looked up
background  what may take long, in a thread
zmq         ROUTER and DEALER; curve: their keys
tcp         streams of bytes; tls: their keys
"""
