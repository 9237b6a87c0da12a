"""What a region's Prometheus costs by nodes, and what VictoriaMetrics would: both ask the same made-up nodes.

One small server answers for all nodes, each with some 1,400 series of node_exporter's names. Both programs
are Debian's, unpacked into a folder of their own; Prometheus evaluates the rules of all capabilities. Each is
run with few nodes and with many, and what a series costs is the difference. Prints, and judges nothing.

Usage: python tests/bench/bench_monitoring_load.py [FEW] [MANY] [SECONDS of each run]
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Process
from pathlib import Path

from infra import capabilities

NODES_PORT, PROMETHEUS_PORT, VICTORIA_PORT = 19_100, 19_090, 18_428
INTERVAL_S = 10
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def page() -> str:
    """What a node says, with %(up)d where a counter goes on and %(now)d where it is a time."""
    modes = ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")
    lines = [f'node_cpu_seconds_total{{cpu="{n}",mode="{mode}"}}' for n in range(64) for mode in modes]
    traffic = [
        f"node_network_{way}_{what}_total"
        for way in ("receive", "transmit")
        for what in ("bytes", "packets", "errs", "drop", "fifo", "compressed")
    ]
    devices = [f"eth{n}" for n in range(18)]
    lines += [f'{name}{{device="{device}"}}' for name in traffic for device in devices]
    rails = (
        f'node_ethtool_rx_prio{p}_{w}{{device="eth{n}"}}' for n in range(8) for p in range(8) for w in "abcd"
    )
    lines += rails
    disks = ("reads_completed", "read_bytes", "writes_completed", "written_bytes", "io_time_seconds")
    lines += [f'node_disk_{what}_total{{device="nvme{n}n1"}}' for n in range(16) for what in disks]
    lines += [f"node_vmstat_counter_{n}" for n in range(100)]
    counted = [f"{line} %(up)d" for line in lines]
    rooms = [
        ("avail_bytes", "6e11"),
        ("size_bytes", "1e12"),
        ("files", "6e7"),
        ("files_free", "5e7"),
        ("readonly", "0"),
    ]
    still = [
        f'node_filesystem_{what}{{device="/dev/md{n}",fstype="ext4",mountpoint="/data/{n}"}} {value}'
        for n in range(12)
        for what, value in rooms
    ]
    still += [f'node_systemd_unit_state{{name="unit-{n}.service",state="failed"}} 0' for n in range(150)]
    still += ["node_memory_MemTotal_bytes 2e12", "node_memory_MemAvailable_bytes 1e12"]
    still += ["node_timex_sync_status 1", "node_textfile_scrape_error 0", "node_time_seconds %(now)d"]
    return "\n".join([*counted, *still, ""])


def answer_for_all(port: int) -> None:
    """Answer as any node, in a process of its own."""
    text = page()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            number = int(line.split(b" ")[1].rpartition(b"/")[2])
            while (await reader.readline()).strip():
                pass
            body = (text % {"up": int(time.time() * 7) + number, "now": int(time.time())}).encode()
            kind = "Content-Type: text/plain; version=0.0.4"
            head = f"HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()

    async def serve() -> None:
        async with await asyncio.start_server(talk, "127.0.0.1", port) as server:
            await server.serve_forever()

    asyncio.run(serve())


def unpacked(folder: Path, package: str) -> Path:
    """A package's program: Debian's, of whatever release this machine is."""
    fetch = ["apt-get", "--option=APT::Sandbox::User=root", "download", package]
    subprocess.run(fetch, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob(f"{package}_*.deb")
    subprocess.run(["dpkg", "-x", archive, folder / package], check=True)
    print(archive.name.replace("%3a", ":").removesuffix(".deb"))
    (program,) = (folder / package / "usr" / "bin").glob(package)
    return program


def configuration(folder: Path, nodes: int, *, rules: bool) -> Path:
    """Whom to ask, and what to reckon; JSON is YAML."""
    targets = [
        {
            "targets": [f"127.0.0.1:{NODES_PORT}"],
            "labels": {
                "__metrics_path__": f"/{number}",
                "instance": f"tokyo-gpu-{number}",
                "region": "tokyo",
                "pool": "gpu",
                "node_role": "gpu",
            },
        }
        for number in range(nodes)
    ]
    found: dict[str, object] = {
        "global": {"scrape_interval": f"{INTERVAL_S}s", "scrape_timeout": f"{INTERVAL_S}s"},
        "scrape_configs": [{"job_name": "node-exporter", "static_configs": targets}],
    }
    if rules:
        found["global"] = {**found["global"], "evaluation_interval": f"{INTERVAL_S}s"}  # type: ignore[dict-item] # a dict
        found["rule_files"] = [str(capabilities.alerts_of(name)) for name in capabilities.with_watch()]
    file = folder / "causeway.yml"
    file.write_text(json.dumps(found))
    return file


@contextmanager
def running(command: list[str | Path]) -> Iterator[int]:
    """A program for a while; its PID."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


def asked(port: int, query: str) -> float:
    """The one value that a query has."""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=60) as found:
        result = json.load(found)["data"]["result"]
    return float(result[0]["value"][1]) if result else float("nan")


@dataclass(frozen=True)
class Cost:
    """What a run took."""

    series: float
    memory_kib: int
    processor: float
    """Of one."""


def cost(pid: int, port: int, seconds: float, nodes: int) -> Cost:
    """After a third of the time, over the rest of it."""
    time.sleep(seconds / 3)
    before, began = _processor_s(pid), time.monotonic()
    time.sleep(seconds * 2 / 3)
    used = (_processor_s(pid) - before) / (time.monotonic() - began)
    memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KIB
    series = asked(port, 'sum(scrape_samples_scraped{job="node-exporter"})') + 5 * nodes
    looks = f'scrape_duration_seconds{{job="node-exporter"}}[{int(seconds * 2 / 3)}s]'
    print(
        f"  {nodes} nodes, {series:,.0f} series: {memory / 1024:,.0f} MiB, {used:.2f} of a processor;"
        f" a look takes {1000 * asked(port, f'avg(avg_over_time({looks}))'):.0f} ms,"
        f" the longest {1000 * asked(port, f'max(max_over_time({looks}))'):.0f} ms;"
        f" {asked(port, 'sum(up)'):.0f} up"
    )
    return Cost(series, memory, used)


def _processor_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS


def metric(name: str) -> float:
    """The sum of a series of Prometheus' own, which nobody looks at here."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PROMETHEUS_PORT}/metrics", timeout=60) as found:
        lines = found.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def prometheus(program: Path, folder: Path, nodes: int, seconds: float) -> Cost:
    """One run of Prometheus, with our rules."""
    with running(
        [
            *(program, f"--config.file={configuration(folder, nodes, rules=True)}"),
            *(
                f"--storage.tsdb.path={folder / 'prometheus-data'}",
                f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}",
            ),
        ]
    ) as pid:
        found = cost(pid, PROMETHEUS_PORT, seconds, nodes)
        rules, took_s = (
            metric("prometheus_rule_group_rules"),
            metric("prometheus_rule_group_last_duration_seconds"),
        )
        print(f"    {rules:.0f} rules take {1000 * took_s:.0f} ms together, every {INTERVAL_S} s;"
              f" {metric('prometheus_rule_evaluation_failures_total'):.0f} failed")  # fmt: skip
    shutil.rmtree(folder / "prometheus-data")
    return found


def victoria(program: Path, folder: Path, nodes: int, seconds: float) -> Cost:
    """One run of VictoriaMetrics, which has no rules by itself."""
    with running(
        [
            *(program, f"-promscrape.config={configuration(folder, nodes, rules=False)}"),
            *(f"-storageDataPath={folder / 'victoria-data'}", f"-httpListenAddr=127.0.0.1:{VICTORIA_PORT}"),
        ]
    ) as pid:
        found = cost(pid, VICTORIA_PORT, seconds, nodes)
    shutil.rmtree(folder / "victoria-data")
    return found


def main() -> None:
    """Both, with few nodes and with many."""
    few, many, seconds = ([int(word) for word in sys.argv[1:]] + [50, 200, 90][len(sys.argv) - 1 :])[:3]
    nodes = Process(target=answer_for_all, args=(NODES_PORT,), daemon=True)
    nodes.start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package, run in (("prometheus", prometheus), ("victoria-metrics", victoria)):
            program = unpacked(folder, package)
            less, more = (run(program, folder, count, seconds) for count in (few, many))
            each = (more.memory_kib - less.memory_kib) / (more.series - less.series)
            share = (more.processor - less.processor) / (many - few)
            print(f"  each series {each:.2f} KiB, each node {1000 * share:.2f} ‰ of a processor")
    nodes.terminate()


if __name__ == "__main__":
    main()
