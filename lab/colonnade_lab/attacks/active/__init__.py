"""Attacks by a member that departs from the protocol: in a simulation of the run, and nowhere else."""
