"""The supervisor: the first process of its own pid and mount namespaces, in which all sandboxes of a driver run.

The supervisor exits when its driver is gone. The kernel then ends all sandboxes, and the supervisor's mounts disappear
with its mount namespace. So whatever happens to the driver, no process and no mount is left. The supervisor uses only
the standard library, runs on one thread, and trusts its driver.
"""
