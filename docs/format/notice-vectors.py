#!/usr/bin/env python3
"""Writes docs/format/notice-vectors.json, the test vectors of docs/format/notice.md.

It is made from that page and from RFC 8032 alone and shares no code with Secateur's encoders.
Only the standard library is needed; where the package `cryptography` is installed, every signature
is compared with its own.

    python3 docs/format/notice-vectors.py           writes the file
    python3 docs/format/notice-vectors.py --check   fails if the file is another
    python3 docs/format/notice-vectors.py --tables  prints the tables of the page
"""

import hashlib
import json
import pathlib
import sys

try:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
except ImportError:
    Ed25519PrivateKey = None

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "notice-vectors.json"

# --- Ed25519 (RFC 8032, section 5.1), slow and plain -------------------------------------------

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


def add(a, b):
    """Adds two points in affine coordinates on -x² + y² = 1 + d x² y²."""
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 % P * y1 % P * y2 % P
    x3 = (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P
    y3 = (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P
    return x3, y3


def times(n, point):
    result = (0, 1)
    while n:
        if n & 1:
            result = add(result, point)
        point = add(point, point)
        n >>= 1
    return result


def base_point():
    y = 4 * pow(5, -1, P) % P
    xx = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(xx, (P + 3) // 8, P)
    if x * x % P != xx:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == xx
    return (x if x % 2 == 0 else P - x), y


BASE = base_point()


def compress(point):
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def sign(seed, message, nonce=None):
    """Returns the public key and the signature; a nonce is given only to sign wrongly."""
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little")
    scalar = scalar & ((1 << 254) - 8) | (1 << 254)
    public = compress(times(scalar, BASE))
    plain = nonce is None
    if plain:
        nonce = int.from_bytes(hashlib.sha512(digest[32:] + message).digest(), "little") % ORDER
    r = compress(times(nonce, BASE))
    challenge = int.from_bytes(hashlib.sha512(r + public + message).digest(), "little") % ORDER
    signature = r + ((nonce + challenge * scalar) % ORDER).to_bytes(32, "little")
    if plain and Ed25519PrivateKey is not None:
        key = Ed25519PrivateKey.from_private_bytes(seed)
        assert key.public_key().public_bytes_raw() == public
        assert key.sign(message) == signature
    return public, signature


# --- version 1 ---------------------------------------------------------------------------------


def u(value, size):
    return value.to_bytes(size, "big")


def prefixed(data):
    return u(len(data), 4) + data


def text(value):
    return value if isinstance(value, bytes) else value.encode()


def fields_v1(c):
    locators = u(len(c["locators"]), 4)
    for provider, key in c["locators"]:
        locators += prefixed(text(provider)) + prefixed(text(key))
    locators += c.get("locators_tail", b"")
    return [
        ("chain_id", u(c["chain_id"], 8)),
        ("height", prefixed(u(c["height"], 8))),
        ("round", prefixed(c["round"].to_bytes(4, "big", signed=True))),
        ("blob_index", prefixed(u(c["blob_index"], 4))),
        ("kzg_commitment", prefixed(c["kzg_commitment"])),
        ("blob_keccak", prefixed(c["blob_keccak"])),
        ("locators", prefixed(locators)),
        ("archived_by", prefixed(c["archived_by"])),
        ("archived_at_height", prefixed(u(c["archived_at_height"], 8))),
    ]


def notice_v1(c, seed):
    signed = b"".join(data for _, data in fields_v1(c))
    preimage = b"secateur/archive-notice/v1" + signed
    digest = hashlib.sha256(preimage).digest()
    public, signature = sign(seed, digest)
    wire = b"\x01" + signed + u(c["archived_at"], 8) + signature
    return preimage, digest, public, signature, wire


# --- version 0 ---------------------------------------------------------------------------------


def varint(value):
    value &= 2**64 - 1
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def p_number(number, value):
    return varint(number << 3) + varint(value) if value else b""


def p_message(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def p_bytes(number, data):
    return p_message(number, data) if data else b""


def fields_v0(c):
    return [
        ("height", p_number(1, c["height"])),
        ("round", p_number(2, c["round"])),
        ("blob_index", p_number(3, c["blob_index"])),
        ("kzg_commitment", p_bytes(4, c["kzg_commitment"])),
        ("blob_keccak", p_bytes(5, c["blob_keccak"])),
        ("provider_id", p_bytes(6, text(c["provider_id"]))),
        ("locator", p_bytes(7, text(c["locator"]))),
        ("archived_by", p_message(8, p_bytes(1, c["archived_by"]))),
        ("archived_at", p_number(9, c["archived_at"])),
    ]


def notice_v0(c, seed, body=None):
    if body is None:
        body = b"".join(data for _, data in fields_v0(c))
    preimage = b"ArchiveNoticeV0" + body
    digest = hashlib.sha256(preimage).digest()
    public, signature = sign(seed, digest)
    wire = p_message(1, body) + p_message(2, p_bytes(1, signature))
    return preimage, digest, public, signature, wire


# --- the vectors -------------------------------------------------------------------------------

SEED = bytes(range(32))
OTHER_SEED = bytes(range(100, 132))
COMMITMENT = bytes([0xC0 | i % 16 for i in range(48)])
KECCAK = bytes(range(0xA0, 0xC0))
ADDRESS = bytes(range(0x11, 0x25))

V1 = {
    "chain_id": 1337,
    "height": 7,
    "round": 0,
    "blob_index": 2,
    "kzg_commitment": COMMITMENT,
    "blob_keccak": KECCAK,
    "locators": [("fs", "blobs/7/2")],
    "archived_by": ADDRESS,
    "archived_at_height": 9,
    "archived_at": 1_700_000_007,
}
V0 = {
    "height": 7,
    "round": 1,
    "blob_index": 2,
    "kzg_commitment": COMMITMENT,
    "blob_keccak": KECCAK,
    "provider_id": "load-s3-agent",
    "locator": "load-s3://0xabcdef",
    "archived_by": ADDRESS,
    "archived_at": 1_700_000_007,
}
MAX32, MAX64 = 2**32 - 1, 2**64 - 1

ACCEPTED = [
    ("plain", "v1", V1, SEED),
    (
        "largest-numbers",
        "v1",
        V1
        | {
            "chain_id": MAX64,
            "height": MAX64,
            "round": 2**31 - 1,
            "blob_index": MAX32,
            "archived_by": bytes([0xFF] * 32),
            "archived_at_height": MAX64,
            "archived_at": MAX64,
        },
        OTHER_SEED,
    ),
    (
        "smallest-numbers-no-round",
        "v1",
        V1
        | {
            "chain_id": 0,
            "height": 0,
            "round": -1,
            "blob_index": 0,
            "locators": [("a", "b")],
            "archived_by": b"\x00",
            "archived_at_height": 0,
            "archived_at": 0,
        },
        SEED,
    ),
    (
        "sixteen-locators",
        "v1",
        V1 | {"locators": [(f"provider-{i}", f"blobs/7/2/{i}") for i in range(16)]},
        OTHER_SEED,
    ),
    ("not-ascii", "v1", V1 | {"locators": [("кладовая", "blobs/ü/片/😀")]}, SEED),
    ("longest-texts", "v1", V1 | {"locators": [("p" * 1024, "ß" * 512)]}, SEED),
    ("plain", "v0", V0, SEED),
    (
        "defaults-left-out",
        "v0",
        V0 | {"height": 0, "round": 0, "blob_index": 0, "archived_at": 0},
        OTHER_SEED,
    ),
    ("no-round", "v0", V0 | {"round": -1}, SEED),
    (
        "largest-numbers",
        "v0",
        V0
        | {
            "height": MAX64,
            "round": 2**31 - 1,
            "blob_index": MAX32,
            "archived_by": bytes([0xFF] * 32),
            "archived_at": MAX64,
        },
        OTHER_SEED,
    ),
    ("not-ascii", "v0", V0 | {"locator": "load-s3://片/😀"}, SEED),
]


def refused():
    """Notices that are signed and must be refused all the same."""
    v1 = lambda **change: notice_v1(V1 | change, SEED)[4]
    v0 = lambda **change: notice_v0(V0 | change, SEED)[4]
    spelled = lambda body: notice_v0(None, SEED, body)[4]
    plain, plain_v0 = v1(), v0()
    parts = dict(fields_v0(V0))
    without = lambda *names: b"".join(d for n, d in parts.items() if n not in names)
    after = lambda name, extra: b"".join(d + (extra if n == name else b"") for n, d in parts.items())

    yield "v1", "no bytes", b""
    yield "v1", "version 2", b"\x02" + plain[1:]
    yield "v1", "a byte more", plain + b"\x00"
    yield "v1", "a byte less", plain[:-1]
    yield "v1", "no locator", v1(locators=[])
    yield "v1", "seventeen locators", v1(locators=[("fs", str(i)) for i in range(17)])
    yield "v1", "a locator twice", v1(locators=[("fs", "a"), ("s3", "a"), ("fs", "a")])
    yield "v1", "no provider", v1(locators=[("", "a")])
    yield "v1", "no key", v1(locators=[("fs", "")])
    yield "v1", "a text of 1,025 bytes", v1(locators=[("fs", "a" * 1025)])
    yield "v1", "a control character", v1(locators=[("fs", "a\nb")])
    yield "v1", "not UTF-8", v1(locators=[("fs", b"a\xff")])
    yield "v1", "bytes behind the last locator", v1(locators_tail=b"\x00")
    yield "v1", "a locator that is not counted", v1(locators_tail=prefixed(b"s3") + prefixed(b"a"))
    yield "v1", "no signer", v1(archived_by=b"")
    yield "v1", "a signer of 33 bytes", v1(archived_by=bytes(33))
    yield "v1", "a commitment of 47 bytes", v1(kzg_commitment=COMMITMENT[:47])
    yield "v1", "a keccak of 33 bytes", v1(blob_keccak=KECCAK + b"\x00")

    yield "v0", "no body", p_message(2, p_bytes(1, bytes(64)))
    yield "v0", "no signature", plain_v0[: -len(p_message(2, p_bytes(1, bytes(64))))]
    yield "v0", "a signature of 63 bytes", plain_v0[:-68] + p_message(2, p_bytes(1, bytes(63)))
    yield "v0", "a byte more", plain_v0 + b"\x00"
    yield "v0", "a byte less", plain_v0[:-1]
    yield "v0", "an unknown field behind", plain_v0 + p_number(3, 1)
    yield "v0", "no provider", v0(provider_id="")
    yield "v0", "no locator", v0(locator="")
    yield "v0", "a locator of 1,025 bytes", v0(locator="a" * 1025)
    yield "v0", "a control character", v0(locator="a\x7f")
    yield "v0", "not UTF-8", v0(locator=b"a\xff")
    yield "v0", "no signer", v0(archived_by=b"")
    yield "v0", "no message for the signer", spelled(without("archived_by"))
    yield "v0", "a signer of 33 bytes", v0(archived_by=bytes(33))
    yield "v0", "a commitment of 49 bytes", v0(kzg_commitment=COMMITMENT + b"\x00")
    yield "v0", "no keccak", v0(blob_keccak=b"")
    yield "v0", "a default that is there", spelled(b"\x08\x00" + without("height"))
    yield "v0", "a number that is longer than it must be", spelled(b"\x08\x87\x00" + without("height"))
    yield "v0", "a number of 65 bits", spelled(b"\x08" + b"\xff" * 9 + b"\x02" + without("height"))
    yield "v0", "a number of eleven bytes", spelled(b"\x08" + b"\x80" * 10 + b"\x01" + without("height"))
    yield "v0", "a round of 32 bits below zero", spelled(
        parts["height"] + b"\x10\xff\xff\xff\xff\x0f" + without("height", "round")
    )
    yield "v0", "a blob index of 33 bits", v0(blob_index=2**32)
    yield "v0", "a field twice", spelled(after("height", parts["height"]))
    yield "v0", "out of order", spelled(parts["round"] + parts["height"] + without("height", "round"))
    yield "v0", "an unknown field", spelled(after("archived_at", p_number(10, 1)))
    yield "v0", "a length that is longer than it must be", b"\x0a" + varint(len(without()))[:-1] + bytes(
        [varint(len(without()))[-1] | 0x80, 0]
    ) + plain_v0[1 + len(varint(len(without()))) :]


def badly_signed():
    """Notices that can be read, with signatures that only careless verification accepts."""
    _, digest, public, signature, wire = notice_v1(V1, SEED)
    high = int.from_bytes(signature[32:], "little") + ORDER
    yield "s is not below the order", public, wire[:-32] + high.to_bytes(32, "little")
    _, small = sign(SEED, digest, nonce=0)
    yield "R is a point of small order", public, wire[:-64] + small


def shown(value):
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [{"provider": provider, "key": key} for provider, key in value]
    return value


def document():
    accepted = []
    for name, form, content, seed in ACCEPTED:
        make = notice_v1 if form == "v1" else notice_v0
        preimage, digest, public, signature, wire = make(content, seed)
        accepted.append(
            {"name": name, "form": form}
            | {"content": {key: shown(value) for key, value in content.items()}}
            | {"secret_key": seed.hex(), "public_key": public.hex(), "preimage": preimage.hex()}
            | {"digest": digest.hex(), "signature": signature.hex(), "wire": wire.hex()}
        )
    return {
        "about": "Test vectors of docs/format/notice.md, written by notice-vectors.py",
        "accepted": accepted,
        "refused": [{"form": f, "why": why, "wire": w.hex()} for f, why, w in refused()],
        "badly_signed": [
            {"why": why, "public_key": key.hex(), "wire": wire.hex()}
            for why, key, wire in badly_signed()
        ],
    }


def tables():
    rows = lambda data: [data[at : at + 16].hex() for at in range(0, len(data), 16)]
    parts = {"v1": fields_v1(V1), "v0": fields_v0(V0)}
    for form, make, content in (("v1", notice_v1, V1), ("v0", notice_v0, V0)):
        preimage, digest, _, signature, wire = make(content, SEED)
        if form == "v1":
            pieces = [("version", b"\x01")] + parts[form]
            pieces += [("archived_at, not signed", wire[-72:-64]), ("signature", signature)]
        else:
            head = wire[: wire.index(parts[form][0][1])]
            pieces = [("body", head)] + parts[form] + [("signature", wire[-68:])]
        assert b"".join(data for _, data in pieces) == wire
        print(f"\n{form}\n\n| offset | bytes | |\n| --- | --- | --- |")
        at = 0
        for name, data in pieces:
            for row in rows(data):
                print(f"| `{at}` | `{row}` | {name} |")
                at += len(row) // 2
                name = ""
        print(f"\ndigest {digest.hex()}")
    print("\n| vector | digest | signature begins with |\n| --- | --- | --- |")
    for vector in document()["accepted"]:
        name = f"{vector['form']} {vector['name']}"
        print(f"| {name} | `{vector['digest']}` | `{vector['signature'][:16]}` |")


def main():
    written = json.dumps(document(), indent=1, ensure_ascii=True) + "\n"
    if sys.argv[1:] == ["--tables"]:
        tables()
    elif sys.argv[1:] == ["--check"]:
        sys.exit(0 if FILE.read_text() == written else f"{FILE} is another")
    else:
        FILE.write_text(written)


main()
