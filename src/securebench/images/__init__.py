"""Images: the store, building from recipes, and resolving a reference to the id of the image that runs."""
