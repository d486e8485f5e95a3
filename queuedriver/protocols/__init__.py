"""The conversations of brokers, workers and clients: pure, and never met a socket.

table.py     what a transition table is
dealing.py   what a session and its loop say to each other, whatever the protocol
roster.py    who is ready, busy or silent; whose turn it is
frames.py    what every protocol refuses: too many frames, too many bytes
roundrobin.py, fuq.py, pingpong.py, scale0.py    one protocol each
"""
