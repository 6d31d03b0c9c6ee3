"""Settings of Sphinx: pages whose code runs, API pages, the gallery."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx_gallery.scrapers import figure_rst

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import streampca  # noqa: E402

# Warnings name the path of a script on this machine.
warnings.simplefilter("ignore", streampca.errors.StreamPCAWarning)

project, author = "streampca", "The streampca maintainers"
version = release = streampca.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}
exclude_patterns = ["_templates", "figures", "gallery/*.ipynb"]
suppress_warnings = ["config.cache"]  # of the function `drawn`
templates_path = ["_templates"]
default_role = "py:obj"  # `Stream` in a docstring is a link, if it is known

# Pages
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# Execution. A cell that raises, or prints an error, ends the build. Outputs
# are cached by the cells of a page and by the code of the library.
code = [Path(__file__), *sorted((ROOT / "streampca").rglob("*.py"))]
digest = hashlib.sha256(b"".join(path.read_bytes() for path in code))
os.environ["STREAMPCA_DOCS"] = str(ROOT / "docs")  # for the cells of pages
profile = ROOT / "out/ipython/profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text(
    "c.InlineBackend.figure_formats = {'svg'}\n"
    "c.IPKernelApp.matplotlib = 'inline'\n"
    "c.IPKernelApp.log_level = 'ERROR'\n"
    "c.IPKernelApp.exec_lines = ['import warnings, streampca.errors as e', "
    "'warnings.simplefilter(\"ignore\", e.StreamPCAWarning)', 'del e']\n"
)
os.environ["IPYTHONDIR"] = str(profile.parent)
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "out/docs-run" / digest.hexdigest()[:16])
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 600  # a busy machine
nb_execution_in_temp = True
nb_merge_streams = True
nb_ipywidgets_js: dict[str, Any] = {}  # nothing is loaded from elsewhere


def drawn(block: Any, block_vars: Any, gallery: Any) -> str:
    """Show the matplotlib figure that a block of a script calls `figure`."""
    figure = block_vars["example_globals"].pop("figure", None)
    if figure is None:
        return ""
    path = next(block_vars["image_path_iterator"])
    figure.figure.savefig(path, dpi=160)  # of a `Picture` too
    return str(figure_rst([path], gallery["src_dir"]))


# Gallery: each figure is one script.
sphinx_gallery_conf = {
    "image_scrapers": (drawn,),
    "capture_repr": (),
    "examples_dirs": "figures",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "write_computation_times": False,
}

# API
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
names = "Bounds ArrayLike FloatArray IntArray RowsLike RowLike"
autodoc_type_aliases = {name: name for name in names.split()}
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 79
numpydoc_show_class_members = False

# Looks
html_theme = "pydata_sphinx_theme"
html_title = "streampca"
html_static_path = ["_static"]
html_css_files = ["extra.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "show_nav_level": 1,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 5,
    "github_url": "https://github.com/streampca/streampca",
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "start": [], "faq": []}

SECTION = re.compile(
    r"^(Parameters|Attributes)\n-+\n(.*?)(?=^\w[^\n]*\n-{3,}$|\Z)",
    re.DOTALL | re.MULTILINE,
)
#: ``name : what it is``, but not ``name : type`` above a description.
ENTRY = re.compile(
    r"^([\w*][\w*, ]*?) ?: (?!.{1,60}[^.\n]\n    )", re.MULTILINE
)


def descriptions(
    app: Sphinx, what: str, name: str, it: Any, options: Any, lines: list[str]
) -> None:
    """Put the description of each parameter on a line of its own."""
    text = SECTION.sub(
        lambda found: (
            f"{found[1]}\n{'-' * len(found[1])}\n"
            + ENTRY.sub(r"\1\n    ", found[2])
        ),
        "\n".join(lines),
    )
    lines[:] = text.splitlines()


def plain(
    app: Sphinx, what: str, name: str, it: Any, options: Any, sig: str, to: str
) -> tuple[str, str] | None:
    """Write the name of a type alias as it is in the code."""
    if sig is None:
        return None
    return re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", sig), to


def skipped(
    app: Sphinx, what: str, name: str, it: Any, skip: bool, options: Any
) -> bool | None:
    """Omit the methods by which scikit-learn routes metadata.

    They refer to its own glossary.
    """
    added = name.startswith("set_") and name.endswith("_request")
    return True if added else None


def setup(app: Sphinx) -> None:
    """Change docstrings before numpydoc reads them, and signatures after."""
    app.connect("autodoc-process-signature", plain, priority=900)
    app.connect("autodoc-skip-member", skipped)
    app.connect("autodoc-process-docstring", descriptions, priority=1)
