"""A node's own Consul agent, asked over TLS. Python 3.8, standard library only."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

HOST, PORT = "127.0.0.1", 8501
AUTHORITY = "/etc/consul.d/ca.pem"
PAUSE_S = 0.5
ELECTION_S = 20.0
"""How long servers may take to have a leader again, and an agent to have found another server."""


class ConsulError(Exception):
    """The agent refused something or does not answer; `status` is HTTP's, 0 without an answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Agent:
    """The agent of this node."""

    def __init__(self, token: str) -> None:
        self.token = token

    def get(self, path: str) -> Any:
        """What is there; ConsulError with status 404 where nothing is."""
        return self._answer("GET", path, None)

    def put(self, path: str, value: Any = None) -> Any:
        """Make or change it."""
        return self._answer("PUT", path, value)

    def post(self, path: str, value: Any) -> Any:
        """Make it."""
        return self._ask("POST", path, value)

    def delete(self, path: str) -> Any:
        """Take it away."""
        return self._answer("DELETE", path, None)

    def health(self) -> dict[str, Any]:
        """What the leader thinks of the servers (autopilot); an answer also while they are not healthy."""
        try:
            found: dict[str, Any] = self.get("/v1/operator/autopilot/health")
            return found
        except ConsulError as error:
            if error.status != http.client.TOO_MANY_REQUESTS:
                raise
            unhealthy: dict[str, Any] = json.loads(str(error))
            return unhealthy

    def _answer(self, method: str, path: str, value: Any) -> Any:
        """Yes or no to what may be asked twice: a server's error (5xx) is one of a moment, at times."""
        return patiently(
            lambda: self._ask(method, path, value),
            ELECTION_S,
            lambda error: error.status >= http.client.INTERNAL_SERVER_ERROR,
        )

    def _ask(self, method: str, path: str, value: Any) -> Any:
        body = None if value is None else json.dumps(value)
        try:
            context = ssl.create_default_context(cafile=AUTHORITY)
            link = http.client.HTTPSConnection(HOST, PORT, timeout=20, context=context)
            try:
                link.request(method, quote(path, safe="/?=&:"), body, {"X-Consul-Token": self.token})
                answer = link.getresponse()
                text = answer.read().decode("utf-8", "replace")
            finally:
                link.close()
        except (OSError, http.client.HTTPException) as error:
            raise ConsulError(0, f"the agent does not answer at {HOST}:{PORT}: {error}") from error
        if answer.status != http.client.OK:
            raise ConsulError(answer.status, text.strip())
        return json.loads(text) if text.strip() else None


def patiently(
    action: Callable[[], Any], limit_s: float, again: Callable[[ConsulError], bool] = lambda _: True
) -> Any:
    """The first result of `action` that is not a ConsulError; its last error after `limit_s` seconds.

    `again`: after which errors it is tried again; at once the error of any other.
    """
    end = time.monotonic() + limit_s
    while True:
        try:
            return action()
        except ConsulError as error:
            if not again(error) or time.monotonic() > end:
                raise
        time.sleep(PAUSE_S)
