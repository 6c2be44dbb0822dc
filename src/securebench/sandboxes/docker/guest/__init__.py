"""Programs that run in SecureBench's own containers. They are sent as source, so they cannot import SecureBench."""
