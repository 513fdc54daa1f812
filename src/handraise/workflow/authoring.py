"""The author's side of the door: loads a file, and does with its workflows what `flow.Author` says.

What is loaded here is somebody's code, and it is run. The desk, the worker and the commands never import this module:
they have it in a process of its own (`child.py`). Tests of workflows have it in theirs.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from handraise.errors import WorkflowBroken, WorkflowNotFound
from handraise.workflow import templates
from handraise.workflow.flow import INPUT, MOST_PROBLEMS, RUN, DoesNotFit, Flow, Problem, StepFailed
from handraise.workflow.steps import Workflow

__all__ = ["Written", "guard_imports", "load", "load_file"]


# Loading ------------------------------------------------------------------------------------------------------


def load(file: Path, *, loader: importlib.abc.Loader | None = None) -> list[Workflow]:
    """Run a file; the workflows it made. Raises WorkflowBroken."""
    name = f"handraise_workflow_{sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # records that are defined there are looked up in it
    try:
        spec.loader.exec_module(module)
    except WorkflowBroken:
        raise
    except SyntaxError as problem:
        raise WorkflowBroken(f"{Path(problem.filename or file).name}:{problem.lineno}: {problem.msg}") from None
    except OSError as problem:
        raise WorkflowBroken(f"{file} cannot be read: {problem.strerror or problem}") from None
    except (Exception, SystemExit) as problem:
        frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == str(file)]
        line = frames[-1].lineno if frames else 1
        raise WorkflowBroken(f"{file.name}:{line}: {type(problem).__name__}: {problem}") from problem
    return [value for value in vars(module).values() if isinstance(value, Workflow)]


def load_file(file: Path, name: str) -> Workflow:
    """The workflow of that name in a file. Raises WorkflowBroken, WorkflowNotFound."""
    workflows = load(file)
    for workflow in workflows:
        if workflow.name == name:
            return workflow
    raise WorkflowNotFound(name, known=[workflow.name for workflow in workflows])


class _Loader(importlib.abc.InspectLoader):
    """Reads a file once, checks that it is the one that was looked at, and compiles those very bytes."""

    def __init__(self, path: str, *, hash: str) -> None:
        self._path = path
        self._hash = hash

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._content())

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._content(), self._path, "exec", dont_inherit=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def _content(self) -> bytes:
        content = Path(self._path).read_bytes()
        if sha256(content).hexdigest() != self._hash:
            raise ImportError(f"{self._path} was changed just now; try again")
        return content


class _Finder(importlib.abc.MetaPathFinder):
    """Lets nothing of the project be imported but what is in the manifest. Everything else goes its usual way."""

    def __init__(self, manifest: Mapping[str, str], *, guarded: Sequence[Path]) -> None:
        self._manifest = manifest
        self._guarded = guarded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return self._checked(spec)
        return None

    def _checked(self, spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec:
        if not spec.has_location or spec.origin is None or not self._is_guarded(spec.origin):
            return spec
        hash = self._manifest.get(spec.origin)
        if hash is None:
            raise ImportError(
                f"{spec.origin} is not among the files that were looked at; import it by its name at the top, "
                "and `handraise trust` shows it"
            )
        spec.loader = _Loader(spec.origin, hash=hash)
        spec.cached = None
        return spec

    def _is_guarded(self, origin: str) -> bool:
        for path in (Path(origin), Path(origin).resolve()):
            if any(path.is_relative_to(place) for place in self._guarded) and not is_installed(path):
                return True
        return False


def guard_imports(manifest: Mapping[str, str], *, file: Path, root: Path) -> importlib.abc.Loader:
    """From now on, of the project only these files can be imported. What loads the workflow file itself."""
    guarded = list(dict.fromkeys(each for place in (root, file.parent) for each in (place, place.resolve())))
    sys.meta_path.insert(0, _Finder(manifest, guarded=guarded))
    at = next((number for number, entry in enumerate(sys.path) if is_installed(Path(entry), stdlib=False)), 0)
    sys.path.insert(at, str(file.parent))  # before what is installed, and never in place of the standard library
    return _Loader(str(file), hash=manifest[str(file)])


def is_installed(path: Path, *, stdlib: bool = True) -> bool:
    """Whether it belongs to this interpreter and its packages, handraise among them."""
    names: Iterable[str] = ("purelib", "platlib", *(("stdlib", "platstdlib") if stdlib else ()))
    places = [Path(sysconfig.get_path(name)) for name in names]
    if stdlib:
        places.append(Path(__file__).parents[1])
    return any(path.is_relative_to(place) for place in places)


# The door -----------------------------------------------------------------------------------------------------


class Written:
    """A workflow whose code is in this process. Values are JSON, as in `flow.Author`."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self._adapters: dict[str, TypeAdapter[Any]] = {}

    @property
    def flow(self) -> Flow:
        return self.workflow.flow

    def fit(self, id: str, value: Any) -> Any:
        adapter = self._adapter(id)
        try:
            return adapter.dump_python(adapter.validate_python(value), mode="json")
        except Exception as problem:
            raise DoesNotFit(_problems(problem)) from None

    def read(self, step: str, reply: str) -> Any:
        adapter = self._adapter(step)
        try:
            return adapter.dump_python(_parsed(reply, adapter), mode="json")
        except Exception as problem:
            raise DoesNotFit(_problems(problem)) from None

    def fill(self, step: str, text: str, values: Mapping[str, Any]) -> str:
        plain = self.workflow.steps[step].plain
        template = str(getattr(plain, text))
        render = templates.render_shell if text == "command" else templates.render
        return render(template, self._typed(values))

    def arguments(self, step: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """What the function of a step is called with."""
        plain = self.workflow.steps[step].plain
        assert plain.kind == "function"
        return self._typed({name: values[name] for name in plain.takes})

    def told(self, step: str, value: Any) -> Any:
        """What a function returned, as JSON. Raises StepFailed where that could not be read again."""
        adapter = self._adapter(step)
        try:
            told = adapter.dump_python(value, mode="json", warnings="none")
            adapter.validate_python(told, by_alias=True, by_name=True)
        except Exception as problem:
            raise StepFailed(f"what it gave does not fit its output: {_said(problem)}") from None
        return told

    def _adapter(self, id: str) -> TypeAdapter[Any]:
        found = self._adapters.get(id)
        if found is None:
            found = self._adapters[id] = self.workflow.adapter(id)
        return found

    def _typed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for id, value in values.items():
            if id == RUN:
                made[id] = value
                continue
            try:  # what we wrote ourselves is written by name, also where people write it by another one
                made[id] = self._adapter(id).validate_python(value, by_alias=True, by_name=True)
            except Exception as problem:
                what = "it was begun with" if id == INPUT else f"{id} gave before"
                raise StepFailed(f"what {what} does not fit its type any more: {_said(problem)}") from None
        return made


def _parsed(reply: str, adapter: TypeAdapter[Any]) -> Any:
    """What an agent's words hold. Raises ValidationError."""
    fenced = re.findall(r"```(?:json)?\s*\n(.*?)```", reply, re.DOTALL)
    for text in (reply, *reversed(fenced)):
        try:
            return adapter.validate_json(text.strip())
        except ValidationError:
            continue
    begins = [reply.find(mark) for mark in "{[" if mark in reply]
    return adapter.validate_json(reply[min(begins) :].strip() if begins else reply)


def _problems(problem: Exception) -> list[Problem]:
    if isinstance(problem, ValidationError):
        found = problem.errors(include_url=False, include_context=False, include_input=False)
        return [{"at": ".".join(map(str, each["loc"])), "problem": each["msg"]} for each in found[:MOST_PROBLEMS]]
    # A validator of the author's that does not say it as it should.
    return [{"at": "", "problem": f"{type(problem).__name__}: {problem}"[:500]}]


def _said(problem: Exception) -> str:
    first = _problems(problem)[0]
    return f"{first['at'] or 'it'}: {first['problem']}"
