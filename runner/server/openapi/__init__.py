"""The description of all routes, for programs and for people."""
