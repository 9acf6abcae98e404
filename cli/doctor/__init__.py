"""Finding out what is wrong: a module for each area, whose checks give findings.

They change nothing and start no daemon. What needs native code, the store's format or the kernels
is asked of a child process, which may crash.
"""
