//! C programs linked statically with stock musl, by the tools of this machine or for another.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use fixtures::Arch;

use crate::emit;
use crate::lab::{Lab, tool};

/// How a program is compiled and linked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build<'a> {
    pub(crate) arch: Arch,
    pub(crate) position_independent: bool,
    /// Flags for the linker: GNU ld's here, lld's for another architecture.
    pub(crate) link: &'a [&'a str],
}

impl Build<'_> {
    /// For this machine, at fixed addresses, with symbols.
    pub(crate) const PLAIN: Build<'static> = Build { arch: Arch::X86_64, position_independent: false, link: &[] };

    /// Compiles and links `source` to the file `name` in the lab, and leaves nothing else there.
    pub(crate) fn program(self, lab: &Lab, name: &str, source: &str) -> PathBuf {
        let foreign = self.arch != Arch::X86_64;
        let musl = fixtures::debian_musl(self.arch);
        let (c, object, path) = (lab.put("program.c", source.as_bytes()), lab.path("program.o"), lab.path(name));
        let mut compile = if foreign { fixtures::zig().command() } else { fixtures::cc() };
        if foreign {
            compile.args(["cc", "-target", &format!("{}-linux-musl", self.arch.name()), "-fno-sanitize=all"]);
        }
        compile.args(["-O2", if self.position_independent { "-fPIE" } else { "-fno-pie" }, "-fno-stack-protector"]);
        compile.args(["-nostdinc", "-isystem"]).arg(&musl.include);
        tool(compile.args(["-c", "-o"]).args([&object, &c]));
        let at = |file: &str| musl.libdir.join(file);
        let mut link = if foreign { Command::new(fixtures::lld_folder().join("ld.lld")) } else { Command::new("ld") };
        link.arg("-static").args(self.link);
        if self.position_independent {
            link.args(["-pie", "--no-dynamic-linker", "-z", "text"]);
        }
        let start = at(if self.position_independent { "rcrt1.o" } else { "crt1.o" });
        link.arg("-o").arg(&path).args([start, at("crti.o"), object.clone()]);
        // What the other compiler calls for a long double of 128 bits.
        let runtime = foreign.then(|| emit::runtime(self.arch)).flatten();
        tool(link.arg("--start-group").arg(&musl.libc).args(runtime).arg("--end-group").arg(at("crtn.o")));
        for made in [c, object] {
            fs::remove_file(made).unwrap();
        }
        path
    }
}
