"""The service: a dense network of three layers, whose batches take what they take.

A request brings FEATURES bytes. One alone is a product of matrix and vector, which reads every weight once and is bound
by memory. Several together are a product of matrices: each weight is read once for all of them, and requests lie side
by side in vector registers. So there is a fixed part and a part for each request, of the hardware's own making. The
answer is the request (the generator checks that), and the class that was found is counted in the state.
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
LANES = 32  # requests side by side
STEP = 8  # lanes that are computed together: a vector register's worth
_WEIGHTS = sum(rows * columns for rows, columns in LAYERS)
_ACTIVE = HIDDEN * LANES
WORDS = _WEIGHTS + 2 * _ACTIVE + CLASSES


@njit(fastmath=True, error_model="numpy")
def _one(w: Any, at: int, rows: int, columns: int, x: int, y: int) -> None:
    """y = max(w x, 0) of one request. w: all words; at, x, y: where the layer's weights, its inputs and outputs lie."""
    for j in range(rows):
        row = at + j * columns
        total = np.float32(0)
        for k in range(columns):
            total += w[row + k] * w[x + k]
        w[y + j] = max(total, np.float32(0))


@njit(fastmath=True, error_model="numpy")
def _many(w: Any, at: int, rows: int, columns: int, x: int, y: int, lanes: int) -> None:
    """The same of `lanes` requests side by side: input k of request i lies at x + LANES * k + i."""
    for j in range(0, rows, 4):
        out = w[y + LANES * j : y + LANES * (j + 4)]
        out[:] = np.float32(0)
        out0, out1 = out[:LANES], out[LANES : 2 * LANES]
        out2, out3 = out[2 * LANES : 3 * LANES], out[3 * LANES :]
        for k in range(0, columns, 2):
            row = at + j * columns + k
            a0, b0 = w[row], w[row + 1]
            a1, b1 = w[row + columns], w[row + columns + 1]
            a2, b2 = w[row + 2 * columns], w[row + 2 * columns + 1]
            a3, b3 = w[row + 3 * columns], w[row + 3 * columns + 1]
            in0 = w[x + LANES * k : x + LANES * (k + 1)]
            in1 = w[x + LANES * (k + 1) : x + LANES * (k + 2)]
            for i in range(lanes):
                out0[i] += a0 * in0[i] + b0 * in1[i]
                out1[i] += a1 * in0[i] + b1 * in1[i]
                out2[i] += a2 * in0[i] + b2 * in1[i]
                out3[i] += a3 * in0[i] + b3 * in1[i]
        for i in range(4 * LANES):
            out[i] = max(out[i], np.float32(0))


@njit(error_model="numpy")
def _classify(w: Any, scores: int, stride: int, i: int) -> None:
    """Count the class with the highest score of request i."""
    best = 0
    for c in range(CLASSES):
        if w[scores + stride * c + i] > w[scores + stride * best + i]:
            best = c
    w[WORDS - CLASSES + best] += np.float32(1)


def infer(requests, replies, lengths, w):  # type: ignore[no-untyped-def]  # numba types it
    n = len(requests)
    lanes = (n + STEP - 1) // STEP * STEP if n > 1 else 1
    stride = LANES if n > 1 else 1
    for i in range(n):
        request = requests[i]
        if len(request) == PAYLOAD_BYTES:
            for k in range(FEATURES):
                w[_WEIGHTS + stride * k + i] = np.float32(request[AT + k]) * np.float32(1 / 256)
    x, y, at = _WEIGHTS, _WEIGHTS + _ACTIVE, 0
    for rows, columns in LAYERS:
        if n > 1:
            _many(w, at, rows, columns, x, y, lanes)
        else:
            _one(w, at, rows, columns, x, y)
        at += rows * columns
        x, y = y, x
    for i in range(n):
        _classify(w, x, stride, i)
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
    return udp(port, state=state, batch=LANES)(infer)
