import std/tables

proc work(seed: int) {.thread.} =
  var table = initTable[string, seq[int]]()
  for round in 1 .. 5000:
    table["key " & $(round * (seed + 1))] = newSeq[int](round mod 300)
  doAssert table.len == 5000

var threads: array[4, Thread[int]]
for index in 0 .. 3:
  createThread(threads[index], work, index)
joinThreads(threads)
echo "ok"
