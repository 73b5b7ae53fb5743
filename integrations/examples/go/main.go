package main

/*
#include <stdlib.h>

static long churn(void)
{
	long sum = 0;
	for (int i = 0; i < 10000; i++) {
		char *block = malloc(1 + i % 500);
		block[0] = 1;
		sum += block[0];
		free(block);
	}
	return sum;
}
*/
import "C"
import "fmt"

func main() {
	done := make(chan C.long)
	for i := 0; i < 4; i++ {
		go func() { done <- C.churn() }()
	}
	var sum C.long
	for i := 0; i < 4; i++ {
		sum += <-done
	}
	fmt.Println(sum)
}
