//! A package for Debian. It depends on nothing and runs no scripts.

use anyhow::{Context, Result, bail};
use data_encoding::HEXLOWER;
use format::Arch;
use md5::{Digest, Md5};

use crate::payload::{File, Payload};
use crate::tarball::{self, Options};
use crate::{DESCRIPTION, MAINTAINER, SUMMARY, gzip, system};

const FORM: Options = Options { prefix: "./", folders: true, checksums: false };

/// Returns `allograft_VERSION_ARCH.deb`.
pub(crate) fn pack(payload: &Payload) -> Result<File> {
    let arch = match payload.arch {
        Arch::X86_64 => "amd64",
        Arch::Aarch64 => "arm64",
        other => bail!("Debian's name of {other} is not known here"),
    };
    let version = &payload.version;
    let mut files = system::files(payload, "share/zsh/vendor-completions")?;
    let doc = |name: &str, bytes: &[u8]| {
        Ok::<_, anyhow::Error>(File::new(format!("usr/share/doc/allograft/{name}.gz"), gzip::compress(bytes)?))
    };
    files.push(doc("changelog", changelog(payload)?.as_bytes())?);
    files.push(doc(&payload.changelog.path, &payload.changelog.bytes)?);
    files.push(doc(&payload.readme.path, &payload.readme.bytes)?);
    files.push(File::new("usr/share/doc/allograft/copyright", copyright(payload)?));
    let donors = payload.licenses.last().context("no licences of donors")?;
    files.push(doc(&donors.path, &donors.bytes)?);
    files.push(File::new("usr/share/lintian/overrides/allograft", overrides(&payload.programs)));

    let description: String = DESCRIPTION.lines().map(|line| format!(" {line}\n")).collect();
    let control = format!(
        "Package: allograft\nVersion: {version}\nArchitecture: {arch}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {size}\nSection: devel\nPriority: optional\nDescription: {summary}\n{description}",
        size = system::kibibytes(&files),
        summary = synopsis(),
    );
    let sum = |file: &File| format!("{}  {}\n", HEXLOWER.encode(&Md5::digest(&file.bytes)), file.path);
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by(|one, other| one.path.cmp(&other.path));
    let sums: String = sorted.into_iter().map(sum).collect();
    let control = [File::new("control", control), File::new("md5sums", sums)];

    let mut package = ar::Builder::new(Vec::new());
    let members: [(&str, Vec<u8>); 3] = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip::compress(&tarball::pack(&control, payload.time, FORM)?)?),
        ("data.tar.gz", gzip::compress(&tarball::pack(&files, payload.time, FORM)?)?),
    ];
    for (name, bytes) in members {
        let mut header = ar::Header::new(name.into(), bytes.len() as u64);
        header.set_mtime(payload.time);
        header.set_mode(0o100_644);
        package.append(&header, &*bytes)?;
    }
    Ok(File::new(format!("allograft_{version}_{arch}.deb"), package.into_inner()?))
}

/// Returns the tags of lintian that are wrong for static programs, with the reason.
fn overrides(programs: &[File]) -> String {
    let mut overrides = "# Static on purpose: the programs run on every Linux, whatever its libc.\n".to_owned();
    for program in programs {
        // e_type: lintian takes a static-pie program (ET_DYN) for a library.
        let tag = match program.bytes.get(16) {
            Some(3) => "shared-library-lacks-prerequisites",
            _ => "statically-linked-binary",
        };
        overrides.push_str(&format!("allograft: {tag} [usr/bin/{}]\n", program.path));
    }
    overrides
}

/// Returns the summary in the form that Debian's policy requires: without a capital letter at its start.
fn synopsis() -> String {
    let (first, rest) = SUMMARY.split_at(1);
    first.to_lowercase() + rest
}

/// Returns the package's changelog, in Debian's own form.
fn changelog(payload: &Payload) -> Result<String> {
    let date = jiff::fmt::rfc2822::to_string(&payload.date()?)?;
    let version = &payload.version;
    Ok(format!(
        "allograft ({version}) unstable; urgency=medium\n\n  * Release {version}: see CHANGELOG.md.gz.\n\n \
         -- {MAINTAINER}  {date}\n"
    ))
}

/// Returns the copyright file: the text of allograft's short licence, and the paths of the others.
fn copyright(payload: &Payload) -> Result<String> {
    let mit = payload.licenses.iter().find(|text| text.path == "LICENSE-MIT").context("no text of the MIT licence")?;
    let indented = |text: &str| -> String {
        text.trim().lines().map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") }).collect()
    };
    let year = payload.date()?.year();
    let mit = indented(&String::from_utf8_lossy(&mit.bytes));
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: allograft\n\
         Comment: The programs contain allocators that others wrote. Their licences are in\n \
         /usr/share/doc/allograft/LICENSES-THIRD-PARTY.txt.gz.\n\n\
         Files: *\nCopyright: {year} the authors of allograft\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{mit}\n\
         License: Apache-2.0\n On Debian systems, the text of this licence is in\n \
         /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::sample;

    #[test]
    fn dpkg_reads_the_package_and_its_sums_are_right() {
        if sample::skipped("dpkg-deb") {
            return;
        }
        let (folder, package) = sample::written(pack);
        let dpkg = |option: &str| sample::output(Command::new("dpkg-deb").env("TZ", "UTC").arg(option).arg(&package));
        let about = dpkg("--info");
        assert!(about.contains(" Version: 1.2.3\n") && about.contains(" Installed-Size: "), "{about}");
        let content = dpkg("--contents");
        assert!(content.lines().all(|line| line.contains(" root/root ")), "{content}");
        assert!(content.contains("-rwxr-xr-x root/root        30 2023-11-14 22:13 ./usr/bin/allograft\n"), "{content}");
        assert!(content.contains(" ./usr/share/man/man1/allograft.1.gz\n"), "{content}");
        let root = folder.path().join("root");
        sample::output(Command::new("dpkg-deb").arg("--raw-extract").args([&package, &root]));
        let mut check = Command::new("md5sum");
        let checked = sample::output(check.args(["--check", "--strict", "DEBIAN/md5sums"]).current_dir(&root));
        assert_eq!(checked.lines().count(), content.lines().filter(|line| line.starts_with('-')).count(), "{checked}");
    }

    #[test]
    fn overrides_depend_on_how_a_program_is_linked() {
        let mut program = File::new("allograft", sample::elf(Arch::X86_64));
        assert!(overrides(&[program.clone()]).ends_with("\nallograft: statically-linked-binary [usr/bin/allograft]\n"));
        program.bytes[16] = 3;
        assert!(overrides(&[program]).contains("shared-library-lacks-prerequisites"));
    }
}
