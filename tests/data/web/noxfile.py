"""All verbs as sessions."""

from pipeline.sessions import register

register()
