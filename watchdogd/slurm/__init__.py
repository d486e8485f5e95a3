"""Slurm starts the watchdogs: each element of a job array is one, for a node's share of a pipeline.

elements     what is asked of Slurm for each element, as a script, and how squeue tells of it; pure
programs     sbatch, squeue, scancel and scontrol, called with a limit of time
submissions  which there were, each once, what Slurm says, and what more is submitted: files below
             the root
attendant    the process beside an element's watchdog that submits more, or lets it leave
"""
