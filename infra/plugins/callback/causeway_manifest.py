"""Callback plugin: records what roles make true while they converge, and has it sealed at the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible.template import Templar

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.drift.kind import Task  # noqa: E402 - needs the path set above
from infra.drift.owner import only_looks, owner_of, role_name  # noqa: E402 - likewise
from infra.drift.record import (  # noqa: E402 - likewise
    SETTLED_TASKS,
    UNCHANGED_TASKS,
    Recorder,
    as_json,
    governed_by,
    plain_arguments,
)

DOCUMENTATION = """
name: causeway_manifest
type: aggregate
short_description: Records and seals what roles make true
description:
  - Notes for every finished task of a role which files, packages, units and settings it governs.
  - At the end of the run the values are read from the nodes in one SSH trip and kept as the host's manifest.
  - A task may say itself what it governs, as C(vars: causeway_governs) or in its result under C(governs).
options:
  record:
    description: A file to write the records to as JSON, for a look at them where nothing can be sealed.
    type: path
    env: [{name: CAUSEWAY_RECORD}]
requirements: []
"""

SHOWN_PROBLEMS = 20
NAMED = ("path", "dest", "name", "state", "enabled", "masked", "recurse", "selection", "key_file")
"""Arguments that are no secret in a task that must not be shown."""


class CallbackModule(CallbackBase):  # type: ignore[misc] # ansible has no types
    """Thin: turns Ansible's objects into plain values for `infra.drift.record`."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "causeway_manifest"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.recorder = Recorder()
        self.roles: dict[str, Any] = {}
        self.play: Any = None
        self.variables: Any = None
        self.partial: set[str] = set()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Keep what knows the inventory and the variables."""
        self.play, self.variables = play, play.get_variable_manager()

    def v2_runner_on_ok(self, result: Any) -> None:
        """A finished task: ok or changed; a loop brings one result per item."""
        task = result.task
        role = owner_of(task)
        if role is None or only_looks(role):
            return
        name = role_name(role)
        self._saw(name, role)
        host = self._host_of(result)
        if host is None or _only_checks(result):
            return
        declared = self._declared(result)
        for fields, outcome in self._outcomes(result):
            done = _task(task, fields, outcome)
            governed = self.recorder.take(host, name, done, is_read=_is_read(result), declared=declared)
            if done.changed:
                self._note(host, governed)

    def v2_runner_on_failed(self, result: Any, **_how: Any) -> None:
        """A task that failed may have changed what it governs, and the turns of its loop before it have."""
        role = owner_of(result.task)
        if role is None or only_looks(role) or _only_checks(result):
            return
        host = self._host_of(result)
        if host is None:
            return
        declared: list[Mapping[str, Any]] = []
        with suppress(Exception):  # it may need what the task has not come to
            declared = self._declared(result)
        for fields, outcome in self._outcomes(result, also_failed=True):
            # Of a loop that must not be shown Ansible does not say which turn failed.
            failed = any(outcome.get(how) for how in ("failed", "unreachable", "censored"))
            if failed or outcome.get("changed"):
                governed = governed_by(role_name(role), _task(result.task, fields, outcome), declared)
                self._note(host, governed, tried=failed)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """The node went away in the middle of a task, or before it."""
        self.v2_runner_on_failed(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """A skipped task governs nothing, but its role was there."""
        role = owner_of(result.task)
        if role is not None and not only_looks(role) and not result.task.check_mode:
            self._saw(role_name(role), role)
            self.recorder.seen(result.host.get_name(), role_name(role))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Seal what the hosts of a stack took; without a stack there is nobody to keep it."""
        if not self.recorder.hosts or context.CLIARGS.get("check"):
            return
        stack, hosts = self._stack(), self._hosts(stats)
        if file := self.get_option("record"):
            Path(file).write_text(json.dumps(hosts, default=str))
        if stack is not None:
            self._seal(stack, hosts)

    def _note(self, host: str, governed: list[tuple[str, str, str]], *, tried: bool = False) -> None:
        """What was changed or TRIED, in case that this run does not come to its end."""
        stack = self._stack()
        if stack is not None and governed:
            from infra.drift.journal import note_changes  # a run without a change need not wait for it

            changes = [(str(role), str(kind), str(key)) for role, kind, key in governed]
            note_changes(stack, host, changes, tried=tried)

    def _seal(self, stack: str, hosts: Mapping[str, Any]) -> None:
        """Seal and say how that went; whatever happens there, the converge was what it was."""
        try:
            from infra.drift.seal import seal_run  # a run without roles need not wait for it

            plain = json.loads(json.dumps(hosts, default=str))  # Ansible's strings are of classes of its own
            problems = seal_run(stack, plain)
        except Exception as error:  # Ansible would make a warning without a cause of it
            problems = [f"not sealed: {type(error).__name__}: {error}"]
        if not problems:
            self._display.display(f"drift: sealed {len(hosts)} hosts")
            return
        if more := problems[SHOWN_PROBLEMS:]:
            problems = [*problems[:SHOWN_PROBLEMS], f"… and {len(more)} more"]
        self._display.error("drift: " + "\n".join(problems), wrap_text=False)

    def _hosts(self, stats: Any) -> dict[str, Any]:
        """The records of the hosts of the run, with what the run covered of each role."""
        hosts: dict[str, Any] = {}
        for host, roles in self.recorder.hosts.items():
            failed = host in stats.failures or host in stats.dark
            known = self.variables._inventory.get_host(host)
            given = {} if known is None else known.vars
            in_part, unchanged = given.get(SETTLED_TASKS, {}), given.get(UNCHANGED_TASKS, {})
            hosts[host] = {
                role: as_json(record)
                | {
                    "whole": not (failed or in_part.get(role)) and self._is_whole(role),
                    "left_out": list(unchanged.get(role, ())),
                    "handlers": self._handlers(role),
                }
                for role, record in roles.items()
            }
        return hosts

    def _saw(self, name: str, role: Any) -> None:
        self.roles[name] = role
        if role._from_files.get("tasks", ["main"]) not in (["main"], "main"):
            self.partial.add(name)

    def _is_whole(self, name: str) -> bool:
        """Whether every task of the role had its turn: no tags, no start in the middle."""
        arguments = context.CLIARGS
        if name in self.partial or arguments.get("start_at_task") or arguments.get("step"):
            return False
        only, skip = set(arguments.get("tags") or ["all"]), set(arguments.get("skip_tags") or [])
        if only == {"all"} and not skip:
            return True
        tasks = _tasks(self.roles[name].get_task_blocks())
        return all(bool(task.evaluate_tags(only, skip, {})) for task in tasks)

    def _handlers(self, name: str) -> list[str]:
        """The role's handlers: a run without a change does not call them, and what they keep still holds."""
        blocks = self.roles[name].get_handler_blocks(play=self.play)
        return [task.name for task in _tasks(blocks)]

    def _host_of(self, result: Any) -> str | None:
        """The host a task worked on; None when that is none of the inventory, such as the controller."""
        delegated = result.task_fields.get("delegate_to")
        if not delegated:
            return str(result.host.get_name())
        known = self.variables._inventory.get_host(delegated)
        return None if known is None or delegated in ("localhost", "127.0.0.1") else str(delegated)

    def _outcomes(
        self, result: Any, *, also_failed: bool = False
    ) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Arguments and result of a task, or of each turn of its loop.

        Of a loop that must not be shown Ansible says nothing but that it worked: its turns are told from the
        variables again, for what it governs is no secret.
        """
        if not (result.task.loop and "censored" in result.result):
            outcomes = _outcomes(result.result, also_failed)
            yield from ((result.task_fields, outcome) for outcome in outcomes)
            return
        everything = self.variables.get_vars(play=self.play, host=result.host, task=result.task)
        turn = result.task.loop_control.loop_var if result.task.loop_control else "item"
        named = {key: value for key, value in result.task.args.items() if key in NAMED}
        for item in Templar(loader=None, variables=everything).template(result.task.loop):
            arguments = Templar(loader=None, variables={**everything, turn: item}).template(named)
            yield {"args": arguments}, result.result

    def _declared(self, result: Any) -> list[Mapping[str, Any]]:
        """The task's `causeway_governs`, with the variables of this host in it."""
        raw = result.task.vars.get("causeway_governs")
        if not raw:
            return []
        everything = self.variables.get_vars(play=self.play, host=result.host, task=result.task)
        declared = Templar(loader=None, variables=everything).template(raw)
        return [dict(item) for item in declared]

    def _stack(self) -> str | None:
        """The stack of a causeway inventory; None for molecule's and everybody else's."""
        stack = self.variables._inventory.groups["all"].get_vars().get("causeway_stack")
        return None if stack is None else str(stack)


def _outcomes(result: Mapping[str, Any], also_failed: bool) -> Iterator[Mapping[str, Any]]:
    results = result.get("results")
    if not isinstance(results, list):
        yield result
        return
    for item in results:
        if isinstance(item, Mapping) and not item.get("skipped") and (also_failed or not item.get("failed")):
            yield item


def _task(task: Any, fields: Mapping[str, Any], outcome: Mapping[str, Any]) -> Task:
    """One result of a task, without Ansible's classes."""
    return Task(
        name=task.name or task.action,
        module=task.resolved_action or task.action,
        args=_safe(plain_arguments(fields, outcome), outcome),
        result=outcome,
        changed=bool(outcome.get("changed")),
        handler=type(task).__name__ == "Handler",
        declared=bool(task.get_vars().get("causeway_declared")),
    )


def _only_checks(result: Any) -> bool:
    """Whether it was to change nothing."""
    return bool(result.task.check_mode or result.task_fields.get("check_mode"))


def _is_read(result: Any) -> bool:
    return bool(result.task_fields.get("changed_when") == [False])


def _safe(arguments: dict[str, Any], outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Of a `no_log` task only where it worked, never with what."""
    if "censored" not in outcome:
        return arguments
    return {key: value for key, value in arguments.items() if key in NAMED}


def _tasks(blocks: list[Any]) -> Iterator[Any]:
    for block in blocks:
        for part in (*block.block, *block.rescue, *block.always):
            if hasattr(part, "block"):
                yield from _tasks([part])
            elif not getattr(part, "implicit", False):
                yield part
