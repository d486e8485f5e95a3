"""The front doors: brokers that deal documents of queues to workers which do not mount them, the
workers, and the clients that ask.

settings        what each is told: a struct is its command line, and makes what it names
broker          a driver whose work is done elsewhere: hear, deal, settle (read this first)
services        what holds one service while the others go on: it has stopped itself, or is full
service_queue   one service's queue: what waits in it, and how what was dealt ends
requests        clients' requests and the answers to them, on disk
conversation    a session over a transport: what is heard and said, in every loop
worker          the other end: takes documents, runs a processor, sends what comes of them
workspace       the directory in which a worker's processor finds its document
words           what a session and its loop say to each other, whatever the protocol
table           what a transition table is
exchange        all workers of one broker: who is listed, what each has in hand, whose turn it is
transports/  sockets: ZeroMQ, TCP, and their keys
pingpong/ roundrobin/ scale0/ fuq/  a protocol each
"""

# The protocols, and what each is for.
PROTOCOLS = {
    "roundrobin": "Clients ask, and each worker takes several documents ahead.",
    "fuq": "Arrays of jobs, each a program with its arguments.",
    "pingpong": "The smallest worker that can be written.",
    "scale0": "Named services on several machines, for clients.",
}
