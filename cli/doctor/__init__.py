"""Diagnostics: a module for each area, whose checks return findings.

They change nothing and start no daemon. Checks that need native code, the store's format or the
kernels run in a child process, which may crash.
"""
