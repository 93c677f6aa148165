"""A plugin of pytest that writes the outcome of each test into the file $CONFORMANCE_OUTCOMES, a line of JSON each.

Nothing is downloaded, since models are replaced: see scripts/conformance/server.

It also writes the names of received headers with capitals, as llama-server sends them: the tests compare them so, though
HTTP has no case in these names.
"""
import json
import os

import requests
import wget
from requests.structures import CaseInsensitiveDict

wget.download = lambda url, out: None

build_response = requests.adapters.HTTPAdapter.build_response


def with_capitals(adapter, request, answer):
    response = build_response(adapter, request, answer)
    response.headers = CaseInsensitiveDict((name.title(), value) for name, value in response.headers.items())
    return response


requests.adapters.HTTPAdapter.build_response = with_capitals


def pytest_runtest_logreport(report):
    # A test that fails in its setup has no call; one that passes its setup has an outcome later.
    if report.when == "call" or (report.when == "setup" and not report.passed):
        reason = "" if report.passed else str(report.longrepr).strip().splitlines()[-1]
        if report.failed and getattr(report.longrepr, "reprcrash", None):
            reason = report.longrepr.reprcrash.message.splitlines()[0]
        with open(os.environ["CONFORMANCE_OUTCOMES"], "a") as file:
            print(json.dumps([report.nodeid, report.outcome, reason]), file=file)
