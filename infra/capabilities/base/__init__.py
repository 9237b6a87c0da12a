"""What every node needs before anything else: its name, place, time, users and limits."""
