"""Playbooks and roles as Ansible has parsed them, without parsing them anew in each run.

Ansible reads every role of a playbook before its first task, whether a host takes it or not, parses each file
and copies all of it once more, value by value: with all roles 1.6 of the 2.1 s of CPU until then.
"""

import pickle
import sys
from typing import Any

import ansible
import yaml
from ansible import context
from ansible._internal._datatag._tags import SourceWasEncrypted, TrustedAsTemplate
from ansible.errors import AnsibleError
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play import Play

from infra.cached import Cached, may_last, name_of

VERSIONS = (ansible.__version__, yaml.__version__, sys.version)
ROLE = "causeway_role"
"""The variable by which a play of playbooks/roles.yml says for which role it is there."""
LISTS = ("listtags", "listtasks", "syntax")
"""What shows a playbook, whoever takes its roles."""
LEFT_OUT = "_causeway_left_out"
PARSED = Cached("parsed", 20_000)


def use() -> None:
    """Have Ansible load so."""
    if not hasattr(DataLoader.load_from_file, "__wrapped__"):  # Ansible may load a plugin twice
        DataLoader.load_from_file = _found_parsed(DataLoader.load_from_file)
        Play._load_roles = _of_somebody(Play._load_roles)
        TaskQueueManager.run = _with_its_roles(TaskQueueManager.run)
        PARSED.throw_away()


def _found_parsed(load: Any) -> Any:
    def load_from_file(
        loader: Any,
        file_name: str,
        cache: str = "all",
        unsafe: bool = False,
        json_only: bool = False,
        trusted_as_template: bool = False,
    ) -> Any:
        if unsafe or json_only or cache != "all":
            return load(loader, file_name, cache, unsafe, json_only, trusted_as_template)
        path = loader.path_dwim(file_name)
        seen = vars(loader).setdefault("_causeway_parsed", {})
        if path not in seen:  # a run stands on the files that it began with
            seen[path] = _pickled(loader, path, trusted_as_template)
        return pickle.loads(seen[path])  # noqa: S301 - our own, as Python's own caches are

    load_from_file.__wrapped__ = load  # type: ignore[attr-defined]
    return load_from_file


def _pickled(loader: Any, path: str, trusted: bool) -> bytes:
    text = loader.get_text_file_contents(path)
    name = name_of(VERSIONS, path, trusted, str(text))
    encrypted = SourceWasEncrypted.is_tagged_on(text)
    lasting = may_last(path) and not encrypted
    content = PARSED.find(name) if lasting else None
    if content is None:
        parsed = loader.load(data=TrustedAsTemplate().tag(text) if trusted else text, file_name=path)
        content = pickle.dumps(SourceWasEncrypted().tag(parsed) if encrypted else parsed, protocol=5)
        if lasting:
            PARSED.keep(name, content)
    return content


def _of_somebody(load_roles: Any) -> Any:
    def loaded(play: Any, attribute: str, roles: Any) -> Any:
        vars(play)[LEFT_OUT] = is_nobodys(play)
        return [] if vars(play)[LEFT_OUT] else load_roles(play, attribute, roles)

    return loaded


def is_nobodys(play: Any) -> bool:
    """Whether a play is there for a role that no host of the inventory takes."""
    role = (play._ds.get("vars") or {}).get(ROLE)
    if not role or any(context.CLIARGS.get(option) for option in LISTS):
        return False
    groups = play._variable_manager._inventory.groups
    return f"feature_{role}" in groups and not groups[f"feature_{role}"].get_hosts()


def _with_its_roles(run: Any) -> Any:
    def checked(queue: Any, play: Any) -> Any:
        if vars(play).get(LEFT_OUT):  # Ansible comes here where a play has hosts
            raise AnsibleError(f"{play.get_name()}: no host took the role when the playbook was read")
        return run(queue, play)

    return checked
