//! Hosts in the layers of an overlay file system, as in a container.

use std::fs;
use std::process::Command;

use crate::lab::Lab;

/// Mounts `lower` below a layer in memory, grafts there, and undoes that. Exit code 125: no such mount here.
const GRAFT: &str = r#"
mount -t tmpfs memory memory && mkdir memory/upper memory/state || exit 125
layers=lowerdir=lower,upperdir=memory/upper,workdir=memory/state,userxattr
mount -t overlay overlay -o "$layers" root || exit 125
"$1" graft root/libc.a && ! cmp -s root/libc.a lower/libc.a || exit 1
cmp root/libc.a.allograft-stock lower/libc.a && cmp root/other.a lower/libc.a || exit 1
"$1" undo root/libc.a && cmp root/libc.a lower/libc.a || exit 1
"#;

/// The backup is another link, for which overlayfs copies the file into the upper layer. If the file has several links,
/// the copy has another inode number: that was taken for a change by another program.
#[test]
fn a_file_of_a_lower_layer_with_several_links_is_grafted() {
    let lab = Lab::new();
    for folder in ["lower", "memory", "root"] {
        fs::create_dir(lab.path(folder)).unwrap();
    }
    lab.libc("lower/libc.a");
    fs::hard_link(lab.path("lower/libc.a"), lab.path("lower/other.a")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", GRAFT, "sh", env!("CARGO_BIN_EXE_allograft")]);
    let output = command.current_dir(lab.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    // Without a namespace, `unshare` itself ends with 1, and has said why.
    if output.status.code() == Some(125) || said.starts_with("unshare:") {
        eprintln!("left out: no overlay file system can be mounted here: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
}
