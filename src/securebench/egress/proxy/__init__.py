"""The HTTP proxy: it connects only to allowed host names whose addresses were checked."""
