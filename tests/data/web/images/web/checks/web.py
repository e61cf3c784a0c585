"""Where the service is, once it answers."""

import time
import urllib.request

STARTS_WITHIN = 300.0


def address(service):
    """The service's URL; fails when it does not answer in time."""
    host, port = service.address(8080)
    url, late = f"http://{host}:{port}/", time.monotonic() + STARTS_WITHIN
    while True:
        try:
            urllib.request.urlopen(url, timeout=60).close()
            return url
        except OSError:
            assert service.running, service.log()
            assert time.monotonic() < late, service.log()
            time.sleep(0.05)
