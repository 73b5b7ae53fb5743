//! x
fn main() {
    let words: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    let target = if words[0] == "--pid" { profiler::Target::Process(words[1].to_str().unwrap().parse().unwrap()) } else { profiler::Target::Command { words, output_to_errors: true } };
    let options = profiler::Options { rate: std::env::var("RATE").map_or(profiler::RATE, |r| r.parse().unwrap()), duration: std::env::var("DUR").ok().map(|d| std::time::Duration::from_secs_f64(d.parse().unwrap())), interrupted: Default::default() };
    match profiler::record(&target, &options) {
        Ok(recording) => {
            let a = profiler::analyse(recording).analysis;
            println!("{}", serde_json::to_string_pretty(&a).unwrap());
        }
        Err(error) => println!("error: {error}"),
    }
}
