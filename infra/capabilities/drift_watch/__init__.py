"""The watch over drift on the nodes themselves."""
