"""Slurm starts the watchdogs: each element of a job array is one, for a node's share of a pipeline.

request      what is asked of Slurm for each element: memory, processors, time; pure
script       that as a script for sbatch; pure
elements     the pipeline's elements, as `squeue --json` tells of them; pure
programs     sbatch, squeue, scancel and scontrol, called with a limit of time
scaling      how many elements there are to be, and which may leave; pure
ledger       which submissions there were, each once: files below the root
facts        what Slurm said last, for all who look: one question in ten seconds
attendant    the process beside an element's watchdog that submits more, or lets it leave
"""
