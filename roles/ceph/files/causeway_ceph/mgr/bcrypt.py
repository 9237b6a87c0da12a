"""In the place of Debian's bcrypt, for managers alone.

Every module of a manager imports it, in an interpreter of its own, and a library made by PyO3 can be loaded
in the first one only: with it no module runs (PyO3 issue 576; Ceph's pull request 62951 mends it for later
releases). Passwords are hashed by the dashboard alone, which is not used here.
"""


def __getattr__(name: str) -> None:
    raise AttributeError(f"bcrypt.{name}: no module of a manager can hash passwords here")
