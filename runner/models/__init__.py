"""Resident models: memory plan, worker processes, leases."""
