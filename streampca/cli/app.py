"""The command-line application: all commands by name, and the message of each error."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version as version_of

from cyclopts import App, CycloptsError
from cyclopts.help import DefaultFormatter, HelpPanel
from rich.console import Console, ConsoleOptions

from streampca import __version__
from streampca._native import kernels
from streampca.cli.messages import SpentError, in_flags, say
from streampca.errors import BudgetExhaustedError, StreamPCAError, StreamPCAWarning
from streampca.linalg.threads import one_blas_thread

#: Exit codes of options, headers or destinations that are refused before anything is spent, and of a source or a disk
#: that fails later. An expectation that fails gives 1, an interrupted run 128 + the number of the signal.
BAD_INPUT, FAILED_LATER = 2, 3

#: Module and function of each command, and its line in the overview: the first line of its docstring.
_COMMANDS = {
    "run": ("run:run", "Stream rows from a file, a pipe or standard input; write private releases."),
    "resume": ("run:resume", "Continue a durable run where it was."),
    "pca": ("run:pca", "Release the principal components of a whole table once."),
    "check": ("check:check", "Report what a release would meet, and propose its command. Spends nothing."),
    "demo": ("demo:demo", "Show private PCA of 336 776 real flights, live, with its regret."),
    "serve": ("page:serve", "Show a run as a page in the browser, and follow it while it grows."),
    "show": ("results:show", "Show a release: components in the units of the columns, shares, mean."),
    "transform": ("results:transform", "Write the scores of raw rows on a released subspace. NOT private."),
    "report": ("results:report", "Write a report of a run: one HTML file that needs nothing else."),
    "registry": ("registry:registry", "Write a draft of the run's record for the registry of deployments."),
    "status": ("stores:status", "Show the state of a durable run."),
    "verify": ("stores:verify", "Check a durable run: every checksum, a replay, and that no commit is missing."),
    "export": ("stores:export", "Write the publishable releases of a durable run."),
    "backup": ("stores:backup", "Copy a durable run, also while it proceeds."),
    "plan": ("plan:plan", "Predict noise, captured variance and regret; recommend an algorithm."),
    "audit": ("audit:audit", "Try to refute the privacy claims, and show that they could have been refuted."),
}
_LEDGER = {
    "show": ("stores:show_budgets", "Show budgets and debits."),
    "budget": ("stores:set_budget", "Set the budget of a data set, once."),
}


class _Help(DefaultFormatter):
    """Help pages whose lines are broken for the terminal, not where the source breaks them."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        for entry in panel.entries:
            text = entry.description.primary_renderable
            text.plain = " ".join(text.plain.split())
        super().__call__(console, options, panel)


def application(first: str = "") -> App:
    """Create the application. Only the module of its ``first`` word is imported: all together take half a second."""
    app = App(
        name="streampca", version=__version__, help_format="plaintext", help_formatter=_Help(),
        help="Differentially private PCA of a stream: a subspace that is safe to publish after every row, and live "
        "regret.",
        suppress_keyboard_interrupt=False, result_action="return_value",
    )  # fmt: skip
    ledger = App(name="ledger", help="Show and manage the privacy budgets of data sets.", help_format="plaintext")
    for group, commands in ((app, _COMMANDS), (ledger, _LEDGER)):
        for name, (where, line) in commands.items():
            module, _, function = where.partition(":")
            if name == first or (first == "ledger" and group is ledger):
                group.command(getattr(import_module(f"streampca.cli.{module}"), function), name=name)
            else:
                group.command(f"streampca.cli.{where}", name=name, help=line)
    app.command(ledger)
    app.command(version)
    app.register_install_completion_command(
        help="Install completion of commands and options for this shell (bash, zsh, fish), and add it to its startup "
        "file."
    )
    return app


def version() -> int:
    """Print the versions of streampca, Python and the main dependencies."""
    print(f"streampca {__version__}")
    packages = ", ".join(f"{name} {version_of(name)}" for name in ("numpy", "scipy", "cryptography"))
    print(f"Python {platform.python_version()}, {packages}")
    print(f"kernels: {kernels()}")
    return 0


def run_command(argv: Sequence[str]) -> int:
    """Run one command and return its exit code; see `streampca.cli.main`."""
    if "numpy" in sys.modules:  # the environment was set too late
        one_blas_thread()
    failed = BAD_INPUT
    try:
        with warnings.catch_warnings(action="ignore", category=StreamPCAWarning):  # commands print them
            app = application(argv[0] if argv else "")
            try:
                code = app(argv, exit_on_error=False, print_error=False)
            except SpentError as later:
                failed = FAILED_LATER
                raise later.problem from None
        sys.stdout.flush()  # a closed pipe is reported here, and not at exit
        return code if isinstance(code, int) else 0
    except BudgetExhaustedError as problem:  # the figures of a ledger are no options
        message = str(problem)
    except (CycloptsError, StreamPCAError) as problem:
        message = " ".join([in_flags(problem, argv), *getattr(problem, "__notes__", ())])
    except BrokenPipeError:  # the reader of the output is gone, and Python would report it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except ModuleNotFoundError as problem:
        if (problem.name or "").startswith("streampca"):
            raise
        message = str(problem)  # with the extra that installs it: see `streampca.errors.needs`
    except OSError as problem:
        message = f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)
    except MemoryError as problem:
        message = f"there is not enough memory ({str(problem) or 'no more'}); choose fewer columns"
    except KeyboardInterrupt:
        return 130
    say(f"streampca: {' '.join(message.split())}")
    return failed
