"""hearth's own routes for those who watch over a daemon: what a load would take, pulls that go on
by themselves, Modelfiles, the requests in flight, the settings and the log."""
