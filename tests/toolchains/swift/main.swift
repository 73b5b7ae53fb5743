// A map with arrays for keys: every look-up builds its key anew. One thread, then several with Dispatch.
import Dispatch
import Synchronization

let arguments = CommandLine.arguments
let count = arguments.count > 1 ? Int(arguments[1])! : 50_000
let threads = arguments.count > 2 ? Int(arguments[2])! : 4

func key(_ number: Int) -> [Int] {
	[Int](repeating: number, count: 32)
}

func built() -> [[Int]: Int] {
	var map: [[Int]: Int] = [:]
	for number in 0..<count {
		map[key(number)] = number
	}
	return map
}

let map = built()

func sum() -> Int {
	(0..<count).reduce(0) { $0 + (map[key($1)] ?? 0) }
}

let clock = ContinuousClock()
let expected = count * (count - 1) / 2
var single = 0
let alone = clock.measure { single = sum() }
let total = Atomic<Int>(0)
let together = clock.measure {
	DispatchQueue.concurrentPerform(iterations: threads) { _ in
		_ = total.wrappingAdd(sum(), ordering: .relaxed)
	}
}
let right = single == expected && total.load(ordering: .relaxed) == threads * expected
let text = ["a", "b"].joined(separator: "-") + String(255, radix: 16) + "ünï".uppercased()
print(right && text == "a-bffÜNÏ" ? "ok" : "wrong", "alone", alone, "together", together)
