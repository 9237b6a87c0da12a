"""What runs containers on nodes: an engine, where it gets images, GPUs in containers by CDI."""
