# The reaper's daemon. The agent does not run in a container: it needs the host's own view of its GPUs and processes.
#   docker build -t idle-reaper .
#   docker run -v reaper-state:/var/lib/idle-reaper -v ./reaper.toml:/etc/idle-reaper/reaper.toml:ro -p 127.0.0.1:9464:9464 idle-reaper
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
COPY pyproject.toml README.md /src/
COPY reaper /src/reaper
COPY agent /src/agent
RUN python3 -m venv /opt/idle-reaper && /opt/idle-reaper/bin/pip install --no-cache-dir -q '/src[postgres]'

FROM ${BASE}
COPY --from=build /opt/idle-reaper /opt/idle-reaper
# One writable folder, no root.
RUN mkdir -p /var/lib/idle-reaper && chown 65532:65532 /var/lib/idle-reaper && chmod 700 /var/lib/idle-reaper
USER 65532:65532
ENV PATH=/opt/idle-reaper/bin:$PATH REAPER_STATE=/var/lib/idle-reaper PYTHONUNBUFFERED=1
VOLUME /var/lib/idle-reaper
EXPOSE 9464
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
  CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9464/healthz', timeout=4)"]
# Inside the container it listens on all addresses; what is published, and TLS in front of it, is for whoever runs it.
ENTRYPOINT ["reaper"]
CMD ["run", "--listen", "0.0.0.0:9464"]
