"""Agent programs: the known programs, their installation, and the requirements on images."""
