"""The supervisor: the first process of its own pid and mount namespaces, in which all sandboxes of a driver run.

When the supervisor exits, the kernel ends all sandboxes, and its mounts exist only in its namespace. So whatever
happens to the driver, no process and no mount is left. The supervisor uses only the standard library, runs on one
thread, and trusts its driver.
"""
