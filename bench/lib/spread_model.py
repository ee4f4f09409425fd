# SPDX-License-Identifier: Apache-2.0
"""How long attention over ranks takes: compute as measured, a network as two numbers.

Follows src/dist: by sequence, queries go to the rank that works on them, keys and values come piece
by piece while ranks compute, and results go back. By heads, some heads travel while others are computed.
"""

import dataclasses
import heapq

ELEMENT = 4  # bytes of a float
PIECE = 4096  # keys that travel together: src/dist/stream.cc
MOST_GROUPS = 4  # of heads: src/dist/by_heads.cc


@dataclasses.dataclass(frozen=True)
class Network:
    """Between every two ranks; a rank sends and receives at the bandwidth at most, or all share one."""

    latency: float  # seconds
    bandwidth: float  # bytes a second
    shared: bool = False


@dataclasses.dataclass(frozen=True)
class Shape:
    length: int
    heads: int = 1
    kv_heads: int = 1
    dim: int = 64
    causal: bool = True

    def pairs(self, queries, keys):
        """Of two ranges that see each other."""
        (a, b), (c, d) = queries, keys
        if not self.causal:
            return (b - a) * (d - c)

        def below(top):  # pairs with queries in [a, b), and keys below min(query + 1, top)
            full = max(0, b - max(a, top))
            low, high = a, min(b, top)
            return full * top + (max(0, high * (high + 1) - low * (low + 1)) // 2 if high > low else 0)

        return below(d) - below(c)

    def flops(self, pairs):
        return 4 * self.dim * self.heads * pairs


def cut(length, part, parts):
    return length * part // parts, length * (part + 1) // parts


def overlap(a, b):
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))


def chunks_of(shape, rank, ranks):
    return [cut(shape.length, c, 2 * ranks) for c in (rank, 2 * ranks - 1 - rank)]


def keys_wanted(shape, rank, ranks):
    return (0, max(c[1] for c in chunks_of(shape, rank, ranks)) if shape.causal else shape.length)


def way(shape, ranks):
    return "heads" if shape.kv_heads >= ranks else "sequence"


def bytes_sent(shape, ranks):
    """All ranks together, in a forward call: the formulas of docs/distributed.md."""
    n, q_row, kv_row = shape.length, shape.heads * shape.dim * ELEMENT, shape.kv_heads * shape.dim * ELEMENT
    if ranks == 1:
        return 0
    if way(shape, ranks) == "heads":
        return (ranks - 1) / ranks * n * 2 * (q_row + kv_row)
    moved = sum(chunk[1] - chunk[0] - overlap(chunk, cut(n, r, ranks))
                for r in range(ranks) for chunk in chunks_of(shape, r, ranks))
    streamed = sum(overlap(keys_wanted(shape, r, ranks), cut(n, p, ranks))
                   for r in range(ranks) for p in range(ranks) if p != r)
    return moved * 2 * q_row + streamed * 2 * kv_row


def pieces_of(shape, ranks):
    """(owner, (begin, end)) of the keys, in index order."""
    for owner in range(ranks):
        at, end = cut(shape.length, owner, ranks)
        while at < end:
            last = min(end, (at // PIECE + 1) * PIECE)
            yield owner, (at, last)
            at = last


def stream_seconds(shape, ranks, rate, network, start):
    """When each rank has computed. A rank asks for a piece when it begins with the one before."""
    pieces = list(pieces_of(shape, ranks))
    row = 2 * shape.kv_heads * shape.dim * ELEMENT
    free = [start] * (1 if network.shared else 2 * ranks)  # lines out of ranks, then into them
    now = [start] * ranks  # when a rank has computed what it has
    asked = [(start, rank, 0) for rank in range(ranks)]
    while asked:
        time, rank, number = heapq.heappop(asked)
        if number == len(pieces):
            continue
        owner, keys = pieces[number]
        wanted = overlap(keys_wanted(shape, rank, ranks), keys)
        arrival = time
        if wanted and owner != rank:
            lines = [0] if network.shared else [owner, ranks + rank]
            sent = max(time, *(free[line] for line in lines)) + wanted * row / network.bandwidth
            for line in lines:
                free[line] = sent
            arrival = sent + network.latency
        begun = max(now[rank], arrival)
        pairs = sum(shape.pairs(chunk, keys) for chunk in chunks_of(shape, rank, ranks))
        now[rank] = begun + shape.flops(pairs) / rate
        heapq.heappush(asked, (begun, rank, number + 1))
    return now


def forward_seconds(shape, ranks, rate, network):
    """rate: FLOP/s of a rank."""
    total = shape.flops(shape.pairs((0, shape.length), (0, shape.length)))
    if ranks == 1:
        return total / rate
    row = shape.dim * ELEMENT
    if way(shape, ranks) == "heads":
        groups = min(MOST_GROUPS, -(-shape.kv_heads // ranks))
        each = bytes_sent(shape, ranks) / (1 if network.shared else ranks) / network.bandwidth
        compute = total / ranks / rate
        # The first heads come, and the last results go, while nobody computes.
        return max(compute, each * (1 - 1 / groups)) + each / groups + 2 * network.latency
    held = shape.length / ranks * shape.heads * row * (ranks if network.shared else 1)
    move = network.latency + held * (ranks - 1) / ranks / network.bandwidth
    return max(stream_seconds(shape, ranks, rate, network, move)) + move


# ---- the plot ----

def svg(curves, title, path):
    """curves: [(label, [(ranks, speedup)])], on two logarithmic axes."""
    import math

    width, height, left, right, top, bottom = 640, 400, 60, 150, 40, 50
    most = max(x for _, points in curves for x, _ in points)
    colours = ["#1b6ca8", "#d1495b", "#2e933c", "#8f5db7", "#c98a00", "#555555"]
    span = math.log2(most)

    def x_of(value):
        return left + (width - left - right) * math.log2(value) / span

    def y_of(value):
        return height - bottom - (height - top - bottom) * math.log2(max(value, 0.5) * 2) / (span + 1)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             'font-size="12">', f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
             f'<text x="{left}" y="22" font-size="14">{title}</text>']
    power = 1
    while power <= most:
        x, y = x_of(power), y_of(power)
        parts += [f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{height - bottom}" stroke="#dddddd"/>',
                  f'<text x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{power}</text>',
                  f'<line x1="{left}" y1="{y:.1f}" x2="{width - right}" y2="{y:.1f}" stroke="#dddddd"/>',
                  f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{power}</text>']
        power *= 2
    parts += [f'<text x="{(left + width - right) / 2:.0f}" y="{height - 10}" text-anchor="middle">nodes</text>',
              f'<text x="16" y="{(top + height - bottom) / 2:.0f}" text-anchor="middle" '
              f'transform="rotate(-90 16 {(top + height - bottom) / 2:.0f})">times one node</text>',
              f'<line x1="{x_of(1):.1f}" y1="{y_of(1):.1f}" x2="{x_of(most):.1f}" y2="{y_of(most):.1f}" '
              'stroke="#999999" stroke-dasharray="4 4"/>']
    for i, (label, points) in enumerate(curves):
        colour = colours[i % len(colours)]
        line = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
        y = top + 14 + 18 * i
        parts += [f'<rect x="{width - right + 12}" y="{y - 8}" width="10" height="10" fill="{colour}"/>',
                  f'<text x="{width - right + 28}" y="{y + 1}">{label}</text>']
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")
