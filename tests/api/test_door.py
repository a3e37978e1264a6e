"""The door over real HTTP, with a real store behind it."""

import gzip
import http.client
import json
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from agent.report import decode_answer
from reaper.api.app import App, Limits
from reaper.api.server import MOST_HEAD_BYTES, Server, Tls
from reaper.errors import ReaperError
from reaper.log import configure
from reaper.metrics import Metrics
from reaper.service import tokens
from reaper.service.board import Board
from reaper.service.ingest import MAX_BODY_BYTES, Ingest
from reaper.service.tokens import Verifier
from reaper.service.watch import Watch
from reaper.store import open_store
from tests.service.door import HOST, OTHER, START, Counts, Flaky, ManualClock, body


class Door:
    def __init__(self, folder, limits=None, tls=None):
        self.clock, self.counts, self.metrics = ManualClock(), Counts(), Metrics()
        self.real = open_store(folder / "state.db")
        self.store = Flaky(self.real)
        self.watch, self.missing = Watch(self.store), None
        self.ingest = Ingest(self.store, self.watch, Board(), self.clock, self.counts)
        self.app = App(
            self.ingest, Verifier(self.store), lambda: self.missing, self.metrics.render, limits, metrics=self.counts, clock=self.clock
        )
        self.server = Server(self.app, port=0, tls=tls)
        self.server.start()
        self.token = tokens.issue(self.real, HOST, START, "ada")
        self.shared = tokens.issue(self.real, None, START, "ada")

    def close(self):
        self.server.stop()
        self.real.close()

    def ask(self, method, path, text=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        try:
            connection.request(method, path, text, headers or {})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def post(self, text=None, token="", **headers):
        """With the host's own token, unless another (or None) is given."""
        sent = {"Content-Type": "application/json"}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        response, answer = self.ask("POST", "/v1/reports", body(1) if text is None else text, sent)
        return response.status, json.loads(answer), response.headers

    def raw(self, *parts):
        """What the server answers to these bytes."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as sock:
            for part in parts:
                sock.sendall(part)
            answer = b""
            while chunk := sock.recv(65536):
                answer += chunk
            return answer

    def kept(self):
        return list(self.real.observations(START - timedelta(days=1)))


@pytest.fixture(scope="module")
def closing():
    """Closes doors beside the tests that follow: a server takes a fifth of a second to end, and there are many."""
    with ThreadPoolExecutor(2) as pool:
        ends = []
        yield lambda door: ends.append(pool.submit(door.close))
        for end in ends:
            end.result()


@pytest.fixture
def opened(tmp_path, closing):
    doors = []

    def open_(limits=None, tls=None):
        doors.append(Door(tmp_path, limits, tls))
        return doors[-1]

    yield open_
    for door in doors:
        closing(door)


@pytest.fixture
def door(opened):
    return opened()


def error(answer):
    assert set(answer["error"]) == {"code", "path", "problem", "remedy", "resource"}
    assert all(answer["error"].values())
    return answer["error"]


def test_report_is_accepted_and_kept(door):
    response, answer = door.ask(
        "POST", "/v1/reports", body(1), {"Authorization": f"Bearer {door.token}", "Content-Type": "application/json; charset=utf-8"}
    )

    assert response.status == 202
    assert decode_answer(answer).seq == 3660000
    assert [seen.verified for seen in door.kept()] == [True]
    assert door.counts.results == ["accepted"]


def test_many_reports_travel_over_one_connection(door):
    connection = http.client.HTTPConnection("127.0.0.1", door.server.port, timeout=10)
    for minute in range(1, 6):
        headers = {"Authorization": f"Bearer {door.token}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/reports", body(minute), headers)
        response = connection.getresponse()
        assert response.status == 202
        response.read()
        door.clock.turn(minutes=1)
    connection.close()

    assert len(door.kept()) == 5


def test_chunked_report_is_accepted(door):
    connection = http.client.HTTPConnection("127.0.0.1", door.server.port, timeout=10)
    headers = {"Authorization": f"Bearer {door.token}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/reports", iter([body(1)[:100], body(1)[100:]]), headers, encode_chunked=True)

    assert connection.getresponse().status == 202
    connection.close()


def test_missing_unknown_and_revoked_tokens_get_one_answer(door):
    other = tokens.issue(door.real, OTHER, START, "ada")
    tokens.revoke(door.real, other.split("_")[1], START, "ada")
    given = [None, "nonsense", "irt_0123456789abcdef_" + "A" * 43, door.token[:-1] + "?", other]

    answers = [door.post(token=token) for token in given]

    assert [status for status, _, _ in answers] == [401] * len(given)
    assert len({json.dumps(answer) for _, answer, _ in answers}) == 1
    assert {headers["WWW-Authenticate"] for _, _, headers in answers} == {'Bearer realm="reports"'}
    assert "reaper token issue" in error(answers[0][1])["remedy"]
    assert door.kept() == []


def test_token_in_a_basic_header_or_twice_is_none(door):
    text = body(1)
    head = b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(text)
    twice = b"Authorization: Bearer %s\r\n" % door.token.encode() * 2
    basic = b"Authorization: Basic %s\r\n" % door.token.encode()

    assert door.raw(head + twice + b"\r\n" + text).startswith(b"HTTP/1.1 401")
    assert door.raw(head + basic + b"\r\n" + text).startswith(b"HTTP/1.1 401")


def test_revoked_token_is_refused_from_then_on(door):
    assert door.post()[0] == 202
    tokens.revoke(door.real, door.token.split("_")[1], door.clock.now(), "ada")
    door.clock.turn(seconds=10)

    assert door.post(body(2))[0] == 401


def test_agent_may_not_speak_for_another(door):
    status, answer, _ = door.post(body(1, resource=OTHER))

    assert status == 403
    assert (error(answer)["code"], error(answer)["resource"]) == ("not-yours", str(OTHER))
    assert door.kept() == []


def test_shared_token_is_taken_and_not_believed(door):
    assert door.post(token=door.shared)[0] == 202
    assert door.post(body(1, resource=OTHER), token=door.shared)[0] == 202

    assert [seen.verified for seen in door.kept()] == [False, False]


@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        (b"", "malformed", "body"),
        (b"not json", "malformed", "body"),
        (body(1)[:-20], "malformed", "body"),
        (b"[]", "malformed", "body"),
        (body(1).replace(b'"seq":', b'"seq":1,"seq":'), "malformed", "seq"),
        (body(1).replace(b'"peak_ratio":0.0', b'"peak_ratio":17'), "malformed", "gpus[0].peak_ratio"),
        (body(1).replace(b'"v":1', b'"v":99'), "unknown-version", "v"),
        (body(1, age_s=80 * 3600.0), "too-old", "age_s"),
    ],
    ids=["empty", "not JSON", "cut off", "a list", "a field twice", "out of range", "newer version", "too old"],
)
def test_what_is_no_report_gets_a_clear_400(door, text, code, path):
    status, answer, _ = door.post(text)

    assert status == 400
    assert (error(answer)["code"], error(answer)["path"]) == (code, path)
    assert door.counts.results == [code]
    assert door.post()[0] == 202  # and loses nothing else


def test_malformed_report_is_answered_with_its_sender(door):
    _, answer, _ = door.post(body(1).replace(b'"window_s":60.0', b'"window_s":-1'))

    assert error(answer)["resource"] == str(HOST)
    assert error(answer)["path"] == "window_s"


def test_duplicate_gets_202_again(door):
    first, second = door.post(), door.post()

    assert first[:2] == second[:2]
    assert len(door.kept()) == 1
    assert door.counts.results == ["accepted", "duplicate"]


def test_late_report_is_placed_where_it_belongs(door):
    door.post(body(3))
    door.post(body(1, age_s=120.0))

    assert [seen.ended_at for seen in door.kept()] == [START - timedelta(minutes=2), START]


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded", "application/jsonx"])
def test_only_json_is_taken(door, kind):
    status, answer, _ = door.post(Content_Type=kind)

    assert (status, error(answer)["code"]) == (415, "wrong-type")


def test_gzip_body_is_taken_and_the_answer_says_so(door):
    plain, _, headers = door.post(Content_Encoding="identity")
    packed = door.post(gzip.compress(body(2)), Content_Encoding="gzip")[0]

    assert (plain, packed, headers["Accept-Encoding"]) == (202, 202, "gzip")
    assert len(door.kept()) == 2


def test_other_compression_is_refused_with_what_is_taken(door):
    status, answer, headers = door.post(Content_Encoding="br")

    assert (status, error(answer)["path"], headers["Accept-Encoding"]) == (415, "content-encoding", "gzip")


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        (b"{}", 400, "not-gzip"),
        (gzip.compress(b"{}")[:-4], 400, "not-gzip"),
        (gzip.compress(b"{}") * 2, 400, "not-gzip"),
        (gzip.compress(b" " * 50 * 1024 * 1024), 413, "too-large"),
        (gzip.compress(b" " * (MAX_BODY_BYTES + 1)), 413, "too-large"),
    ],
    ids=["not_gzip", "cut_off", "two_members", "bomb", "a_byte_too_many"],
)
def test_gzip_body_that_is_none_or_hides_too_much_is_refused(door, text, status, code):
    found, answer, _ = door.post(text, Content_Encoding="gzip")

    assert (found, error(answer)["code"]) == (status, code)
    assert door.kept() == []


def test_announced_size_beyond_the_bound_is_refused_unread(door):
    status, answer, _ = door.post(b" " * (MAX_BODY_BYTES + 1))

    assert (status, error(answer)["code"]) == (413, "too-large")


def test_body_of_just_the_bound_is_read(door):
    text = body(1)
    assert door.post(text + b" " * (MAX_BODY_BYTES - len(text)))[0] == 202


def test_size_is_bounded_also_when_nothing_is_announced(door):
    head = f"POST /v1/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {door.token}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    most = b"%x\r\n%s\r\n" % (MAX_BODY_BYTES, b" " * MAX_BODY_BYTES)

    answer = door.raw(head.encode(), most, b"1\r\n ")  # no end, and nothing behind the byte too many

    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer


def test_body_that_drips_is_given_up(opened):
    door = opened(Limits(body_within_s=0.2))
    head = f"POST /v1/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {door.token}\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n"

    answer = door.raw(head.encode() + b'{"v":1')

    assert answer.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in answer
    assert door.counts.results == ["too-slow"]


def head_of(size, end=b""):
    """A request's head of so many bytes in many lines."""
    line = b"X-Padding: " + b"a" * 1000 + b"\r\n"
    start = b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    lines, rest = divmod(size - len(start) - len(end), len(line))
    return start + line * lines + b"X: " + b"a" * (rest - 5) + b"\r\n" + end


def test_head_without_an_end_is_cut_off(door):
    # Its last byte is the one too many: what is sent after a server has closed costs the client the answer.
    head = head_of(MOST_HEAD_BYTES + 1)

    assert len(head) == MOST_HEAD_BYTES + 1
    assert door.raw(head).startswith(b"HTTP/1.1 400")


def test_head_of_just_the_bound_is_read(door):
    head = head_of(MOST_HEAD_BYTES, end=b"Content-Length: 0\r\n\r\n")

    assert len(head) == MOST_HEAD_BYTES
    assert door.raw(head).startswith(b"HTTP/1.1 401")


def test_head_that_never_ends_does_not_keep_its_connection(door):
    line = b"X-Padding: " + b"a" * 1000 + b"\r\n"
    endless = b"POST /v1/reports HTTP/1.1\r\nHost: x\r\n" + line * 100_000  # more than any buffer between the two holds
    with socket.create_connection(("127.0.0.1", door.server.port), timeout=10) as sock, pytest.raises(ConnectionError):
        sock.sendall(endless)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/reports/", "/v2/reports", "/healthz/x", "/..%2fetc"])
def test_other_paths_are_404(door, path):
    response, answer = door.ask("GET", path)

    assert response.status == 404
    assert error(json.loads(answer))["code"] == "no-such-path"


@pytest.mark.parametrize(("method", "path", "allowed"), [("GET", "/v1/reports", "POST"), ("DELETE", "/v1/reports", "POST"), ("POST", "/healthz", "GET, HEAD")])
def test_other_methods_are_405(door, method, path, allowed):
    response, answer = door.ask(method, path)

    assert response.status == 405
    assert response.headers["Allow"] == allowed
    assert error(json.loads(answer))["path"] == "method"


def test_sender_beyond_its_rate_is_told_when_to_come_back(opened):
    door = opened(Limits(per_minute=60, burst=3))
    statuses = [door.post(body(n))[0] for n in range(1, 5)]
    assert statuses == [202, 202, 202, 429]
    status, answer, headers = door.post(body(5))
    assert (status, headers["Retry-After"], error(answer)["resource"]) == (429, "1", str(HOST))

    assert door.post(token=tokens.issue(door.real, OTHER, START, "ada"), text=body(1, resource=OTHER))[0] == 202  # its neighbour
    door.clock.turn(seconds=1)
    assert door.post(body(5))[0] == 202
    assert door.post(body(6))[0] == 429


def test_a_spool_after_two_hours_passes_at_the_default_rate(door):
    for minute in range(1, 121):
        assert door.post(body(minute, age_s=60.0 * (120 - minute)))[0] == 202


def test_shared_token_is_not_bound_by_one_hosts_rate(opened):
    door = opened(Limits(per_minute=60, burst=2, shared_burst=50))

    assert {door.post(body(n), token=door.shared)[0] for n in range(1, 31)} == {202}


def test_bad_tokens_are_limited_by_address_and_good_agents_there_are_not(opened):
    door = opened(Limits(failures_per_minute=60, failures_burst=5))
    assert door.post()[0] == 202  # was good lately
    assert [door.post(token="bad")[0] for _ in range(7)] == [401] * 5 + [429] * 2
    status, answer, headers = door.post(token="bad")
    assert (status, error(answer)["code"], headers["Retry-After"]) == (429, "too-many-failures", "1")

    assert door.post(body(2))[0] == 202
    door.clock.turn(seconds=1)
    assert door.post(token="bad")[0] == 401


class Held:
    """Ingest that takes as long as the test wants."""

    def __init__(self, ingest):
        self.ingest, self.entered, self.go_on = ingest, threading.Semaphore(0), threading.Event()

    def accept(self, *args):
        self.entered.release()
        assert self.go_on.wait(10)
        return self.ingest.accept(*args)


@pytest.mark.parametrize(("limits", "status"), [(Limits(at_once=2), 503), (Limits(at_once_each=2), 429)], ids=["all together", "one sender"])
def test_requests_beyond_the_bound_are_sent_away_at_once(opened, limits, status):
    door = opened(limits)
    held = door.app._ingest = Held(door.ingest)
    statuses = []
    threads = [threading.Thread(target=lambda n=n: statuses.append(door.post(body(n))[0])) for n in (1, 2)]
    for thread in threads:
        thread.start()
        assert held.entered.acquire(timeout=10)

    refused = door.post(body(3))
    alive = door.ask("GET", "/healthz")[0].status
    held.go_on.set()
    for thread in threads:
        thread.join()

    assert refused[0] == status
    assert int(refused[2]["Retry-After"]) >= 1
    assert alive == 200
    assert statuses == [202, 202]
    assert door.post(body(3))[0] == 202


def test_slow_write_of_one_does_not_keep_others_waiting(door):
    held = door.app._ingest = Held(door.ingest)
    thread = threading.Thread(target=door.post)
    thread.start()
    assert held.entered.acquire(timeout=10)

    assert door.ask("GET", "/readyz")[0].status == 200
    assert door.post(token="bad")[0] == 401
    held.go_on.set()
    thread.join()


@pytest.mark.parametrize("token_known", [False, True])
def test_store_that_is_down_gets_503_and_nothing_is_lost(door, token_known):
    if token_known:
        door.post(body(1))
    door.store.down = True
    status, answer, headers = door.post(body(2))
    door.store.down = False

    assert (status, error(answer)["code"]) == (503, "store-down")
    assert int(headers["Retry-After"]) >= 1
    assert "disk" not in json.dumps(answer)  # what went wrong inside is for the log
    assert door.post(body(2))[0] == 202
    assert door.kept()[-1].seq == 3720000


def test_bug_inside_is_a_500_that_tells_the_agent_to_keep_its_report(door):
    class Broken:
        def accept(self, *_):
            raise ZeroDivisionError

    whole, door.app._ingest = door.app._ingest, Broken()
    status, answer, headers = door.post()
    door.app._ingest = whole

    assert (status, error(answer)["code"], headers["Retry-After"]) == (500, "failed", "60")
    assert door.post()[0] == 202


def test_tokens_and_bodies_are_never_logged(door, caplog):
    configure()
    with capture_logs() as events, caplog.at_level("DEBUG"):
        door.store.down = True
        door.post(body(1, boot="boot-secret"))
        door.store.down = False
        door.post(b'{"secret-body"', token=door.token)
        door.post(token="irt_" + "f" * 16 + "_secretsecret")
        door.raw(f"BROKEN {door.token}\r\n\r\n".encode())

    out = repr(events) + caplog.text
    assert "report not kept" in out
    for secret in (door.token.split("_", 2)[2], "secretsecret", "boot-secret", "secret-body"):
        assert secret not in out


def test_readiness_is_told_with_the_reason(door):
    assert door.ask("GET", "/readyz")[0].status == 200
    door.missing = "no cycle yet"
    response, answer = door.ask("GET", "/readyz")

    assert (response.status, answer) == (503, b"no cycle yet\n")
    assert door.ask("GET", "/healthz")[1] == b"alive\n"


def test_readiness_that_cannot_be_asked_is_not_ready(door):
    door.store.down = True
    door.app._readiness = lambda: door.store.fact("x")
    response, answer = door.ask("GET", "/readyz")

    assert (response.status, answer) == (503, b"the store cannot be reached\n")


def test_metrics_need_no_token(door):
    response, page = door.ask("GET", "/metrics")

    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"# HELP" in page


def test_head_is_answered_without_a_body(door):
    response, answer = door.ask("HEAD", "/healthz")

    assert (response.status, answer) == (200, b"")


def test_port_that_is_taken_says_so(door):
    second = Server(App(door.ingest, Verifier(door.store), lambda: None, bytes), port=door.server.port)
    with pytest.raises(ReaperError, match=f"{door.server.port}.*another"):
        second.start()
    second.stop()


def test_stopped_door_takes_nothing_and_can_be_stopped_again(door):
    port = door.server.port
    door.server.stop()
    door.server.stop()

    with pytest.raises(ReaperError, match="not open"):
        _ = door.server.port
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=2)


def certificate(folder):
    """A self-signed pair for 127.0.0.1."""
    x509 = pytest.importorskip("cryptography.x509")
    import ipaddress

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "reaper")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    tls = Tls(folder / "cert.pem", folder / "key.pem")
    tls.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    tls.key.write_bytes(key.private_bytes(*plain))
    return tls


def test_door_speaks_tls(opened, tmp_path):
    tls = certificate(tmp_path)
    door = opened(tls=tls)
    context = ssl.create_default_context(cafile=str(tls.certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", door.server.port, timeout=10, context=context)
    connection.request("POST", "/v1/reports", body(1), {"Authorization": f"Bearer {door.token}", "Content-Type": "application/json"})

    assert connection.getresponse().status == 202
    connection.close()


def test_missing_certificate_is_named(door, tmp_path):
    server = Server(App(door.ingest, Verifier(door.store), lambda: None, bytes), port=0, tls=Tls(tmp_path / "no.pem", tmp_path / "no.key"))
    with pytest.raises(ReaperError, match="certificate"):
        server.start()
    server.stop()
