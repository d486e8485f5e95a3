"""The loops and transports of the front doors: a broker that deals documents of queues to workers
which do not mount them, and the worker's side of it.

transport.py   what a transport is to a loop; zmq.py and tcp.py are two
broker.py      a driver whose work is done elsewhere: look, plan, deal
dealer.py      what a session's effects are on the queues
requests.py    clients' requests and the answers to them, on disk
worker.py      the other end: takes documents, runs a processor, sends what comes of them
"""
