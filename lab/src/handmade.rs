//! A hand-made graft, as known scripts make it: mimalloc's release, put into a copy of `libc.a` with `ar` and a list of
//! names. In comparisons it shows what users would have without allograft.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use zigcc::{Arch, ZigTarget};

/// The thirteen members that the known scripts delete (tweag/rust-alpine-mimalloc, build.sh).
const DELETED: [&str; 13] = [
    "aligned_alloc.lo",
    "calloc.lo",
    "donate.lo",
    "free.lo",
    "libc_calloc.lo",
    "lite_malloc.lo",
    "malloc.lo",
    "malloc_usable_size.lo",
    "memalign.lo",
    "posix_memalign.lo",
    "realloc.lo",
    "reallocarray.lo",
    "valloc.lo",
];

/// The definitions of that script, and the flags of mimalloc's own release build. Zig's compiler treats `__DATE__` as
/// an error.
const FLAGS: [&str; 11] = [
    "-O3",
    "-g0",
    "-DNDEBUG",
    "-DMI_MALLOC_OVERRIDE",
    "-DMI_LIBC_MUSL=1",
    "-DMI_SKIP_COLLECT_ON_EXIT=1",
    "-fPIC",
    "-fvisibility=hidden",
    "-ftls-model=local-dynamic",
    "-fno-builtin-malloc",
    "-Wno-date-time",
];

/// Makes `libc.a` in `folder` from the one at `libc` and the sources in `mimalloc` (with `src` and `include`).
///
/// # Errors
/// mimalloc does not compile, or `ar` cannot be run.
pub(crate) fn make(libc: &Path, mimalloc: &Path, folder: &Path) -> Result<()> {
    let arch = Arch::ALL.into_iter().find(|arch| fixtures::native(*arch)).context("no donors for this machine")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    // ar's scripts have no quotes, so the files have plain names in the folder.
    fs::copy(libc, folder.join("stock.a")).with_context(|| format!("cannot copy `{}`", libc.display()))?;
    let mut compile = vec!["cc".into(), "-target".into(), arch.triple().into(), "-c".into()];
    compile.extend(FLAGS.map(Into::into));
    compile.extend(["-o".into(), folder.join("mimalloc.o").into_os_string(), "-I".into()]);
    compile.extend([mimalloc.join("include").into_os_string(), mimalloc.join("src/static.c").into_os_string()]);
    fixtures::zig().run(compile).context("the hand-made graft's mimalloc does not compile")?;
    let script = format!("CREATE libc.a\nADDLIB stock.a\nDELETE {}\nADDMOD mimalloc.o\nSAVE\nEND\n", DELETED.join(" "));
    let mut ar = Command::new("ar");
    ar.arg("-M").current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ar.spawn().context("cannot start ar, which comes with C compilers")?;
    child.stdin.take().context("ar has no stdin")?.write_all(script.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "ar ended with {}\n{}", output.status, String::from_utf8_lossy(&said));
    fs::remove_file(folder.join("stock.a"))?;
    Ok(())
}
