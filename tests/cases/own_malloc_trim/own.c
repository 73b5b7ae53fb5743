int malloc_trim(unsigned long pad) {
	return 100 + (int)pad;
}

int mallopt(int parameter, int value) {
	return parameter * 1000 + value;
}
