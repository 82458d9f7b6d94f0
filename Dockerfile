# The command line with its servers, for pipelines and clusters. No shell is needed to run it, and no right to write: mount a volume
# where a command writes. With its digest, python:3.11.14-slim-bookworm@sha256:…, the base is the same image for ever.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/privtab
# Packages change less often than the code: a layer of their own.
COPY requirements.lock ./
RUN /opt/privtab/bin/pip install --no-cache-dir --require-hashes --no-deps --requirement requirements.lock
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY compiler compiler
COPY packages packages
COPY templates templates
COPY policy_src policy_src
COPY opa opa
COPY docs/rules docs/rules
RUN /opt/privtab/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
  && /opt/privtab/bin/pip uninstall --yes pyspark py4j

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/privtab /opt/privtab
ENV PATH=/opt/privtab/bin:$PATH PYTHONDONTWRITEBYTECODE=1
WORKDIR /work
USER 65532:65532
ENTRYPOINT ["privtab"]
CMD ["--help"]
