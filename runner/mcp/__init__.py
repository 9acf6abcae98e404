"""Tools of MCP servers. Each server is reached from a process of its own (`python -m runner.mcp`),
so that nothing it sends can hold up the daemon. Knows no wire format of hearth's own surfaces."""
