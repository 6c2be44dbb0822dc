"""The programs that run inside the sandboxes. The host only imports their constants.

They are sent over stdin, so they are neither mounted nor on a disk. They run on the image's own ``python3``, 3.8 or
later, with nothing but the standard library, and import as little of it as they can: each import is time that every
task pays. ``typing`` is not imported at all, which is why they define ``TYPE_CHECKING`` themselves.
"""
