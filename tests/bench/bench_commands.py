"""How long a user waits: for `./run` on a prepared machine, and for the plan of 10,000 GPUs.

Prints the best and the worst of some runs in seconds, and the plan's processor time; judges nothing.
Usage: python tests/bench/bench_commands.py
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = 5
LARGE = """
name: large
regions:
  - name: one
    cidr: 10.81.0.0/16
    pools:
      - {name: control, role: control, count: 3}
      - {name: gpu, role: gpu, count: 1250, gpus: 8, gpu_model: h100-sxm}
"""


def measured(name: str, *command: str | Path) -> None:
    """Print what a command takes."""
    took_s, before = [], resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(RUNS):
        started = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        took_s.append(time.monotonic() - started)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) / RUNS
    print(f"{name}: {min(took_s):.2f} to {max(took_s):.2f} s, {cpu_s:.2f} s of a processor")


def main() -> None:
    """Measure both."""
    measured("./run exec true", ROOT / "run", "exec", "true")
    with tempfile.TemporaryDirectory() as folder:
        declared = Path(folder) / "large.yaml"
        declared.write_text(LARGE)
        measured("plan of 10,000 GPUs", sys.executable, "-m", "infra.cli", "plan", declared, "--json")


if __name__ == "__main__":
    main()
