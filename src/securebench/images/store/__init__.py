"""The image store: images and unpacked trees on disk, content-addressed and shared by all runs of a user."""
