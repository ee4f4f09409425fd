# SPDX-License-Identifier: Apache-2.0
"""What the numbers were measured on, and the environment that peers need before they load."""

import datetime
import os
import pathlib
import platform

SIMD_NAMES = {"avx512": "AVX3", "avx2": "AVX2", "neon": "NEON"}


def _cpuinfo():
    """The fields of the first processor in /proc/cpuinfo; empty where there is none."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    lines = text.split("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def cpu_flags():
    return set(_cpuinfo().get("flags", "").split())


def describe():
    """CPU, cores and date, for JSON and docs."""
    info = _cpuinfo()
    name = info.get("model name") or platform.processor() or platform.machine()
    if {"cpu family", "model"} <= info.keys():
        name += f" (family {info['cpu family']}, model {info['model']})"
    wanted = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16")
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "features": [flag for flag in wanted if flag in cpu_flags()],
        "system": f"{platform.system()} {platform.machine()}",
        "virtual": "hypervisor" in cpu_flags(),
        "date": datetime.date.today().isoformat(),
    }


def prepare_environment(simd):
    """Sets what peers read when they load, so call it before anything is loaded.

    With a SIMD target forced on regard the peers are held to the same, as far as they can be.
    """
    flags = cpu_flags()
    narrow = simd == "avx2" or "avx512f" not in flags
    if narrow and simd == "avx2":
        os.environ["ATEN_CPU_CAPABILITY"] = "avx2"
        os.environ["MKL_ENABLE_INSTRUCTIONS"] = "AVX2"
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    elif "amx_bf16" in flags:
        # torch's AMX products die with SIGILL on some virtual machines.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    if "avx2" in flags:
        # An OpenBLAS older than the CPU falls back to SSE kernels: name the core for it.
        os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell" if narrow else "SkylakeX")
