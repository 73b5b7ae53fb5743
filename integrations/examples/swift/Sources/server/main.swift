import Dispatch

// A map whose keys are built anew for every look-up.
func total(_ count: Int) -> Int {
    var lengths: [[Int]: Int] = [:]
    for number in 0..<count {
        lengths[[Int](repeating: number, count: 32)] = number
    }
    return (0..<count).reduce(0) { $0 + (lengths[[Int](repeating: $1, count: 32)] ?? 0) }
}

DispatchQueue.concurrentPerform(iterations: 4) { _ in precondition(total(2000) == 1999 * 1000) }
print("served")
