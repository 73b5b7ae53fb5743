//! Measures a server under load: starts it, waits until it listens, runs the load, reads its memory when it is idle
//! again, and ends it.

use std::ffi::OsString;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::{Processes, generators, spawn, timed, traced};
use crate::case::{Invocation, Load, RATE};
use crate::executor::{End, Memory, RunError, Service, Status, TimedRun};

/// The time in which a server must listen.
const READY: Duration = Duration::from_secs(120);
/// The time between the end of the load and the reading of memory.
const CALM: Duration = Duration::from_secs(1);
/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a server once: the figures are the server's, the time is the load's. With `rests`, it rests after the load
/// before its memory is read, which a run for time alone does not need.
pub(super) fn run(
    invocation: &Invocation,
    load: &Load,
    rests: bool,
    limit: Duration,
    processes: &Processes,
) -> Result<(TimedRun, Memory), RunError> {
    let port = free_port()?;
    let outputs = spawn::Outputs::new()?;
    let arguments = invocation.arguments.iter().map(|argument| filled(argument, port)).collect();
    let server = Invocation { arguments, ..invocation.clone() };
    let child = spawn::start(&mut spawn::command(&server, &outputs, processes)?)?;
    let asked = ready(child.id(), port, processes).and_then(|()| ask(load, port, limit, processes));
    let calm = asked.is_ok().then(|| {
        if rests {
            std::thread::sleep(CALM);
        }
        traced::resident(child.id().cast_signed())
    });
    stop(child.id());
    let (status, mut figures) = timed::reap(child.id())?;
    let mut end = outputs.end(status, processes);
    let (wall, said) = match asked {
        Err(RunError::Server(message)) if !end.complaint.is_empty() => {
            return Err(RunError::Server(format!("{message}; the server said `{}`", end.complaint)));
        }
        asked => asked?,
    };
    let memory = calm.unwrap_or(Err(RunError::Interrupted))?;
    figures.wall_s = wall.as_secs_f64();
    figures.service = Some(said);
    // The output of a server depends on its requests, and we end it: neither its output nor its status can be compared.
    end = End { status: Status::Exit(0), digest: [0; 32], bytes: 0, head: String::new(), ..end };
    Ok((TimedRun { figures, end }, memory))
}

/// Returns a port that is free now. If another program takes it before the server does, the server reports that.
fn free_port() -> Result<u16, RunError> {
    let port = reserved().map(|(_, port)| port);
    port.map_err(|error| RunError::Server(format!("no port of this machine is available: {error}")))
}

/// Returns a socket bound to a free port. It never listens: a process that a different thread starts at this moment
/// holds a copy of it until its exec, and would be taken for the server. A server that sets SO_REUSEADDR can still bind
/// the port.
fn reserved() -> rustix::io::Result<(OwnedFd, u16)> {
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let address = SocketAddrV4::try_from(net::getsockname(&socket)?)?;
    Ok((socket, address.port()))
}

fn filled(argument: &OsString, port: u16) -> OsString {
    argument.to_str().map_or_else(|| argument.clone(), |text| text.replace("{port}", &port.to_string()).into())
}

/// Whether a process listens on the port. The local end of a connection may get the same port, and connect to itself.
fn listens(port: u16) -> bool {
    let connection = TcpStream::connect(("127.0.0.1", port));
    connection.is_ok_and(|connection| connection.local_addr().is_ok_and(|own| own.port() != port))
}

/// Waits until a process listens on the port.
fn ready(server: u32, port: u16, processes: &Processes) -> Result<(), RunError> {
    let began = Instant::now();
    while !listens(port) {
        if processes.interrupted() {
            return Err(RunError::Interrupted);
        }
        if began.elapsed() > READY {
            return Err(RunError::Server(format!("the server does not listen on port {port}")));
        }
        if timed::wait(server, Duration::from_millis(10), processes).is_ok() {
            return Err(RunError::Server(format!("the server ended before it listened on port {port}")));
        }
    }
    Ok(())
}

fn ask(load: &Load, port: u16, limit: Duration, processes: &Processes) -> Result<(Duration, Service), RunError> {
    let shell = Invocation { program: "sh".into(), ..Invocation::default() };
    let command = load.rate.map_or(load.command.clone(), |rate| load.command.replace(RATE, &rate.to_string()));
    let invocation = Invocation { arguments: vec!["-c".into(), filled(&OsString::from(command), port)], ..shell };
    let began = Instant::now();
    let said = output(&invocation, limit, processes)?;
    let wall = began.elapsed();
    let service = generators::service(&said).ok_or_else(|| {
        RunError::Server(format!(
            "the load command printed neither `requests_per_second` in a JSON document nor wrk's `Requests/sec:`, but `{}`",
            said.trim().lines().last().unwrap_or_default()
        ))
    })?;
    Ok((wall, load.rate.map_or(service, |rate| service.at_rate(rate))))
}

/// Runs the load command and returns its standard output.
fn output(invocation: &Invocation, limit: Duration, processes: &Processes) -> Result<String, RunError> {
    let mut command = Command::new(&invocation.program);
    command.args(&invocation.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = spawn::start(&mut command)?;
    let said = child.stdout.take().map(read_apart);
    let complained = child.stderr.take().map(read_apart);
    let waited = timed::wait(child.id(), limit, processes);
    // Background processes of the load would keep the pipes open. End them before waiting for the child: until then no
    // other process group can have its number.
    spawn::end_group(child.id());
    let status = child.wait().map_err(|_| RunError::Server("how the load command ended was lost".to_owned()))?;
    let text = |reader: Option<std::thread::JoinHandle<Vec<u8>>>| {
        let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (said, complaint) = (text(said), text(complained));
    waited?;
    if !status.success() {
        return Err(RunError::Server(format!("the load command failed ({status}): {}", complaint.trim())));
    }
    Ok(said)
}

/// Reads to the end in a thread of its own.
fn read_apart(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Unreadable output counts as missing.
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

fn stop(server: u32) {
    let group = nix::unistd::Pid::from_raw(server.cast_signed());
    let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGTERM);
    if timed::wait(server, GRACE, &Processes::default()).is_err() {
        spawn::end_group(server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_not_taken_for_a_server() {
        let (socket, port) = reserved().unwrap();
        assert!(port != 0 && !listens(port), "somebody listens on port {port}, or the socket does");
        drop(socket);
    }
}
