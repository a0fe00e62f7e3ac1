"""What each column of the chapter's own tables means; `docs/data.md` is made of it."""

from __future__ import annotations

from collections.abc import Mapping

from gpushmoo.core.dictionary import BYTES, SECONDS, Meaning

MEANINGS: Mapping[str, Meaning] = {
    "n": Meaning("elements of one array"),
    "params": Meaning("launch parameters of the way, as a text"),
    "comparison": Meaning("what the round compares: length, share, parameter, between or copy"),
    "operation": Meaning("x·y, x·x, or the direction of a copy"),
    "way": Meaning("name of a way of computing; where lengths are compared, the length"),
    "round": Meaning("in which round, from zero; ways are compared within one"),
    "seconds": Meaning("mean of a call by the host's clock", SECONDS),
    "mode": Meaning("name of a way of computing"),
    "condition": Meaning("condition number of the sum; NaN where all products are zero"),
    "value": Meaning("what the way gave; null where it gave none"),
    "exact": Meaning("the double that is nearest to the exact sum"),
    "relative_error": Meaning("distance of the value from the exact sum, over the exact sum"),
    "bound": Meaning("how far rounding explains it to be off, over the exact sum"),
    "depth": Meaning("roundings on the longest way through the sum"),
    "agrees": Meaning("whether the error is within the bound"),
    "message": Meaning("why there is no value, or none that rounding explains"),
    "case": Meaning("name of the traced case"),
    "one_engine": Meaning("whether begins of copies are derived, since one engine makes them all"),
    "total_s": Meaning("from the first copy to the number, by the host's clock", SECONDS),
    "untraced_s": Meaning("the median of as many runs without marks", SECONDS),
    "stream": Meaning("which stream, from zero"),
    "piece": Meaning("which piece of the arrays, from zero"),
    "what": Meaning("copy or kernel"),
    "array": Meaning("which array is copied; null for a kernel"),
    "nbytes": Meaning("what was copied; zero for a kernel", BYTES),
    "ready_s": Meaning("queued, and all before it in its stream done", SECONDS),
    "begin_s": Meaning("it begins; later than ready where it waits for the engine", SECONDS),
    "end_s": Meaning("it ends", SECONDS),
}
