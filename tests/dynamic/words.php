<?php
// Arrays, strings, JSON and regular expressions. Prints a checksum.
$hash = hash_init("sha256");
for ($turn = 0; $turn < 20; $turn++) {
    $records = [];
    for ($i = 0; $i < 4000; $i++) {
        $records[] = ["id" => $i, "name" => "name " . $i * $turn, "tags" => array_fill(0, 3, (string) ($i % 7))];
    }
    $text = json_encode($records);
    $again = json_decode($text, true);
    preg_match_all('/name \d+/', $text, $words);
    sort($words[0]);
    hash_update($hash, gzcompress($text) . count($again) . implode(",", $words[0]));
}
echo hash_final($hash), "\n";

if (getenv("IDLE")) {
    unset($records, $text, $again, $words);
    gc_collect_cycles();
    file_put_contents(getenv("IDLE"), "");
    sleep(100);
}
