"""What the unit tests share: properties are tried with the same examples in every run."""

import os

from hypothesis import settings

# A run that fails must fail again. Others by hand: `./run test --seed N`, or HYPOTHESIS_PROFILE=fresh.
# No deadline of their own: the machine may be busy, and timings are never asserted.
# The same ones find nothing new: fewer of them are enough to see that what held does still hold.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None, max_examples=25)
settings.register_profile("fresh", deadline=None, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
