"""The service: a dense network of three layers, as somebody hosts it, whose batches take what they take.

A request brings FEATURES bytes. Its weights are more than the second level of cache holds. One request reads each of
them once, from further away, and is bound by that. Requests together read each once for all of them: four rows of
weights stay near while all requests pass. So there is a fixed part and a part for each request, of the hardware's own
making. It is the same code for one request as for many, and for one it is a good product of matrix and vector: it reads
each weight once, in order, with vector instructions, for four rows at a time.

The answer is the request (the generator checks that), and the class that was found is counted in the state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ...libos import udp
from ...libos.handlers.handlers import Handler

FEATURES, HIDDEN, CLASSES = 256, 1024, 16
LAYERS = ((HIDDEN, FEATURES), (HIDDEN, HIDDEN), (CLASSES, HIDDEN))  # outputs, inputs
AT = 16  # the features' place in a request: before it is what the generator needs
PAYLOAD_BYTES = AT + FEATURES
MOST = 32  # requests together
_WEIGHTS = sum(rows * columns for rows, columns in LAYERS)
_ACTIVE = HIDDEN * MOST
WORDS = _WEIGHTS + 2 * _ACTIVE + CLASSES


@njit(error_model="numpy")
def _store(w: Any, at: int, a: Any, b: Any, c: Any, d: Any) -> None:
    """max(., 0) of four outputs."""
    zero = np.float32(0)
    w[at], w[at + 1], w[at + 2], w[at + 3] = max(a, zero), max(b, zero), max(c, zero), max(d, zero)


@njit(fastmath=True, error_model="numpy")
def _dense(w: Any, at: int, rows: int, columns: int, x: int, y: int, n: int) -> None:
    """y = max(W x, 0) of n requests. w: all words; at: where the layer's weights lie; x, y: inputs and outputs, HIDDEN
    words for each request. rows is a multiple of 4. Two requests at a time, and what is left."""
    zero = np.float32(0)
    for j in range(0, rows, 4):
        row = at + j * columns
        w0, w1 = w[row : row + columns], w[row + columns : row + 2 * columns]
        w2, w3 = w[row + 2 * columns : row + 3 * columns], w[row + 3 * columns : row + 4 * columns]
        for i in range(0, n - 1, 2):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
            a, b = x + HIDDEN * i, x + HIDDEN * (i + 1)
            xa, xb = w[a : a + columns], w[b : b + columns]
            for k in range(columns):
                a0 += w0[k] * xa[k]
                a1 += w1[k] * xa[k]
                a2 += w2[k] * xa[k]
                a3 += w3[k] * xa[k]
                b0 += w0[k] * xb[k]
                b1 += w1[k] * xb[k]
                b2 += w2[k] * xb[k]
                b3 += w3[k] * xb[k]
            _store(w, y + HIDDEN * i + j, a0, a1, a2, a3)
            _store(w, y + HIDDEN * (i + 1) + j, b0, b1, b2, b3)
        if n % 2 == 1:
            a0 = a1 = a2 = a3 = zero
            a = x + HIDDEN * (n - 1)
            xa = w[a : a + columns]
            for k in range(columns):
                a0 += w0[k] * xa[k]
                a1 += w1[k] * xa[k]
                a2 += w2[k] * xa[k]
                a3 += w3[k] * xa[k]
            _store(w, y + HIDDEN * (n - 1) + j, a0, a1, a2, a3)


@njit(error_model="numpy")
def _classify(w: Any, scores: int) -> None:
    """Count the class with the highest of the scores, which lie there."""
    best = 0
    for c in range(CLASSES):
        if w[scores + c] > w[scores + best]:
            best = c
    w[WORDS - CLASSES + best] += np.float32(1)


def infer(requests, replies, lengths, w):  # type: ignore[no-untyped-def]  # numba types it
    n = len(requests)
    for i in range(n):
        request = requests[i]
        if len(request) == PAYLOAD_BYTES:
            for k in range(FEATURES):
                w[_WEIGHTS + HIDDEN * i + k] = np.float32(request[AT + k]) * np.float32(1 / 256)
    x, y, at = _WEIGHTS, _WEIGHTS + _ACTIVE, 0
    for rows, columns in LAYERS:
        _dense(w, at, rows, columns, x, y, n)
        at += rows * columns
        x, y = y, x
    for i in range(n):
        _classify(w, x + HIDDEN * i)
        if len(requests[i]) == PAYLOAD_BYTES:
            replies[i][:PAYLOAD_BYTES] = requests[i]
            lengths[i] = PAYLOAD_BYTES


def words(seed: int = 1) -> Any:
    """The state: weights, room for activations, and how often each class was found. float32."""
    made = np.zeros(WORDS, np.float32)
    draw = np.random.default_rng(seed)
    at = 0
    for rows, columns in LAYERS:
        made[at : at + rows * columns] = draw.standard_normal(rows * columns) / np.sqrt(columns)
        at += rows * columns
    return made


def found(state: Any) -> Any:
    """How often each class was found."""
    return state[WORDS - CLASSES :]


def service(state: Any, port: int) -> Handler:
    """The handler; how its requests wait is set where it is bound."""
    return udp(port, state=state, batch=MOST)(infer)
