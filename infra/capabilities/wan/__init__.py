"""Links between regions: TCP over them, routes, what they really carry."""
