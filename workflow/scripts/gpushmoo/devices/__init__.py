"""Device backends behind one protocol (base.py); one backend a file."""
