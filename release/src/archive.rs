//! The archive for `cargo binstall`, and for unpacking by hand.

use anyhow::Result;

use crate::gzip;
use crate::payload::{File, Payload};
use crate::tarball::{self, Options};

/// Returns `allograft-VERSION-TARGET.tar.gz`, with everything in one folder.
pub(crate) fn pack(payload: &Payload) -> Result<File> {
    let name = format!("allograft-{}-{}", payload.version, payload.target());
    let Payload { programs, manuals, bash, zsh, fish, licenses, readme, changelog, .. } = payload;
    let mut files: Vec<File> = programs.iter().chain(licenses).chain([readme, changelog]).cloned().collect();
    files.extend(manuals.iter().map(|page| page.with_path(format!("man/{}", page.path))));
    files.extend([bash.with_path("completions/allograft.bash"), zsh.with_path("completions/_allograft")]);
    files.push(fish.with_path("completions/allograft.fish"));
    files.extend(payload.cmake.iter().map(|file| file.with_path(format!("share/cmake/allograft/{}", file.path))));
    for (name, integration) in [("meson", &payload.meson), ("bazel", &payload.bazel)] {
        files.extend(integration.iter().map(|file| file.with_path(format!("share/allograft/{name}/{}", file.path))));
    }
    for file in &mut files {
        file.path.insert_str(0, &format!("{name}/"));
    }
    let form = Options { folders: true, ..Options::default() };
    Ok(File::new(format!("{name}.tar.gz"), gzip::compress(&tarball::pack(&files, payload.time, form)?)?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::sample;

    /// Returns the value of a key of `[package.metadata.binstall]` with its placeholders filled in.
    fn binstall(key: &str, payload: &Payload, program: &str) -> String {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/allograft/Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
        let value = manifest["package"]["metadata"]["binstall"][key].as_str().unwrap();
        [("name", "allograft"), ("version", &payload.version), ("target", payload.target()), ("bin", program)]
            .into_iter()
            .fold(value.to_owned(), |value, (key, filled)| value.replace(&format!("{{ {key} }}"), filled))
    }

    #[test]
    fn cargo_binstall_finds_the_archive_and_the_programs_in_it() {
        let (_folder, package) = sample::written(pack);
        let payload = sample::payload();
        let name = package.file_name().unwrap().to_str().unwrap();
        assert_eq!(binstall("pkg-url", &payload, ""), format!("{{ repo }}/releases/download/v1.2.3/{name}"));
        assert_eq!(binstall("pkg-fmt", &payload, ""), "tgz");
        let listed = sample::output(Command::new("tar").args(["-tvzf"]).arg(&package));
        for program in ["allograft", "cargo-allograft"] {
            let path = binstall("bin-dir", &payload, program);
            let found = listed.lines().find(|line| line.ends_with(&format!(" {path}")));
            assert!(found.is_some_and(|line| line.starts_with("-rwxr-xr-x root/root ")), "{path}\n{listed}");
        }
    }
}
