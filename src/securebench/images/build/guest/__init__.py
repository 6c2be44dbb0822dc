"""What runs inside the images that are built: on whatever Python 3.6 or later they have, without an import of ours."""
