"""The commands of `causeway`, one module each.

A module has `add_arguments(parser)` and `run(arguments) -> ExitCode`; `infra.cli` imports it only
when its command is asked for.
"""
