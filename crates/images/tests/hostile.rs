//! Images that are damaged, incomplete or malicious: one error with its place, or a note.

use std::fs;
use std::io::Write;

use fixtures::image::{CONFIGURATION, INDEX, Image, LAYER, Layout, MANIFEST, Packing, Tar, sha256};
use images::{Source, open};
use serde_json::{Value, json};

fn tar() -> Vec<u8> {
    Tar::default().file("bin/x", 0o755, b"\x7fELF").bytes()
}

/// Reads a layout completely.
fn read(layout: &Layout) -> Result<(usize, Vec<String>), String> {
    let folder = tempfile::tempdir().unwrap();
    layout.write(folder.path());
    whole(open(folder.path()).map_err(|error| error.to_string())?.expect("a layout"))
}

fn whole(source: Source) -> Result<(usize, Vec<String>), String> {
    for image in &source.images {
        source.tree(image, &|_, _, _| true).map_err(|error| error.to_string())?;
    }
    Ok((source.images.len(), source.notes))
}

#[track_caller]
fn refused(layout: &Layout, says: &[&str]) {
    let error = read(layout).expect_err(says[0]);
    for part in says {
        assert!(error.contains(part), "`{part}` in: {error}");
    }
}

/// A layout with one image whose manifest was changed.
fn with_manifest(change: impl FnOnce(&mut Layout, &mut Value)) -> Layout {
    let mut layout = Layout::default();
    let image = Image::new(tar());
    let config = layout.document(CONFIGURATION, &image.configuration());
    let layer = layout.blob(&format!("{LAYER}+gzip"), &Packing::Gzip.pack(&tar()));
    let mut manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
    change(&mut layout, &mut manifest);
    let descriptor = layout.document(MANIFEST, &manifest);
    layout.index(vec![descriptor]);
    layout
}

#[test]
fn blobs_are_what_their_digests_say() {
    let whole = Layout::new(&[Image::new(tar())]);
    assert_eq!(read(&whole).unwrap().0, 1);
    for name in whole.files.keys().filter(|name| name.starts_with("blobs/")) {
        let mut damaged = whole.clone();
        let bytes = damaged.files.get_mut(name).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        refused(&damaged, &["its digest is wrong: found sha256:", &name["blobs/sha256/".len()..]]);
        let mut longer = whole.clone();
        longer.files.get_mut(name).unwrap().push(b' ');
        assert!(read(&longer).is_err(), "{name}");
        let mut missing = whole.clone();
        missing.files.remove(name);
        refused(&missing, &["is missing", name]);
    }
    let sized = with_manifest(|_, manifest| manifest["layers"][0]["size"] = 7.into());
    refused(&sized, &["layer 1 (sha256:", "its size is wrong", "expected 7"]);
    let other = Tar::default().file("bin/y", 0o755, b"").bytes();
    let exchanged = with_manifest(|layout, manifest| {
        manifest["layers"][0] = layout.blob(&format!("{LAYER}+gzip"), &Packing::Gzip.pack(&other));
    });
    refused(&exchanged, &["its digest is wrong", &sha256(&tar())]);
}

#[test]
fn layers_that_are_not_there_or_not_readable() {
    let typed = |media_type: &'static str| {
        with_manifest(|_, manifest| {
            manifest["layers"][0]["mediaType"] = media_type.into();
        })
    };
    refused(&typed("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"), &["an encrypted layer"]);
    refused(&typed("application/vnd.example.tar+brotli"), &["`application/vnd.example.tar+brotli`", "not supported"]);
    refused(&typed("application/vnd.oci.image.layer.v1.tar+brotli"), &["tar+brotli`", "not supported"]);
    assert!(read(&typed("application/vnd.docker.image.rootfs.diff.tar.gzip")).is_ok());
    assert!(read(&typed("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip")).is_ok());
    let foreign = with_manifest(|layout, manifest| {
        let layer = &mut manifest["layers"][0];
        layer["urls"] = json!(["https://example.com/layer"]);
        let name = format!("blobs/sha256/{}", layer["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap());
        layout.files.remove(&name).unwrap();
    });
    refused(&foreign, &["a foreign layer", "`https://example.com/layer`"]);
}

#[test]
fn documents_that_are_wrong() {
    refused(&with_manifest(|_, manifest| manifest["schemaVersion"] = 1.into()), &["manifest sha256:", "expected 2"]);
    refused(&with_manifest(|_, manifest| manifest["manifests"] = json!([])), &["an index and a manifest at once"]);
    refused(&with_manifest(|_, manifest| manifest["layers"] = json!([])), &["rootfs.diff_ids", "each of the 0 layers"]);
    refused(&with_manifest(|_, manifest| manifest["config"] = 7.into()), &["not an image manifest"]);
    for (digest, says) in [
        ("sha256:../../../../etc/passwd", "64 hexadecimal digits"),
        ("../../etc/passwd", "64 hexadecimal digits"),
        ("sha512:00", "is not SHA-256"),
    ] {
        refused(&with_manifest(|_, manifest| manifest["layers"][0]["digest"] = digest.into()), &[says]);
    }
    let mut layout = Layout::new(&[Image::new(tar())]);
    layout.files.insert("oci-layout".to_owned(), br#"{"imageLayoutVersion":"2.0"}"#.to_vec());
    refused(&layout, &["`oci-layout`", "version is `2.0`"]);
    layout = Layout::new(&[Image::new(tar())]);
    layout.files.get_mut("index.json").unwrap().extend(vec![b' '; 9 << 20]);
    refused(&layout, &["`index.json`", "more than the"]);
    layout
        .files
        .insert("index.json".to_owned(), format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)).into_bytes());
    refused(&layout, &["`index.json`", "not an image index"]);
    layout.index(Vec::new());
    refused(&layout, &["there is no image in it"]);
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn indexes_one_in_the_other() {
    let nested = |depth: usize| {
        let mut layout = Layout::default();
        let mut descriptor = layout.image(&Image::new(tar()));
        for _ in 0..depth {
            let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor] });
            descriptor = layout.document(INDEX, &index);
        }
        layout.index(vec![descriptor]);
        layout
    };
    assert_eq!(read(&nested(3)).unwrap().0, 1);
    refused(&nested(10), &["its depth is 9"]);
    // A circle cannot have the right digests; one with wrong digests ends at the first.
    let mut layout = nested(1);
    let is_index = |name: &&String| name.starts_with("blobs/") && has(&layout.files[*name], b"\"manifests\"");
    let name = layout.files.keys().find(is_index).unwrap().clone();
    let digest = format!("sha256:{}", &name["blobs/sha256/".len()..]);
    let size = layout.files[&name].len();
    let circle = json!({ "mediaType": INDEX, "digest": digest, "size": size });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [circle] });
    layout.files.insert(name, index.to_string().into_bytes());
    refused(&layout, &["its digest is wrong"]);
    // Every index names the one below it many times.
    let mut layout = Layout::default();
    let mut descriptor = layout.document(INDEX, &json!({ "schemaVersion": 2, "manifests": [] }));
    for _ in 0..6 {
        descriptor = layout.document(INDEX, &json!({ "schemaVersion": 2, "manifests": vec![descriptor; 50] }));
    }
    layout.index(vec![descriptor]);
    refused(&layout, &["more than the 1000"]);
}

#[test]
fn what_is_no_image_is_left_out() {
    let mut layout = Layout::default();
    let image = layout.image(&Image::new(tar()));
    let mut attestation = layout.image(&Image::new(Tar::default().file("a", 0o644, b"").bytes()));
    attestation["platform"] = json!({ "os": "unknown", "architecture": "unknown" });
    let mut other = layout.image(&Image::new(Tar::default().file("b", 0o644, b"").bytes()));
    other["annotations"] = json!({ "vnd.docker.reference.type": "attestation-manifest" });
    let chart = json!({ "schemaVersion": 2, "config": layout.blob("application/vnd.cncf.helm.config.v1+json", b"{}"),
                        "layers": [] });
    let chart = layout.document(MANIFEST, &chart);
    let absent = json!({ "mediaType": MANIFEST, "digest": format!("sha256:{}", "0".repeat(64)), "size": 1,
                         "platform": { "os": "linux", "architecture": "arm64", "variant": "v8" } });
    let unknown = layout.blob("text/plain", b"text");
    layout.index(vec![attestation, other, image.clone(), chart, absent, unknown, image]);
    let (images, notes) = read(&layout).unwrap();
    assert_eq!((images, notes.len()), (1, 3), "{notes:?}");
    for part in ["helm.config", "for linux/arm64/v8", "`text/plain`"] {
        assert!(notes.iter().any(|note| note.contains(part)), "{part}: {notes:?}");
    }
}

#[test]
fn what_unpacks_out_of_all_proportion() {
    let zeros = Packing::Gzip.pack(&vec![0; 64 << 20]);
    let mut header = tar::Header::new_gnu();
    header.set_path("x").unwrap();
    header.set_size(17 * (64 << 20));
    header.set_cksum();
    for (compressed, name) in [(Packing::Gzip, "gzip"), (Packing::Zstd, "zstd")] {
        let part = |bytes: &[u8]| compressed.pack(bytes);
        let body = if compressed == Packing::Gzip { zeros.clone() } else { part(&vec![0; 64 << 20]) };
        let bomb = [part(header.as_bytes()), body.repeat(17)].concat();
        let layout = with_manifest(|layout, manifest| {
            manifest["layers"][0] = layout.blob(&format!("{LAYER}+{name}"), &bomb);
        });
        refused(&layout, &["layer 1", "what it unpacks to is", "more than the"]);
    }
}

#[test]
fn numbers_without_end() {
    let header = |kind: u8, size: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_path("x").unwrap();
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_size(size);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let layer = |bytes: Vec<u8>| with_manifest(|layout, manifest| manifest["layers"][0] = layout.blob(LAYER, &bytes));
    refused(&layer(header(b'0', u64::MAX >> 1)), &["the file is"]);
    refused(&layer(header(b'0', 1 << 40)), &["an entry's content is missing"]);
    refused(&layer([header(b'x', 1 << 30), vec![0; 4096]].concat()), &["a header of an extension is"]);
    refused(&layer([header(b'x', 1 << 20), vec![b'1'; 1 << 20]].concat()), &["LENGTH KEY=VALUE"]);
    let name = [header(b'L', 5000), vec![b'a'; 5120], header(b'0', 0)].concat();
    refused(&layer([name, vec![0; 1024]].concat()), &["its name is 5000 bytes"]);
    refused(&layer(vec![0; 100]), &["the end mark of the tar is missing"]);
    refused(&layer(b"text".repeat(1000)), &["does not have its checksum"]);
    // Names that imply many folders.
    let deep =
        (0..100).fold(Tar::default(), |tar, number| tar.file(&format!("{number}/{}x", "a/".repeat(1900)), 0o644, b""));
    refused(&layer(deep.bytes()), &["the length of all names together is", "more than the"]);
    let target = [header(b'K', 5000), vec![b'a'; 5120], header(b'2', 0)].concat();
    refused(&layer([target, vec![0; 1024]].concat()), &["the target of the link is 5000 bytes"]);
    let mut many = Layout::default();
    let manifests = vec![json!({ "mediaType": "x", "digest": format!("sha256:{}", "0".repeat(64)), "size": 0 }); 1001];
    many.index(manifests);
    refused(&many, &["1001 manifests"]);
}

#[test]
fn archives_of_docker() {
    let whole = Layout::docker(&Image::new(tar()), "test:1");
    let refused = |change: &dyn Fn(&mut Layout), says: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut layout = whole.clone();
        change(&mut layout);
        fs::write(&path, layout.tar()).unwrap();
        let error = open(&path).map_err(|error| error.to_string()).and_then(of_archive);
        let error = error.expect_err(says);
        assert!(error.contains(says), "{says}: {error}");
    };
    let layer = whole.files.keys().find(|name| name.ends_with("layer.tar")).unwrap().clone();
    let config = whole.files.keys().find(|name| name.len() > 64 && name.ends_with(".json")).unwrap().clone();
    refused(&|layout| drop(layout.files.remove(&layer)), "layer.tar` is missing");
    refused(&|layout| drop(layout.files.remove(&config)), ".json` is missing");
    refused(&|layout| layout.files.get_mut(&config).unwrap().push(b' '), "its digest is wrong");
    refused(&|layout| drop(layout.files.insert(layer.clone(), Tar::default().bytes())), "its digest is wrong");
    refused(&|layout| drop(layout.files.insert("manifest.json".to_owned(), b"[]".to_vec())), "no image in it");
    refused(&|layout| drop(layout.files.insert("manifest.json".to_owned(), b"{}".to_vec())), "not a list of images");
    let outside = br#"[{"Config": "../../etc/passwd", "Layers": []}]"#;
    refused(&|layout| drop(layout.files.insert("manifest.json".to_owned(), outside.to_vec())), "holds `..`");
}

fn of_archive(source: Option<Source>) -> Result<(usize, Vec<String>), String> {
    whole(source.expect("an archive"))
}

/// Every format, cut off or changed anywhere, gives a result or an error.
#[test]
fn whatever_was_damaged_ends_with_an_answer() {
    let image = Image::new(tar());
    let data = Tar::default().folder("./usr").file("./usr/x", 0o755, b"\x7fELF").bytes();
    let forms = [
        Layout::new(std::slice::from_ref(&image)).tar(),
        Layout::docker(&image, "x").tar(),
        data.clone(),
        Packing::Zstd.pack(&data),
        Packing::Gzip.pack(&data),
        Packing::Xz.pack(&data),
        fixtures::image::debian_package("data.tar.xz", &Packing::Xz.pack(&data)),
        fixtures::image::alpine_package(&data),
        fixtures::image::zip(&[("a/x.so", 0o755, b"\x7fELF"), ("b", 0o644, b"text")]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let look = |bytes: &[u8]| {
        fs::File::create(&path).unwrap().write_all(bytes).unwrap();
        if let Ok(Some(source)) = open(&path) {
            let _ = whole(source);
        }
    };
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for form in forms {
        for _ in 0..60 {
            look(&form[..next(form.len())]);
            let mut changed = form.clone();
            for _ in 0..=next(4) {
                let at = next(changed.len());
                changed[at] ^= 1 << next(8);
            }
            look(&changed);
        }
    }
}
