//! The part of Ray's command that the tests run where the pods of KubeRay run `ray`: nodes join a
//! head, and learn how many they are.
//!
//! ```text
//! ray start --head --port=P ...        waits for all nodes of its gang
//! ray start --address=HOST:PORT ...    joins it; prints `rank R of N: sum S`
//! ray health-check --address HOST:PORT checks that a server listens there
//! ```
//!
//! Ranks come from Muster, and S is the sum of all ranks from 0 to N-1. It fails if a rank is
//! missing, appears twice, or was given a different size. As in Ray, the last value of a repeated
//! option counts.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// The timeout for the other nodes.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("start") if args.iter().any(|arg| arg == "--head") => {
            node(|_, size| lead(&option(&args, "--port")?, size))
        }
        Some("start") => node(|rank, size| follow(&option(&args, "--address")?, rank, size)),
        Some("health-check") => {
            TcpStream::connect(option(&args, "--address")?)?;
            Ok(())
        }
        other => bail!("{other:?} is not known"),
    }
}

/// Returns the last value of an option, in the form `--name=value` or `--name value`.
fn option(args: &[String], name: &str) -> Result<String> {
    let mut values = args.iter().enumerate().filter_map(|(index, arg)| {
        let joined = arg
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('='));
        let next = (arg == name).then(|| args.get(index + 1)).flatten();
        joined.map(str::to_owned).or_else(|| next.cloned())
    });
    values.next_back().with_context(|| format!("no {name}"))
}

/// Runs a node until it knows of all.
fn node(meet: impl FnOnce(u64, u64) -> Result<u64>) -> Result<()> {
    let number = |name: &str| -> Result<u64> {
        let text = std::env::var(name).with_context(|| format!("{name} is not set"))?;
        text.parse().with_context(|| format!("{name} is {text:?}"))
    };
    let rank = number("MUSTER_RANK_OFFSET")? + number("MUSTER_REPLICA_INDEX")?;
    let size = number("MUSTER_GANG_SIZE")?;
    ensure!(rank < size, "rank {rank} of {size}");
    let sum = meet(rank, size)?;
    println!("rank {rank} of {size}: sum {sum}");
    Ok(())
}

/// Receives the rank of every other node, and sends them the sum. A connection without data is a
/// health check.
fn lead(port: &str, size: u64) -> Result<u64> {
    let listener = TcpListener::bind(("127.0.0.1", port.parse()?))?;
    let mut ranks = BTreeSet::from([0]);
    let mut peers = Vec::new();
    while (ranks.len() as u64) < size {
        let (peer, _) = listener.accept()?;
        peer.set_read_timeout(Some(LIMIT))?;
        let mut line = String::new();
        BufReader::new(&peer).read_line(&mut line)?;
        if line.is_empty() {
            continue;
        }
        let (rank, told) = line.trim().split_once(' ').context("no rank")?;
        let (rank, told): (u64, u64) = (rank.parse()?, told.parse()?);
        ensure!(told == size, "rank {rank} was told of {told}, not {size}");
        ensure!(ranks.insert(rank), "rank {rank} is there twice");
        peers.push(peer);
    }
    let sum = ranks.iter().sum();
    for mut peer in peers {
        writeln!(peer, "{sum}")?;
    }
    Ok(sum)
}

/// Sends its rank to the head, and receives the sum.
fn follow(address: &str, rank: u64, size: u64) -> Result<u64> {
    let mut head = TcpStream::connect(address).with_context(|| address.to_owned())?;
    head.set_read_timeout(Some(LIMIT))?;
    writeln!(head, "{rank} {size}")?;
    let mut line = String::new();
    BufReader::new(head).read_line(&mut line)?;
    Ok(line.trim().parse()?)
}
