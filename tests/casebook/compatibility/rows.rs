//! The rows of the matrix, and the differences that are named. `docs/compatibility.md` has the table of both.

use std::fmt::Write as _;

use super::HostForm;

/// An environment or a habit of a program.
pub(super) struct Row {
    /// The row's text in the page.
    pub(super) text: &'static str,
    /// The habit of `habits.c`.
    pub(super) habit: &'static str,
    /// The script for `sh` that starts the program: `"$@"` is the program with its habit. Empty: it is started
    /// directly.
    pub(super) script: &'static str,
    /// The forms that it is tried in.
    pub(super) forms: &'static [HostForm],
    /// Whether it needs a tool that takes seconds, so that the default tier leaves it out.
    pub(super) slow: bool,
}

/// A reason for differences, which the page names.
pub(super) struct Reason {
    /// The reason.
    text: &'static str,
    /// The cells that differ: rows, forms and donors.
    cells: &'static [(&'static [&'static str], &'static [HostForm], &'static [&'static str])],
}

impl Reason {
    /// Returns the donors that differ in that cell.
    fn donors(&self, row: &str, form: HostForm) -> impl Iterator<Item = &'static str> {
        let here = self.cells.iter().filter(move |(rows, forms, _)| rows.contains(&row) && forms.contains(&form));
        here.flat_map(|(_, _, donors)| donors.iter().copied())
    }
}

/// Whether the page names a difference there.
pub(super) fn is_named(row: &Row, form: HostForm, donor: &str) -> bool {
    REASONS.iter().any(|reason| reason.donors(row.text, form).any(|named| named == donor))
}

/// Returns a row that a reason names and that does not exist.
pub(super) fn unknown_row() -> Option<&'static str> {
    let rows = REASONS.iter().flat_map(|reason| reason.cells).flat_map(|(rows, ..)| rows.iter().copied());
    let mut unknown = rows.filter(|named| !ROWS.iter().any(|row| row.text == *named));
    unknown.next()
}

const ALL: &[HostForm] = &HostForm::ALL;
const STATIC: &[HostForm] = &[HostForm::Archive, HostForm::Executable];
const DYNAMIC: &[HostForm] = &[HostForm::Loader, HostForm::Merged];
const GLIBC: &[HostForm] = &[HostForm::Merged];

const fn habit(text: &'static str, habit: &'static str) -> Row {
    Row { text, habit, script: "", forms: ALL, slow: false }
}

const fn started(text: &'static str, script: &'static str) -> Row {
    Row { text, habit: "plain", script, forms: ALL, slow: false }
}

const fn only(forms: &'static [HostForm], row: Row) -> Row {
    Row { forms, ..row }
}

const fn slow(row: Row) -> Row {
    Row { slow: true, ..row }
}

/// All rows, in the order of the page.
pub(super) static ROWS: &[Row] = &[
    habit("as usual", "plain"),
    habit("`mlockall(MCL_CURRENT)`", "lock-current"),
    habit("`mlockall(MCL_CURRENT \\| MCL_FUTURE)`", "lock-future"),
    habit("`mlockall` with `MCL_ONFAULT`", "lock-on-fault"),
    habit("`mlockall` of an ordinary user, `RLIMIT_MEMLOCK` 8 MiB", "lock-limited"),
    habit("`RLIMIT_AS` of 300 MiB, set in `main`", "limit-address-space"),
    habit("`RLIMIT_DATA` of 300 MiB, set in `main`", "limit-data"),
    started("`RLIMIT_AS` of 400 MB from the start", "ulimit -v 400000; exec \"$@\""),
    started("`RLIMIT_DATA` of 400 MB from the start", "ulimit -d 400000; exec \"$@\""),
    started("a main stack of 256 KB", "ulimit -s 256; exec \"$@\""),
    started("128 descriptors", "ulimit -n 128; exec \"$@\""),
    habit("no descriptor left", "few-descriptors"),
    habit("a core file of less than 128 MB", "dumped"),
    habit(ACCOUNTED, "accounted"),
    habit("threads with the smallest stacks", "smallest-stacks"),
    habit("threads on stacks of their own", "own-stacks"),
    habit("coroutines on stacks of 4 KiB", "coroutines"),
    habit("`malloc` on an alternate signal stack", "alternate-stack"),
    habit("`malloc` in a signal handler", "signal-handler"),
    habit("a seccomp filter made for stock's calls", "filtered"),
    habit("the same filter, and threads", "filtered-threads"),
    habit("`PR_SET_MDWE`", "write-or-execute"),
    habit("rights of memory: writable or executable, read-only after relocation", "rights"),
    habit("random places of code, blocks and data", "random-places"),
    habit("`PR_SET_NO_NEW_PRIVS`, `PR_SET_DUMPABLE` 0", "no-new-privileges"),
    habit("`setuid` in `main`", "changed-user"),
    started("a user namespace", "exec unshare -r \"$@\""),
    started("no `/proc`", "exec unshare -rm sh -c 'mount -t tmpfs none /proc && exec \"$@\"' sh \"$@\""),
    started("a read-only root", "exec unshare -rm sh -c 'mount -o remount,bind,ro / && exec \"$@\"' sh \"$@\""),
    only(STATIC, started("`chroot`", "cd \"${1%/*}\" && exec unshare -r chroot . \"/${1##*/}\" \"$2\"")),
    only(
        STATIC,
        started(
            "set-id, started by another user",
            "d=$(mktemp -d) && chmod 755 \"$d\" && cp \"$1\" \"$d/p\" && chmod 4755 \"$d/p\" && setpriv --reuid 65534 \
             --regid 65534 --clear-groups \"$d/p\" \"$2\"; s=$?; rm -r \"$d\"; exit $s",
        ),
    ),
    only(
        STATIC,
        Row {
            habit: "raised",
            ..started(
                "set-id, with the variables of every donor",
                "d=$(mktemp -d) && chmod 777 \"$d\" && cp \"$1\" \"$d/p\" && chmod 4755 \"$d/p\" && cd \"$d\" && \
                 ALLOGRAFT_STATS=json:written ALLOGRAFT_STATS_SIGNAL=USR1 ALLOGRAFT_VERBOSE=1 MIMALLOC_VERBOSE=3 \
                 MIMALLOC_SHOW_STATS=1 MALLOC_CONF=stats_print:true SCUDO_OPTIONS=help=1 setpriv --reuid 65534 --regid \
                 65534 --clear-groups ./p \"$2\" 2>&1; s=$?; ls; rm -r \"$d\"; exit $s",
            )
        },
    ),
    started(
        "variables and arguments that name a self-test",
        "ALLOGRAFT_SELF_TEST=1 SELF_TEST=1 ALLOGRAFT_TEST=1 exec \"$@\" --self-test self_test=1",
    ),
    started("no address space randomisation", "exec setarch -R \"$@\""),
    started("the old layout of address space", "exec setarch -L \"$@\""),
    started("everything readable is executable", "exec setarch -X \"$@\""),
    started("an empty environment", "exec env -i \"$@\""),
    started("neither stdin nor stderr", "exec \"$@\" <&- 2>&-"),
    started("a working directory that is gone", "d=$(mktemp -d) && cd \"$d\" && rmdir \"$d\" && exec \"$@\""),
    started("a single processor", "exec taskset -c 0 \"$@\""),
    habit("a fork server", "fork-server"),
    habit("`fork` while threads allocate", "fork-with-threads"),
    habit("`clone` by system call", "raw-clone"),
    habit("`vfork` and `exec`", "vfork"),
    habit("`posix_spawn`", "spawn"),
    habit("a thread that is cancelled", "cancelled"),
    habit("`exit` in a thread", "exit-from-thread"),
    habit("`pthread_exit` in `main`", "main-ends-first"),
    habit("256 threads", "many-threads"),
    habit("destructors of thread-specific data", "thread-destructors"),
    habit("handlers at exit", "exit-handlers"),
    habit("`malloc` in `DT_PREINIT_ARRAY`", "preinit"),
    habit("`malloc` in constructors", "constructors"),
    habit("`malloc` in destructors", "destructors"),
    habit("requests beyond all memory", "no-memory"),
    habit("`malloc(0)`, `realloc(block, 0)`", "empty-blocks"),
    habit("`realloc(block, 0)`, 300,000 times", "resized-to-nothing"),
    habit("alignments that are no powers of two", "odd-alignments"),
    habit("`errno` after `free`", "errors-stay"),
    only(DYNAMIC, habit("`dlopen`, `RTLD_LAZY`", "dlopen-lazy")),
    only(DYNAMIC, habit("`dlopen`, `RTLD_LOCAL`", "dlopen-now")),
    only(DYNAMIC, habit("`dlopen`, `RTLD_GLOBAL`", "dlopen-global")),
    only(DYNAMIC, habit("`dlopen`, `RTLD_NODELETE`", "dlopen-nodelete")),
    only(DYNAMIC, habit("`dlopen` in a thread", "dlopen-thread")),
    only(GLIBC, habit("`dlopen`, `RTLD_DEEPBIND`", "dlopen-deep")),
    only(GLIBC, habit("`dlmopen`", "dlmopen")),
    only(DYNAMIC, habit("a library with thread-local storage", "thread-storage")),
    only(DYNAMIC, started("a library by `LD_PRELOAD`", "LD_PRELOAD=$HABITS_LIBRARY exec \"$@\"")),
    only(GLIBC, started("`LD_AUDIT`", "LD_AUDIT=$HABITS_AUDIT exec \"$@\"")),
    only(GLIBC, started("`LD_BIND_NOW`", "LD_BIND_NOW=1 exec \"$@\"")),
    slow(started("strace", "exec strace -f -o /dev/null \"$@\"")),
    slow(started("gdb", "gdb -q -batch -ex run -args \"$@\" 2>/dev/null | grep -ao '[a-z ]*: yes$'")),
    slow(started("perf record", "exec perf record -q -o /dev/null \"$@\" 2>/dev/null")),
    slow(started("valgrind", "exec valgrind -q \"$@\" 2>/dev/null")),
];

const LOCKING: &[&str] =
    &["`mlockall(MCL_CURRENT)`", "`mlockall(MCL_CURRENT \\| MCL_FUTURE)`", "`mlockall` with `MCL_ONFAULT`"];
const LOCKED_LITTLE: &str = "`mlockall` of an ordinary user, `RLIMIT_MEMLOCK` 8 MiB";
const LIMITED: &str = "`RLIMIT_AS` of 300 MiB, set in `main`";
const DUMPED: &str = "a core file of less than 128 MB";
const ACCOUNTED: &str = "overcommit 2: less than 64 MiB count";
const FILTERED_THREADS: &str = "the same filter, and threads";

/// All reasons, checked by the tests: whatever differs is here, and whatever is here differs.
static REASONS: &[Reason] = &[
    Reason {
        text: "They reserve much address space at their start, to place blocks at random or far apart: their pages say \
               how much.",
        cells: &[
            (LOCKING, &[HostForm::Archive], &["hardened", "hardened-light", "snmalloc-checks"]),
            (LOCKING, &[HostForm::Executable, HostForm::Merged], &["snmalloc-checks"]),
            (&[LIMITED, DUMPED], &[HostForm::Archive], &["hardened", "hardened-light", "snmalloc-checks"]),
            (&[LIMITED, DUMPED], &[HostForm::Executable, HostForm::Merged], &["snmalloc-checks"]),
            (&["`RLIMIT_AS` of 400 MB from the start"], &[HostForm::Archive], &["hardened", "hardened-light"]),
            (&["valgrind"], &[HostForm::Archive], &["hardened", "hardened-light"]),
        ],
    },
    Reason {
        text: "They have more than 8 MiB mapped at their start, or soon after it, and the limit counts all of it.",
        cells: &[
            (
                &[LOCKED_LITTLE],
                &[HostForm::Archive],
                &[
                    "hardened",
                    "hardened-light",
                    "jemalloc",
                    "mimalloc",
                    "mimalloc-secure",
                    "mimalloc3",
                    "rpmalloc",
                    "scudo",
                    "snmalloc-checks",
                ],
            ),
            (&[LOCKED_LITTLE], &[HostForm::Executable], &["mimalloc-secure", "snmalloc-checks"]),
            (&[LOCKED_LITTLE], &[HostForm::Loader], &["rpmalloc"]),
            (
                &[LOCKED_LITTLE],
                &[HostForm::Merged],
                &["jemalloc", "mimalloc-secure", "mimalloc3", "rpmalloc", "scudo", "snmalloc-checks"],
            ),
        ],
    },
    Reason {
        text: "They map memory in pieces of 32 MiB, which is writable at once, and a first thread takes another.",
        cells: &[(&[ACCOUNTED], &[HostForm::Archive, HostForm::Executable, HostForm::Merged], &["mimalloc-secure"])],
    },
    Reason {
        text: "They are built against attacks, and ask for random numbers in each thread (`getrandom`).",
        cells: &[
            (&[FILTERED_THREADS], &[HostForm::Archive], &["mimalloc-secure", "snmalloc-checks"]),
            (&[FILTERED_THREADS], &[HostForm::Executable], &["mimalloc-secure", "snmalloc-checks"]),
        ],
    },
    Reason {
        text: "A thread's own data of this donor takes most of the smallest stack, which glibc takes it from.",
        cells: &[(&["threads with the smallest stacks"], &[HostForm::Merged], &["scudo"])],
    },
];

/// Returns the table of the page, with the reasons below it.
pub(super) fn table() -> String {
    let mut text = String::from("| environment or habit |");
    for form in HostForm::ALL {
        let _ = write!(text, " {} |", form.text());
    }
    text.push_str("\n| --- | --- | --- | --- | --- |\n");
    for row in ROWS {
        let _ = write!(text, "| {} |", row.text);
        for form in HostForm::ALL {
            let cell = if row.forms.contains(&form) { cell(row, form) } else { String::new() };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    for (number, reason) in REASONS.iter().enumerate() {
        let _ = write!(text, "\n{}. {}", number + 1, reason.text);
    }
    text.push('\n');
    text
}

fn cell(row: &Row, form: HostForm) -> String {
    let named = REASONS.iter().enumerate().map(|(number, reason)| (number, reason.donors(row.text, form)));
    let named: Vec<String> = named
        .map(|(number, donors)| (number, donors.collect::<Vec<_>>()))
        .filter(|(_, donors)| !donors.is_empty())
        .map(|(number, donors)| format!("not {} ({})", donors.join(", "), number + 1))
        .collect();
    if named.is_empty() { "same".to_owned() } else { named.join("; ") }
}
