#include <stdio.h>
#include <stdlib.h>

static int made, unmade;

void *operator new(size_t size) { made++; return malloc(size); }
void *operator new[](size_t size) { made++; return malloc(size); }
void operator delete(void *block) noexcept { unmade++; free(block); }
void operator delete[](void *block) noexcept { unmade++; free(block); }
void operator delete(void *block, size_t) noexcept { unmade++; free(block); }
void operator delete[](void *block, size_t) noexcept { unmade++; free(block); }

struct Node {
	Node *next;
	virtual int value() { return 1; }
	virtual ~Node() {}
};

int main() {
	Node *volatile node = new Node;
	int *volatile numbers = new int[1000];
	numbers[999] = node->value();
	int sum = numbers[999];
	delete node;
	delete[] numbers;
	if (sum == 1 && made == 2 && unmade == 2) puts("ok");
}
