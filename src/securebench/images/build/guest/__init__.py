"""Programs that run inside the images that are built: for Python 3.6 or later, with only the standard library."""
