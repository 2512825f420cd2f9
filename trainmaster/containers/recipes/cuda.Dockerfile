# PyTorch for NVIDIA GPUs. Build: trainmaster image build --root /shared/images site/pytorch:cuda cuda.Dockerfile
# The driver is the node's; the CUDA release must not be newer than the driver allows.
# `devel` has the compiler that deepspeed and horovod build their parts with; `runtime` is smaller.
ARG BASE=nvidia/cuda:12.4.1-devel-ubuntu22.04
FROM ${BASE}
ARG INDEX=https://download.pytorch.org/whl/cu124
# For the launchers of the same names, add deepspeed or horovod.
ARG PACKAGES="torch numpy"
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        python3 python3-dev python3-pip libnuma1 ca-certificates \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m pip install --no-cache-dir --extra-index-url "${INDEX}" ${PACKAGES}
ENV LC_ALL=C.UTF-8
