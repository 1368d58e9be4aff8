# `manylabel serve` on a CPU, without torch: about 240 MB on top of the Python image.
#
#   docker build --tag manylabel .
#   docker run --publish 8000:8000 --volume "$PWD/my-model.onnx:/models/model.onnx:ro" manylabel
#
# `make package` runs these steps in an empty directory tree, for machines without a container engine.
FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/manylabel
RUN /opt/manylabel/bin/python -m pip install --quiet --no-cache-dir --constraint constraints.txt ".[serve]"

FROM python:3.12-slim
COPY --from=build /opt/manylabel /opt/manylabel
RUN useradd --uid 10001 --create-home manylabel
USER 10001
ENV PATH=/opt/manylabel/bin:/usr/local/bin:/usr/bin:/bin MANYLABEL_CACHE=/tmp/manylabel
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["manylabel", "serve", "--host", "0.0.0.0"]
CMD ["--model", "/models/model.onnx"]
