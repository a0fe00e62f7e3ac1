"""What a kernel folder promises, how it is found and loaded, where its code is fenced in."""
