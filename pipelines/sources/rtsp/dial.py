"""Connects to a camera: tries the addresses of its host in turn, and starts TLS for rtsps."""

from __future__ import annotations

import errno
import os
import socket
import ssl

from pipelines.errors import SourceError, reason
from pipelines.sources.resolver import Resolved, addresses
from pipelines.sources.rtsp.connection import Connection, HungUp
from pipelines.sources.rtsp.deadline import Deadline, ready
from pipelines.sources.rtsp.url import Target

MAX_ADDRESSES = 8
"""Most addresses of a host that are tried."""
UNVERIFIED = "`no_tls_verify` turns the check off"


def connect(target: Target, deadline: Deadline, *, verify_tls: bool = True) -> Connection:
    """Connect to the first address of the host that answers, and do the TLS handshake for rtsps.

    The deadline and the stop end every wait but the one for the resolver.

    :param verify_tls: check the server's certificate.
    :raises SourceError: if no address answers; permanent for an unknown host and for an invalid certificate.
    :raises Stopped: if the stop event is set.
    """
    deadline.slice_s()
    found = addresses(target.host, target.port)[:MAX_ADDRESSES]
    error = SourceError("the host has no address")
    for k, resolved in enumerate(found):
        try:
            plain = _dialled(resolved, deadline.part(len(found) - k))
            break
        except SourceError as caught:
            error = caught
    else:
        raise error
    try:
        if target.scheme == "rtsps":
            plain = _encrypted(plain, target.host, deadline, verify=verify_tls)
        return Connection(plain)
    except BaseException:
        plain.close()
        raise


def _dialled(resolved: Resolved, deadline: Deadline) -> socket.socket:
    family, address = resolved
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        # Requests are small: Nagle's algorithm would only delay them.
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = one.connect_ex(address)
        while code in (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR):
            if ready((), (one,), deadline.slice_s()):
                code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                break
        if code:
            raise SourceError(os.strerror(code))
        return one
    except OSError as error:
        one.close()
        raise SourceError(reason(error)) from None
    except BaseException:
        one.close()
        raise


def _encrypted(plain: socket.socket, host: str, deadline: Deadline, *, verify: bool) -> ssl.SSLSocket:
    """Do the TLS handshake. The result owns the plain socket; after an error both are closed.

    :raises SourceError: if the handshake fails; permanent for an invalid certificate.
    :raises Stopped: if the stop event is set.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    secure: ssl.SSLSocket | None = None
    try:
        secure = context.wrap_socket(plain, server_hostname=host.partition("%")[0], do_handshake_on_connect=False)
        while True:
            try:
                secure.do_handshake()
                return secure
            except ssl.SSLWantReadError:
                ready((secure,), (), deadline.slice_s())
            except ssl.SSLWantWriteError:
                ready((), (secure,), deadline.slice_s())
    except BaseException as error:
        (secure or plain).close()
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"the server's certificate does not hold: {error.verify_message.rstrip('.')}; {UNVERIFIED}"
            raise SourceError(why, permanent=True) from None
        if isinstance(error, ssl.SSLError):
            raise SourceError(f"no TLS connection ({error.reason or 'the camera ended it'})") from None
        if isinstance(error, OSError):
            raise HungUp("the camera hung up during the TLS handshake") from None
        if isinstance(error, ValueError):  # from wrap_socket, for a host name that no certificate can have
            raise SourceError(f"{host!r} is not the name of a host", permanent=True) from None
        raise
