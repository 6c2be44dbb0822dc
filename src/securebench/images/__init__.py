"""Images: resolving a reference to the id of the image that runs."""
