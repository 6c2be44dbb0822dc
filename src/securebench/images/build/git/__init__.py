"""Reading and writing git repositories as plain files, without running git."""
