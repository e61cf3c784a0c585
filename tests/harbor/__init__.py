"""A Harbor for tests: its API and its token service in front of a real registry, all on loopback."""
