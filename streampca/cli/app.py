"""The command-line application: all commands by name. Their bodies import what they need: ``--help`` is fast."""

from __future__ import annotations

from cyclopts import App

from streampca import __version__
from streampca.cli import stores, tools
from streampca.cli.demo import demo
from streampca.cli.release import release
from streampca.cli.results import report, show, transform
from streampca.cli.run import resume, run
from streampca.cli.serve import serve

app = App(
    name="streampca",
    help="Differentially private PCA of a stream: a subspace that is safe to publish after every row, and live regret.",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
for _command in (
    run, resume, release, demo, serve, show, transform, report,
    stores.status, stores.verify, stores.export, stores.backup, stores.ledger,
    tools.plan, tools.audit, tools.version,
):  # fmt: skip
    app.command(_command)
app.register_install_completion_command(
    help="Install completion of commands and options for this shell (bash, zsh, fish), and add it to its startup file."
)
