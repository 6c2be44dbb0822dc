"""Agent programs: which there are, how they are installed once, and what an image must have to run them."""
