"""An object store that speaks the part of S3's protocol that Arrow's client uses, in memory."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, dict[str, bytes]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def _asked(self) -> tuple[str, str, dict[str, str]]:
        """Bucket, key and parameters."""
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        return bucket, key, {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.headers.get("x-amz-content-sha256", "").startswith("STREAMING"):
            return data
        # S3 has chunks of its own, with a checksum after them.
        whole = b""
        while size := int(data.partition(b"\r\n")[0].partition(b";")[0], 16):
            data = data.partition(b"\r\n")[2]
            whole, data = whole + data[:size], data[size + 2 :]
        return whole

    def _answer(self, status: int, body: bytes | str = b"", **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _missing(self, code: str) -> None:
        self._answer(
            404, f"<Error><Code>{code}</Code><Message>missing</Message></Error>", Content_Type="application/xml"
        )

    def do_PUT(self) -> None:
        bucket, key, asked = self._asked()
        data = self._body()
        with self.server.lock:
            if not key:
                self.server.objects.setdefault(bucket, {})
            elif bucket not in self.server.objects:
                return self._missing("NoSuchBucket")
            elif "uploadId" in asked:
                self.server.uploads[asked["uploadId"]][int(asked["partNumber"])] = data
            else:
                self.server.objects[bucket][key] = data
        self._answer(200, ETag=f'"{md5(data, usedforsecurity=False).hexdigest()}"')

    def do_POST(self) -> None:
        bucket, key, asked = self._asked()
        self._body()
        names = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key>"
        with self.server.lock:
            if "uploads" in asked:
                id = f"upload{len(self.server.uploads)}"
                self.server.uploads[id] = {}
                text = (
                    f"<InitiateMultipartUploadResult>{names}<UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                )
            else:
                parts = self.server.uploads.pop(asked["uploadId"])
                self.server.objects[bucket][key] = b"".join(parts[n] for n in sorted(parts))
                text = f'<CompleteMultipartUploadResult>{names}<ETag>"x"</ETag></CompleteMultipartUploadResult>'
        self._answer(200, text, Content_Type="application/xml")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        bucket, key, asked = self._asked()
        with self.server.lock:
            known = self.server.objects.get(bucket)
            if known is None:
                return self._missing("NoSuchBucket")
            if not key:
                return self._answer(200, _listing(bucket, known, asked), Content_Type="application/xml")
            data = known.get(key)
        if data is None:
            return self._missing("NoSuchKey")
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if found is None:
            return self._answer(200, data, Content_Length=str(len(data)), ETag='"x"')
        part = data[int(found[1]) : int(found[2]) + 1 if found[2] else None]
        last = int(found[1]) + len(part) - 1
        return self._answer(206, part, Content_Range=f"bytes {found[1]}-{last}/{len(data)}", ETag='"x"')

    def do_DELETE(self) -> None:
        bucket, key, _ = self._asked()
        with self.server.lock:
            self.server.objects.get(bucket, {}).pop(key, None)
        self._answer(204)


def _listing(bucket: str, known: dict[str, bytes], asked: dict[str, str]) -> str:
    prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
    keys, folders = [], set()
    for key in sorted(k for k in known if k.startswith(prefix)):
        rest = key[len(prefix) :]
        if delimiter and delimiter in rest:
            folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
        else:
            keys.append(key)
    inside = "".join(
        f"<Contents><Key>{escape(k)}</Key><Size>{len(known[k])}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for k in keys
    )
    inside += "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
    count = len(keys) + len(folders)
    return (
        f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount>"
        f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{inside}</ListBucketResult>"
    )


class ObjectStore:
    """A running server with one bucket."""

    bucket = "penstock-tests"

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._request("PUT", "")

    def url(self, prefix: str) -> str:
        """A place in the bucket."""
        host = urlsplit(self._endpoint).netloc
        return f"s3://{self.bucket}/{prefix}?endpoint_override={quote(host)}&scheme=http&region=us-east-1"

    def read(self, key: str) -> bytes:
        return self._request("GET", key)

    def write(self, key: str, data: bytes) -> None:
        self._request("PUT", key, data)

    def listed(self) -> list[str]:
        """All objects, without those that stand for folders."""
        found = re.findall(r"<Key>([^<]*)</Key>", self._request("GET", "").decode())
        return sorted(k for k in found if not k.endswith("/"))

    def _request(self, method: str, key: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self._endpoint}/{self.bucket}/{quote(key)}", data, method=method)
        with urllib.request.urlopen(request) as answer:
            return bytes(answer.read())


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield ObjectStore(f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
