"""Functions of other tuners, as their scripts call them; gpushmoo measures."""
