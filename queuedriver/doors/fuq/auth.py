"""How a fuq client and its broker show each other that they know one secret. Pure.

    broker → client   AUTH   32 bytes: the broker's nonce
    client → broker   AUTH   32 bytes: the client's nonce, 32 bytes: the client's proof
    broker → client   AUTH   32 bytes: the broker's proof

A proof is HMAC-SHA256 over whose proof it is and both nonces; so neither side's can be played back
to it, and the secret itself never travels. It hides nothing: that is for TLS.
"""

import hashlib
import hmac

NONCE = 32
PROOF = 32


def client_proof(secret: bytes, broker_nonce: bytes, client_nonce: bytes) -> bytes:
    return _proof(secret, b"fuq client", broker_nonce, client_nonce)


def broker_proof(secret: bytes, broker_nonce: bytes, client_nonce: bytes) -> bytes:
    return _proof(secret, b"fuq broker", broker_nonce, client_nonce)


def holds(proof: bytes, wanted: bytes) -> bool:
    return hmac.compare_digest(proof, wanted)


def _proof(secret: bytes, whose: bytes, broker_nonce: bytes, client_nonce: bytes) -> bytes:
    return hmac.digest(secret, whose + broker_nonce + client_nonce, hashlib.sha256)
