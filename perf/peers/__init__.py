"""Other harnesses, measured on the same image and the same trivial task."""
