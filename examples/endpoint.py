#!/usr/bin/env python3
"""An Action endpoint for the sample agent `orders`, in Python.

    pip install cryptography          # for ES256; everything else is the standard library
    export NYLORUN_RUNTIME_URL=http://127.0.0.1:8787 NYLORUN_SERVER_KEY=...   # or: --home ~/.nylorun
    python3 examples/endpoint.py
    nylorun run orders "Please refund order 1042."        # in another terminal

It registers agent and endpoint, checks every delivery as docs/actions.md says, answers pings, and has two tools:
`lookup_order` answers at once; `refund` asks a person first and then works in the background.
"""

import argparse
import base64
import email.utils
import hashlib
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.hashes import SHA256
except ImportError:
    sys.exit(
        "endpoint.py needs the package `cryptography` to verify signatures (pip install cryptography, or "
        "apt-get install python3-cryptography). It does not run without: it could not tell the Runtime from anybody else."
    )

AGENT = "orders"
VERSION = "python-sample"
PROTOCOL = "7"
TYP = "nylorun-delivery+jwt"
BODY_BYTES = 16 * 1024 * 1024  # the largest delivery that is read
SKEW = 30  # seconds that the two clocks may be apart
AHEAD = 900  # seconds that a token may expire ahead
REFETCH = 5  # seconds between two fetches of the keys
STALE = 300  # age from which a set is fetched again, so that a revoked key does not count for ever

# No proxy stands between this process and a Runtime beside it, and redirects are errors.
class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)


class Refused(Exception):
    """A delivery that is not taken. The status decides whether the Runtime tries again."""

    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def call(runtime, method, path, bearer, body=None, timeout=10):
    """One request to the Runtime: (status, parsed body)."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {bearer}", "Nylorun-Protocol": PROTOCOL}
    if data is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(runtime + path, data=data, method=method, headers=headers)
    try:
        with HTTP.open(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        text = error.read()
        try:
            return error.code, json.loads(text or b"null")
        except ValueError:
            return error.code, None


def segment(text):
    return urllib.parse.quote(text, safe="")


def decode(text):
    """base64url without padding, and nothing else."""
    if not all(c.isascii() and (c.isalnum() or c in "-_") for c in text):
        raise ValueError("not base64url")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def sha256(body):
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()


class Keys:
    """The Tenant's public keys by kid: fetched at most every 5 s, one fetch in flight."""

    def __init__(self, runtime):
        self.request = urllib.request.Request(runtime + "/v1/access/jwks", headers={"Nylorun-Protocol": PROTOCOL})
        self.keys, self.at, self.tried = {}, None, None
        self.lock = threading.Lock()

    def get(self, kid):
        with self.lock:  # who comes meanwhile waits for this fetch
            now = time.monotonic()
            fresh = self.at is not None and now - self.at < STALE
            early = self.tried is not None and now - self.tried < REFETCH
            if not ((kid in self.keys and fresh) or early):
                self.tried = now
                try:
                    with HTTP.open(self.request, timeout=10) as answer:
                        self.keys, self.at = self.read(json.load(answer)), now
                except (OSError, ValueError, KeyError, TypeError):
                    pass  # a Runtime that is away for a moment does not make its old keys bad
            return self.keys.get(kid)

    @staticmethod
    def read(document):
        keys = {}
        for jwk in document["keys"]:
            if jwk.get("kty") == "EC" and jwk.get("crv") == "P-256":
                x, y = (int.from_bytes(decode(jwk[name]), "big") for name in ("x", "y"))
                keys[jwk["kid"]] = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        return keys


def verify(token, keys, issuer, audience, body):
    """The claims of a good token. Shape and header are looked at before any key, the signature before any claim."""
    invalid = Refused(401, "signature_invalid", "Nylorun-Signature is not for this delivery")
    if token is None:
        raise Refused(401, "signature_missing", "there is no Nylorun-Signature")
    try:
        if len(token) > 4096:
            raise ValueError("too long")
        head, claims, signature = token.split(".")
        header, read, raw = json.loads(decode(head)), json.loads(decode(claims)), decode(signature)
        # Exactly these members: any other could name another key, or change what is signed.
        if set(header) != {"alg", "typ", "kid"} or header["alg"] != "ES256" or header["typ"] != TYP:
            raise ValueError("header")
        if not isinstance(header["kid"], str) or len(raw) != 64:
            raise ValueError("kid or signature")
    except (ValueError, TypeError, AttributeError):
        raise invalid from None
    key = keys.get(header["kid"])
    if key is None:
        raise Refused(503, "key_unknown", "the signing key is not known here yet")
    der = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    try:
        key.verify(der, f"{head}.{claims}".encode(), ec.ECDSA(SHA256()))
    except InvalidSignature:
        raise invalid from None
    now = time.time()
    whole = lambda name: type(read.get(name)) is int
    text = lambda name: isinstance(read.get(name), str) and read[name] != ""
    if not (all(map(whole, ("iat", "exp", "gen"))) and all(map(text, ("sub", "agt", "jti")))):
        raise invalid
    ours = read.get("iss") == issuer and read.get("aud") == audience and read.get("bdy") == sha256(body)
    if not ours or read["exp"] > now + AHEAD + SKEW or read["iat"] > now + SKEW or read["gen"] < 0:
        raise invalid
    if read["exp"] + SKEW <= now:
        raise Refused(401, "token_expired", "Nylorun-Signature has expired")
    return read


def delivery(body):
    """A delivery whose shape is right."""
    try:
        sent = json.loads(body)
        if sent["type"] == "ping" and isinstance(sent["agentId"], str):
            return sent
        action = sent["action"]
        names = ("actionId", "sessionId", "turnId", "agentId", "kind")
        if sent["type"] != "action" or type(sent["sandbox"]) is not bool or type(action["generation"]) is not int:
            raise ValueError("shape")
        if not all(isinstance(action[name], str) for name in names):
            raise ValueError("members")
        return sent
    except (ValueError, KeyError, TypeError):
        raise Refused(400, "invalid_delivery", "this is no delivery") from None


def fits(claims, sent):
    """A token is for one Action, one delivery of it, and one agent."""
    if sent["type"] == "ping":
        return claims["sub"] == "ping" and claims["gen"] == 0 and claims["agt"] == sent["agentId"]
    action = sent["action"]
    same = (claims["sub"], claims["gen"], claims["agt"]) == (action["actionId"], action["generation"], action["agentId"])
    return same and claims["gen"] >= 1


# --- The tools. ---

ORDERS = {"1042": ("paid", 3000), "1043": ("refunded", 1250)}


def failed(code, message):
    return {"kind": "failed", "code": code, "message": message}


def lookup_order(order, state, amount, _resume):
    return {"kind": "completed", "output": {"orderId": order, "state": state, "amount": amount}}, None


def refund(order, state, amount, resume):
    """(value, None), or (None, work) for what goes on in the background and ends with a value."""
    if state != "paid":
        return failed("order.not-paid", f"order {order} is {state}"), None
    if resume is None:
        # Nothing is done until a person agrees. The token comes back untouched with the answer.
        asked = {"kind": "approval", "prompt": f"Refund {amount} for order {order}?"}
        return {"kind": "interaction-required", "interaction": asked, "token": {"orderId": order}}, None
    if resume.get("approved") is not True:
        return {"kind": "denied", "reason": "the refund was not approved"}, None
    return None, {"kind": "completed", "output": {"orderId": order, "state": "refunded", "amount": amount}}


TOOLS = {"lookup_order": lookup_order, "refund": refund}


class Book:
    """What was begun and what came of it, by Action, so that what is delivered again is not done again. Here it is a
    dictionary; a real endpoint keeps it where its effects are, in the same transaction."""

    def __init__(self):
        self.entries, self.lock = {}, threading.Lock()

    def begin(self, action, token):
        """("new" | "working" | "done", value)"""
        with self.lock:
            entry = self.entries.get(action)
            if entry is None:
                self.entries[action] = {"token": token}
                return "new", None
            if "value" in entry:
                return "done", entry["value"]
            entry["token"] = token
            return "working", None

    def token(self, action):
        with self.lock:
            return self.entries[action].get("token")

    def finish(self, action, value):
        with self.lock:
            self.entries[action]["value"] = value

    def give_up(self, action, seen):
        """True when nobody waits any more; a newer delivery than `seen` means that somebody does."""
        with self.lock:
            if self.entries[action].get("token") != seen:
                return False
            del self.entries[action]
            return True


def background(server, action, value):
    """Heartbeats while it works; then the outcome, up to five tries."""
    path = f"/v1/actions/{segment(action)}"
    seen = token = server.book.token(action)
    done, beat = time.monotonic() + server.work, time.monotonic() + 1
    while beat < done:
        time.sleep(max(0, beat - time.monotonic()))
        newest = server.book.token(action)
        if newest != seen:
            seen = token = newest
        beat = time.monotonic() + 1
        try:
            status, answer = call(server.runtime, "POST", path + "/heartbeat", token)
        except OSError:
            continue
        if status == 409 and server.book.give_up(action, seen):
            return  # the Runtime has decided without this delivery; nothing was done yet
        if status == 200:
            token = answer["token"]
            deadline = datetime.strptime(answer["deadlineAt"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
            beat = time.monotonic() + max(1, (deadline - datetime.now(timezone.utc)).total_seconds() / 3)
    time.sleep(max(0, done - time.monotonic()))
    # Here the money would move, and the book would be written in the same transaction.
    server.book.finish(action, value)
    newest = server.book.token(action)
    if newest != seen:
        token = newest
    pause = 0.25
    for _ in range(5):
        try:
            status, _ = call(server.runtime, "POST", path + "/result", token, {"value": value})
            if status < 300 or (400 <= status < 500 and status != 429):
                return
        except OSError:
            pass
        time.sleep(pause)
        pause = min(pause * 2, 4)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass  # a request line is of no use, and bodies are nobody's business

    def do_POST(self):
        try:
            length = int(self.headers.get("Content-Length", "0"))
            if not 0 <= length <= BODY_BYTES:
                raise ValueError("length")
        except ValueError:
            self.close_connection = True
            return self.answer(400, {"code": "invalid_delivery", "message": "the body is too large"})
        body = self.rfile.read(length)
        try:
            self.deliver(body)
        except Refused as refused:
            self.answer(refused.status, {"code": refused.code, "message": refused.message})

    def refuse_method(self):
        self.close_connection = True
        self.answer(405, {"code": "method_not_allowed", "message": "deliveries are POSTed"}, {"Allow": "POST"})

    do_GET = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = refuse_method

    def deliver(self, body):
        server, token = self.server, self.headers.get("Nylorun-Signature")
        claims = verify(token, server.keys, server.issuer, server.url, body)
        sent = delivery(body)
        if not fits(claims, sent):
            raise Refused(401, "signature_invalid", "Nylorun-Signature is for another delivery")
        if claims["agt"] != AGENT:
            raise Refused(404, "agent_not_served", f"agent {claims['agt']} is not served here")
        if sent["type"] == "ping":
            return self.answer(200, {"agentId": AGENT, "implementationVersion": VERSION})
        action = sent["action"]
        tool = TOOLS.get(action.get("toolName")) if action["kind"] == "tool" else None
        if tool is None:
            raise Refused(404, "action_not_served", "there is no such tool here")
        print(f"{action['toolName']}  generation {action['generation']}  {action['actionId']}", flush=True)
        given = action.get("input")
        order = given.get("orderId") if isinstance(given, dict) else None
        if not isinstance(order, str):
            return self.outcome(failed("tool.invalid-input", "orderId must be a string"))
        if order not in ORDERS:
            return self.outcome(failed("order.unknown", f"there is no order {order}"))
        state, cents = ORDERS[order]
        amount = f"{cents // 100}.{cents % 100:02} EUR"
        value, later = tool(order, state, amount, action["context"].get("resume"))
        if later is None:
            return self.outcome(value)
        state, known = server.book.begin(action["actionId"], token)
        if state == "done":
            return self.outcome(known)
        if state == "new":
            work = threading.Thread(target=background, args=(server, action["actionId"], later), daemon=True)
            work.start()
        return self.answer(202, None)

    def outcome(self, value):
        self.answer(200, {"value": value}, {"Nylorun-Outcome": "1"})

    def answer(self, status, body, headers=None):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response_only(status)
        self.send_header("Date", email.utils.formatdate(usegmt=True))
        self.send_header("Content-Length", str(len(data)))
        if data:
            self.send_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def manifest():
    order = {
        "type": "object",
        "properties": {"orderId": {"type": "string", "minLength": 1}},
        "required": ["orderId"],
        "additionalProperties": False,
    }
    lookup = {"name": "lookup_order", "args": {"orderId": "1042"}}
    give_back = {"name": "refund", "args": {"orderId": "1042"}}
    return {
        "manifestSchemaVersion": 4,
        "id": AGENT,
        "name": "Orders",
        # What the fixture model does; a real model does not look at it.
        "metadata": {"nylorun.fixture": {"steps": [
            {"toolCalls": [lookup]}, {"toolCalls": [give_back]}, {"text": "That is all I can do about order 1042."},
        ]}},
        "capabilities": [{
            "id": "orders",
            "type": "agent",
            "instructions": ["You look after the orders of a shop. Look an order up before you refund it."],
            "tools": [
                {"name": "lookup_order", "description": "What is known of an order.", "inputSchema": order},
                {"name": "refund", "description": "Gives the money back. A person is asked first.", "inputSchema": order},
            ],
        }],
    }


def link(home):
    """URL and key of the Runtime of a home, or of the environment."""
    if home is None and "NYLORUN_RUNTIME_URL" in os.environ and "NYLORUN_SERVER_KEY" in os.environ:
        return os.environ["NYLORUN_RUNTIME_URL"].rstrip("/"), os.environ["NYLORUN_SERVER_KEY"]
    home = home or os.environ.get("NYLORUN_HOME") or os.path.expanduser("~/.nylorun")
    try:
        with open(os.path.join(home, "link.json")) as file:
            url = json.load(file)["hostUrl"]
        with open(os.path.join(home, "credentials.json")) as file:
            return url.rstrip("/"), json.load(file)["applicationKey"]
    except OSError as error:
        sys.exit(f"no Runtime is known ({error}): start one with `nylorun serve`, or set NYLORUN_RUNTIME_URL and NYLORUN_SERVER_KEY")


def must(answer):
    status, body = answer
    if status >= 300:
        sys.exit(f"the Runtime refused: HTTP {status} {json.dumps(body)}")
    return body


def main():
    parser = argparse.ArgumentParser(description="An Action endpoint for the sample agent `orders`.")
    parser.add_argument("--home", help="home of the Runtime [default: NYLORUN_HOME, else ~/.nylorun]")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--work", type=float, default=3, help="seconds that a refund takes")
    parser.add_argument("--url", help="URL under which the Runtime reaches this endpoint, when it is another one")
    options = parser.parse_args()
    runtime, key = link(options.home)
    # Before any thread is: each of them takes the mask along, so that the end comes to the one that waits for it.
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    server.daemon_threads = True
    server.runtime, server.work, server.book, server.keys = runtime, options.work, Book(), Keys(runtime)
    server.url = options.url or f"http://{options.host}:{server.server_port}/actions"
    tenant = must(call(runtime, "GET", "/v1/tenant", key, timeout=30))
    server.issuer = f"urn:nylorun:tenant:{tenant['tenant']['id']}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    known = must(call(runtime, "GET", "/v1/agents", key))["agents"]
    if not any(agent["agentId"] == AGENT for agent in known):
        body = {"requestId": "python-sample", "manifest": manifest(), "implementationVersion": VERSION}
        must(call(runtime, "PUT", f"/v1/agents/{AGENT}", key, body))
    endpoint = {"agentId": AGENT, "url": server.url, "implementationVersion": VERSION}
    must(call(runtime, "PUT", "/v1/endpoints", key, {"endpoints": [endpoint]}))
    must(call(runtime, "POST", f"/v1/endpoints/{AGENT}/ping", key, {}, timeout=30))
    print(f"endpoint ready url={server.url}", flush=True)
    # Until somebody ends it; then nobody is sent here any more.
    signal.sigwait(ends)
    try:
        call(runtime, "DELETE", f"/v1/endpoints/{AGENT}", key)
    except OSError:
        pass  # the Runtime is gone already


if __name__ == "__main__":
    main()
