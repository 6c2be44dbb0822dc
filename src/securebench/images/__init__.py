"""Images: from a reference to the id that runs."""
