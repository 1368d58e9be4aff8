"""Command line: one thin file per command."""
