//! Counts a program's instructions one by one. Unlike a time, this figure does not depend on other load on the machine.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Runs `command`, a single-threaded program, to its end by single steps (ptrace(2), `PTRACE_SINGLESTEP`), and discards
/// its output. A million steps take some seconds.
///
/// Returns the instructions executed in user space since its start. A system call counts as one.
///
/// # Errors
/// The program cannot be started or traced, receives a signal, or does not end with exit code 0.
#[expect(unsafe_code, reason = "what runs between fork and exec is for the caller to vouch for")]
pub(crate) fn count(command: &mut Command) -> Result<u64> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: the hook makes one system call, which is safe between fork and exec.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(std::io::Error::from)) };
    let child = command.spawn().with_context(|| format!("cannot trace {:?}", command.get_program()))?;
    let pid = Pid::from_raw(i32::try_from(child.id()).context("a process id beyond pid_t")?);
    let mut steps = 0;
    loop {
        match waitpid(pid, None)? {
            WaitStatus::Stopped(_, nix::sys::signal::Signal::SIGTRAP) => ptrace::step(pid, None)?,
            WaitStatus::Exited(_, 0) => return Ok(steps),
            other => bail!("{:?} ended with {other:?}", command.get_program()),
        }
        steps += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program's startup has the same instructions each time; a longer loop has more.
    #[test]
    #[ignore = "minutes: steps through two shells, which takes half a minute"]
    fn more_work_has_more_steps() {
        let shell = |script: &str| count(Command::new("sh").env_clear().args(["-c", script])).unwrap();
        assert!(shell("i=0; while [ $i -lt 40 ]; do i=$((i+1)); done") > shell(":") + 4000);
    }

    /// A statically linked program that only exits.
    #[test]
    fn every_instruction_counts() {
        let folder = tools::workspace::build().join("steps");
        std::fs::create_dir_all(&folder).unwrap();
        let count_of = |name: &str, code: &str| {
            let (source, program) = (folder.join(name).with_extension("c"), folder.join(name));
            std::fs::write(&source, format!("void _start(void) {{ {code} }}\n")).unwrap();
            let flags = ["-O1", "-static", "-nostdlib", "-fno-stack-protector", "-fcf-protection=none", "-o"];
            tools::command::output(fixtures::cc().args(flags).arg(&program).arg(&source)).unwrap();
            count(&mut Command::new(program))
        };
        let end = |code: u32| format!("__asm__(\"mov ${code}, %edi; mov $231, %eax; syscall\");");
        let few = count_of("few", &end(0)).unwrap();
        let nops = format!("__asm__(\".rept 100; nop; .endr\"); {}", end(0));
        assert_eq!(count_of("more", &nops).unwrap(), few + 100);
        assert!(count_of("failing", &end(3)).is_err());
        assert!(count(&mut Command::new("/no such program")).is_err());
    }
}
