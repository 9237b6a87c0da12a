"""`causeway dashboards`: what Grafana shows of a cluster, as files."""

import argparse
from pathlib import Path

from infra.errors import CausewayError, ExitCode
from infra.files import write_file

COMMAND, SUMMARY = "dashboards", "write the dashboards of all capabilities as files for Grafana"
PROVISIONING = "causeway.yaml"
ON_GRAFANAS_HOST = Path("/var/lib/grafana/dashboards/causeway")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="where to; made where it is not there")
    parser.add_argument(
        "--path",
        type=Path,
        default=ON_GRAFANAS_HOST,
        help=f"where Grafana will find them, for {PROVISIONING} (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """One file for each dashboard, and one that tells Grafana of the folder."""
    from infra.capabilities.monitoring import grafana  # its packages are needed here alone

    files = grafana.dashboard_files() | {PROVISIONING: grafana.provisioning(arguments.path)}
    for name, text in files.items():
        file: Path = arguments.folder / name
        try:
            write_file(file, text)
        except OSError as error:
            raise CausewayError(
                f"{file} cannot be written: {error.strerror}", hint="name a folder that you may write to"
            ) from None
        print(file)
    return ExitCode.OK
