"""Creates a tree of files like /sys on a node with AMD GPUs."""

from __future__ import annotations

from pathlib import Path


def add_processor(root: Path, number: int) -> None:
    _node(root, number, "cpu_cores_count 32\nsimd_count 0\ndrm_render_minor 0\n")


def add_gpu(
    root: Path, number: int, *, minor: int, serial: int, percent: int = 0, used: int = 0, total: int = 0
) -> None:
    """`number`: of the node in the topology. Its device can be opened."""
    _node(root, number, f"cpu_cores_count 0\nsimd_count 304\ndrm_render_minor {minor}\nunique_id {serial}\n")
    device = root / f"dev/dri/renderD{minor}"
    device.parent.mkdir(parents=True, exist_ok=True)
    device.touch()
    folder = root / f"sys/class/drm/renderD{minor}/device"
    folder.mkdir(parents=True)
    for name, value in (("gpu_busy_percent", percent), ("mem_info_vram_used", used), ("mem_info_vram_total", total)):
        (folder / name).write_text(f"{value}\n")


def _node(root: Path, number: int, properties: str) -> None:
    folder = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
    folder.mkdir(parents=True)
    (folder / "properties").write_text(properties)
