"""The connection to a Docker Engine."""
