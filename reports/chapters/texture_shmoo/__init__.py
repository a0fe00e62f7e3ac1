"""Chapter: textures and surfaces over every block shape."""
