# docker build -t quorum .                                then: docker run --rm quorum
# docker build -t quorum-cuda --build-arg EXTRAS=report,onnx,sign,cuda .
#                                                         then: docker run --rm --gpus all quorum-cuda
# Another command on your own files: docker run --rm -v "$PWD:/work" quorum quorum plan fit --help
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

# CUDA comes with the extra `cuda`, so both images stand on the same one; the driver is the host's.
ARG EXTRAS=report,onnx,sign
COPY . /source
RUN pip install --no-cache-dir "/source[${EXTRAS}]" && rm -r /source

# Not root. A mounted folder must be writable for this user, or give another: docker run --user
RUN useradd --create-home --uid 1000 quorum && mkdir /work && chown quorum /work
USER quorum
WORKDIR /work
ENV OPENBLAS_NUM_THREADS=1
CMD ["quorum", "demo"]
