//! A package for Alpine: apk's format of version 2, unsigned.
//!
//! It is two gzip streams. The first is the control segment: a tar archive without its end, with `.PKGINFO`. The second
//! is a whole tar archive of the files, each with its SHA-1 in an extended header. `.PKGINFO` has the SHA-256 of the
//! second. Source: apk-v2(5) of apk-tools.

use anyhow::Result;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::payload::{File, Payload};
use crate::tarball::{self, Options};
use crate::{LICENSE, MAINTAINER, SUMMARY, gzip, system};

/// Returns `allograft-VERSION-r0.ARCH.apk`.
pub(crate) fn pack(payload: &Payload) -> Result<File> {
    let mut files = system::files(payload, "share/zsh/site-functions")?;
    for text in &payload.licenses {
        files.push(text.with_path(format!("usr/share/licenses/allograft/{}", text.path)));
    }
    let form = Options { folders: true, checksums: true, ..Options::default() };
    let data = gzip::compress(&tarball::pack(&files, payload.time, form)?)?;
    let Payload { version, arch, time, .. } = payload;
    let (size, datahash) = (system::size(&files), HEXLOWER.encode(&Sha256::digest(&data)));
    let information = format!(
        "pkgname = allograft\npkgver = {version}-r0\npkgdesc = {SUMMARY}\nbuilddate = {time}\n\
         packager = {MAINTAINER}\nsize = {size}\narch = {arch}\norigin = allograft\nmaintainer = {MAINTAINER}\n\
         license = {LICENSE}\ndatahash = {datahash}\n"
    );
    let mut control = tarball::pack(&[File::new(".PKGINFO", information)], payload.time, Options::default())?;
    control.truncate(control.len() - tarball::END);
    Ok(File::new(format!("allograft-{version}-r0.{arch}.apk"), [gzip::compress(&control)?, data].concat()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Command;

    use flate2::bufread::GzDecoder;

    use super::*;
    use crate::sample;

    /// Splits a package into the text of `.PKGINFO` and the second stream.
    fn split(package: &[u8]) -> (String, &[u8]) {
        let mut rest = package;
        let mut control = Vec::new();
        GzDecoder::new(&mut rest).read_to_end(&mut control).unwrap();
        assert_eq!(control.len(), 1024, "a header and a block, and no end of the archive");
        let text = String::from_utf8(control[512..].to_vec()).unwrap();
        (text.trim_end_matches('\0').to_owned(), rest)
    }

    #[test]
    fn the_control_segment_has_the_hash_of_the_data() {
        let package = pack(&sample::payload()).unwrap().bytes;
        let (information, data) = split(&package);
        let hash = HEXLOWER.encode(&Sha256::digest(data));
        assert!(information.ends_with(&format!("\ndatahash = {hash}\n")), "{information}");
        assert!(information.starts_with("pkgname = allograft\npkgver = 1.2.3-r0\n"), "{information}");
    }

    #[test]
    fn both_segments_are_one_archive() {
        let (_folder, package) = sample::written(pack);
        let listed = sample::output(Command::new("tar").args(["-tvz", "--numeric-owner", "-f"]).arg(package));
        let mut names = listed.lines().map(|line| line.split_whitespace().last().unwrap());
        assert_eq!(names.next(), Some(".PKGINFO"));
        assert!(names.any(|name| name == "usr/share/licenses/allograft/LICENSE-MIT"), "{listed}");
        assert!(listed.lines().all(|line| line.contains(" 0/0 ")), "{listed}");
    }

    /// apk compares what it unpacks with these sums. The record's length must be its own.
    #[test]
    fn every_file_has_its_sha1_and_every_header_a_name() {
        let payload = sample::payload();
        let package = pack(&payload).unwrap().bytes;
        let mut archive = tar::Archive::new(GzDecoder::new(split(&package).1));
        let mut sums = 0;
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let records: Vec<(String, String)> = entry
                .pax_extensions()
                .unwrap()
                .into_iter()
                .flatten()
                .map(|record| {
                    let record = record.unwrap();
                    (record.key().unwrap().to_owned(), record.value().unwrap().to_owned())
                })
                .collect();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            if entry.header().entry_type().is_file() {
                let sum = HEXLOWER.encode(&sha1::Sha1::digest(&bytes));
                assert_eq!(records, [("APK-TOOLS.checksum.SHA1".to_owned(), sum)]);
                sums += 1;
            }
        }
        assert_eq!(sums, 12);
        let mut raw = Vec::new();
        GzDecoder::new(split(&package).1).read_to_end(&mut raw).unwrap();
        let headers = raw.chunks(512).filter(|block| block.get(257..262) == Some(b"ustar"));
        assert!(headers.into_iter().all(|header| header[0] != 0));
    }
}
