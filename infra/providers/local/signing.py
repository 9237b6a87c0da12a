"""Signatures of images, made and checked by `ssh-keygen -Y`: a machine that has OpenSSH needs nothing else.

The key is this machine's own, made at the first build, or the one that `CAUSEWAY_IMAGE_KEY` names: a private
key's file, or a public one's (`….pub`) whose private half an agent has.
"""

import os
import tempfile
import threading
from functools import lru_cache
from pathlib import Path

from infra.errors import CausewayError
from infra.files import write_file
from infra.process import run
from infra.providers.local import image

GIVEN = "CAUSEWAY_IMAGE_KEY"
NAMESPACE = "causeway-image"
"""What a signature is for: one over anything else is none here."""
SIGNER = "causeway"
SUFFIX = ".sig"
COMMENT = "causeway images"
OPENSSH = "install openssh-client"
_ONE_ASKS = threading.Lock()
"""Pools ask at the same time, and what one was told the others need not ask."""


def key_file() -> Path:
    """The file of the key that signs."""
    given = os.environ.get(GIVEN)
    return Path(given).expanduser() if given else image.images_dir() / "signing_key"


def public_file() -> Path:
    """The file of the key that is checked against."""
    key = key_file()
    return key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")


def require_key() -> None:
    """Make this machine's key where it has none. CausewayError where one is there, or given, and no use."""
    key = key_file()
    if os.environ.get(GIVEN):
        for file in {key, public_file()}:
            if not file.is_file():
                raise CausewayError(f"{GIVEN} names {key}, and there is no {file}", "make it by ssh-keygen")
    elif not key.exists():
        with tempfile.TemporaryDirectory(dir=key.parent, prefix=".key-") as folder:
            new = Path(folder, key.name)
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", COMMENT, "-f", str(new)], hint=OPENSSH)
            new.with_name(public_file().name).replace(public_file())
            new.replace(key)  # last: whoever has the one has the other
    elif not public_file().exists():
        hint = f"it has signed the images here: bring it back, or name another one by {GIVEN}"
        public = run(["ssh-keygen", "-y", "-P", "", "-f", str(key)], hint=hint)
        write_file(public_file(), f"{public.strip()}\n")


def require_working_key() -> None:
    """CausewayError where `sign` would fail: known before a build, and not after it."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder, "trial")
        trial.touch()
        sign(trial)


def sign(file: Path) -> None:
    """Write the signature beside a file. CausewayError where the key cannot be used without a question."""
    require_key()
    Path(f"{file}{SUFFIX}").unlink(missing_ok=True)
    run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key_file()), "-n", NAMESPACE, str(file)],
        env={"SSH_ASKPASS_REQUIRE": "never"},
        hint="a key with a passphrase is used through an agent: name its .pub file, and `ssh-add` the key",
    )


def is_signed(file: Path) -> bool:
    """Whether a file has a signature beside it that the key has made over what it says now."""
    signature = Path(f"{file}{SUFFIX}")
    if not (signature.is_file() and public_file().is_file()):
        return False
    try:
        with _ONE_ASKS:
            _require_signature(file.read_text(), signature.read_bytes(), public_file().read_text())
    except (CausewayError, OSError, ValueError):  # gone, or no text
        return False
    return True


@lru_cache(maxsize=256)
def _require_signature(said: str, signature: bytes, key: str) -> None:
    """CausewayError where a signature is not what the key has made over that; what is, is asked for once.

    A process asks for every image again and again, once for each pool.
    """
    with tempfile.TemporaryDirectory() as folder:
        signers, made = Path(folder, "signers"), Path(folder, "signature")
        signers.write_text(f"{SIGNER} {key}")
        made.write_bytes(signature)
        words = (*("-f", str(signers)), *("-I", SIGNER), *("-n", NAMESPACE), *("-s", str(made)))
        run(["ssh-keygen", "-Y", "verify", *words], stdin=said)
