"""The command `watchdogd`: what it can do, a module for each command or for a few alike.

arguments           parameters that several commands have; which pipeline's file is meant
pipeline_argument   which pipeline, stage, driver and host the words of a line mean
check, run, unit    before it runs, running it, and having systemd run it
watch               what `run` does once its helper is begun; `progress` tells how far it is
status              `status`, of what `operators/` knows; screen is how it looks
logs, trace         what drivers print; the way of a document
operators/          for whoever looks on: what went wrong, and what to do; the page; metrics
steer               what the watchdogs are asked
slurm               have Slurm start them
"""

from queuedriver.cli.program import Command, Program

__all__ = ["COMMANDS", "PROGRAM", "Command", "main", "run"]

_SLURM = {
    "check": Command("slurm", "check", "Show what is asked of Slurm, and whether it has that."),
    "start": Command("slurm", "start", "Submit the elements that are missing."),
    "status": Command("slurm", "status", "Show what runs where, and what waits in Slurm."),
    "scale": Command("slurm", "scale", "Say how many elements there are to be."),
    "stop": Command("slurm", "stop", "Let all elements leave."),
}
COMMANDS = {
    "check": Command("check", "check", "Name every mistake of a pipeline's file; list its stages."),
    "run": Command(
        "run",
        "run",
        "Run a pipeline: keep the drivers of its stages alive.",
        begins_first=True,
    ),
    "status": Command("status", "status", "Show how a pipeline is going."),
    "top": Command("operators.top", "top", "Show how it is going, as it goes, and steer it."),
    "serve": Command("operators.serve", "serve", "Show how it is going in a browser."),
    "metrics": Command("operators.serve", "metrics", "Print what Prometheus is told of it."),
    "logs": Command("logs", "logs", "Show what drivers print."),
    "trace": Command("trace", "trace", "Tell of one document through all stages."),
    "discarded": Command("operators.discarded", "discarded", "Show what was discarded, by cause."),
    "retry": Command("operators.discarded", "retry", "Let discarded documents be tried again."),
    "batch": Command("operators.discarded", "batch", "Tell what became of what was tried again."),
    "replay": Command("operators.discarded", "replay", "Send what went through a stage once more."),
    "scale": Command("steer", "scale", "Say how many drivers stages have."),
    "pause": Command("steer", "pause", "Let nothing new be claimed, in a stage or in all."),
    "resume": Command("steer", "resume", "Undo pause."),
    "restart": Command("steer", "restart", "Start drivers anew."),
    "reload": Command("steer", "reload", "Read the pipeline's file again."),
    "stop": Command("steer", "stop", "Let the watchdogs of all hosts leave."),
    "unit": Command("unit", "unit", "Print a systemd unit for a pipeline."),
    "slurm": Command("slurm", "", "Have Slurm start the watchdogs of a pipeline.", _SLURM),
}

PROGRAM = Program(
    name="watchdogd",
    package="watchdogd.cli",
    commands=COMMANDS,
    help="Pipelines of queues and drivers, and the watchdog that keeps the drivers alive.",
    exit_codes="0 done, 1 some documents failed, 2 usage, 3 no watchdog runs, 4 unknown whether "
    "one does, 66 not found, 69 no watchdog obeys or another one runs, 70 bug, 74 file system, "
    "75 later, 77 permission, 78 configuration, 128+n signal n.",
    other="queuedriver",
)
main = PROGRAM.main
run = PROGRAM.run
