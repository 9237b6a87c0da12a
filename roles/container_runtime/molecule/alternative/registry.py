"""A registry of one image, by itself and below a path, by TLS: CERTIFICATE KEY ADDRESS PORT."""

import hashlib
import io
import json
import ssl
import sys
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def digest(content: bytes) -> str:
    """As registries name what they have."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def layer() -> bytes:
    """One folder."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        folder = tarfile.TarInfo("usr")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
    return whole.getvalue()


LAYER = layer()
CONFIG = json.dumps(
    {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [digest(LAYER)]},
    }
).encode()


def part(media: str, content: bytes) -> dict[str, object]:
    """How a manifest names a blob."""
    return {"mediaType": media, "digest": digest(content), "size": len(content)}


IMAGE = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": part("application/vnd.oci.image.config.v1+json", CONFIG),
        "layers": [part("application/vnd.oci.image.layer.v1.tar", LAYER)],
    }
).encode()
TOPS = ("/v2/library/probe", "/v2/hub/library/probe")
FOUND = {"/v2/": ("application/json", b"{}")} | {
    f"{top}/{path}": content
    for top in TOPS
    for path, content in (
        ("manifests/1", (MANIFEST, IMAGE)),
        (f"manifests/{digest(IMAGE)}", (MANIFEST, IMAGE)),
        (f"blobs/{digest(CONFIG)}", ("application/octet-stream", CONFIG)),
        (f"blobs/{digest(LAYER)}", ("application/octet-stream", LAYER)),
    )
}


class Registry(BaseHTTPRequestHandler):
    """Answers what is asked for by GET and HEAD."""

    protocol_version = "HTTP/1.1"

    def answer(self, *, whole: bool) -> None:
        """What is there, or 404."""
        kind, content = FOUND.get(self.path.partition("?")[0], ("text/plain", b""))
        self.send_response(200 if content else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if content:
            self.send_header("Docker-Content-Digest", digest(content))
        self.end_headers()
        if whole:
            self.wfile.write(content)

    def do_GET(self) -> None:
        """The whole of it."""
        self.answer(whole=True)

    def do_HEAD(self) -> None:
        """Whether it is there."""
        self.answer(whole=False)


def main() -> None:
    """Serve until the end."""
    certificate, key, address, port = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer((address, int(port)), Registry)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
