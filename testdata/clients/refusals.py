"""Sends a long body in each request of a list, and prints how many of some tries got the expected status.

Arguments: the list and the number of tries. Each line of the list has the status, the method, the URL, the length of
the body and the headers, with tabs between them.
"""
import sys
import urllib.error
import urllib.request
from collections import Counter

cases, tries = sys.argv[1], int(sys.argv[2])
for line in open(cases):
    want, method, url, length, *headers = line.rstrip("\n").split("\t")
    got, body = Counter(), b" " * int(length)
    for _ in range(tries):
        request = urllib.request.Request(url, body, dict(h.split(": ", 1) for h in headers), method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                got[str(answer.status)] += 1
        except urllib.error.HTTPError as refusal:
            refusal.read()
            got[str(refusal.code)] += 1
        except OSError as failure:
            got[repr(failure)] += 1
    print(got[want], "of", tries, line.rstrip("\n"), dict(got), sep="\t")
