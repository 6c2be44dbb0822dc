"""Images from Dockerfiles, which an engine builds."""
