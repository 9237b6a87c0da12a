"""sshd lets nobody in without a key, and says so to whoever asks."""

from testinfra.host import Host

from tests.verify.support import Expect

# A handshake with this node's own sshd, its key known from the file beside it, offering only a password.
# What sshd would still accept stands in brackets: "Permission denied (publickey)."
KNOCK = """
known=$(mktemp) && port=$(sshd -T | sed -n 's/^port //p' | head -n 1)
sed "s/^/[127.0.0.1]:$port /" /etc/ssh/ssh_host_ed25519_key.pub > $known
[ "$port" = 22 ] && sed -i 's/^.127.0.0.1.:22/127.0.0.1/' $known
ssh -F none -p $port -o UserKnownHostsFile=$known -o StrictHostKeyChecking=yes -o BatchMode=yes \\
  -o PubkeyAuthentication=no -o PreferredAuthentications=password,keyboard-interactive \\
  root@127.0.0.1 true 2>&1
rm -f $known
"""


def settings(host: Host) -> dict[str, str]:
    """sshd's effective settings for root, by lower-case keyword."""
    done = host.run("sshd -T -C user=root,host=localhost,addr=127.0.0.1")
    assert done.rc == 0, done.stderr
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


def test_a_password_is_refused_and_a_key_asked_for(host: Host) -> None:
    said = host.run(KNOCK).stdout
    assert "Permission denied (publickey)" in said, said


def test_the_daemon_runs_with_the_declared_settings(host: Host, expect: Expect) -> None:
    wanted = {
        "passwordauthentication": "no",
        "kbdinteractiveauthentication": "no",
        "permitemptypasswords": "no",
        "pubkeyauthentication": "yes",
        "x11forwarding": "no",
        "permitrootlogin": expect.base_sshd_permit_root_login.replace(
            "prohibit-password", "without-password"
        ),
        "maxauthtries": str(expect.base_sshd_max_auth_tries),
        "clientaliveinterval": str(expect.base_sshd_client_alive_interval_s),
        "allowagentforwarding": "yes" if expect.base_sshd_agent_forwarding else "no",
    }
    found = settings(host)
    assert {key: found[key] for key in wanted} == wanted
