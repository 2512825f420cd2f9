# PyTorch for CPUs. Build: trainmaster image build --root /shared/images site/pytorch:cpu cpu.Dockerfile
# Without internet: --build-arg BASE=an-image-that-is-there --build-arg INDEX=https://mirror/simple
ARG BASE=python:3.12-slim
FROM ${BASE}
# Where pip finds packages, and which it installs; none: the base has all.
ARG INDEX=https://download.pytorch.org/whl/cpu
ARG PACKAGES="torch numpy"
# A job brings its own runtime: all it wants of an image is Python 3.8 or newer, by the name python3.
RUN python3 -c 'import sys; sys.exit(sys.version_info < (3, 8) and "The base needs Python 3.8 or newer.")'
RUN if [ "${PACKAGES}" != none ]; then \
        python3 -m pip install --no-cache-dir --extra-index-url "${INDEX}" ${PACKAGES}; \
    fi
ENV LC_ALL=C.UTF-8
