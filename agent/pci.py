"""
How many GPUs the PCI bus shows, asked only when the driver cannot say.

A missing NVIDIA library is normal on a machine without a GPU and a blind spot on one
with a GPU; only the bus tells the two apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional

DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA, _AMD = "0x10de", "0x1002"
# PCI class codes: 0x03 display controllers, 0x12 processing accelerators. NVSwitches (0x0680) and audio (0x0403) are neither.
_GPU_CLASSES = ("0x03", "0x12")


class PciGpus(NamedTuple):
    """Devices by vendor."""

    nvidia: int
    amd: int


def count(devices: Path = DEVICES) -> Optional[PciGpus]:
    """Count GPU devices on the bus. None: the bus itself cannot be read. A single device that cannot be read is passed over."""
    try:
        entries = sorted(devices.iterdir())
    except FileNotFoundError:
        return PciGpus(0, 0)  # a machine without PCI, or not Linux: there is no bus to hang a GPU on
    except OSError:
        return None
    vendors = []
    for entry in entries:
        try:
            kind = (entry / "class").read_text(encoding="ascii").strip()
            vendor = (entry / "vendor").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue  # unplugged while we looked
        if kind.startswith(_GPU_CLASSES):
            vendors.append(vendor)
    return PciGpus(vendors.count(_NVIDIA), vendors.count(_AMD))


def integrated(sys: Path = Path("/sys"), devices: Optional[Path] = None) -> bool:
    """
    Whether this is a Jetson: a Tegra chip without an NVIDIA GPU on its PCI bus. The
    driver of its own GPU answers "success" with figures that mean nothing.
    """
    try:
        family = (sys / "devices" / "soc0" / "family").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return False
    on_bus = count(devices if devices is not None else sys / "bus" / "pci" / "devices")
    return family.lower().startswith("tegra") and (on_bus is None or on_bus.nvidia == 0)
