"""Strict readers of files: JSON, TOML, packed arrays, model folders, certificates and witnesses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core.doors import open_door

if TYPE_CHECKING:
    from headcount.core.readers.model_file import FEEDFORWARD_LAYERS as FEEDFORWARD_LAYERS
    from headcount.core.readers.model_file import FORMAT as FORMAT
    from headcount.core.readers.model_file import VERSION as MODEL_VERSION  # pyright: ignore[reportUnusedImport]
    from headcount.core.readers.model_file import check_config as check_config
    from headcount.core.readers.model_file import identity as identity
    from headcount.core.readers.model_file import read_model_file as read_model_file
    from headcount.core.readers.packed import MAX_LINE_BYTES as MAX_LINE_BYTES
    from headcount.core.readers.packed import check_size as check_size
    from headcount.core.readers.packed import guarded as guarded
    from headcount.core.readers.packed import npz_names as npz_names
    from headcount.core.readers.packed import read_lines as read_lines
    from headcount.core.readers.packed import read_npy as read_npy
    from headcount.core.readers.packed import read_npz as read_npz
    from headcount.core.readers.reading import MAX_JSON_BYTES as MAX_JSON_BYTES
    from headcount.core.readers.reading import parse_json as parse_json
    from headcount.core.readers.reading import read_json as read_json
    from headcount.core.readers.reading import read_limited as read_limited
    from headcount.core.readers.reading import read_toml as read_toml
    from headcount.core.readers.statement_file import CERTIFICATE as CERTIFICATE
    from headcount.core.readers.statement_file import CLAIMS as CLAIMS
    from headcount.core.readers.statement_file import SLOPES as SLOPES
    from headcount.core.readers.statement_file import STEPS as STEPS
    from headcount.core.readers.statement_file import VERSION as STATEMENT_VERSION  # pyright: ignore[reportUnusedImport]
    from headcount.core.readers.statement_file import WITNESS as WITNESS
    from headcount.core.readers.statement_file import check_statement as check_statement
    from headcount.core.readers.statement_file import read_statement as read_statement
    from headcount.core.readers.toml import toml_text as toml_text

__getattr__, __dir__ = open_door(__name__)
