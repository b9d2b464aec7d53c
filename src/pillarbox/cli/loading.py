"""Importing what the user named as ``package.module:attribute``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import NotImportable, PillarboxError

if TYPE_CHECKING:
    from ..consume import Consumer


def load_consumer(name: str) -> Consumer:
    """The Consumer at ``name``; modules are also looked for in the working directory.

    Raises NotImportable (PB-051) with what went wrong. A PillarboxError raised by the module itself passes as it is.
    """
    from ..consume import Consumer

    found = _attribute(name)
    if not isinstance(found, Consumer):
        raise NotImportable(f"{name} is a {type(found).__name__}, not a Consumer.")
    return found


def load_function(name: str) -> Callable[..., object]:
    """The function at ``name``; NotImportable (PB-051) when it is none, or as for `load_consumer`."""
    found = _attribute(name)
    if not callable(found):
        raise NotImportable(f"{name} is a {type(found).__name__}, not a function.")
    return found


def _attribute(name: str) -> object:
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise NotImportable(f"{name!r} does not name a module and an attribute.")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a console script does not have the working directory on its path
    found: object = _module(module_name)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise NotImportable(f"{module_name} has no attribute {path!r}.") from error
    return found


def _module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except PillarboxError:
        raise
    except Exception as error:  # a user's module may raise anything; the sentence carries it
        place = _innermost(error)
        raise NotImportable(f"{name} cannot be imported: {type(error).__name__}: {error}{place}.") from error


def _innermost(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or "importlib" in trace.tb_frame.f_code.co_filename:
        return ""
    return f" (at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
