"""What is done to a document: a function, a program for each, or a server for all.

base      what a driver asks of a processor, and the processor of a kind
call      a Python function, in the driver's own process
command   one run of a program for each document
server    a program that stays: asked for each document, and started anew when it has ended
answers   the lines between a driver and its server
program   the program of a command or a server: found once, started without a shell
child     a program that runs beside a driver, in a process group of its own, and how it ends
"""
