"""Replicas of models on many machines, over Ray Serve. Imported only by who has a cluster.

Ray itself is imported by processes of their own: bridge.py beside the daemon, replica.py on the
nodes, node.py of the command. Everything else here does without it.
"""
