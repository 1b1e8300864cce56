"""What every room may use: errors, strict specs, hashing, atomic writes, provenance, progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core.doors import open_door

if TYPE_CHECKING:
    from headcount.core.concurrent import run_concurrently as run_concurrently
    from headcount.core.deprecation import renamed_argument as renamed_argument
    from headcount.core.deprecation import warn_deprecated as warn_deprecated
    from headcount.core.display import Displayable as Displayable
    from headcount.core.display import in_words as in_words
    from headcount.core.display import register_display as register_display
    from headcount.core.errors import BadInput as BadInput
    from headcount.core.errors import HeadcountError as HeadcountError
    from headcount.core.errors import MissingExtra as MissingExtra
    from headcount.core.errors import nearest as nearest
    from headcount.core.files import atomic_folder as atomic_folder
    from headcount.core.files import check_output_folder as check_output_folder
    from headcount.core.files import check_replaceable as check_replaceable
    from headcount.core.files import check_writable as check_writable
    from headcount.core.files import json_bytes as json_bytes
    from headcount.core.files import write_bytes as write_bytes
    from headcount.core.files import write_files as write_files
    from headcount.core.files import write_json as write_json
    from headcount.core.files import write_text as write_text
    from headcount.core.hashing import arrays_hash as arrays_hash
    from headcount.core.hashing import canonical_json as canonical_json
    from headcount.core.hashing import content_hash as content_hash
    from headcount.core.machine_code import cached_njit as cached_njit
    from headcount.core.machine_code import fallback_folder_in_use as fallback_folder_in_use
    from headcount.core.option_names import option as option
    from headcount.core.option_names import options_as_flags as options_as_flags
    from headcount.core.origin import cores as cores
    from headcount.core.origin import provenance as provenance
    from headcount.core.progress import Progress as Progress
    from headcount.core.progress import working as working
    from headcount.core.random import generator as generator
    from headcount.core.random import random_index as random_index
    from headcount.core.random import splitmix64 as splitmix64
    from headcount.core.random import stream_key as stream_key
    from headcount.core.spec import Integers as Integers
    from headcount.core.spec import Matrix as Matrix
    from headcount.core.spec import Spec as Spec
    from headcount.core.spec import Vector as Vector
    from headcount.core.spec import explain as explain
    from headcount.core.worker import Worker as Worker

__getattr__, __dir__ = open_door(__name__)
