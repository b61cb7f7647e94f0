"""The one exception of the package."""

from __future__ import annotations

import dataclasses
from typing import Any, List, Mapping, Optional, Sequence


@dataclasses.dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler: what is wrong, where, and what to do."""

    code: str
    message: str
    file: str = ""
    node: str = ""
    op: str = ""
    tensor: str = ""
    notes: Sequence[str] = ()
    help: str = ""

    @staticmethod
    def of(json: Mapping[str, Any]) -> "Diagnostic":
        known = {field.name for field in dataclasses.fields(Diagnostic)}
        return Diagnostic(**{key: value for key, value in json.items() if key in known})

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.code}]"]
        where = ", ".join(part for part in (self.file, self.node, self.tensor) if part)
        if where:
            lines.append(f"  at {where}")
        lines += [f"  {note}" for note in self.notes]
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


class Error(Exception):
    """A call that failed.

    code: a word that programs can test: the name of a status of the C API ("STRIDEC_WRONG_SHAPE"), or the code of the
    compiler's diagnostic ("unsupported-op").
    exit_code: the program's exit code (docs/commands.md lists them); None for an error of a run.
    diagnostics: everything that the compiler has to say, one entry for each problem.
    """

    def __init__(
        self,
        message: str,
        code: str = "STRIDEC_INVALID_ARGUMENT",
        exit_code: Optional[int] = None,
        diagnostics: Sequence[Diagnostic] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code
        self.diagnostics: List[Diagnostic] = list(diagnostics)
