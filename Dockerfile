# docker build .                    the gateway
# docker build --target models .    the same, with the built model repository, to publish it
# docker build --target triton .    NVIDIA's Triton, with what the models' steps import
#
# docs/deploy.md tells how they are run, and which of them could be built where.
ARG PYTHON_IMAGE=docker.io/library/python:3.12.15-slim-bookworm@sha256:54c85f3c47607a77f32adec749d3c81d1348bf25833671f512b26a9b6d778cb3
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:26.08-py3@sha256:9185ba5b33d2c85c9204b208957b4bbfc6b2b89066efc9192e0f60c2ab58cec0


FROM ${PYTHON_IMAGE} AS tools
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# The newest of the release: what it makes leaves this stage without it.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends binutils && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/pip
ENV PATH=/opt/pip/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1


FROM tools AS build
COPY requirements/runtime.txt /src/requirements/
RUN /usr/bin/env python3 -m venv --without-pip /opt/conch \
    && pip --python /opt/conch/bin/python install --no-compile --require-hashes -r /src/requirements/runtime.txt
# What no gateway reads: tests, sources of extensions, symbols; 80 MB. numpy's libraries are not stripped, since its wheel moved their
# tables, and `strip` would break them.
RUN find /opt/conch -type d -name tests -prune -exec rm -rf {} + \
    && find /opt/conch -type f -regextype egrep -regex '.*\.(pyi|pyx|pxd|pxi|c|h)' -delete \
    && find /opt/conch -path '*/numpy*' -prune -o -name '*.so' -exec strip --strip-unneeded {} +
COPY app /opt/conch/app
# What a start imports is compiled here, as nothing can be written there later; the rest of the packages stays as it is.
RUN ln -s /opt/conch/app "$(/opt/conch/bin/python -c 'import site; print(site.getsitepackages()[0])')/app" \
    && printf '#!/opt/conch/bin/python\nfrom app.cli import main\nmain(prog_name="conch")\n' >/opt/conch/bin/conch \
    && chmod 755 /opt/conch/bin/conch \
    && /opt/conch/bin/python -m compileall -q /opt/conch/app \
    && /opt/conch/bin/python -c 'import app.server, app.storage.bucket, app.storage.publication' \
    && /opt/conch/bin/conch --version


FROM tools AS repository
COPY requirements/local.txt /src/requirements/
RUN pip install --require-hashes -r /src/requirements/local.txt
WORKDIR /src
COPY requirements/models.txt requirements/
COPY model_repository model_repository
COPY app app
RUN CONCH_HOME=/home/conch python -m app.cli models build && python -m app.cli models verify --home /home/conch


FROM ${TRITON_IMAGE} AS triton
COPY requirements/steps.txt /tmp/requirements/
# Into the interpreter that the Python backend's stub embeds; Debian's mark against that is meant for whoever has a package manager.
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir --no-compile --require-hashes -r /tmp/requirements/steps.txt \
    && python3 -c 'import numpy, onnxruntime, tokenizers' \
    && rm -r /tmp/requirements
# Of another user, neither Triton nor a step can change what it runs.
USER 1000:1000
# The steps come first on sys.path by way of the working directory, so that it has to be empty.
WORKDIR /var/empty
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s CMD ["python3", "-c", "__import__('urllib.request').request.urlopen('http://127.0.0.1:8000/v2/health/ready',timeout=4)"]
CMD ["tritonserver", "--model-repository=/models", "--disable-auto-complete-config"]


# The base without what installs software or changes users, so that no layer below the image has it either.
FROM ${PYTHON_IMAGE} AS base
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN find / -xdev -depth \( -path '*-packages/pip*' -o -path '*/python-wheels' -o -path '*/bin/pip*' \
        -o -path '/usr/bin/apt*' -o -path '/usr/lib/apt' -o -path '*/libapt-*' -o -path '*/gconv' \
        -o -regextype egrep -regex '.*/python3[^/]*/(ensurepip|idlelib|lib2to3|pydoc_data|tkinter|turtledemo)' \) -exec rm -rf {} + \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && echo 'conch:x:10001:10001::/nonexistent:/usr/sbin/nologin' >>/etc/passwd \
    && echo 'conch:x:10001:' >>/etc/group


FROM scratch AS runtime
# hadolint ignore=DL3067
COPY --from=base / /
COPY --from=build /opt/conch /opt/conch
COPY config /etc/conch
ENV PATH=/opt/conch/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CONCH_LISTEN=0.0.0.0:8080 \
    CONCH_ADMIN_LISTEN=0.0.0.0:8081 \
    CONCH_ROUTES_FILE=/etc/conch/routes.yaml \
    CONCH_TENANTS_FILE=/etc/conch/tenants.yaml
USER 10001:10001
WORKDIR /etc/conch
ENTRYPOINT ["conch"]


FROM runtime AS models
COPY --from=repository /home/conch/models /home/conch/models
ENV CONCH_HOME=/home/conch
CMD ["models", "publish", "--help"]


FROM runtime AS gateway
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["python", "-m", "app.alive"]
CMD ["serve"]
