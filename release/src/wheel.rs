//! A package for Python: a wheel with two programs and no module.

use std::io::{Cursor, Write};

use anyhow::Result;
use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::payload::{File, Payload};
use crate::{LICENSE, SUMMARY};

/// Returns `allograft-VERSION-TAGS.whl`. A static program needs neither glibc nor musl, so it has the tags of both, in
/// the oldest versions that installers know.
pub(crate) fn pack(payload: &Payload) -> Result<File> {
    let Payload { version, arch, .. } = payload;
    let platforms = [format!("manylinux2014_{arch}"), format!("musllinux_1_1_{arch}")];
    let (data, information) = (format!("allograft-{version}.data"), format!("allograft-{version}.dist-info"));
    let mut files: Vec<File> =
        payload.programs.iter().map(|program| program.with_path(format!("{data}/scripts/{}", program.path))).collect();
    let shared = |folder: &str, file: &File| file.with_path(format!("{data}/data/share/{folder}/{}", file.path));
    files.extend(payload.cmake.iter().map(|file| shared("cmake/allograft", file)));
    files.extend(payload.meson.iter().map(|file| shared("allograft/meson", file)));
    files.extend(payload.bazel.iter().map(|file| shared("allograft/bazel", file)));
    let about = |name: &str, text: String| File::new(format!("{information}/{name}"), text);
    for text in &payload.licenses {
        files.push(text.with_path(format!("{information}/licenses/{}", text.path)));
    }
    files.push(about("METADATA", metadata(payload)));
    let tags: String = platforms.iter().map(|platform| format!("Tag: py3-none-{platform}\n")).collect();
    let wheel = format!("Wheel-Version: 1.0\nGenerator: allograft {version}\nRoot-Is-Purelib: false\n{tags}");
    files.push(about("WHEEL", wheel));
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files.push(about("RECORD", record(&files, &information)));

    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(9))
        .last_modified_time(date(payload)?);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for file in &files {
        let mode = if file.executable { 0o755 } else { 0o644 };
        archive.start_file(&file.path, options.unix_permissions(mode))?;
        archive.write_all(&file.bytes)?;
    }
    let name = format!("allograft-{version}-py3-none-{}.whl", platforms.join("."));
    Ok(File::new(name, archive.finish()?.into_inner()))
}

/// Returns the core metadata, of version 2.4, the first with `License-File`.
fn metadata(payload: &Payload) -> String {
    let files: String = payload.licenses.iter().map(|text| format!("License-File: {}\n", text.path)).collect();
    format!(
        "Metadata-Version: 2.4\nName: allograft\nVersion: {}\nSummary: {SUMMARY}\nLicense-Expression: {LICENSE}\n\
         {files}Classifier: Operating System :: POSIX :: Linux\nRequires-Python: >=3.7\n\
         Description-Content-Type: text/markdown\n\n{}",
        payload.version,
        String::from_utf8_lossy(&payload.readme.bytes)
    )
}

/// Returns the list of the wheel's files with their checksums. Its own row has none.
fn record(files: &[File], information: &str) -> String {
    let row = |file: &File| {
        let sum = BASE64URL_NOPAD.encode(&Sha256::digest(&file.bytes));
        format!("{},sha256={sum},{}\n", file.path, file.bytes.len())
    };
    files.iter().map(row).collect::<String>() + &format!("{information}/RECORD,,\n")
}

/// Returns the payload's time in zip's form.
fn date(payload: &Payload) -> Result<DateTime> {
    let time = payload.date()?;
    let parts = [time.month(), time.day(), time.hour(), time.minute(), time.second()];
    let [month, day, hour, minute, second] = parts.map(i8::unsigned_abs);
    Ok(DateTime::from_date_and_time(time.year().try_into()?, month, day, hour, minute, second)?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::sample;

    fn python() -> Command {
        Command::new("python3")
    }

    #[test]
    fn python_reads_the_wheel() {
        let (_folder, package) = sample::written(pack);
        sample::output(python().args(["-m", "zipfile", "-t"]).arg(&package));
        let listed = sample::output(python().args(["-m", "zipfile", "-l"]).arg(&package));
        for file in ["scripts/cargo-allograft", "data/share/allograft/meson/meson.build"] {
            assert!(listed.contains(&format!("allograft-1.2.3.data/{file}")), "{file}\n{listed}");
        }
        assert!(listed.lines().skip(1).all(|line| line.contains(" 2023-11-14 22:13:20 ")), "{listed}");
    }

    /// pip compares every file with `RECORD`.
    #[test]
    fn pip_installs_the_wheel() {
        let (folder, package) = sample::written(pack);
        // `RECORD` names programs as `../../bin/NAME`, which with `--target` is outside of pip's folder. The target is
        // two folders deep, so that the path stays in this test's folder.
        let target = folder.path().join("root/lib/installed");
        let mut pip = python();
        pip.args("-m pip install --quiet --no-index --no-deps --no-cache-dir --disable-pip-version-check".split(' '));
        sample::output(pip.arg("--target").args([&target, &package]));
        let said = sample::output(Command::new(target.join("bin/cargo-allograft")).arg("build"));
        assert_eq!(said, "cargo-allograft build\n");
        let check = "import importlib.metadata as m; d = m.distribution('allograft'); print(d.version, all(
            f.hash is None or __import__('base64').urlsafe_b64encode(__import__('hashlib').sha256(
            f.locate().read_bytes()).digest()).rstrip(b'=').decode() == f.hash.value
            for f in d.files if f.locate().exists()), d.metadata['License-Expression'])";
        let said = sample::output(python().args(["-c", check]).env("PYTHONPATH", &target));
        assert_eq!(said, "1.2.3 True MIT OR Apache-2.0\n");
    }
}
