//! `compile FUNCTIONS THREADS`: makes a WebAssembly module of that many functions, the same each time, and compiles it
//! with Cranelift as `wasmtime compile` does. Prints sizes and a checksum of the machine code, which do not depend on
//! libc.

mod module;

use std::process::ExitCode;

use wasmtime::{Config, Engine};

fn main() -> ExitCode {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let &[functions, threads] = numbers.as_slice() else {
        eprintln!("usage: compile FUNCTIONS THREADS");
        return ExitCode::from(2);
    };
    match run(functions, threads) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(functions: usize, threads: usize) -> Result<String, Box<dyn std::error::Error>> {
    // wasmtime compiles in rayon's threads.
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    let mut config = Config::new();
    // The target is named, so that the builds for musl and for glibc compile for the same machine.
    config.target(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH))?;
    let engine = Engine::new(&config)?;
    let module = module::make(functions);
    let code = engine.precompile_module(&module)?;
    let checksum = crc32fast::hash(&code);
    Ok(format!("{functions} functions, {} bytes of WebAssembly, {} of code, {checksum:08x}", module.len(), code.len()))
}
