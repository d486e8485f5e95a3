"""The command `queuedriver`: its commands, and where they are.

program     finds the command that is called, runs it, and says how it ended
words       reads a command's words by the parameters of its function
help        draws help, completes words, and says what is wrong with a line, by typer
arguments   parameters, questions and warnings that several commands have
render      tables, colours, JSON, and names that cannot steer a terminal
put         submits files
intake      takes what others drop into a folder
run         one driver, and how far it is, for a terminal; get, which collects documents as files
status      counts a queue's documents, and says what its drivers do
look        list, show, why, history: how documents look
operate     retry, discard, pause, resume, quit, close, reopen, recover, check
settings    what a struct of settings is as a command line, and what it makes of one
doors       the front doors: broker and worker, each with a command for each protocol, and keys;
            `stderr_thread` writes what a broker, a worker or a watchdog tells
client      the clients of those that have any
fuq         jobs of many tasks: submit, status, hold, release, cancel, stop
"""

from queuedriver.cli.program import Command, Program, describe, say, say_some
from queuedriver.doors import PROTOCOLS

__all__ = ["COMMANDS", "PROGRAM", "Command", "describe", "main", "run", "say", "say_some"]


def _of_protocols(module: str, name: str, line: str, *without: str) -> Command:
    """Return a command that has one for each protocol."""
    each = {
        protocol: Command(module, f"{name}_{protocol}", said)
        for protocol, said in PROTOCOLS.items()
        if protocol not in without
    }
    return Command(module, "", line, each)


_FUQ = {
    name: Command("fuq", name, line)
    for name, line in (
        ("submit", "Submit a job: one command, run once for each number from 1 to N."),
        ("status", "Show jobs, clients, and why a job waits."),
        ("hold", "Begin no further task of jobs."),
        ("release", "Undo hold."),
        ("cancel", "Drop the tasks of jobs that were not begun."),
        ("stop", "Take processors from clients."),
    )
}

COMMANDS = {
    "put": Command("put", "put", "Submit files to a queue."),
    "intake": Command("intake", "intake", "Take what others drop into a folder."),
    "run": Command("run", "run", "Drive a processor over queues."),
    "get": Command("run", "get", "Collect what a queue holds as plain files, each exactly once."),
    "status": Command("status", "status", "Count the documents, and say what the drivers do."),
    "list": Command("look", "list_items", "List the documents of a queue."),
    "show": Command("look", "show", "Show all that is known of a document."),
    "why": Command("look", "why", "Say in a sentence why a document is where it is."),
    "history": Command("look", "history", "Tell what happened to a document, and when."),
    "retry": Command("operate", "retry", "Let documents be tried again, as if never tried."),
    "discard": Command("operate", "discard", "Discard waiting documents."),
    "pause": Command("operate", "pause", "Let the drivers of a queue claim nothing new."),
    "resume": Command("operate", "resume", "Undo pause and quit."),
    "quit": Command("operate", "quit", "Let the drivers of a queue leave."),
    "close": Command("operate", "close", "Say that nothing more will be submitted, for good."),
    "reopen": Command("operate", "reopen", "Undo close."),
    "broker": _of_protocols(
        "doors", "broker", "Deal documents to workers that do not mount the queue."
    ),
    "worker": _of_protocols("doors", "worker", "Process what a broker deals."),
    "client": _of_protocols(
        *("client", "client", "Bring files to a broker, and take back the answers."),
        *("fuq", "pingpong"),
    ),
    "fuq": Command("fuq", "", "Submit arrays of jobs, and steer them.", _FUQ),
    "keys": Command("doors", "keys", "Make keys by which brokers and workers know each other."),
    "recover": Command("operate", "recover", "Take back what dead drivers left."),
    "check": Command("operate", "check", "Name every broken rule of a queue; repair on request."),
}

PROGRAM = Program(
    name="queuedriver",
    package="queuedriver.cli",
    commands=COMMANDS,
    help="Queues that are directories, and the drivers of documents through them.",
    exit_codes="0 done, 1 some documents failed, 2 usage, 65 bad document, 66 not "
    "found, 69 id held, 70 bug, 73 cannot create, 74 file system, 75 later, 77 permission, "
    "78 configuration, 128+n signal n.",
    other="watchdogd",
    # Users' functions and plug-ins, and ZeroMQ, which sends what is left when it is destroyed.
    foreign={"run": "--call"} | dict.fromkeys(["intake", "broker", "worker", "client", "fuq"], ""),
)
main = PROGRAM.main
run = PROGRAM.run
