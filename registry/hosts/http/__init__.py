"""The HTTP client of all hosts, and which addresses it may reach."""
