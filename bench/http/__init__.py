"""HTTP against nginx: the same client on the same link. Start with http.py."""
