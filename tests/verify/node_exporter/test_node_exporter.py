"""A node's metrics: there for who shows a certificate, and for nobody else."""

from testinfra.host import Host

from tests.verify.monitoring import TLS, refuses_strangers
from tests.verify.support import Expect, VerdictRecorder

UNIT = "prometheus-node-exporter.service"
XIDS = "causeway-xid"


def test_no_answer_without_a_certificate(host: Host, expect: Expect) -> None:
    refuses_strangers(host, expect.node_exporter_address, expect.node_exporter_port)


def test_its_certificate_is_a_servers_only(host: Host) -> None:
    file = f"{TLS}/prometheus-node-exporter.pem"
    shown = host.run(f"openssl x509 -in {file} -noout -ext extendedKeyUsage").stdout
    assert "TLS Web Server Authentication" in shown
    assert "Client" not in shown, "who takes a node's key could read all others' metrics"


def test_others_leave_metrics_where_it_reads_them(host: Host, expect: Expect) -> None:
    shown = host.run(f"tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID {UNIT})/cmdline").stdout.split()
    assert f"--collector.textfile.directory={expect.node_exporter_textfile_dir}" in shown
    assert host.file(expect.node_exporter_textfile_dir).mode == 0o755


def test_it_comes_back(host: Host) -> None:
    shown = host.run(f"systemctl show -P Restart -P UnitFileState -P ActiveState {UNIT}").stdout.split()
    assert sorted(shown) == ["active", "always", "enabled"]


def test_xids_are_counted(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.node_exporter_xids:
        verdict.not_declared("no GPUs")
    file = f"{expect.node_exporter_textfile_dir}/causeway_xid.prom"
    *lines, now = host.run(f"systemctl start {XIDS}.service && cat {file}; date +%s").stdout.splitlines()
    read = next(line for line in lines if line.startswith("causeway_gpu_xid_read_timestamp_seconds "))
    assert 0 <= int(now) - int(read.split()[1]) <= 60
    shown = host.run(f"systemctl show -P UnitFileState -P ActiveState {XIDS}.timer").stdout.split()
    assert sorted(shown) == ["active", "enabled"]
