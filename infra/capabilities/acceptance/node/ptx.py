"""What cuda.py has GPUs compute: programs in PTX ISA 7.0, that of CUDA 11.0.

Each compares whole numbers that a float holds exactly, so that one wrong bit is seen: the largest product is
2^19, and a float holds whole numbers up to 2^24. Python 3.8, standard library.
"""

from __future__ import annotations

from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SIGNS = "0x80008000"
"""Of two numbers in bfloat16."""
HEAD = ".version 7.0\n.target sm_{target}\n.address_size 64\n"
WORDS = """
.visible .entry {name}(
    .param .u64 at, .param .u64 words, .param .u64 seed, .param .u64 flip, .param .u64 wrong)
{{
    .reg .pred %done, %same;
    .reg .u32 %block, %size, %thread, %blocks;
    .reg .u64 %at, %words, %seed, %flip, %wrong, %index, %stride, %word, %part, %place, %found, %one;
    ld.param.u64 %at, [at];
    ld.param.u64 %words, [words];
    ld.param.u64 %seed, [seed];
    ld.param.u64 %flip, [flip];
    ld.param.u64 %wrong, [wrong];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u64 %one, 1;
    mul.wide.u32 %index, %block, %size;
    cvt.u64.u32 %part, %thread;
    add.u64 %index, %index, %part;
    mul.wide.u32 %stride, %blocks, %size;
NEXT:
    setp.ge.u64 %done, %index, %words;
    @%done bra END;
    add.u64 %word, %index, %seed;
    mul.lo.u64 %word, %word, 0x9e3779b97f4a7c15;
    shr.u64 %part, %word, 29;
    xor.b64 %word, %word, %part;
    xor.b64 %word, %word, %flip;
    shl.b64 %place, %index, 3;
    add.u64 %place, %place, %at;
    {what}
    add.u64 %index, %index, %stride;
    bra NEXT;
END:
    ret;
}}
"""
"""A word that its place and a seed make, `flip`ped: written everywhere, or held against what is there."""
WRITE = "st.global.u64 [%place], %word;"
COMPARE = """ld.global.u64 %found, [%place];
    setp.eq.u64 %same, %found, %word;
    @!%same red.global.add.u64 [%wrong], %one;"""
SUMS = """
.visible .entry {name}(.param .u64 wrong, .param .u32 rounds)
{{
    .reg .pred %more, %same;
    .reg .u32 %lane, %row, %column, %round, %rounds, %part, %other;
    .reg .s32 %value, %wanted;
    .reg .b32 %a<4>, %n<4>, %b<2>;
    .reg .f32 %left, %less, %right, %sum<16>, %u<2>, %v, %low, %high, %scale<2>, %full;
    .reg .u64 %wrong, %one;
    ld.param.u64 %wrong, [wrong];
    ld.param.u32 %rounds, [rounds];
    mov.u64 %one, 1;
    mov.u32 %lane, %tid.x;
    and.b32 %lane, %lane, 31;
    shr.u32 %row, %lane, 2;
    and.b32 %column, %lane, 3;
    {prepare}
    {zero}
    mov.u32 %round, 0;
AGAIN:
    {add}
    {take}
    add.u32 %round, %round, 1;
    setp.lt.u32 %more, %round, %rounds;
    @%more bra AGAIN;
    {add}
    {compare}
    ret;
}}
"""
"""Four chains of sums, which begin at 0, 1, 2 and 3: a product is added and taken away, again and again, and
in the end added; `wrong` counts those that are not what they began with and that product."""


def whole(register: str, of: str, factor: int = 37) -> str:
    """PTX: a whole number from -63 to 64 that depends on a register."""
    return (
        f"mad.lo.s32 {register}, {of}, {factor}, 11; and.b32 {register}, {register}, 127; "
        f"sub.s32 {register}, {register}, 63;"
    )


def sums(name: str, count: int, prepare: str, steps: tuple[str, str], wanted: Callable[[int], str]) -> str:
    """One program of arithmetic with so many sums in each of its four chains.

    `steps` add a product to every sum, and take it away; `wanted` has the PTX by which `%wanted` becomes the
    element of the product that belongs to a sum of that number.
    """
    zero, compare = [], []
    for number in range(4 * count):
        chain = number // count
        zero.append(f"cvt.rn.f32.s32 %sum{number}, {chain};")
        compare.append(
            f"{wanted(number % count)} add.s32 %wanted, %wanted, {chain}; cvt.rn.f32.s32 %full, %wanted; "
            f"setp.eq.f32 %same, %full, %sum{number}; @!%same red.global.add.u64 [%wrong], %one;"
        )
    parts = {"zero": "\n    ".join(zero), "compare": "\n    ".join(compare)}
    return SUMS.format(name=name, prepare=prepare, add=steps[0], take=steps[1], **parts)


def multiply_add() -> str:
    """PTX: each thread multiplies two whole numbers, and adds."""
    lines = [
        whole("%wanted", "%row"),
        "cvt.rn.f32.s32 %left, %wanted; neg.f32 %less, %left;",
        whole("%value", "%column", 53),
        "cvt.rn.f32.s32 %right, %value; mul.lo.s32 %value, %value, %wanted;",
    ]
    add, take = (
        "\n    ".join(f"fma.rn.f32 %sum{n}, {factor}, %right, %sum{n};" for n in range(4))
        for factor in ("%left", "%less")
    )
    return sums("multiply_add", 1, "\n    ".join(lines), (add, take), lambda _: "mov.s32 %wanted, %value;")


def matrices() -> str:
    """PTX: tensor cores multiply two matrices, and add.

    A has u(row) · s(k), B has v(column) · 8 / s(k), where s(k) are powers of two with a sign: every element
    of the product is 16 · 8 · u · v, and bfloat16 holds each factor exactly. Which element is in which
    register of which thread: PTX ISA, mma.m16n8k16.
    """
    lines = [
        "shl.b32 %part, 1, %column; cvt.rn.f32.u32 %scale0, %part;",  # 2^t for k = 2t and 2t + 1
        "sub.u32 %other, 3, %column; shl.b32 %part, 1, %other; cvt.rn.f32.u32 %scale1, %part;",
        whole("%value", "%row") + " cvt.rn.f32.s32 %u0, %value;",
        "add.u32 %other, %row, 8; " + whole("%value", "%other") + " cvt.rn.f32.s32 %u1, %value;",
        whole("%value", "%row", 53) + " cvt.rn.f32.s32 %v, %value;",
    ]
    for register, row, half in ((0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)):
        lines.append(f"mul.f32 %low, %u{row}, %scale{half}; neg.f32 %high, %low;")
        lines.append(
            f"cvt.rn.bf16x2.f32 %a{register}, %high, %low; xor.b32 %n{register}, %a{register}, {SIGNS};"
        )
    for register, half in ((0, 1), (1, 0)):  # 8 / 2^t is 2^(3 - t)
        lines.append(f"mul.f32 %low, %v, %scale{half}; neg.f32 %high, %low;")
        lines.append(f"cvt.rn.bf16x2.f32 %b{register}, %high, %low;")
    add, take = ("\n    ".join(map(partial(product, left), range(4))) for left in ("a", "n"))
    return sums("matrices", 4, "\n    ".join(lines), (add, take), element)


def product(left: str, chain: int) -> str:
    """PTX: A, or what takes it away, times B is added to a chain."""
    four = ", ".join(f"%sum{4 * chain + n}" for n in range(4))
    factors = ", ".join(f"%{left}{n}" for n in range(4))
    mma = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    return f"{mma} {{{four}}}, {{{factors}}}, {{%b0, %b1}}, {{{four}}};"


def element(number: int) -> str:
    """PTX: the element of the product that is in a thread's register of that number."""
    lines = [
        f"add.u32 %other, %row, {8 * (number // 2)};",
        whole("%wanted", "%other"),
        f"shl.b32 %other, %column, 1; add.u32 %other, %other, {number % 2};",
        whole("%value", "%other", 53),
        "mul.lo.s32 %wanted, %wanted, %value; shl.b32 %wanted, %wanted, 7;",
    ]
    return " ".join(lines)


def programs(capability: tuple[int, int]) -> dict[str, str]:
    """Name → PTX of every program that a GPU of this compute capability can run."""
    plain = [
        WORDS.format(name="fill", what=WRITE),
        WORDS.format(name="compare", what=COMPARE),
        multiply_add(),
    ]
    made = {"plain": HEAD.format(target=70) + "".join(plain)}
    if capability >= (8, 0):  # tensor cores take bfloat16
        made["tensor"] = HEAD.format(target=80) + matrices()
    return made
