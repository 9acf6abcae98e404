"""A collector of traces: python -m tests.integration.otlp_receiver prints its port, then a line of
JSON for each request: its headers, and the OTLP protobuf in its body decoded."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        message = ExportTraceServiceRequest.FromString(body)
        answer = ExportTraceServiceResponse().SerializeToString()
        told = {"path": self.path, "headers": dict(self.headers.items()), **MessageToDict(message)}
        print(json.dumps(told), flush=True)
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None: ...


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
