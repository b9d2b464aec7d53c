"""A certificate authority of a test's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Writes ``ca.pem`` into ``folder``, and beside it what it issues. Good for a day."""

    def __init__(self, folder: Path, name: str = "an authority of a test") -> None:
        folder.mkdir()
        folder.chmod(0o755)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        own = self._begin(self._name, self._key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        self._write("ca.pem", self._sign(own.add_extension(usage, True)))

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self._folder / "ca.pem"

    def issue(self, file: str, host: str) -> None:
        """``file``.pem and ``file``.key: a certificate for ``host``, for servers and clients alike."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        self._write(f"{file}.pem", self._sign(self._begin(subject, key).add_extension(names, False)))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._write(f"{file}.key", private)

    def _begin(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))

    def _sign(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _write(self, name: str, content: bytes) -> None:
        path = self._folder / name
        path.write_bytes(content)
        path.chmod(0o644)  # a server of another user reads the key; it is worth nothing
