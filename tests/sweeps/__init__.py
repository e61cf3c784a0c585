"""Every fault at every request: minutes, so a session of their own (`nox -s faults`)."""
