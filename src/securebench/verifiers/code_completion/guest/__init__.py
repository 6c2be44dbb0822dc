"""The programs that run inside the sandboxes. The host imports only their constants.

They are sent over stdin, so they are neither mounted nor on a disk. They run on the image's own ``python3``, 3.8 or
later. Apart from the modules of this package, they import only the standard library, and as little of it as possible,
because each import costs time in every task. They do not import ``typing`` at all, which is why they define
``TYPE_CHECKING`` themselves.
"""
