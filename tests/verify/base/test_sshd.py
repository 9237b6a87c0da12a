"""sshd lets nobody in without a key, and says so to whoever asks."""

import shlex

from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder

# A handshake with this node's own sshd as user $1, its key known from the file beside it, offering key $2, of
# which the private half is not here; the rest are options. What sshd would still accept at the end stands in
# brackets: "Permission denied (publickey)."
KNOCK = """
folder=$(mktemp -d) && port=$(sshd -T | sed -n 's/^port //p' | head -n 1)
sed "s/^/[127.0.0.1]:$port /" /etc/ssh/ssh_host_ed25519_key.pub > $folder/known
[ "$port" = 22 ] && sed -i 's/^.127.0.0.1.:22/127.0.0.1/' $folder/known
user=$1 && printf '%s\\n' "$2" > $folder/key.pub && shift 2
ssh -v -F none -p $port -o UserKnownHostsFile=$folder/known -o StrictHostKeyChecking=yes -o BatchMode=yes \\
  -o IdentitiesOnly=yes -o IdentityFile=$folder/key "$@" $user@127.0.0.1 true 2>&1
rm -r $folder
"""


def knock(host: Host, user: str, key: str = "", *options: str) -> str:
    """What ssh says when it tries to log in to the node from the node."""
    words = " ".join(shlex.quote(word) for word in ("sh", "-c", KNOCK, "knock", user, key, *options))
    return str(host.run(words).stdout)


def settings(host: Host) -> dict[str, str]:
    """sshd's effective settings for root, by lower-case keyword."""
    done = host.run("sshd -T -C user=root,host=localhost,addr=127.0.0.1")
    assert done.rc == 0, done.stderr
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


def test_a_password_is_refused_and_a_key_asked_for(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if expect.base_adopt_passwords == "keep":
        verdict.not_declared("logins by password are kept as they were")
    password = (
        "-o",
        "PubkeyAuthentication=no",
        "-o",
        "PreferredAuthentications=password,keyboard-interactive",
    )
    said = knock(host, "root", "", *password)
    assert "Permission denied (publickey)" in said, said


def test_the_declared_keys_are_let_in(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.base_authorized_keys:
        verdict.not_declared("no key beside those that are there")
    for key in expect.base_authorized_keys:
        said = knock(host, expect.login_user, key, "-o", "PreferredAuthentications=publickey")
        assert "Server accepts key" in said, said


def test_a_key_that_is_not_declared_is_refused(host: Host, expect: Expect) -> None:
    stranger = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICkq9TVxBOZpzqFhV3iE8p0Q6sYlq0mZJfX8dW8o5bYe"
    said = knock(host, expect.login_user, stranger, "-o", "PreferredAuthentications=publickey")
    assert "Offering public key" in said, said
    assert "Server accepts key" not in said


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
    if expect.base_adopt_passwords == "keep":
        kept = {"passwordauthentication", "kbdinteractiveauthentication"}
        kept |= {"permitrootlogin"} if expect.base_sshd_permit_root_login != "no" else set()
        wanted = {key: value for key, value in wanted.items() if key not in kept}
    found = settings(host)
    assert {key: found[key] for key in wanted} == wanted
