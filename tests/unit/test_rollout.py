"""What of a role a roll-out leaves out: tasks of which nothing changed, on the node or in what they need."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.drift.findings import Difference, RoleReport
from infra.drift.inputs import Inputs, sources_of
from infra.drift.manifest import Entry, RoleManifest, UncoveredTask
from infra.drift.rollout import unchanged_tasks
from infra.drift.task_inputs import Known, TaskInputs
from infra.ground.contract import Contract
from infra.inventory.roles import role_hosts, role_order, roles_within
from tests.unit.contracts import checkout as checkout
from tests.unit.contracts import contract as contract
from tests.unit.contracts import contract_of, taking

CONTROL = "tokyo-control-0"
Hashes = dict[str, str]


def tasks(contract: Contract, role: str, host: str = "", salt: str = "x") -> Hashes:
    known = TaskInputs(Inputs(contract, {}, lambda _name, _kind: salt))
    return known.of(host or role_hosts(contract, role)[0], role)


def differing(before: Hashes, after: Hashes) -> set[str]:
    return {task for task in {*before, *after} if before.get(task) != after.get(task)}


def edit(path: Path, change: Callable[[str], str]) -> None:
    text = path.read_text()
    path.write_text(change(text))
    assert path.read_text() != text


# What a task depends on


@pytest.mark.parametrize("role", role_order())
def test_a_comment_concerns_no_task(role: str, contract: Contract, checkout: Path) -> None:
    contract = taking(role, contract)
    before = tasks(contract, role)
    assert before
    for file in (checkout / "roles" / role).glob("[tdv]*/*.yml"):  # tasks, defaults, vars
        edit(file, lambda text: f"{text}\n# why\n")
    assert tasks(contract, role) == before


@pytest.mark.parametrize("role", role_order())
def test_every_file_and_variable_concerns_some_task(role: str, contract: Contract, checkout: Path) -> None:
    """Else a change would be sealed that nobody has rolled out."""
    contract = taking(role, contract)
    before = tasks(contract, role)
    names = {
        name
        for step in TaskInputs(Inputs(contract, {}, lambda _n, _k: "")).known(role)
        for name in step.names
    }
    for each in roles_within(role, checkout):
        folder = checkout / "roles" / each
        for file in sorted(each for kind in ("files", "templates") for each in (folder / kind).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                whole = file.read_bytes()
                file.write_bytes(whole + b"\n# more\n")
                assert tasks(contract, role) != before, file
                file.write_bytes(whole)
        texts = [
            file.read_text() for kind in ("tasks", "templates") for file in sorted(folder.glob(f"{kind}/*.*"))
        ]
        used = {word for text in texts for word in re.findall(r"\w+", text)}
        assert sources_of(role).variables & used <= names
    assert tasks(contract, role) == before


def test_a_changed_template_concerns_the_task_that_writes_it(contract: Contract, checkout: Path) -> None:
    before = tasks(contract, "base")
    edit(checkout / "roles/base/templates/sshd.conf.j2", lambda text: text + "\n# x\n")
    # Where a variable names the file, it may be any of the role's.
    named_by_a_variable = {"Install the authority of the mirrors"}
    assert differing(before, tasks(contract, "base")) == {"Harden sshd"} | named_by_a_variable


def test_a_changed_default_concerns_what_reaches_it_also_through_another(
    contract: Contract, checkout: Path
) -> None:
    before = tasks(contract, "base")
    edit(
        checkout / "roles/base/defaults/main.yml",
        lambda text: re.sub("base_limit_memlock: .*", "base_limit_memlock: 7", text),
    )
    found = differing(before, tasks(contract, "base"))
    assert {"Set limits for sessions", "Set limits for services"} <= found
    assert not found & {"Harden sshd", "Set the timezone", "Install what the role needs"}


def test_a_declared_value_concerns_the_tasks_that_name_it(contract: Contract) -> None:
    after = contract_of(lambda data: data["regions"][0].update(timezone="Asia/Seoul"))
    found = differing(tasks(contract, "base", CONTROL), tasks(after, "base", CONTROL))
    assert found == {"Set the timezone"}


@pytest.mark.usefixtures("checkout")
def test_a_users_own_variable_concerns_the_tasks_that_name_it(contract: Contract, checkout: Path) -> None:
    before = tasks(contract, "base")
    own = checkout / "inventories/s/group_vars/all/mine.yml"
    own.parent.mkdir(parents=True)
    own.write_text("base_timezone: Asia/Seoul\n")
    assert differing(before, tasks(contract, "base")) == {"Set the timezone"}
    own.write_text("base_timezone: '{{ elsewhere }}'\n")
    assert "Set the timezone" in differing(before, tasks(contract, "base"))


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (
            "playbooks/roles.yml",
            lambda text: text.replace("- role: consul", "- role: consul\n      become: true"),
        ),
        ("roles/consul/filter_plugins/causeway_consul.py", lambda text: text + "\n# x\n"),
        ("roles/pki/library/causeway_pki_key.py", lambda text: text + "\n# x\n"),
    ],
)
def test_what_all_tasks_share_concerns_all_of_them(
    path: str, change: Callable[[str], str], contract: Contract, checkout: Path
) -> None:
    before = tasks(contract, "consul")
    edit(checkout / path, change)
    assert differing(before, tasks(contract, "consul")) == before.keys()


@pytest.mark.usefixtures("checkout")
def test_a_secret_concerns_all_tasks_of_a_role_that_reads_it(contract: Contract) -> None:
    before = tasks(contract, "consul")
    assert differing(before, tasks(contract, "consul", salt="y")) == before.keys()
    assert tasks(contract, "drift_watch") == tasks(contract, "drift_watch", salt="y")


COPY = "- {name: t, ansible.builtin.copy: {content: '{{ "


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (COPY + 'lookup("template", x) }}\', dest: /x}}', {"a.j2", "b.j2", "c.j2", "d.j2", "a.sh"}),
        (COPY + 'lookup("template", "b.j2") }}\', dest: /x}}', {"b.j2"}),
        (
            "- {name: t, ansible.builtin.template: {src: '{{ x }}.j2', dest: /x}}",
            {"a.j2", "b.j2", "c.j2", "d.j2", "a.sh"},
        ),
        ("- {name: t, ansible.builtin.template: {src: a.j2, dest: /x}}", {"a.j2"}),
        ("- {name: t, ansible.builtin.template: {src: c.j2, dest: /x}}", {"a.j2", "c.j2"}),
        (
            "- {name: t, ansible.builtin.template: {src: d.j2, dest: /x}}",
            {"a.j2", "b.j2", "c.j2", "d.j2", "a.sh"},
        ),
        ("- {name: t, ansible.builtin.script: a.sh}", {"a.sh"}),
        ("- {name: t, ansible.builtin.file: {src: '/usr/{{ x }}', dest: /x, state: link}}", set()),
        ("- {name: t, ansible.builtin.copy: {src: '{{ role_path }}/files/a.sh', dest: /x}}", {"a.sh"}),
        (
            "- {name: t, ansible.builtin.copy: {src: '{{ role_path }}/files/../{{ x }}', dest: /x}}",
            {"a.j2", "b.j2", "c.j2", "d.j2", "a.sh"},
        ),
    ],
)
def test_the_files_that_a_task_may_read_are_told(
    text: str, parts: set[str], contract: Contract, checkout: Path
) -> None:
    role = checkout / "roles/drift_watch"
    for name in ("a.j2", "b.j2"):
        (role / "templates" / name).parent.mkdir(exist_ok=True)
        (role / "templates" / name).write_text("x")
    (role / "templates/c.j2").write_text("{% include 'a.j2' %}")
    (role / "templates/d.j2").write_text("{% include which %}")
    (role / "files").mkdir(exist_ok=True)
    (role / "files/a.sh").write_text("x")
    (role / "tasks/main.yml").write_text(text)
    before, found = tasks(contract, "drift_watch"), set()
    for file in (*role.glob("templates/?.j2"), role / "files/a.sh"):
        edit(file, lambda text: text + "y")
        if tasks(contract, "drift_watch") != before:
            found.add(file.name)
        edit(file, lambda text: text[:-1])
    assert found == parts


def test_what_a_task_asks_for_that_others_find_out_is_known_as_such(
    contract: Contract, checkout: Path
) -> None:
    (checkout / "roles/drift_watch/tasks/main.yml").write_text("""
- {name: ask, ansible.builtin.command: x, register: __answer}
- {name: make, ansible.builtin.set_fact: {__fact: 1}}
- {name: act, ansible.builtin.command: y, when: __answer.rc == 0}
- {name: more, ansible.builtin.debug: {msg: '{{ __fact }}'}}
- {name: free, ansible.builtin.command: z}
""")
    known = TaskInputs(Inputs(contract, {}, lambda _n, _k: "")).known("drift_watch")
    assert {step.task for step in known if step.later} == {"ask", "make", "act", "more"}


# What is left out

FILE, APT, COMMAND = "ansible.builtin.template", "ansible.builtin.apt", "ansible.builtin.command"
ENTRIES = (
    ("file", "/a", ["write a", "set a's mode"]),
    ("file", "/b", ["write b"]),
    ("listing", "/d", ["write a", "write b"]),
    ("package", "p", ["install p"]),
    ("route", "10.0.0.0/8", ["route"]),
    ("unit", "x.service", ["run x"]),
)
ALL = {task for _, _, own in ENTRIES for task in own}
MODULES = {"install p": APT, "route": "causeway_x", "look": COMMAND, "ask": COMMAND}


def entry(kind: str, key: str, own: list[str], *, handler: bool = False) -> Entry:
    return Entry(kind=kind, key=key, task="", tasks=own, want={}, handler=handler)


def step(task: str, *, later: bool = False) -> Known:
    return Known(task, MODULES.get(task, FILE), "", frozenset(), later)


def left_out(
    *changed: str,
    state: str = "stale",
    later: tuple[str, ...] = (),
    differs: bool = False,
    older: bool = False,
) -> set[str]:
    """What is left out of a role of which these tasks CHANGED, or are new."""
    entries = [entry(*each) for each in ENTRIES]
    if older:
        entries.append(entry("file", "/old", []))
    part = RoleManifest(
        tasks=dict.fromkeys(ALL, "1"), entries=entries, uncovered=[UncoveredTask(task="look", module=COMMAND)]
    )
    report = RoleReport(state)  # type: ignore[arg-type]
    if differs:
        report.differences.append(Difference("base", "t", "file", "/a", {}, {}))
    now = dict.fromkeys(ALL, "1") | dict.fromkeys(changed, "2")
    steps = [step(task, later=task in later) for task in now]
    return {*unchanged_tasks(report, part, now, steps)}


def test_of_a_role_of_which_nothing_changed_no_known_task_runs() -> None:
    assert left_out() == left_out(state="clean") == ALL


def test_a_changed_task_runs_with_all_that_make_the_same_thing_and_with_what_a_restart_undoes() -> None:
    assert left_out("write b") == ALL - {"write b", "route"}
    assert left_out("write a") == left_out("set a's mode") == ALL - {"write a", "set a's mode", "route"}


def test_with_a_units_file_the_tasks_run_that_have_systemd_read_it() -> None:
    path = "/etc/systemd/system/x.service"
    made = [("file", path, ["write x"]), ("file", "/b", ["write b"]), ("unit", "x.timer", ["run x"])]
    part = RoleManifest(
        tasks=dict.fromkeys(("write x", "write b", "run x"), "1"), entries=[entry(*each) for each in made]
    )
    for changed, expected in (("write x", ["write b"]), ("write b", ["run x", "write x"])):
        now = part.tasks | {changed: "2"}
        assert unchanged_tasks(RoleReport("stale"), part, now, [step(task) for task in now]) == expected


def test_a_new_task_runs_and_the_others_need_not() -> None:
    assert left_out("write c") == ALL - {"route"}


@pytest.mark.parametrize("changed", ["install p", "route", "ask"])
def test_a_change_that_may_undo_what_other_tasks_made_has_all_of_them_run(changed: str) -> None:
    assert left_out(changed) == set()


def test_a_role_runs_whole_where_the_scan_does_not_know_it_as_it_was() -> None:
    assert left_out("write b", differs=True) == left_out("write b", older=True) == set()
    assert left_out("write b", state="not sealed") == left_out("write b", state="drift") == set()


def test_a_task_that_asks_others_always_runs() -> None:
    assert left_out(later=("write b",)) == ALL - {"write b"}


TASKS = st.sampled_from("abcdefg")
KINDS_OF = st.sampled_from(["file", "unit", "listing", "package", "route", "mount"])


@given(
    st.lists(st.tuples(KINDS_OF, st.lists(TASKS, min_size=1, unique=True)), max_size=6),
    st.sets(TASKS),
    st.sets(TASKS),
)
def test_nothing_that_changed_is_left_out_and_what_is_left_out_is_left_out_whole(
    things: list[tuple[str, list[str]]], changed: set[str], later: set[str]
) -> None:
    entries = [entry(kind, str(number), own) for number, (kind, own) in enumerate(things)]
    part = RoleManifest(tasks=dict.fromkeys("abcdefg", "1"), entries=entries)
    now = {task: "2" if task in changed else "1" for task in "abcdefg"}
    found = {*unchanged_tasks(RoleReport("stale"), part, now, [step(t, later=t in later) for t in now])}
    assert not found & (changed | later)
    for each in entries:
        if each.kind != "listing":
            assert found.issuperset(each.tasks) or found.isdisjoint(each.tasks)
    if found and changed:
        assert not [e for e in entries if e.kind in ("package", "route", "mount") and changed & {*e.tasks}]
