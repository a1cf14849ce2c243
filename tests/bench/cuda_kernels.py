"""The table of CUDA kernels and the estimate of a step in kernels/cuda/KERNELS.md, from what ptxas says of them.

    python3 tests/bench/cuda_kernels.py BUILD > kernels/cuda/KERNELS.md

Nothing here is measured. Standard library only.
"""
import glob
import math
import os
import re
import subprocess
import sys

GENERATIONS = ("80", "90")
# Of an SM: registers, threads, blocks, bytes of shared memory (1 KiB of each block is the system's), and what one block may have.
SM = {"80": (65536, 2048, 32, 164 << 10, 163 << 10), "90": (65536, 2048, 32, 228 << 10, 227 << 10)}

# What spills would cost most: none of them may, in any generation.
HOT = ("forward", "backward_queries", "backward_keys", "norm", "norm_backward", "norm_backward_weight", "activation", "activation_backward",
       "rope", "cross_entropy", "adamw", "adamw_rows", "hand_over", "row_sums", "sum_squares", "cast", "add", "bias_backward")


def tiles(width):
    """Bytes of shared memory of the kernels of attention, as tiles.h and the kernels have them."""
    others = 64 if width <= 64 else 32
    own = 128 if width <= 64 else 64
    return {"forward": (own + 4 * others) * (width + 8) * 2, "backward_queries": (2 * 64 + 4 * 32) * (width + 8) * 2,
            "backward_keys": (2 * 64 + 4 * 32) * (width + 8) * 2}


def read(build):
    """{generation: {name: (registers, static shared memory, stack, spills)}}, and nvcc's version."""
    found, version, kernels = {}, None, {}
    for file in sorted(glob.glob(os.path.join(build, "kernels", "cuda", "*.ptxas"))):
        with open(file) as f:
            text = f.read()
        names = subprocess.run(["c++filt"], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in names.splitlines():
            if line.startswith("version "):
                version = line.split()[1]
            if m := re.search(r"Compiling entry function '(?:void )?(.*)' for 'sm_(\d+)'", line):
                kernels = found.setdefault(m.group(2), {})
                name = re.sub(r"\(.*\)$", "", re.sub(r"\((int|bool)\)", "", m.group(1))).replace(" ", "")
                name = name.replace("__nv_bfloat16", "bf16").replace("unsignedshort", "u16").replace("unsignedint", "u32")
            if m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
                stack, spills = int(m.group(1)), int(m.group(2)) + int(m.group(3))
            if m := re.search(r"Used (\d+) registers", line):
                shared = re.search(r"(\d+) bytes smem", line)
                kernels[name] = (int(m.group(1)), int(shared.group(1)) if shared else 0, stack, spills)
    return found, version


def family(name):
    return name.split("<")[0]


def block_of(name):
    """Threads of a block, bytes of dynamic shared memory."""
    kernel, width = family(name), re.match(r"\w+<(\d+)>$", name)
    if kernel in ("forward", "backward_queries", "backward_keys") and width:
        return 128, tiles(int(width.group(1)))[kernel]
    return {"clip_factor": 1, "attention": 128, "backward_queries": 128, "backward_keys": 128}.get(kernel, 256), 0


def blocks(generation, registers, threads, shared):
    """Of an SM at once: registers are given out to warps, 256 at a time."""
    all_registers, all_threads, all_blocks, memory, most = SM[generation]
    if shared > most:
        return 0
    warps = math.ceil(threads / 32)
    by_registers = all_registers // (math.ceil(registers * 32 / 256) * 256) // warps
    return min(by_registers, all_threads // (warps * 32), all_blocks, memory // (shared + 1024))


def table(found):
    lines = ["| kernel | threads | shared memory | registers | warps of an SM | registers | warps of an SM |",
             "|---|---|---|---|---|---|---|"]
    for name in sorted(found["90"]):
        threads, dynamic = block_of(name)
        cells = []
        for generation in GENERATIONS:
            registers, static, _, _ = found[generation][name]
            n = blocks(generation, registers, threads, static + dynamic)
            cells += [str(registers), f"{n * math.ceil(threads / 32)} of 64" if n else "not there"]
        lines.append(f"| `{name}` | {threads} | {found['90'][name][1] + dynamic} | " + " | ".join(cells) + " |")
    return lines


# ---- the estimate: a model of 1.5B parameters (28 layers of 1536, 12 heads of 128 that share 2, 8960 in the middle, 151936 words, tied) ----

LAYERS, HIDDEN, HEADS, KV, DIM, MIDDLE, WORDS = 28, 1536, 12, 2, 128, 8960, 151936
BATCH, LENGTH, TOPK = 8, 1024, 0.1
PEAK, BANDWIDTH = 989e12, 3.35e12  # an H100 SXM's data sheet: bf16 without sparsity, HBM3
GEMM, MMA, STREAM, GAP = 0.70, 0.30, 0.80, 2e-6  # assumed: shares of these that are reached; seconds between two launches


def step():
    """Rows of (what, launches, FLOP, bytes, seconds)."""
    tokens = BATCH * LENGTH
    linear = LAYERS * (HIDDEN * (2 * HEADS * DIM + 2 * KV * DIM) + 3 * HIDDEN * MIDDLE)
    weights = linear + HIDDEN * WORDS
    pairs = BATCH * LENGTH * (LENGTH + 1) / 2
    stream, middle, heads = tokens * HIDDEN * 2, tokens * MIDDLE * 2, tokens * (HEADS + KV) * DIM * 2
    attention = 2 * pairs * HEADS * DIM * LAYERS  # one product of the two (forward) or seven (backward)

    def flops(what, launches, n, share):
        return what, launches, n, 0, n / PEAK / share

    def memory(what, launches, n):
        return what, launches, 0, n, n / BANDWIDTH / STREAM

    return [flops("products, forward and backward", LAYERS * 7 * 3 + 3, 6 * weights * tokens, GEMM),
            flops("attention forward", LAYERS, 2 * attention, MMA),
            flops("attention backward (scores are made twice)", 2 * LAYERS, 7 * attention, MMA),
            memory("norms, forward", 2 * LAYERS + 1, (2 * LAYERS + 1) * 4 * stream),
            memory("norms, backward, with their weights", 2 * (2 * LAYERS + 1), (2 * LAYERS + 1) * 6 * stream),
            memory("SwiGLU, forward and backward", 2 * LAYERS, LAYERS * 8 * middle),
            memory("rotations, forward and backward", 4 * LAYERS, LAYERS * 4 * heads),
            memory("gradients of biases", 3 * LAYERS, LAYERS * tokens * (HEADS + 2 * KV) * DIM * 2),
            memory("casts of sums that are kept in f32", 2 * LAYERS, LAYERS * 2 * 3 * stream),
            memory("cross-entropy: logits twice, the gradient once", 8, tokens * WORDS * (4 + 4 + 2)),
            memory("embedding, forward and backward", 2, stream * 2 + tokens * HIDDEN * (2 + 8)),
            memory("norm of the gradient", 8 * LAYERS, 4 * weights),
            memory(f"AdamW of the device half ({TOPK:.0%} of the rows)", 7 * LAYERS + 1, TOPK * weights * (7 * 4 + 2)),
            memory("rows of the CPU half: packed and moved", 7 * LAYERS + 1, (1 - TOPK) * weights * (4 + 2 + 4))], tokens, weights, attention


def estimate():
    rows, tokens, weights, attention = step()
    launches, seconds = sum(r[1] for r in rows), sum(r[4] for r in rows)
    lines = ["| part of a step | launches | TFLOP | GB | ms |", "|---|---|---|---|---|"]
    lines += [f"| {what} | {n} | {f / 1e12:.1f} | {b / 1e9:.1f} | {s * 1e3:.1f} |" for what, n, f, b, s in rows]
    gaps = launches * GAP
    lines.append(f"| between launches, {GAP * 1e6:.0f} us each | | | | {gaps * 1e3:.1f} |")
    useful = 6 * weights * tokens + 6 * attention

    def mfu(gemm):
        return useful / (seconds + gaps + rows[0][4] * (GEMM / gemm - 1)) / PEAK

    lines.append(f"| all | {launches} | | | {(seconds + gaps) * 1e3:.0f} |")
    lines += ["", f"That would be {useful / 1e12:.0f} TFLOP of the model (6 for each weight and token, and attention to what a token sees) and an "
              f"MFU of {mfu(GEMM):.0%}; {mfu(0.6):.0%} if products reached 60 % of the data sheet, {mfu(0.8):.0%} at 80 %. "
              f"The bus has {(1 - TOPK) * weights * 2 / 1e9:.1f} GB to carry down in that time, beside the work."]
    return lines


HEAD = """# The CUDA kernels: what they ask of a device, and an estimate

Made by `tests/bench/cuda_kernels.py` from what ptxas says (nvcc {version}); a test holds it to that. **Nothing on this page was measured on a
GPU.**

## Design

- Attention of bf16 (`attention_forward.cu`, `attention_backward.cu`, `tiles.h`): tensor cores (mma.m16n8k16), operands by ldmatrix from tiles
  whose rows are 16 bytes longer than their numbers, so that the eight rows of a fragment lie in all 32 banks; the next tile comes by cp.async
  while one is used, with one barrier a tile. Tiles that nobody sees are not fetched, those that all see are not masked. Forward reads queries
  once. Backward is two kernels and makes the scores twice (seven products, where five would do with atomics): nobody adds to what another
  wrote, so bits are always the same. Heads are padded to 32, 64, 80, 96, 128 or 256; of 256 the kernel of keys has half of the columns a
  block. Heads that are no multiple of 16, and f32, have the kernels of `attention.cu`.
- Products (`matmul.c`): cuBLASLt, one plan a shape, bias in the epilogue, 32 MiB of workspace a lane, algorithms without split sums only.
  A gradient of a bias is no epilogue: the library's overwrites, ours adds to the micro-batch before.
- All else goes through memory once, 16 bytes a thread and access where pointers, rows and widths are multiples of that, else an element. A
  row that is read again (norms) is in the cache. Cross-entropy reads logits twice: a row of 151936 does not fit an SM.
- Sums over rows (gradients of norms' weights and of biases): a block has 32 bytes of a row and all rows, so that 1536 columns of bf16 make 96
  blocks. Gradients of embeddings: 128 blocks, each with the entries that fall to it, of every row in order.
- Scores of channels are taken at a selection only; `row_sums` then reads the gradient, and `sum_squares` again. The best channels are chosen on
  the host, from two doubles a channel: the model below has half a million channels, 8 MB once a selection interval, and the migration that
  follows needs the list on the host in any case. Choosing on the device would save the copy and a pass over half a million numbers, once an
  interval, for a second implementation that has to break ties alike: not worth it.

## Registers, shared memory, occupancy

No kernel spills, in either generation (a test fails otherwise). First sm_80, then sm_90, whose figures of an SM sm_100 shares. Warps: how many
an SM of that generation holds at once by registers, threads and shared memory.

"""

ESTIMATE = """
## Estimate of a step

Of a model with {weights:.2f}e9 weights in products, {batch} rows of {length} tokens, on a device with the data sheet of an H100 SXM ({peak:.0f}
TFLOP/s of bf16, {bandwidth:.2f} TB/s). Assumed, not known: products reach {gemm:.0%} of that, attention by mma.sync {mma:.0%}, kernels that go
through memory {stream:.0%} of the bandwidth; nothing overlaps; nothing is computed twice; copies go beside. Bytes are the least that each op
must move (kernels/host/profile.c), but for what is said.

"""


def page(build):
    found, version = read(build)
    _, _, weights, _ = step()
    facts = dict(weights=weights / 1e9, batch=BATCH, length=LENGTH, peak=PEAK / 1e12, bandwidth=BANDWIDTH / 1e12, gemm=GEMM, mma=MMA, stream=STREAM)
    return HEAD.format(version=version) + "\n".join(table(found)) + "\n" + ESTIMATE.format(**facts) + "\n".join(estimate()) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(page(sys.argv[1]))
