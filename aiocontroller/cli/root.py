"""The program's entry point: the table of commands, and the handling of errors."""

from __future__ import annotations

import importlib
import io
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from aiocontroller.cli.extras import ExtraMissingError, missing, refusal
from aiocontroller.core.errors import AioControllerError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "up": ("aiocontroller.lab.cli.up:up", "Start a whole cluster on this machine, with a live view."),
    "run": ("aiocontroller.cli.run:run", "Run a controller for an existing cluster."),
    "systemd-unit": (
        "aiocontroller.cli.systemd_unit:systemd_unit",
        "Print a unit file that runs this installation as a service.",
    ),
    "completion": (
        "aiocontroller.cli.completion:completion",
        "Print what makes a shell complete this program's commands, options and values.",
    ),
    "takeover": ("aiocontroller.cli.role:takeover", "Make a running controller take the role from the brokers."),
    "release": ("aiocontroller.cli.role:release", "Make a running controller give the role back to the brokers."),
    "settings": ("aiocontroller.cli.role:settings", "Show the settings of a running controller and their sources."),
    "status": ("aiocontroller.cli.status:status", "Show the controller, the brokers, and what is offline."),
    "brokers": (
        "aiocontroller.cli.overview:brokers",
        "Show each broker: leaders, replicas, waiting requests, last answer, and problems.",
    ),
    "incidents": (
        "aiocontroller.cli.overview:incidents",
        "Show incidents with their causes and phases, and failovers with their steps.",
    ),
    "explain": (
        "aiocontroller.cli.explain:explain",
        "Show what has happened to a partition, such as orders-7: leaders, in-sync replicas, moves, and why.",
    ),
    "check": (
        "aiocontroller.cli.check:check",
        "Report what is wrong with a cluster, or one failure away from it; write nothing to it.",
    ),
    "what-if": (
        "aiocontroller.cli.what_if:what_if",
        "Show what would become of a cluster; write nothing to it.",
    ),
    "plan": (
        "aiocontroller.cli.plan:plan",
        "Plan where replicas should go, and what that costs; write nothing to the cluster.",
    ),
    "migration": (
        "aiocontroller.cli.migration:migration",
        "Accompany Kafka's migration to KRaft, and roll it back.",
    ),
    "rehearse": (
        "aiocontroller.lab.cli.rehearse:rehearse",
        "Rehearse a cluster's failures and operations in the simulation; write nothing to the cluster.",
    ),
    "topics": ("aiocontroller.cli.topics:topics", "Create, list, describe, alter and delete topics."),
    "reassign": (
        "aiocontroller.cli.reassign:reassign",
        "Reassign replicas to other brokers; cancel and list reassignments.",
    ),
    "move": (
        "aiocontroller.cli.move:move",
        "Move replicas by a plan in small steps, throttled; stop or reverse it.",
    ),
    "roll": (
        "aiocontroller.cli.roll:roll",
        "Restart brokers one after the other by a command, each after checks.",
    ),
    "elect": ("aiocontroller.cli.elect:elect", "Elect preferred leaders, or leaders from outside the ISR."),
    "recover": (
        "aiocontroller.cli.recover:recover",
        "Elect leaders by how far the logs of offline partitions reach.",
    ),
    "debts": (
        "aiocontroller.cli.debts:debts",
        "List replicas that brokers still have to delete; drop them from the list.",
    ),
    "analyze": (
        "aiocontroller.cli.analyze:analyze",
        "Report incidents and availability from journals and Kafka's logs.",
    ),
    "simulate": (
        "aiocontroller.lab.cli.simulate:simulate",
        "Simulate clusters with faults in memory, each from a seed.",
    ),
    "explore": (
        "aiocontroller.lab.cli.explore:explore",
        "Check a specification of the controller in every state that it can reach.",
    ),
    "storm": (
        "aiocontroller.lab.cli.storm:storm",
        "Inject faults drawn from a seed for some time, and check the results.",
    ),
    "cluster": (
        "aiocontroller.lab.cli.cluster:cluster",
        "Kill, stop and start processes of the cluster that 'up' runs.",
    ),
}
"""Name -> location (imported only when used) and line in the help."""
NEEDS = {"analyze": "pipeline", **dict.fromkeys(("up", "rehearse", "simulate", "explore", "storm", "cluster"), "lab")}
"""Command -> the extra that it needs."""


def _refusing(name: str, extra: str) -> click.Command:
    """A stand-in for a command whose extra is missing: it has help, accepts any words, and refuses."""

    def refuse(words: tuple[str, ...]) -> NoReturn:
        raise ExtraMissingError(refusal(extra))

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["words"], nargs=-1, metavar="...")],
        help=f"{COMMANDS[name][1]}\n\nNot installed: {refusal(extra)}",
        context_settings={"ignore_unknown_options": True},
    )


class LazyGroup(click.Group):
    """The program's commands; a command's module is imported when it is used, so that ``--help`` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table, which is not alphabetical."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None for an unknown name, a command that refuses if its extra is missing."""
        if cmd_name not in COMMANDS:
            return None
        extra = NEEDS.get(cmd_name)
        if extra is not None and missing(extra):
            return _refusing(cmd_name, extra)
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Take names and descriptions from the table, without importing the commands."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """End with the list of commands (exit code 2) if there is none of this name and no shell is completing."""
        if args and not ctx.resilient_parsing and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command: {args[0]}; there are {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Take the descriptions from the table, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="aiocontroller")
def root() -> None:
    """The controller of a ZooKeeper-mode Kafka cluster as one asyncio process outside the brokers.

    Most commands find the cluster that 'aiocontroller up' started in this directory or one above it; --data DIR or
    --zookeeper HOST:PORT names another.
    """


def run(arguments: list[str] | None = None) -> None:
    """Run a command and exit; operating errors become one line, bugs keep their traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error does: names need not fit the encoding
    try:
        code = root.main(args=arguments, prog_name="aiocontroller", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        code = exit_.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        from aiocontroller.cli.output import print_nothing_more

        print_nothing_more()
        code = 0
    except (AioControllerError, OSError, BaseExceptionGroup) as error:
        lines = explain(error)
        if lines is None:
            raise
        from aiocontroller.core.text import printable

        for line in lines:
            click.echo(f"Error: {printable(line)}", err=True)
        code = exit_code(error)
    sys.exit(code if isinstance(code, int) else 0)


def exit_code(error: BaseException) -> int:
    """The exit code of a command that this error ends: 2 for wrong input, else 1, which may be worth another try."""
    if isinstance(error, BaseExceptionGroup):
        return min(map(exit_code, error.exceptions))
    return error.exit_code if isinstance(error, AioControllerError) else 1


def explain(error: BaseException) -> list[str] | None:
    """One line for each operating error in the group; None when it contains any other error, which is a bug."""
    if isinstance(error, BaseExceptionGroup):
        parts = [explain(inner) for inner in error.exceptions]
        return None if None in parts else [line for part in parts for line in part or ()]
    if isinstance(error, AioControllerError | OSError):
        return [str(error) or type(error).__name__]
    return None
