#include <unistd.h>

int main(void) {
	return write(1, "ok\n", 3) != 3;
}
