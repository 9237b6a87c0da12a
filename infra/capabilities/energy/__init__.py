"""What nodes draw, what they may draw, and what it costs."""
