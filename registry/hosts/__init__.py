"""Where models come from: one module for each kind of host, behind registry.hosts.host."""
