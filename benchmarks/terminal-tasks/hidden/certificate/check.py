"""Verify the new certificate with the CA and the public key of the image, which no agent can change."""

import subprocess
import time
from datetime import datetime

from guard import RULE_BROKEN, read, require

TRUSTED = "/usr/local/share/certificate-task"
NEW = "/tmp/new.crt"
DAY = 24 * 60 * 60


def openssl(*arguments):
    """Run openssl on data of the candidate. Return the exit code and stdout."""
    done = subprocess.run(["/usr/bin/openssl", *arguments], capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stdout


def dates():
    """Return the start and the end of the certificate's validity, in seconds since the epoch."""
    code, text = openssl("x509", "-in", NEW, "-noout", "-startdate", "-enddate", "-dateopt", "iso_8601")
    require(code == 0)
    found = [line.partition("=")[2] for line in text.splitlines()]
    return [datetime.fromisoformat(one).timestamp() for one in found]


def main():
    content = read("tls/server.crt")
    require(content.count(b"-----BEGIN CERTIFICATE-----") == 1)
    with open(NEW, "xb") as file:
        file.write(content)
    for moment in (time.time(), time.time() + 30 * DAY):
        for name in (
            ["-verify_hostname", "api.example.test"],
            ["-verify_hostname", "eu.api.example.test"],
            ["-verify_ip", "127.0.0.1"],
        ):
            code, _ = openssl(
                "verify",
                "-x509_strict",
                "-purpose",
                "sslserver",
                "-no-CApath",
                "-no-CAstore",
                "-CAfile",
                f"{TRUSTED}/ca.crt",
                "-attime",
                str(int(moment)),
                *name,
                NEW,
            )
            require(code == 0)
    code, _ = openssl("verify", "-CAfile", f"{TRUSTED}/ca.crt", "-verify_hostname", "old.example.test", NEW)
    require(code != 0, RULE_BROKEN)
    _, public = openssl("x509", "-in", NEW, "-noout", "-pubkey")
    require(public.encode() == read(f"{TRUSTED}/server.pub"), RULE_BROKEN)
    begin, end = dates()
    require(end - begin <= 398 * DAY, RULE_BROKEN)
    _, text = openssl("x509", "-in", NEW, "-noout", "-ext", "basicConstraints,extendedKeyUsage")
    require("CA:TRUE" not in text and "TLS Web Server Authentication" in text, RULE_BROKEN)


main()
