//! A rank without MPI: it joins its job through the launcher, puts an address, and gets its neighbour's.
//!
//! `mpiexec -n 4 hello_pmi` (Hydra, gforker, `srun --mpi=pmi2`, or `nicety mpirun`); `--pmi2` for PMI-2, `--spawn` to let rank 0
//! start two more processes. Without a launcher it is a job of one rank.

#![forbid(unsafe_code)]

use pmi::client::{Client, Event, Join, Request};
use pmi::spawn::{Program, Spawn};
use pmi::value;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::env;
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The stream to the process manager.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// An environment variable that contains a number.
fn number(name: &str) -> Result<u32> {
    let text =
        env::var(name).map_err(|_| format!("{name} is not set, although another of PMI's variables is"))?;
    text.parse().map_err(|_| format!("{name} is no number: {text:?}").into())
}

/// How this process was launched; `None` without a launcher.
fn launched(pmi2: bool) -> Result<Option<(Join, Box<dyn Stream>)>> {
    if env::var_os("PMI_FD").is_some() {
        let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
        // Duplicating the descriptor through the kernel turns its number into an owned descriptor without unsafe code.
        let this = pidfd_open(getpid(), PidfdFlags::empty())?;
        let fd = pidfd_getfd(this, number("PMI_FD")?.try_into()?, PidfdGetfdFlags::empty())?;
        let join = if pmi2 { Join::Pmi2 { rank, size } } else { Join::Descriptor { rank, size } };
        return Ok(Some((join, Box::new(UnixStream::from(fd)))));
    }
    let Ok(address) = env::var("PMI_PORT") else { return Ok(None) };
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(Some((Join::Port { id: number("PMI_ID")? }, Box::new(stream))))
}

/// Transfers bytes until there is an event.
fn next(client: &mut Client, stream: &mut dyn Stream) -> Result<Event> {
    let mut bytes = [0; 4096];
    loop {
        while !client.transmit().is_empty() {
            let n = stream.write(client.transmit())?;
            client.sent(n);
        }
        if let Some(event) = client.poll_event() {
            return Ok(event);
        }
        match stream.read(&mut bytes)? {
            0 => client.handle_eof()?,
            n => client.handle_bytes(&bytes[..n])?,
        }
    }
}

fn ask(client: &mut Client, stream: &mut dyn Stream, request: &Request<'_>) -> Result<Event> {
    client.request(request)?;
    match next(client, stream)? {
        Event::Refused(why) => Err(format!("{request:?} is refused: {why}").into()),
        event => Ok(event),
    }
}

/// A request for two more processes of this program, which look up their parent.
fn children(pmi2: bool) -> Result<Spawn> {
    let file = env::current_exe()?.to_str().ok_or("this program's path is no text")?.to_owned();
    let arguments = vec!["a child".to_owned(), if pmi2 { "--pmi2" } else { "--pmi1" }.to_owned()];
    let program = Program { file, processes: 2, arguments, info: Vec::new() };
    Ok(Spawn { programs: vec![program], preput: vec![("parent".to_owned(), "rank-0".to_owned())] })
}

fn main() -> Result<()> {
    let has = |option: &str| env::args().any(|argument| argument == option);
    let Some((join, mut stream)) = launched(has("--pmi2"))? else {
        println!("rank 0 of 1, launched by nobody");
        return Ok(());
    };
    let stream = stream.as_mut();
    let mut client = Client::new(join)?;
    next(&mut client, stream)?;
    let job = client.job().ok_or("the first event is that the rank has joined")?.clone();

    let address = |rank: u32| [b"a b\n".as_slice(), &rank.to_be_bytes()].concat();
    let (key, neighbour) = (format!("card-{}", job.rank), (job.rank + 1) % job.size);
    ask(&mut client, stream, &Request::Put { key: &key, value: &value::encode(&address(job.rank)) })?;
    ask(&mut client, stream, &Request::Fence)?;
    let found = ask(&mut client, stream, &Request::Get { key: &format!("card-{neighbour}") })?;
    let Event::Value(Some(text)) = found else {
        return Err(format!("no address of rank {neighbour}").into());
    };
    if value::decode(&text)? != address(neighbour) {
        return Err(format!("the address of rank {neighbour} is another: {text}").into());
    }
    let parent = ask(&mut client, stream, &Request::Get { key: "parent" })?;
    if has("--spawn") && job.rank == 0 {
        ask(&mut client, stream, &Request::Spawn(&children(has("--pmi2"))?))?;
    }
    let (rank, size, (version, subversion)) = (job.rank, job.size, job.version);
    let nodes = job.nodes.map_or("unknown".to_owned(), |nodes| format!("{nodes:?}"));
    let whose = if let Event::Value(Some(parent)) = parent {
        format!(", started by {parent}")
    } else {
        String::new()
    };
    println!(
        "rank {rank} of {size}, PMI {version}.{subversion}, nodes {nodes}, found rank {neighbour}{whose}"
    );
    ask(&mut client, stream, &Request::Finalize)?;
    Ok(())
}
