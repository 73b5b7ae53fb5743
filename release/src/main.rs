//! `cargo xtask release`: makes everything that a release consists of, in `target/release-files`.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use release::{Builder, Inputs, Payload};
use tools::{command, table, workspace};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    if std::env::args().len() > 1 {
        bail!("`release` takes no arguments");
    }
    tools::prepare_for_every_architecture()?;
    table::prepare_named(&["rust"])?;
    let (checkout, build) = (workspace::root(), workspace::build());
    let version = env!("CARGO_PKG_VERSION");
    let time = release::time(&checkout)?;

    eprintln!("release: allograft for this machine ...");
    let native = command::build_allograft()?;
    let native = native.parent().context("a program is in a folder")?;
    command::build_cargo_allograft()?;
    eprintln!("release: the executables (minutes) ...");
    let builder = Builder {
        checkout: &checkout,
        native,
        toolchain: &fixtures::rust_musl().join("bin"),
        lld: &fixtures::lld_folder().join("ld.lld"),
        target: &build.join("release-build"),
    };
    let programs = builder.build()?;

    eprintln!("release: the packages ...");
    let components = release::components(&checkout)?;
    let donors = command::output(Command::new(native.join("allograft")).args(["donors", "--licenses"]))?;
    let licenses = release::licenses(&donors, &components)?;
    let payload = |(arch, programs): &(_, std::path::PathBuf)| {
        let inputs = Inputs { version, arch: *arch, time, programs, native, checkout: &checkout, licenses: &licenses };
        Payload::read(inputs)
    };
    let payloads: Vec<Payload> = programs.iter().map(payload).collect::<Result<_>>()?;
    let out = build.join("release-files");
    // Nothing of an earlier release stays.
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot remove `{}`", out.display()))?;
    }
    release::packages(&payloads, &out)?;
    let bill = release::cyclonedx(version, time, &components)?;
    write(&out.join(format!("allograft-{version}.cdx.json")), bill.as_bytes())?;
    write(&out.join("LICENSES-THIRD-PARTY.txt"), licenses.as_bytes())?;
    eprintln!("release: the crates ...");
    for packed in release::crates(&checkout, &build.join("release-crates"), &|| command::cargo(&[]))? {
        write(&out.join(&packed.path), &packed.bytes)?;
    }
    release::checksums::write(&out)?;
    println!("release: everything is in `{}`", workspace::shown(&out));
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()))
}
