"""Models out: export, server and Ray."""
