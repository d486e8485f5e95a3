"""Slurm starts the watchdogs: each element of a job array is one, for a node's share of a pipeline.

request      what is asked of Slurm for each element: memory, processors, time; pure
script       that as a script for sbatch; pure
elements     the pipeline's elements, as `squeue --json` tells of them; pure
programs     sbatch, squeue, scancel and scontrol, called with a limit of time
scaling      how many elements there are to be, and which may leave; pure
ledger       which submissions there were, each once: files below the root
submitting   what is missing is submitted, each need once
squeue       one question in ten seconds for all who look, and what is said of the answer
attendant    the process beside an element's watchdog that submits more, or lets it leave
attendant_child  starts that
"""
