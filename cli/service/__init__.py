"""The daemon as a service of the user's session: started at login, and again when it dies.

One module for each service manager. They know files and commands, not the daemon.
"""
