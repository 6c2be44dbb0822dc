"""The files of a run directory, such as the header and the journal. The directory may come from a stranger."""
