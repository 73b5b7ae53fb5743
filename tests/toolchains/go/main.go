package main

/*
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(void *seed)
{
	unsigned long sum = 0;
	for (unsigned round = 0; round < 20000; round++) {
		size_t size = 1 + (round * 7919u + (unsigned)(size_t)seed) % 3000;
		char *block = malloc(size);
		if (!block)
			abort();
		memset(block, 1, size);
		sum += (unsigned char)block[size - 1];
		free(block);
	}
	return (void *)sum;
}

static unsigned long threads(void)
{
	pthread_t all[4];
	unsigned long sum = 0;
	for (size_t index = 0; index < 4; index++)
		if (pthread_create(&all[index], 0, allocate, (void *)index))
			abort();
	for (size_t index = 0; index < 4; index++) {
		void *result;
		if (pthread_join(all[index], &result))
			abort();
		sum += (unsigned long)result;
	}
	return sum;
}
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

func main() {
	var wait sync.WaitGroup
	sums := make([]uint64, 4)
	for index := range sums {
		wait.Add(1)
		go func() {
			defer wait.Done()
			sums[index] = uint64(C.threads())
			text := C.CString("hello")
			defer C.free(unsafe.Pointer(text))
			if C.GoString(text) != "hello" {
				panic("text")
			}
		}()
	}
	wait.Wait()
	if sums[0] != 80000 || sums[3] != 80000 {
		panic(sums)
	}
	fmt.Println("ok")
}
