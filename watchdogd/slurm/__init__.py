"""Slurm starts the watchdogs: each element of a job array is one, for a node's share of a pipeline.

request      what is asked of Slurm for each element, and that as a script for sbatch; pure
elements     the pipeline's elements, as `squeue --json` tells of them, and in words; pure
programs     sbatch, squeue, scancel and scontrol, called with a limit of time
ledger       which submissions there were, each once, and what Slurm says: files below the root
submitting   how many elements there are to be; what is missing is submitted, each need once
attendant    the process beside an element's watchdog that submits more, or lets it leave
"""
