<?php
// Debian's default extensions, each a library that PHP loads with RTLD_DEEPBIND. Blocks go from one to the other: texts
// of PHP's that an extension changes, streams of libc's, and libc's own functions by its handle.
$wanted = ["calendar", "ctype", "exif", "FFI", "fileinfo", "ftp", "gettext", "iconv", "PDO", "Phar", "posix",
    "readline", "shmop", "sockets", "sysvmsg", "sysvsem", "sysvshm", "tokenizer", "Zend OPcache"];
$missing = array_diff($wanted, get_loaded_extensions(), get_loaded_extensions(true));
if ($missing) {
    exit("not loaded: " . implode(", ", $missing) . "\n");
}
$source = file_get_contents(__FILE__);
$names = "char *strdup(const char *); void free(void *); void *malloc(size_t); void *realloc(void *, size_t);";
$libc = FFI::cdef($names, "libc.so.6");
for ($turn = 0; $turn < 200; $turn++) {
    $copy = $libc->strdup("turn $turn");
    $text = FFI::string($copy);
    $libc->free($libc->realloc($copy, 5000 * $turn + 1));
    $libc->free($libc->malloc(100));
    $tokens = count(PhpToken::tokenize($source));
    $wide = iconv("UTF-8", "UTF-16LE", str_repeat("größer $text ", 200));
    $back = iconv("UTF-16LE", "UTF-8", $wide);
    socket_create_pair(AF_UNIX, SOCK_STREAM, 0, $pair);
    socket_write($pair[0], $text);
    $read = socket_read($pair[1], 100);
    $kind = (new finfo(FILEINFO_MIME_TYPE))->buffer("GIF89a" . $text);
    array_map("socket_close", $pair);
}
echo "$tokens $text ", strlen($wide), " ", crc32($back), " $read $kind ", jdtogregorian(2460000), " ";
echo implode(",", PDO::getAvailableDrivers()), " ", posix_getpid() === getmypid() ? "same" : "other", "\n";
