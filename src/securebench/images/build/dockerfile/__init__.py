"""Images from Dockerfiles, built by an engine."""
