"""Tries this node's GPUs with nothing but their driver: memory, arithmetic, and the way to them.

    cuda.py SECONDS

Prints {"error": ""} or why nothing could be tried, and "gpus": of each one its PCI address, its "error", what
came out "wrong", and how fast it was. All GPUs are tried at once, as a job would use them.

CUDA's driver API (libcuda.so.1) compiles the programs of ptx.py for the GPU that is there. A process of its
own: what hangs or breaks in there is killed with it. Python 3.8, standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import threading
import time

from infra.capabilities.acceptance.node.ptx import programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MEMORY_SHARE = 0.9
"""Of what is free: the driver needs some of it for the programs (a rule of ours)."""
COPIED_BYTES = 64 << 20
COPIES = 16
ROUNDS = 1024
SUMS_S = {"matrices": 9.0, "multiply_add": 1.0}
"""Of each kind before it is the others' turn. Tensor cores draw all that a board may; the rest half of it."""
LAUNCHES = 64
"""Of a program of arithmetic before anybody waits for it: some 0.1 s."""
WARPS = 8
"""Of a block, of 32 threads each; each SM has several blocks."""
BLOCKS_OF_SM = 4
FLOP = {"matrices": 8 * 2 * 16 * 8 * 16, "multiply_add": 8 * 2 * 32}
"""Of a warp in one round: eight products of a 16 × 16 by a 16 × 8 matrix; eight multiply-adds a thread."""
TOLD = {"matrices": ("sums of tensor cores", "tensor_tflops"), "multiply_add": ("sums", "fp32_tflops")}
"""Program of arithmetic → what it counts, and the name of its speed."""


class RefusedError(Exception):
    """What the driver does not do, in its own words."""


class Driver:
    """CUDA's driver API. RefusedError with what it says where a call fails."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise RefusedError("the driver's libcuda.so.1 is not here")  # noqa: B904 - one cause is enough
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *arguments: Any) -> None:
        """One call; every argument has its C type."""
        status = getattr(self.library, name)(*arguments)
        if status:
            said = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(said))
            raise RefusedError(f"{name}: {(said.value or b'error').decode()} ({status})")

    def count(self) -> int:
        """How many GPUs it has."""
        found = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(found))
        return found.value


class Gpu:
    """One GPU, in the one thread that uses it."""

    def __init__(self, driver: Driver, index: int) -> None:
        self.driver, self.handle, self.context = driver, ctypes.c_int(), ctypes.c_void_p()
        driver.call("cuDeviceGet", ctypes.byref(self.handle), ctypes.c_int(index))
        address = ctypes.create_string_buffer(32)
        driver.call("cuDeviceGetPCIBusId", address, ctypes.c_int(32), self.handle)
        self.pci = address.value.decode()
        self.sms = self.attribute(16)
        self.capability = (self.attribute(75), self.attribute(76))

    def attribute(self, number: int) -> int:
        """One of CUdevice_attribute."""
        found = ctypes.c_int()
        self.driver.call("cuDeviceGetAttribute", ctypes.byref(found), ctypes.c_int(number), self.handle)
        return found.value

    def open(self) -> None:
        """Take it, and have the programs compiled for it."""
        call = self.driver.call
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.handle)
        call("cuCtxSetCurrent", self.context)
        self.functions = {}  # type: dict[str, ctypes.c_void_p]
        for text in programs(self.capability).values():
            module = ctypes.c_void_p()
            call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text.encode()))
            for name in re.findall(r"\.entry (\w+)", text):
                function = ctypes.c_void_p()
                call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
                self.functions[name] = function
        self.wrong = self.memory(8)

    def memory(self, size: int) -> ctypes.c_uint64:
        """So many bytes of its memory."""
        found = ctypes.c_uint64()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(size))
        return found

    def launch(self, name: str, *arguments: Any) -> None:
        """Run a program on every SM; it may not have ended when this returns."""
        addresses = [ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in arguments]
        blocks, threads, one, none = (ctypes.c_uint(n) for n in (self.sms * BLOCKS_OF_SM, WARPS * 32, 1, 0))
        self.driver.call(
            "cuLaunchKernel", self.functions[name], blocks, one, one, threads, one, one, none,
            ctypes.c_void_p(), (ctypes.c_void_p * len(addresses))(*addresses), ctypes.c_void_p(),
        )  # fmt: skip

    def finish(self) -> None:
        """Until everything has ended."""
        self.driver.call("cuCtxSynchronize")

    def counted(self, work: Callable[[], None]) -> tuple[int, float]:
        """How much came out wrong in some work, and its seconds."""
        self.driver.call("cuMemsetD8_v2", self.wrong, ctypes.c_ubyte(0), ctypes.c_size_t(8))
        self.finish()
        began = time.monotonic()
        work()
        self.finish()
        took_s, wrong = time.monotonic() - began, ctypes.c_uint64()
        self.driver.call("cuMemcpyDtoH_v2", ctypes.byref(wrong), self.wrong, ctypes.c_size_t(8))
        return wrong.value, took_s


class Found:
    """What was seen of one GPU: the sum of what was wrong, and the best of each speed."""

    def __init__(self, pci: str) -> None:
        self.told = {"pci": pci, "error": "", "wrong": {}}  # type: dict[str, Any]

    def add(self, what: str, wrong: int, **speeds: float) -> None:
        """One look more."""
        self.told["wrong"][what] = self.told["wrong"].get(what, 0) + wrong
        for name, value in speeds.items():
            self.told[name] = round(max(value, self.told.get(name, 0.0)), 1)


def try_gpu(gpu: Gpu, found: Found, until: float) -> None:
    """Memory, copies and arithmetic in turns, each at least once, until a time of the monotonic clock."""
    gpu.open()
    host = ctypes.c_void_p()
    gpu.driver.call("cuMemAllocHost_v2", ctypes.byref(host), ctypes.c_size_t(COPIED_BYTES))
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    gpu.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    size = int(free.value * MEMORY_SHARE) // 16 * 16
    at = gpu.memory(size)
    seed = 0
    while seed == 0 or time.monotonic() < until:
        seed += 1
        for flip in (0, 2**64 - 1):
            try_memory(gpu, found, at, size, seed, flip)
        try_copies(gpu, found, at, host, seed)
        for name in TOLD:
            if name in gpu.functions:
                try_sums(gpu, found, name, min(until, time.monotonic() + SUMS_S[name]))


def try_memory(gpu: Gpu, found: Found, at: ctypes.c_uint64, size: int, seed: int, flip: int) -> None:
    """Every bit of it holds what is written to it."""
    words = (at, ctypes.c_uint64(size // 8), ctypes.c_uint64(seed << 32), ctypes.c_uint64(flip), gpu.wrong)

    def work() -> None:
        gpu.launch("fill", *words)
        gpu.launch("compare", *words)

    wrong, took_s = gpu.counted(work)
    found.add("words of memory", wrong, memory_gbs=2 * size / took_s / 1e9)


def try_copies(gpu: Gpu, found: Found, at: ctypes.c_uint64, host: ctypes.c_void_p, seed: int) -> None:
    """What goes to the host and back is the same, in another place of its memory."""
    call, size = gpu.driver.call, ctypes.c_size_t(COPIED_BYTES)
    words = (ctypes.c_uint64(COPIED_BYTES // 8), ctypes.c_uint64(seed), ctypes.c_uint64(0), gpu.wrong)
    back = ctypes.c_uint64(at.value + COPIED_BYTES)

    def work() -> None:
        gpu.launch("fill", at, *words)
        gpu.finish()
        for speed, copy, to, source in (
            ("to_host_gbs", "cuMemcpyDtoH_v2", host, at),
            ("from_host_gbs", "cuMemcpyHtoD_v2", back, host),
        ):
            began = time.monotonic()
            for _ in range(COPIES):
                call(copy, to, source, size)
            took_s = time.monotonic() - began
            found.add("words copied", 0, **{speed: COPIES * COPIED_BYTES / took_s / 1e9})
        gpu.launch("compare", back, *words)

    found.add("words copied", gpu.counted(work)[0])


def try_sums(gpu: Gpu, found: Found, name: str, until: float) -> None:
    """Arithmetic on every SM comes out as it must; at least one round of launches."""
    rounds, (what, speed), is_first = ctypes.c_uint32(ROUNDS), TOLD[name], True
    every = FLOP[name] * ROUNDS * LAUNCHES * WARPS * BLOCKS_OF_SM * gpu.sms

    def work() -> None:
        for _ in range(LAUNCHES):
            gpu.launch(name, gpu.wrong, rounds)

    while is_first or time.monotonic() < until:
        wrong, took_s = gpu.counted(work)
        found.add(what, wrong, **{speed: every / took_s / 1e12})
        is_first = False


def tried(seconds: float) -> dict[str, Any]:
    """Every GPU at once; what one of them refuses stands beside it."""
    until, driver = time.monotonic() + seconds, Driver()
    gpus = [Gpu(driver, index) for index in range(driver.count())]
    all_found = [Found(gpu.pci) for gpu in gpus]

    def work(gpu: Gpu, found: Found) -> None:
        try:
            try_gpu(gpu, found, until)
        except Exception as error:
            found.told["error"] = str(error) if isinstance(error, RefusedError) else repr(error)

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in zip(gpus, all_found)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # deadline: of who runs this program
    return {"error": "", "gpus": [found.told for found in all_found]}


if __name__ == "__main__":
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # nothing is left in a home
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        answer = tried(float(sys.argv[1]))
    except RefusedError as refused:
        answer = {"error": str(refused), "gpus": []}
    print(json.dumps(answer), flush=True)
    os._exit(0)  # without waiting for what hangs
