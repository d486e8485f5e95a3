"""What carries frames.

base       what a transport is to a loop
addresses  host and port, taken apart
zmq        ROUTER and DEALER; curve: their keys
tcp        streams of lines; tls: their keys
"""
