"""The daemon's HTTP surfaces. Wire shapes and status codes live only here."""
