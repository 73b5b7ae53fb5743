//! A server under load: started, waited for, asked, looked at when it has calmed down, and ended.

use std::ffi::OsString;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use serde_json::Value;

use super::{Processes, spawn, timed, traced};
use crate::case::{Invocation, Load};
use crate::executor::{End, Memory, RunError, Service, Status, Timed};

/// A server that does not listen after this time is not going to.
const READY: Duration = Duration::from_secs(120);
/// Memory is read so long after the load is over.
const CALM: Duration = Duration::from_secs(1);
/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// One run: the figures are those of the server, the time is that of the load.
pub(super) fn run(
    invocation: &Invocation,
    load: &Load,
    limit: Duration,
    processes: &Processes,
) -> Result<(Timed, Memory), RunError> {
    let port = free_port()?;
    let outputs = spawn::Outputs::new()?;
    let arguments = invocation.arguments.iter().map(|argument| filled(argument, port)).collect();
    let server = Invocation { arguments, ..invocation.clone() };
    let child = spawn::start(&mut spawn::command(&server, &outputs, processes)?)?;
    let asked = ready(child.id(), port, processes).and_then(|()| ask(load, port, limit, processes));
    let calm = asked.is_ok().then(|| {
        std::thread::sleep(CALM);
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
    // Servers print when they were asked by whom, and were ended by us: neither says whether they are the same.
    end = End { status: Status::Exit(0), digest: [0; 32], bytes: 0, head: String::new(), ..end };
    Ok((Timed { figures, end }, memory))
}

/// One that nobody listens on now; should another program take it before the server does, the server says so.
fn free_port() -> Result<u16, RunError> {
    let port = reserved().map(|(_, port)| port);
    port.map_err(|error| RunError::Server(format!("no port of this machine is to be had: {error}")))
}

/// A socket on a free port. It never listens: what another thread starts at this moment holds a copy of it until its
/// exec, and would be taken for the server. Nor does it keep the server from its port, if that does not mind.
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

/// Whether somebody listens there. A connection may get that very port at its own end, and reach itself.
fn listens(port: u16) -> bool {
    let connection = TcpStream::connect(("127.0.0.1", port));
    connection.is_ok_and(|connection| connection.local_addr().is_ok_and(|own| own.port() != port))
}

/// Waits until somebody listens.
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
    let invocation = Invocation { arguments: vec!["-c".into(), filled(&OsString::from(&load.command), port)], ..shell };
    let began = Instant::now();
    let said = output(&invocation, limit, processes)?;
    let wall = began.elapsed();
    service(&said).map(|service| (wall, service)).ok_or_else(|| {
        RunError::Server(format!(
            "the load command printed neither `requests_per_second` in a JSON document nor wrk's `Requests/sec:`, but `{}`",
            said.trim().lines().last().unwrap_or_default()
        ))
    })
}

/// What the load command prints on standard output.
fn output(invocation: &Invocation, limit: Duration, processes: &Processes) -> Result<String, RunError> {
    let mut command = Command::new(&invocation.program);
    command.args(&invocation.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = spawn::start(&mut command)?;
    let said = child.stdout.take().map(read_apart);
    let complained = child.stderr.take().map(read_apart);
    let waited = timed::wait(child.id(), limit, processes);
    // What it left behind in the background would hold the pipes. Before its end is taken note of: until then nobody
    // else can have its number.
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

/// Reads all of it, in a thread of its own.
fn read_apart(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read was not said.
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

/// Reads what a load generator says: a JSON document with `requests_per_second` and, in milliseconds, `p50_ms`,
/// `p90_ms` and `p99_ms`; or what wrk prints (percentiles with its `--latency`).
pub fn service(said: &str) -> Option<Service> {
    let json = said.find('{').and_then(|at| serde_json::from_str::<Value>(said[at..].trim()).ok());
    let service = match json {
        Some(document) => Service {
            requests_per_second: document["requests_per_second"].as_f64()?,
            p50_ms: document["p50_ms"].as_f64(),
            p90_ms: document["p90_ms"].as_f64(),
            p99_ms: document["p99_ms"].as_f64(),
        },
        None => {
            let after = |label: &str| said.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim);
            let time = |label: &str| after(label).and_then(milliseconds);
            Service {
                requests_per_second: after("Requests/sec:")?.parse().ok()?,
                p50_ms: time("50%"),
                p90_ms: time("90%"),
                p99_ms: time("99%"),
            }
        }
    };
    (service.requests_per_second.is_finite() && service.requests_per_second > 0.0).then_some(service)
}

/// wrk's units.
fn milliseconds(text: &str) -> Option<f64> {
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 60e3)];
    units.iter().find_map(|(unit, scale)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * scale))
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

    #[test]
    fn both_ways_to_say_it_are_understood() {
        let wrk = "Running 5s test @ http://127.0.0.1:8080\n  Latency Distribution\n     50%  629.00us\n     75%    1.01ms\n     \
                   90%    1.62ms\n     99%    1.20s\n  58001 requests in 5.00s\nRequests/sec:  11590.12\nTransfer/sec: 1MB\n";
        let said = service(wrk).unwrap();
        assert_eq!(said.requests_per_second, 11590.12);
        assert!((said.p50_ms.unwrap() - 0.629).abs() < 1e-9 && said.p99_ms == Some(1200.0));
        let json = service("{\"requests_per_second\": 1000.5, \"p50_ms\": 0.5}").unwrap();
        assert_eq!((json.requests_per_second, json.p50_ms, json.p99_ms), (1000.5, Some(0.5), None));
        assert_eq!(service("nothing"), None);
        assert_eq!(service("{\"requests_per_second\": 0}"), None);
    }
}
