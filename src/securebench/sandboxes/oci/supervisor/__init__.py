"""The supervisor: the first process of a pid and mount namespace of its own, in which every sandbox of a driver lives.

The kernel ends all sandboxes with it, and no other process sees its mounts: whatever happens to the driver, no
process and no mount is left. It needs nothing but the standard library, runs on one thread, and trusts its driver.
"""
