"""The tools that ember learns to call: kinds of values, tools of everyday domains, and procedural
ones.
"""
