"""The weights and batches that train_gpt starts from, in NumPy: so that a peer trains on exactly the same.

Twins of runtime/random.h (philox, random_key, hash_name), Kernels::normal and models/data/batches.h. If one of those
changes, the losses of vs_pytorch.py part at the first step.
"""

import numpy as np

MASK64 = (1 << 64) - 1


def mix64(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def random_key(*parts):
    key = 0
    for part in parts:
        key = mix64((key + 0x9E3779B97F4A7C15 + part) & MASK64)
    return key


def hash_name(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK64
    return value


def philox(counters, key):
    """Words (n,4) of Philox4x32-10 for counters (n,4), uint64 arrays of 32-bit values."""
    low = np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = (counters[:, i].copy() for i in range(4))
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = ((p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0), p1 & low,
                          (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1), p0 & low)
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1)


def normal(count, key, first=0):
    """Standard normal numbers of elements first ... first+count-1 (Box-Muller), float64; first is a multiple of 4."""
    groups = np.arange(first // 4, (first + count + 3) // 4, dtype=np.uint64)
    zero = np.zeros_like(groups)
    words = philox(np.stack([groups & np.uint64(0xFFFFFFFF), groups >> np.uint64(32), zero, zero], axis=1), key)
    unit = words.astype(np.float64) * 2.0**-32
    radius = np.sqrt(-2 * np.log(unit[:, 0::2] + 2.0**-32))  # (n,2): of words 0 and 2
    angle = 2 * np.pi * unit[:, 1::2]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2).reshape(-1)[:count]


def initial_weight(name, shape, n_layer, seed):
    """GPT-2's start: normal 0.02, projections into the residual stream 0.02/sqrt(2L), biases 0, norms 1."""
    if len(shape) < 2:
        return np.full(shape, 1.0 if name.endswith("weight") else 0.0, np.float32)
    stddev = np.float32(0.02) / np.sqrt(np.float32(2 * n_layer)) if name.endswith("c_proj.weight") else np.float32(0.02)
    key = random_key(seed, hash_name(name))
    values = np.empty(int(np.prod(shape)), np.float32)
    block = 1 << 18  # elements at a time: temporaries must not become the peak of the memory that is measured
    for first in range(0, len(values), block):
        count = min(block, len(values) - first)
        values[first:first + count] = normal(count, key, first).astype(np.float32) * np.float32(stddev)
    return values.reshape(shape)


class Batches:
    """Samples of a text, every byte a token; the last tenth is left for validation, as without --val-data."""

    def __init__(self, path, T, seed):
        data = np.memmap(path, np.uint8, mode="r")
        self.tokens = data[:len(data) - len(data) // 10]
        self.T, self.seed = T, seed
        self.windows, self.slack = divmod(len(self.tokens) - 1, T)
        self.half_bits = ((self.windows - 1).bit_length() + 1) // 2

    def permute(self, i, key):
        mask = (1 << self.half_bits) - 1
        while True:
            left, right = i >> self.half_bits, i & mask
            for turn in range(6):
                left, right = right, left ^ (random_key(key, turn, right) & mask)
            i = left << self.half_bits | right
            if i < self.windows:
                return i

    def begin_of(self, sample):
        epoch, place = divmod(sample, self.windows)
        order = random_key(self.seed, hash_name("data/order"), epoch)
        shift = random_key(self.seed, hash_name("data/shift"), epoch) % (self.slack + 1)
        return self.permute(place, order) * self.T + shift

    def get(self, first_sample, B):
        """ids, targets (B,T) int64 of samples first_sample and following."""
        windows = np.stack([self.tokens[begin:begin + self.T + 1]
                            for begin in map(self.begin_of, range(first_sample, first_sample + B))]).astype(np.int64)
        return windows[:, :-1], windows[:, 1:]
