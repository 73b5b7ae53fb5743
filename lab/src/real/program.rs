//! The real programs: their sources and their work. Most sources are packages of crates.io, which
//! `suite/real/Cargo.lock` pins with their checksums.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use fixtures::shell::word;
use serde_json::Value;
use tools::packages::{self, Package};
use tools::{command, folder, workspace};

use crate::builds::Part;

/// Redis from Debian: the version, the SHA-256 of the archive, and the folder that is unpacked.
const REDIS: (&str, &str) = ("7.0.15", "4b1dc4ee6d622a09fff9c6777191209750fb5e5a725ef78ea012d6eef4c22982");
const REDIS_MEMBERS: [&str; 4] = ["src", "deps/hiredis", "deps/lua/src", "deps/hdr_histogram"];
/// The header that Redis's build generates from its version control.
const REDIS_RELEASE: &str = "#define REDIS_GIT_SHA1 \"00000000\"\n#define REDIS_GIT_DIRTY \"0\"\n\
                             #define REDIS_BUILD_ID \"bench\"\n";
/// Prints the load's result in the form that `allograft bench` reads, from the lines `"test","requests per second",...`
/// of redis-benchmark. All tests have the same number of requests, so the mean is the harmonic one.
const REDIS_RATE: &str =
    r#"awk -F '","' 'NR > 1 { sum += 1 / $2; n++ } END { printf "{\"requests_per_second\": %.1f}\n", n / sum }'"#;

/// A program in C.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) parts: Vec<Part>,
    pub(super) run: Run,
}

/// The work of a program.
pub(super) enum Run {
    /// For each case the number of threads, if the program takes one, and the arguments: full and quick.
    Work(Vec<(Option<u32>, [Vec<String>; 2])>),
    /// A server: its arguments, and the load: full and quick.
    Server(Vec<String>, [String; 2]),
}

/// Folders of packages.
pub(super) struct Sources {
    sqlite: PathBuf,
    lua: PathBuf,
    zstd: PathBuf,
    redis: PathBuf,
}

impl Sources {
    /// Fetches the missing packages.
    ///
    /// # Errors
    /// A package cannot be fetched, or its checksum differs.
    pub(super) fn fetch() -> Result<Sources> {
        let mut cargo = command::cargo(&["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
        cargo.arg(folder().join("Cargo.toml")).stderr(Stdio::inherit());
        let metadata: Value =
            serde_json::from_str(&command::output(&mut cargo)?).context("`cargo metadata` printed no JSON")?;
        let of = |name: &str| -> Result<PathBuf> {
            let listed = metadata["packages"].as_array().context("no packages")?;
            let found = listed.iter().find(|package| package["name"] == name);
            let manifest = found.and_then(|package| package["manifest_path"].as_str());
            let manifest = manifest.with_context(|| format!("`suite/real/Cargo.lock` has no package `{name}`"))?;
            Ok(Path::new(manifest).parent().context("a manifest without a folder")?.to_owned())
        };
        let (version, sha256) = REDIS;
        let redis = fixtures::tools().join("sources").join(format!("redis-{version}"));
        if !redis.is_dir() {
            let members = REDIS_MEMBERS.map(str::to_owned);
            let archive = Package::DebianSource { name: "redis", version, ending: "tar.gz", members: &members };
            let fill = |folder: &Path| {
                packages::unpack(archive, sha256, folder)?;
                Ok(fs::write(folder.join("src/release.h"), REDIS_RELEASE)?)
            };
            fs::create_dir_all(redis.parent().context("the folder has no parent")?)?;
            folder::announce(&format!("redis {version}, source"), || folder::place(&redis, fill))?;
        }
        Ok(Sources {
            sqlite: of("libsqlite3-sys")?.join("sqlite3"),
            lua: of("lua-src")?.join("lua-5.4.9"),
            zstd: of("zstd-sys")?.join("zstd/lib"),
            redis,
        })
    }

    /// Returns the programs. `load` is the load generator for the suite's server, `redis_load` that for Redis.
    ///
    /// # Errors
    /// A package's files are not the expected ones.
    pub(super) fn programs(&self, load: &Path, redis_load: &Path) -> Result<Vec<Program>> {
        let threads = u32::try_from(std::thread::available_parallelism().map_or(1, usize::from))?;
        let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let in_threads = |full: &dyn Fn(u32) -> [String; 2]| {
            let mut counts = vec![1, threads];
            counts.dedup();
            Run::Work(counts.into_iter().map(|count| (Some(count), full(count).map(words))).collect())
        };
        let shown = |path: &Path| path.display().to_string();
        let (text, script) = (shown(&self.sqlite.join("sqlite3.c")), shown(&folder().join("script.lua")));
        let connections = "--serve {port} 16";
        let redis_load = |count: u32| {
            let tests = "-t set,get,incr,lpush,lpop,sadd,hset,zadd,lrange_100,mset";
            let command = word(redis_load);
            format!("{command} -p {{port}} -c 32 -P 8 -n {count} -r 50000 -d 120 {tests} --csv | {REDIS_RATE}")
        };
        let load = |seconds: u32| format!("{} --load {{port}} 16 {seconds}", word(load));
        Ok(vec![
            Program {
                name: "sqlite",
                parts: vec![self.sqlite(), own("sqlite.c", &[&self.sqlite])],
                run: in_threads(&|count| [format!("{count} 24000"), format!("{count} 1000")]),
            },
            Program {
                name: "script",
                parts: vec![self.lua()?, own("script.c", &[&self.lua])],
                run: Run::Work(vec![(None, [format!("{script} 24"), format!("{script} 1")].map(words))]),
            },
            Program {
                name: "compress",
                parts: vec![self.zstd()?, own("compress.c", &[&self.zstd])],
                run: in_threads(&|count| [format!("{count} 1 {text}"), format!("{count} 1 {text}")]),
            },
            Program {
                name: "redis",
                parts: self.redis("REDIS_SERVER_OBJ")?,
                run: Run::Server(
                    words("--port {port} --bind 127.0.0.1 --save  --appendonly no --daemonize no".to_owned()),
                    [redis_load(20_000), redis_load(2_000)],
                ),
            },
            Program {
                name: "http",
                parts: vec![Part::suite("http")],
                run: Run::Server(words(connections.to_owned()), [load(2), load(1)]),
            },
        ])
    }

    fn sqlite(&self) -> Part {
        // SQLite's own statistics take a lock for each allocation; most programs that embed it turn them off.
        let flags = ["-DSQLITE_DEFAULT_MEMSTATUS=0", "-DSQLITE_OMIT_LOAD_EXTENSION"].map(str::to_owned).to_vec();
        Part { name: "sqlite", sources: vec![self.sqlite.join("sqlite3.c")], flags, is_archive: false }
    }

    fn lua(&self) -> Result<Part> {
        Ok(Part { name: "lua", sources: sources(&self.lua, &[])?, flags: Vec::new(), is_archive: false })
    }

    fn zstd(&self) -> Result<Part> {
        let mut files = Vec::new();
        for folder in ["common", "compress", "decompress"] {
            files.extend(sources(&self.zstd.join(folder), &[])?);
        }
        // With musl's headers only, the compiler's own are missing.
        let flags = ["-DZSTD_DISABLE_ASM", "-DZSTD_NO_INTRINSICS"].map(str::to_owned).to_vec();
        Ok(Part { name: "zstd", sources: files, flags, is_archive: false })
    }

    /// The parts of one of Redis's programs. `objects` is the variable of its Makefile that names the objects.
    ///
    /// # Errors
    /// Its sources cannot be read.
    pub(super) fn redis(&self, objects: &str) -> Result<Vec<Part>> {
        let src = self.redis.join("src");
        let makefile = fs::read_to_string(src.join("Makefile")).context("Redis has no Makefile")?;
        let list = makefile.lines().find_map(|line| line.strip_prefix(objects)?.strip_prefix('='));
        let list = list.with_context(|| format!("Redis's Makefile has no `{objects}`"))?;
        let own: Vec<PathBuf> = list.split_whitespace().map(|object| src.join(object).with_extension("c")).collect();
        let deps = self.redis.join("deps");
        let mut flags = vec!["-std=gnu99".to_owned(), "-w".to_owned(), "-DREDIS_STATIC=".to_owned()];
        // Headers of the kernel, after those of the libc.
        let machine = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        for folder in ["/usr/include", &machine] {
            flags.extend(["-idirafter".to_owned(), folder.to_owned()]);
        }
        let include = |name: &str| format!("-I{}", deps.join(name).display());
        flags.extend(["hiredis", "lua/src", "hdr_histogram"].map(include));
        flags.push(format!("-I{}", src.display()));
        let mut of_histogram = flags.clone();
        of_histogram.push("-DHDR_MALLOC_INCLUDE=\"hdr_redis_malloc.h\"".to_owned());
        let mut of_lua = flags.clone();
        of_lua.extend(["-DLUA_ANSI", "-DENABLE_CJSON_GLOBAL", "-DLUA_USE_MKSTEMP"].map(str::to_owned));
        let part = |name, sources, flags, is_archive| Part { name, sources, flags, is_archive };
        let named =
            |folder: &str, names: &[&str]| names.iter().map(|name| deps.join(folder).join(name)).collect::<Vec<_>>();
        let hiredis = ["alloc.c", "net.c", "hiredis.c", "sds.c", "async.c", "read.c", "sockcompat.c"];
        let lua = sources(&deps.join("lua/src"), &["lua.c", "luac.c", "print.c"])?;
        Ok(vec![
            part("redis", own, flags.clone(), false),
            part("hiredis", named("hiredis", &hiredis), flags, true),
            part("redis-lua", lua, of_lua, true),
            part("hdr", named("hdr_histogram", &["hdr_histogram.c"]), of_histogram, true),
        ])
    }
}

/// One of our own drivers. `headers`: the folders of the headers that it includes.
fn own(name: &'static str, headers: &[&Path]) -> Part {
    let flags = headers.iter().map(|folder| format!("-I{}", folder.display())).collect();
    Part { name: "own", sources: vec![folder().join(name)], flags, is_archive: false }
}

fn folder() -> PathBuf {
    workspace::root().join("suite").join("real")
}

/// Returns the C files of a folder, sorted, except those named in `without`.
fn sources(folder: &Path, without: &[&str]) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "c"));
    files.retain(|path| !without.iter().any(|name| path.ends_with(name)));
    files.sort();
    Ok(files)
}
