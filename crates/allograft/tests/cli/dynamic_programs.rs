//! Real dynamic programs of a Debian: each is grafted in place there, does its work, and gets its stock file back.

/// Tests that need a Debian, by that part of their names.
mod system {
    use std::fs;

    use fixtures::dynamic::{self, Work};

    use crate::lab::Lab;

    /// Does the work by stock and by the graft, in the Debian. `$1` is the program's path.
    const TRY: &str = r#"
export P=$1 ALLOGRAFT_VERBOSE=1
say() { echo "$*"; exit 1; }
sh prepare.sh || say "no preparation"
sh script.sh >stock.out 2>stock.err || say "stock ended with $?: $(tail -5 stock.err)"
test -s stock.out || say "stock has no result"
cp "$P" stock || say "no copy"
./allograft graft "$P" >graft.said 2>&1 || say "graft ended with $?: $(cat graft.said)"
sh script.sh >graft.out 2>graft.err || say "the graft ended with $?: $(tail -5 graft.err)"
cmp stock.out graft.out || say "another result"
grep -q '^allograft: snmalloc ' graft.err || ALLOGRAFT_VERBOSE=1 "$P" --version 2>&1 | grep -q '^allograft: snmalloc ' ||
	say "nothing says that snmalloc serves it: $(cat graft.err)"
./allograft inspect --expect snmalloc "$P" >inspect.said 2>&1 || say "inspect ended with $?: $(cat inspect.said)"
./allograft verify "$P" >verify.said 2>&1 || say "verify ended with $?: $(cat verify.said)"
./allograft undo "$P" >undo.said 2>&1 || say "undo ended with $?: $(cat undo.said)"
cmp stock "$P" || say "undo gave other bytes"
echo whole
"#;

    fn serves(name: &str) {
        if fixtures::system::is_left_out() {
            return;
        }
        let work = dynamic::ALL.iter().find(|work| work.name == name).unwrap();
        assert_eq!(tried(work, TRY), "whole\n", "{name}");
    }

    /// Runs a script in the Debian, in a folder with the program's input. Returns what it prints.
    fn tried(work: &Work, script: &str) -> String {
        let lab = Lab::new();
        for folder in ["work", "scratch"] {
            fs::create_dir(lab.path(folder)).unwrap();
        }
        dynamic::fill(&lab.path("work")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_allograft"), lab.path("work/allograft")).unwrap();
        lab.put("work/prepare.sh", work.prepare.as_bytes());
        lab.put("work/script.sh", work.script.as_bytes());
        let script = format!("set -- {}\n{script}", work.program);
        let mut command = fixtures::system::unprivileged(&lab.path("work"), &lab.path("scratch"), &script);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        said.into_owned()
    }

    macro_rules! tests {
        ($($test:ident $name:literal,)*) => {
            $(
                #[test]
                #[ignore = "system: takes a Debian of 2.2 GB"]
                fn $test() {
                    serves($name);
                }
            )*
        };
    }

    tests! {
        python_with_numpy "python",
        node "node",
        ruby "ruby",
        java "java",
        php "php",
        mariadb "mariadb",
        postgres "postgres",
        sqlite "sqlite",
        git "git",
        magick "magick",
        nginx "nginx",
    }

    /// PHP with Debian's default extensions, which it loads with RTLD_DEEPBIND; one of them calls libc by its handle.
    #[test]
    #[ignore = "system: takes a Debian of 2.2 GB"]
    fn php_with_its_extensions() {
        if fixtures::system::is_left_out() {
            return;
        }
        let php = Work {
            name: "php-extensions",
            about: "",
            program: "/usr/bin/php8.4",
            prepare: dynamic::PHP_INSTALLED,
            script: "exec \"$P\" -d ffi.enable=1 extensions.php",
            idle: None,
        };
        assert_eq!(tried(&php, TRY), "whole\n");
        // Another donor; and the donor in a file of its own, merged into nothing.
        for more in ["--donor mimalloc", "--needed=/usr/lib/liballograft.so"] {
            let emit = "./allograft emit --target x86_64-linux-gnu --as shared -o /usr/lib/liballograft.so >emitted";
            let run = "export P=$1; sh prepare.sh; sh script.sh >stock.out";
            let graft = format!("./allograft graft \"$1\" {more} >graft.said 2>&1 || cat graft.said");
            let script =
                format!("{run}\n{emit}\n{graft}\nsh script.sh >graft.out; cmp stock.out graft.out && echo same\n");
            assert_eq!(tried(&php, &script), "same\n", "{more}");
        }
    }

    /// Runs a program's own tests by stock and by the graft. `tests` ends with 0 if all pass, and prints how many ran
    /// in a line that begins with `$TOTAL`.
    const SUITE: &str = r#"
tests "$1" >stock.txt 2>&1; echo "stock: $?"
./allograft graft "$1" >graft.txt 2>&1 || cat graft.txt
./allograft inspect --expect snmalloc "$1" >graft.txt 2>&1 || cat graft.txt
tests "$1" >graft.txt 2>&1; echo "graft: $?"
for name in stock graft; do echo "$name: $(grep "^$TOTAL" $name.txt)"; done
"#;

    /// The tests of CPython itself.
    const OF_PYTHON: &str = r#"
TOTAL="Total tests:"
tests() { "$1" -m test -q test_threading test_fork1 test_ctypes test_json test_zlib; }
"#;

    /// The tests of MariaDB itself, against a server that they start. They need the name of this machine.
    const OF_MARIADB: &str = r#"
TOTAL="Completed:"
ip link set lo up
echo "127.0.0.1 localhost" >/etc/hosts
tests() (
	cd /usr/share/mariadb/mariadb-test
	perl mariadb-test-run.pl --vardir=/tmp/var --parallel=2 --force --max-test-fail=0 --nowarnings --suite=main \
		--do-test='^(func_|type_|union|ps|derived|join|cte|win|insert|update|delete|group)'
)
"#;

    /// All of a program's own tests pass with the graft, as many as with stock.
    fn passes_its_own_tests(name: &str, tests: &str, total: &str) {
        if fixtures::system::is_left_out() {
            return;
        }
        let work = dynamic::ALL.iter().find(|work| work.name == name).unwrap();
        let said = tried(work, &format!("{tests}{SUITE}"));
        let of = |arm: &str| -> Vec<String> {
            said.lines().filter_map(|line| line.strip_prefix(arm)).map(str::to_owned).collect()
        };
        let (stock, graft) = (of("stock: "), of("graft: "));
        assert!(stock.len() == 2 && stock[0] == "0" && stock[1].contains(total), "{said}");
        assert_eq!(graft, stock, "{said}");
    }

    #[test]
    #[ignore = "system: takes a Debian of 2.2 GB, and a minute"]
    fn pythons_own_tests_pass() {
        passes_its_own_tests("python", OF_PYTHON, "run=");
    }

    #[test]
    #[ignore = "system: takes a Debian of 2.2 GB, and two minutes"]
    fn mariadbs_own_tests_pass() {
        passes_its_own_tests("mariadb", OF_MARIADB, " tests were successful");
    }

    #[test]
    #[ignore = "system: takes a Debian of 2.2 GB"]
    fn a_program_with_jemalloc_is_refused() {
        if fixtures::system::is_left_out() {
            return;
        }
        let redis =
            Work { name: "redis", about: "", program: "/usr/bin/redis-server", prepare: "", script: "", idle: None };
        let said = tried(&redis, "./allograft graft \"$1\"; echo \"code $?\"\n");
        assert!(said.contains("jemalloc") && said.contains("help:") && said.contains("code 3"), "{said}");
    }
}
