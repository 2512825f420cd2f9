"""GPUs that are not there: an NVML of our own, compiled, and a tree of files as amdgpu shows it in /sys."""
