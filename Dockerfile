# sendonce without a disk: SENDONCE_STATE is the URL of a Redis or a database, the key comes from a secret.
#   docker build -t sendonce . && docker run --rm --env-file daily.env sendonce send-batch --dry-run
FROM python:3.13-slim AS build
WORKDIR /src
# only what is needed: never an .env that lies about
COPY pyproject.toml README.md LICENSE ./
COPY docs/runbook.md docs/
COPY src src
RUN python -m venv /opt/sendonce \
 && /opt/sendonce/bin/pip install --no-cache-dir '.[redis,postgres,mysql]' \
 && /opt/sendonce/bin/python -m compileall -q /opt/sendonce

FROM python:3.13-slim
COPY --from=build /opt/sendonce /opt/sendonce
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# a number, so that Kubernetes can see that it is not root
USER 10001:10001
WORKDIR /
ENTRYPOINT ["/opt/sendonce/bin/sendonce"]
CMD ["send-batch"]
