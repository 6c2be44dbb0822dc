"""Git repositories as plain files: read and written here, and no git is ever run to do it."""
