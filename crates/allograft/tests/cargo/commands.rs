//! Commands of cargo other than the five: cargo's own, and programs that call cargo. The cargo is this machine's; its
//! rustc is a script that answers as rustc does, and links a C program where cargo has it link one for musl.

use std::path::Path;
use std::process::{Command, Stdio};

use fixtures::lab::Lab;
use fixtures::{Arch, Ran};

use crate::project::TARGET;

/// `$LIBDIR` is the target's library folder; `$MAIN` is a C source.
const RUSTC: &str = r#"#!/bin/sh
case "$*" in
*"--print target-libdir"*) printf '%s\n' "$LIBDIR"; exit;;
*--print*|-vV) exec "$REAL_RUSTC" "$@";;
esac
search= out= name= suffix= links= target=
while [ $# -gt 0 ]; do
    case $1 in
    -L) case $2 in native=*) search=${search:-${2#native=}};; esac; shift;;
    --target) target=$2; shift;;
    --crate-name) name=$2; shift;;
    --out-dir) out=$2; shift;;
    extra-filename=*) suffix=${1#*=};;
    --emit=*link*) links=1;;
    esac
    shift
done
[ "$name" != failing ] || exit 1
[ "$links" ] || { : >"$out/lib$name$suffix.rmeta"; exit; }
exec musl-gcc -static -O1 -fno-builtin ${search:+"-L$search"} "$MAIN" -o "$out/$name$suffix"
"#;

struct Project {
    lab: Lab,
}

impl Project {
    fn new() -> Project {
        let lab = Lab::named("cargo-commands", env!("CARGO_BIN_EXE_allograft"));
        lab.write("Cargo.toml", "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        lab.write("src/main.rs", "fn main() {}\n");
        lab.write("main.c", "#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }\n");
        lab.program("bin/rustc-for-musl", RUSTC);
        let libc = fixtures::debian_musl(Arch::X86_64).libdir.join("libc.a");
        let folder = lab.path("libdir/self-contained");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(libc, folder.join("libc.a")).unwrap();
        fixtures::musl_gcc(&lab.path("bin")).unwrap();
        Project { lab }
    }

    fn cargo(&self, line: &str) -> Ran {
        let real = |name: &str| std::env::var_os(name).unwrap_or_else(|| name.to_lowercase().into());
        let mut command = Command::new(real("CARGO"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            // Cargo sets these variables for the test. They must not reach the cargo that the test runs.
            if (text.starts_with("CARGO") && text != "CARGO_HOME") || (text.starts_with("RUST") && !text.contains("UP"))
            {
                command.env_remove(&name);
            }
        }
        let ours = Path::new(env!("CARGO_BIN_EXE_cargo-allograft")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{}:{path}", self.lab.path("bin").display(), ours.display()));
        command.env("RUSTC", self.lab.path("bin/rustc-for-musl")).env("REAL_RUSTC", real("RUSTC"));
        command.env("LIBDIR", self.lab.path("libdir")).env("MAIN", self.lab.path("main.c"));
        command.args(line.split_whitespace()).current_dir(self.lab.folder()).stdin(Stdio::null());
        command.output().unwrap().into()
    }

    #[track_caller]
    fn carries(&self, malloc: &str) {
        let program = self.lab.path("target").join(TARGET).join("debug/app");
        let program = program.to_str().unwrap();
        self.lab.run(["inspect", "--expect", malloc, program]).exits(0);
    }
}

#[test]
fn commands_of_cargo_that_build_or_link() {
    let project = Project::new();
    // It links nothing, and says so.
    project.cargo("allograft check").exits(0).says(&["`cargo check` linked no program"]);
    project.cargo("allograft rustc").exits(0).says(&["carries snmalloc ", "building for `x86_64-unknown-linux-musl`"]);
    project.carries("snmalloc");
    // An alias, with its own options and with ours.
    project.lab.write(".cargo/config.toml", "[alias]\nmade = [\"rustc\", \"--bin\"]\n");
    project.cargo(&format!("allograft made app --donor mimalloc3 --target {TARGET}")).exits(0).says(&["mimalloc3 "]);
    project.carries("mimalloc3");
    project.cargo("allograft rustc --bin missing").exits(101).says(&["missing"]);
}

#[test]
fn programs_that_call_cargo() {
    let project = Project::new();
    let script = "#!/bin/sh\n[ \"$1\" = foo ] && shift\necho \"given: $*\"\n[ \"$1\" != fail ] || exit 42\n\
                  [ \"$1\" != die ] || kill -TERM $$\nexec cargo build \"$@\"\n";
    project.lab.program("bin/cargo-foo", script);
    let ran = project.cargo("allograft foo --verbose -- --donor x");
    // Cargo's own words come after `--`, as the script passes them on.
    assert!(ran.out.contains("given: --verbose -- --donor x"), "{} {}", ran.out, ran.err);
    project.cargo("allograft foo -v --donor jemalloc").exits(0).says(&["carries jemalloc "]);
    project.carries("jemalloc");
    project.cargo("allograft foo fail").exits(42);
    project.cargo("allograft foo die").exits(143);
    // A target of its own that there is no graft for.
    let script = "#!/bin/sh\nexec cargo build --target aarch64-unknown-linux-musl\n";
    project.lab.program("bin/cargo-other", script);
    let says = ["was linked without a donor", "`aarch64-unknown-linux-musl` itself", "CARGO_BUILD_TARGET=aarch64"];
    project.cargo("allograft other").exits(1).says(&says);
}

#[test]
fn commands_that_link_nothing_or_are_not_there() {
    let project = Project::new();
    project.cargo("allograft clean").exits(2).says(&["`cargo clean` links no program", "help: "]);
    project.cargo("allograft biuld").exits(2).says(&["no command `biuld`", "did you mean `cargo allograft build`?"]);
    project.cargo("allograft cook").exits(2).says(&["no command `cook`", "`cargo-cook`", "help: "]);
    project.cargo("allograft +nightly build").exits(2).says(&["`cargo +nightly allograft COMMAND`"]);
    assert!(!project.lab.path("target").exists());
}
