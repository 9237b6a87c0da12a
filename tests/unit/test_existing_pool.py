"""Machines that exist already, asked by the real ssh: what is said of one that lets in and says nothing."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from infra.ground import ssh
from infra.providers.existing import resources
from infra.providers.existing.resources import ExistingPoolLifecycle


class LetsIn(asyncssh.SSHServer):
    def begin_auth(self, _username: str) -> bool:
        return False


async def _answer(process: "asyncssh.SSHServerProcess[str]") -> None:
    if process.get_extra_info("sockname")[0] == "127.0.0.2":
        await asyncio.sleep(3600)
    process.stdout.write("0123456789abcdef\n")
    process.exit(0)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A machine that says who it is, and one that lets in and then says nothing, with the same host key."""
    key = tmp_path / "key"
    key.write_text(ssh.new_key())
    key.chmod(0o600)
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen() -> int:
        options: dict[str, Any] = {
            "server_host_keys": [host_key],
            "server_factory": LetsIn,
            "process_factory": _answer,
        }
        first = await asyncssh.listen("127.0.0.1", 0, **options)
        port = int(first.get_port())
        await asyncssh.listen("127.0.0.2", port, **options)
        return port

    port = asyncio.run_coroutine_threadsafe(listen(), loop).result(20)
    host = {"port": float(port), "host_key": host_key.export_public_key().decode().strip()}
    yield {
        **{"stack": "s", "region": "hall", "pool": "row", "ssh_user": "root", "ssh_key_file": str(key)},
        "hosts": {"talks": {**host, "address": "127.0.0.1"}, "silent": {**host, "address": "127.0.0.2"}},
    }
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def test_a_machine_that_lets_in_and_says_nothing_is_named_and_holds_up_nothing(
    pool: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resources, "ANSWER_LIMIT_S", 5)
    made = ExistingPoolLifecycle().ensure(pool, {})["instances"]
    assert made["talks"]["id"] == "0123456789abcdef"
    assert made["silent"]["id"] == resources.UNREACHED
    said = capsys.readouterr().out
    port = int(pool["hosts"]["silent"]["port"])
    assert "silent: no answer by SSH: connected, then silent for 5 s" in said
    assert f"ssh -p {port} root@127.0.0.2 true" in said
    assert "talks" not in said
