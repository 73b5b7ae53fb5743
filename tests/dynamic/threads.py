"""JSON, regular expressions, compression and NumPy in four threads. Prints a checksum."""

import gc
import hashlib
import json
import os
import re
import threading
import time
import zlib

import numpy

THREADS = 4
ROUNDS = 12


def work(number, results):
    digest = hashlib.sha256()
    for turn in range(ROUNDS):
        records = [{"id": i, "name": f"name {i * number}", "tags": [str(i % 7)] * 3} for i in range(2000)]
        text = json.dumps(records)
        again = json.loads(text)
        words = re.findall(r"name \d+", text)
        array = numpy.arange(60_000, dtype=numpy.int64).reshape(200, 300) + turn
        digest.update(zlib.compress(text.encode()))
        digest.update(f"{len(again)} {len(words)} {(array @ array.T).trace()}".encode())
    results[number] = digest.hexdigest()


results = [None] * THREADS
threads = [threading.Thread(target=work, args=(number, results)) for number in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(hashlib.sha256("".join(results).encode()).hexdigest())

# For a look at the memory of an idle process.
if "IDLE" in os.environ:
    del threads, results
    gc.collect()
    open(os.environ["IDLE"], "w").close()
    time.sleep(100)
