"""How a cluster is reached: its commands and job folders, as any account, here or over SSH.

access           chooses the way: this process, sudo and the helper program, SSH
jobfolder        the files of jobs by descriptors, in this process or in the helper program
folder           one job's folder, in this process
command_runner   runs commands with a deadline, on plumbum
rate_limit       keeps a scheduler's pace
"""
