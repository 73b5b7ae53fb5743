// A function in a section group, which linkers keep once for each name, and a user of it.
inline __attribute__((noinline)) int shared_name(int x) { return x * KIND; }
extern "C" int VALUE() { return shared_name(1); }
