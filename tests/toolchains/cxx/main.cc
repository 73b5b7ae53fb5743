#include <atomic>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

int main()
{
	std::atomic<unsigned long> sum{0};
	std::vector<std::thread> threads;
	for (int seed = 0; seed < 4; seed++)
		threads.emplace_back([&sum, seed] {
			std::map<std::string, std::vector<int>> map;
			for (int round = 0; round < 5000; round++)
				map["key " + std::to_string(round * (seed + 1))] = std::vector<int>(round % 300, round);
			for (const auto &[key, values] : map)
				sum += key.empty() ? 0 : 1;
		});
	for (auto &thread : threads)
		thread.join();
	try {
		throw std::runtime_error("thrown");
	} catch (const std::exception &caught) {
		std::puts(sum == 20000 && caught.what() == std::string("thrown") ? "ok" : "wrong");
	}
	return 0;
}
