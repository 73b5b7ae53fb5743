(* Threads and blocks beyond OCaml's own heap, which come from malloc. *)
let work seed =
  let sum = ref 0 in
  for round = 1 to 2000 do
    let size = 1 + ((round * 7919) + seed) mod 60000 in
    let block = Bytes.make (size * 8) 'x' in
    let big = Bigarray.Array1.create Bigarray.char Bigarray.c_layout size in
    Bigarray.Array1.fill big 'y';
    if Bytes.get block (size - 1) = 'x' && Bigarray.Array1.get big (size - 1) = 'y' then incr sum
  done;
  !sum

let () =
  let results = Array.make 4 0 in
  let thread index = Thread.create (fun () -> results.(index) <- work index) () in
  let threads = List.init 4 thread in
  List.iter Thread.join threads;
  print_endline (if Array.for_all (fun sum -> sum = 2000) results then "ok" else "wrong")
