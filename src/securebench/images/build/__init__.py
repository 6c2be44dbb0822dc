"""Building images from recipes."""
