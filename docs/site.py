"""What the site has beyond the pages of docs/: pages from elsewhere in the tree, protocols' sources, and docstrings.

mkdocs calls the functions `on_...` (`hooks` in mkdocs.yml). Pages are written to be read where they
lie, and nothing here changes that.
"""

from __future__ import annotations

import html
import itertools
import json
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ERRORS = "docs/errors.md"
ELSEWHERE = {
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/vulnerabilities.md",
    "deploy/kubernetes/README.md": "deploy/kubernetes.md",
    "deploy/machines.md": "deploy/machines.md",
    "deploy/systemd/README.md": "deploy/systemd.md",
}
PREFERRED = {"configuration.md": 1.2, "commands.md": 2.0, "reference/": 0.0005, "results/": 0.5}
"""Weights of pages in the search: whoever looks for a key wants what it means, before the sources."""
ROW_WEIGHT = 0.8
_ROLES = ("common", "server", "client")
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.M | re.S)
_LINK = re.compile(r"(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_ROW = re.compile(r"^\| (?=`)(?P<cells>.*) \|$", re.M)
_MODULE = re.compile(r"^- \[`(?P<file>[\w/]+)\.py`\]\([^)]*\)$", re.M)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that lie elsewhere in the tree."""
    for path, page in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Completes a page: links first, then what is taken from the sources."""
    home = _home(page.file)
    weights = (weight for beginning, weight in PREFERRED.items() if page.file.src_uri.startswith(beginning))
    page.meta["search"] = {"boost": next(weights, 1.0)}
    text = _outside_fences(markdown, lambda part: _LINK.sub(lambda link: _link(link, home, page, files), part))
    if home.startswith("docs/reference/"):
        text = _documented(markdown, text)
    if home == ERRORS:
        numbers = itertools.count()
        text = _ROW.sub(lambda row: f'| <span id="m{next(numbers)}"></span>{row["cells"]} |', text)
    folder, name = posixpath.split(home)
    return text + _sources(name.removesuffix(".md")) if folder == "docs/protocols" and name != "index.md" else text


def on_post_build(config: MkDocsConfig) -> None:
    """Makes every message a section of its own for the search, so that a pasted one leads to its row."""
    place = Path(config.site_dir) / "search/search_index.json"
    index = json.loads(place.read_text(encoding="utf-8"))
    for number, row in enumerate(_ROW.finditer((ROOT / ERRORS).read_text(encoding="utf-8"))):
        message, *cells = (_LINK.sub(r"\g<text>", cell).replace("`", "") for cell in row["cells"].split(" | "))
        text = html.escape(". ".join(cell for cell in cells if cell.strip()))
        section = {"location": f"errors.html#m{number}", "title": html.escape(message), "text": text}
        index["docs"].append({**section, "boost": ROW_WEIGHT})
    place.write_text(json.dumps(index, separators=(",", ":")), encoding="utf-8")


def _home(file: File) -> str:
    """Where a page's source lies in the tree."""
    moved = {page: path for path, page in ELSEWHERE.items()}
    return moved.get(file.src_uri, f"docs/{file.src_uri}")


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def _link(link: re.Match[str], home: str, page: Page, files: Files) -> str:
    """A link as the site has it: to the page that a file became, or, to a file that is no page, its text alone."""
    target, _, anchor = link["target"].partition("#")
    if not target or "://" in target or target.startswith("mailto:"):
        return link[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
    if not (ROOT / path).exists():
        raise PluginError(f"{home}: there is no {path}, which {link[0]} leads to")
    if (found := _page(path, files)) is None:
        return link["text"]
    way = posixpath.relpath(found, posixpath.dirname(page.file.src_uri) or ".")
    return f"{link['mark']}[{link['text']}]({way}{'#' * bool(anchor)}{anchor})"


def _page(path: str, files: Files) -> str | None:
    """The site's page or picture of a file of the tree; a folder's is that of its README."""
    for file in (path, f"{path}/README.md"):
        uri = ELSEWHERE.get(file, file.removeprefix("docs/") if file.startswith("docs/") else "")
        if uri and files.get_file_from_path(uri) is not None:
            return uri
    return "index.md" if path == "README.md" else None


def _documented(markdown: str, text: str) -> str:
    """In the place of a list of modules, what their docstrings say."""
    for module in _MODULE.finditer(markdown):
        directive = f"\n::: colonnade.{module['file'].replace('/', '.')}\n"
        text = text.replace(f"- `{module['file']}.py`", directive, 1)
    return text


def _sources(protocol: str) -> str:
    """The contract and the two halves of a protocol, as they lie in the tree."""
    parts = ["\n\n## The three files\n"]
    for role in _ROLES:
        path = f"{role}/protocols/{protocol}.py"
        if not (ROOT / path).is_file():
            raise PluginError(f"docs/protocols/{protocol}.md: there is no {path}")
        parts.append(f'```python title="{path}"\n{(ROOT / path).read_text(encoding="utf-8").rstrip()}\n```\n')
    return "\n".join(parts)
