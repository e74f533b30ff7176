"""Files of sensors in the kernel's layout, and a graphics driver's library in C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NEVER_S = 3600.0  # polled by `read` alone
AMD = {
    "name": "amd_energy",
    "energy1_input": "1000",
    "energy1_label": "Esocket0",
    "energy2_input": "7",
    "energy2_label": "Ecore000",
}
SUPPLY = {"name": "power_meter", "power1_average": "120000000", "power1_input": "119000000"}

# What the source calls, with its state in a file: a line a card, "energy_mj power_mw", energy
# -1: not supported, -2: the card is lost.
LIBRARY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static long long energy[8]; static unsigned power[8], count;
static int load(void) {
  FILE *file = fopen(getenv("FDE_TEST_NVML"), "r");
  if (!file) return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
  for (count = 0; fscanf(file, "%lld %u", &energy[count], &power[count]) == 2; count++);
  fclose(file);
  return 0;
}
const char *nvmlErrorString(int code) {
  return code == 3 ? "Not Supported" : code == 9 ? "Driver Not Loaded" : "GPU is lost";
}
int nvmlInit_v2(void) { return load(); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = &energy[index];
  return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    strncpy(name, getenv("FDE_TEST_CARD") ? getenv("FDE_TEST_CARD") : "NVIDIA H100", size);
    return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
  load();
  long long found = *(long long *)device;
  if (found < 0) return found == -1 ? 3 : 15;
  *mj = found;
  return 0;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) {
  load();
  if (*(long long *)device == -2) return 15;
  *mw = power[(long long *)device - energy];
  return 0;
}
"""


def compile_nvml(folder: Path, patch: pytest.MonkeyPatch, cards: str) -> Path:
    """Build the library; return it and its state. Skip the test without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) builds the stand-in of NVIDIA's library")
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(LIBRARY)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    patch.setenv("FDE_TEST_NVML", str(folder / "cards"))
    (folder / "cards").write_text(cards)
    return library
