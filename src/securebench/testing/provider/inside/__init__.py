"""What the scripted model has its client run, to get out. It runs in a sandbox: Python 3.8, nothing but the library."""
