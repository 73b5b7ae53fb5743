//! Instructions for using the file in each build system. `tests/snippets` runs them unchanged, except those
//! of a shared object: `tests/cli/preload_lines.rs` follows them, and `release/tests/installed` has buildah and systemd
//! read them.

use std::path::Path;

use crate::json::Form;
use crate::json::Snippet;
use crate::printable::printable;
use crate::shell::shell_quoted;
use crate::triple::{Libc, Triple};

/// Returns the instructions for every build system that accepts a file of this form.
pub(super) fn all(form: Form, target: &Triple, out: &Path) -> Vec<Snippet> {
    let snippet = |name, text: String| Snippet { name, text };
    let path = out.display().to_string();
    let quoted = shell_quoted(&path);
    let folder = out.parent().unwrap_or(Path::new("."));
    if target.libc == Libc::WindowsGnu {
        return vec![
            snippet("gcc of mingw-w64", format!("x86_64-w64-mingw32-gcc {quoted} main.o -o program.exe")),
            snippet("zig", format!("zig cc -target x86_64-windows-gnu {quoted} main.o -o program.exe")),
        ];
    }
    match form {
        Form::Shared => vec![
            snippet("a shell", format!("LD_PRELOAD={quoted} program")),
            snippet(
                "Dockerfile",
                format!("COPY {0} /usr/lib/\nENV LD_PRELOAD=/usr/lib/{0}", printable(file_name(out))),
            ),
            // systemd.exec(5): specifiers are expanded, and a percent sign is written twice.
            snippet(
                "a systemd unit",
                format!("Environment={}", string(&format!("LD_PRELOAD={}", path.replace('%', "%%")))),
            ),
        ],
        Form::Object => vec![
            snippet("cc, before every library", format!("cc -static {quoted} main.o -o program")),
            // Without `-fllvm`, the linker of zig 0.17's debug builds takes musl's malloc although the object comes
            // first.
            snippet("zig", format!("zig build-exe main.zig {quoted} -target {} -lc -fllvm", zig_triple(target))),
            snippet(
                "build.zig",
                format!(
                    "exe.use_llvm = true;\nexe.root_module.addObjectFile(.{{ .cwd_relative = {} }});",
                    string(&path)
                ),
            ),
            snippet("Go with cgo", go(target, &path)),
            snippet("Package.swift, in the target", format!("linkerSettings: [.unsafeFlags([{}])]", string(&path))),
            snippet(
                "Bazel, in BUILD (the file copied beside it)",
                format!(
                    "cc_binary(name = \"program\", srcs = [\"main.c\", {}], linkopts = [\"-static\"])",
                    string(&file_name(out))
                ),
            ),
            snippet("Cargo", CARGO.replace("{target}", target.rust_name())),
        ],
        Form::Archive => {
            let folder = folder.display().to_string();
            let (name, search) = (library_name(out), shell_quoted(&format!("-L{folder}")));
            let link = match &name {
                Some(name) => format!("{search} -l{name}"),
                None => quoted,
            };
            let mut snippets = vec![snippet(
                "cc, before every other library",
                format!("cc -static main.o -Wl,-u,malloc {link} -o program"),
            )];
            if let Some(name) = name {
                let search = string(&format!("cargo::rustc-link-search=native={folder}"));
                let link = string(&format!("cargo::rustc-link-lib=static:+whole-archive={name}"));
                let text = format!("fn main() {{\n    println!({search});\n    println!({link});\n}}");
                snippets.push(snippet("Cargo, in build.rs", text));
            }
            snippets
        }
    }
}

/// Returns the line for Go. Go splits the flags twice, once itself and once for the linker, each time with a shell's
/// quotes but without its escapes.
fn go(target: &Triple, path: &str) -> String {
    use format::Arch;
    let (arch, compiler) = match target.arch {
        Arch::X86_64 => ("amd64", "x86_64-linux-musl-gcc"),
        Arch::Aarch64 => ("arm64", "aarch64-linux-musl-gcc"),
        Arch::Riscv64 => ("riscv64", "riscv64-linux-musl-gcc"),
        Arch::I686 => ("386", "i686-linux-musl-gcc"),
        Arch::Arm => ("arm", "arm-linux-musleabihf-gcc"),
    };
    let path = if path.contains(char::is_whitespace) { format!("'{path}'") } else { path.to_owned() };
    let flags = shell_quoted(&format!("-linkmode external -extldflags \"-static {path}\""));
    format!("CGO_ENABLED=1 GOARCH={arch} CC={compiler} go build -ldflags {flags}")
}

/// The line for Cargo. rustc puts `-C link-arg` behind libc, where it has no effect.
const CARGO: &str =
    "cargo allograft build --target {target}\n# or an archive and build.rs, from `allograft emit --as archive`";

/// zig's name of the target.
fn zig_triple(target: &Triple) -> &'static str {
    use format::Arch;
    match target.arch {
        Arch::X86_64 => "x86_64-linux-musl",
        Arch::Aarch64 => "aarch64-linux-musl",
        Arch::Riscv64 => "riscv64-linux-musl",
        Arch::I686 => "x86-linux-musl",
        Arch::Arm => "arm-linux-musleabihf",
    }
}

fn file_name(out: &Path) -> String {
    out.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The file's name for `-l`, or `None` if it has none.
fn library_name(out: &Path) -> Option<String> {
    let name = out.file_name()?.to_str()?.strip_prefix("lib")?.strip_suffix(".a")?;
    Some(name.to_owned())
}

/// Returns a string in double quotes for zig, Swift, Rust and Starlark. Starlark does not read its control characters.
fn string(text: &str) -> String {
    format!("\"{}\"", printable(text.replace('\\', "\\\\").replace('"', "\\\"")))
}
