"""Simulated GPUs: a compiled NVML library, and a tree of files like amdgpu's in /sys."""
